"""Measures a published disk that is used while it is fetched over a slow line: 50 Mbit/s and a round trip of
40 ms, by a relay of this program, for loopback has no delay here. nginx serves the publication.

  streaming   the workload `days`. A start of night 1 until the console reports that it is up, with the profile
              of an earlier start and without one, and once more with the server stopped; with falsified
              packs, whose blocks come from a mirror; then night 2 is published to the same place and started, and
              night 1 again; all beside the same emulator on the raw file of night 1. And the reads of the recorded start, one after the other, beside the time that
              the line needs for the received bytes; with QEMU's http driver and nbdkit's curl plugin on the raw
              file, and desync's mount-index on chunks, where they are installed
"""

import contextlib
import json
import os
import queue
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.machines import PATIENCE, UP, need, raw_boot_seconds, running, wait_for
from bench.measure import CannotMeasure, Command, make_warm, remove, run
from bench.upkeep import Pair

NAMES = ["streaming"]
BITS_PER_SECOND = 50_000_000
ROUND_TRIP = 0.040
# The round trips that a start needs beside those of its blocks: connection, head, root, page, profile, pack.
FIRST_ROUND_TRIPS = 6
READ_BYTES_MAX = 64 << 10
PIECE_BYTES = 8 << 10
# Larger than any block that is an object by itself.
PACK_BYTES_MIN = 1 << 20
PIECES_MAX = 128

Row = tuple[str, str, float, float, int]


class Line:
    """A port that leads to a server over a slow line. All connections share its rate, and a new connection
    costs one round trip more, for its handshake."""

    def __init__(self, server_port: int):
        self.server_port, self.received_bytes, self.connections = server_port, 0, 0
        self.lock = threading.Lock()
        self.is_free = {"up": 0.0, "down": 0.0}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                client.close()
                continue
            self.connections += 1
            opened = time.monotonic() + ROUND_TRIP
            for one, other, direction in ((client, server, "up"), (server, client, "down")):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pieces: queue.Queue[tuple[float, bytes]] = queue.Queue(PIECES_MAX)
                threading.Thread(target=self.take, args=(one, pieces, direction, opened), daemon=True).start()
                threading.Thread(target=deliver, args=(other, pieces), daemon=True).start()

    def take(self, stream: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]", direction: str, opened: float) -> None:
        piece = b"more"
        while piece:
            try:
                piece = stream.recv(PIECE_BYTES)
            except OSError:
                piece = b""
            with self.lock:
                free = max(self.is_free[direction], opened, time.monotonic()) + len(piece) * 8 / BITS_PER_SECOND
                self.is_free[direction] = free
                self.received_bytes += len(piece) if direction == "down" else 0
            pieces.put((free + ROUND_TRIP / 2, piece))


def deliver(stream: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]") -> None:
    with contextlib.suppress(OSError):
        while True:
            due, piece = pieces.get()
            time.sleep(max(due - time.monotonic(), 0))
            if not piece:
                stream.shutdown(socket.SHUT_WR)
                return
            stream.sendall(piece)
    # Nobody reads any more, and the other thread must not wait for room.
    while pieces.get()[1]:
        pass


class Streaming:
    def __init__(self, program: str, work: Path, days: Path, quick: bool):
        self.program, self.work, self.days, self.quick = program, work, days, quick
        self.day = days / "day1.raw"
        self.www, self.home = work / "www", work / "home"
        self.reads: list[tuple[int, int]] = []

    def varve(self, *words: object) -> Command:
        argv = [self.program, "-s", str(self.work / "store"), "--key-file", str(self.work / "key"), *map(str, words)]
        return Command(argv, environment={"HOME": str(self.home)})

    def prepare(self) -> None:
        need("qemu-system-x86_64", "qemu-img", "nginx")
        if self.quick:
            raise CannotMeasure("the days of --quick do not boot")
        if not self.day.is_file():
            raise CannotMeasure("script/workloads cannot make its data (days) here")
        remove(self.work)
        self.www.mkdir(parents=True)
        key = self.work / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        run(self.varve("init"))
        for night in (1, 2):
            run(self.varve("snapshot", self.days / f"day{night}.raw", "--name", "day", "--time", f"2026-05-0{night}T23:00:00Z"))
        profile = self.work / "start.profile"
        run(self.varve("boot", "day@2026-05-01", "--no-kvm", "--check", UP, "--timeout", int(PATIENCE), "--profile", profile))
        for name, choice in (("with", profile), ("without", "none")):
            self.key = self.publish("day@2026-05-01", name, "--profile", choice)["key"]
        shutil.copytree(self.www / "with", self.work / "first")
        for line in profile.read_text().splitlines()[2:]:
            _, offset, length = map(int, line.split())
            self.reads += [(at, min(READ_BYTES_MAX, offset + length - at)) for at in range(offset, offset + length, READ_BYTES_MAX)]
        (self.www / "day.raw").symlink_to(self.day)
        (self.www / "mirror").symlink_to(self.work / "first")
        self.conf = self.work / "nginx.conf"

    def publish(self, snapshot: str, name: str, *options: object) -> dict[str, Any]:
        """Publishes a snapshot below www, and returns the record of the edition."""
        told = self.work / "told"
        command = self.varve("--json", "publish", snapshot, self.www / name, "--key", self.work / "publisher.key", *options)
        run(Command(command.argv, stdout=told, environment=command.environment))
        return json.loads(told.read_text().splitlines()[-1])

    def take(self, name: str, round_number: int) -> list[Pair]:
        make_warm(self.day)
        # The editions of the round before are gone.
        remove(self.www / "with")
        shutil.copytree(self.work / "first", self.www / "with")
        make_warm(self.www)
        rows = [*self.starts(), *self.replays()]
        return [Pair(name, row, limit, round_number, *figures) for row, limit, *figures in rows]

    @contextlib.contextmanager
    def served(self) -> Iterator[Line]:
        """nginx behind the line."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        temporary = " ".join(f"{name}_temp_path {self.work}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.conf.write_text(
            f"{'user root;' if os.geteuid() == 0 else ''} daemon off; master_process off; pid {self.work}/pid; error_log stderr;\n"
            f"events {{ worker_connections 256; }}\nhttp {{ access_log off; {temporary}\n"
            f"server {{ listen 127.0.0.1:{port}; root {self.www}; }} }}\n"
        )
        with running(["nginx", "-p", str(self.work), "-e", "stderr", "-c", str(self.conf)]):
            for _ in range(500):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    yield Line(port)
                    return
                time.sleep(0.01)
        raise CannotMeasure("nginx does not start")

    def address(self, port: int, publication: str) -> str:
        return f"http://127.0.0.1:{port}/{publication}/#{self.key}"

    # ---- starts

    def starts(self) -> list[Row]:
        raw = raw_boot_seconds(self.day, self.work / "raw-boot")
        beside, rows = "the same from the raw file", []
        for publication, choice, told in (("without", "none", "without a profile"), ("with", "auto", "with a profile")):
            remove(self.home)
            with self.served() as line:
                seconds = self.start(line.port, publication, choice)
                rows.append((f"a start over the line, {told}", beside, seconds, raw, line.received_bytes))
                port = line.port
        rows.append(("the same again, with the server stopped", beside, self.start(port, "with", "auto"), raw, 0))
        log = self.work / "log"
        with self.falsified(), self.served() as line:
            log.unlink(missing_ok=True)
            more = ("--no-cache", "--mirror", f"http://127.0.0.1:{line.port}/mirror", "--log", log)
            seconds = self.start(line.port, "with", "auto", more=more)
            refused = log.read_text().count(" falsified object ")
            if refused == 0:
                raise CannotMeasure("no falsified object was read")
            rows.append((f"a start with falsified packs ({refused} blocks refused), and a mirror at the same line", beside, seconds, raw, line.received_bytes))
        edition = self.publish("day@2026-05-02", "with")
        remove(self.home)
        with self.served() as line:
            self.start(line.port, "with", "auto", "day@2026-05-01")
            before = line.received_bytes
            seconds = self.start(line.port, "with", "auto", up=UP.replace("1", "2"))
            told = f"{edition['objects']} new objects of {edition['bytes'] / 1e6:.1f} MB"
            rows.append((f"a start of night 2 after night 1 ({told})", beside, seconds, raw, line.received_bytes - before))
            rows.append(("night 1 again", beside, self.start(line.port, "with", "auto", "day@2026-05-01"), raw, 0))
        return rows

    @contextlib.contextmanager
    def falsified(self) -> Iterator[None]:
        """One byte of each pack is another one."""
        objects = [path for path in (self.www / "with" / "objects").rglob("*") if path.is_file()]
        packs = {path: path.read_bytes() for path in objects if path.stat().st_size > PACK_BYTES_MIN}
        for path, good in packs.items():
            middle = len(good) // 2
            path.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
        try:
            yield
        finally:
            for path, good in packs.items():
                path.write_bytes(good)

    def start(self, port: int, publication: str, profile: str, image: str = "day", up: str = UP, more: Sequence[object] = ()) -> float:
        words = ["attach", self.address(port, publication), image, "--boot", "--no-kvm", "--profile", profile, *more]
        return run(self.varve(*words, "--check", up, "--timeout", int(PATIENCE))).seconds

    # ---- the reads of a start, one after the other

    def replays(self) -> list[Row]:
        rows: list[Row] = []
        by_name: dict[str, Callable[[Line], float]] = {
            "with a profile": lambda line: self.replay_ours(line, "with", "auto"),
            "without a profile": lambda line: self.replay_ours(line, "without", "none"),
            "by QEMU's http driver": self.replay_qemu,
            "by nbdkit's curl plugin": self.replay_nbdkit,
            "by desync mount-index": self.replay_desync,
        }
        for told, replay in by_name.items():
            remove(self.home)
            with self.served() as line:
                try:
                    seconds = replay(line)
                except CannotMeasure as reason:
                    print(f"streaming {told}: skipped: {reason}", flush=True)
                    continue
                alone = line.received_bytes * 8 / BITS_PER_SECOND + FIRST_ROUND_TRIPS * ROUND_TRIP
                rows.append((f"the reads of a start {told}: {line.received_bytes / 1e6:.1f} MB", "the line alone", seconds, alone, line.received_bytes))
        return rows

    def replay_ours(self, line: Line, publication: str, profile: str) -> float:
        at = self.work / "ours.sock"
        at.unlink(missing_ok=True)
        command = self.varve("attach", self.address(line.port, publication), "day@2026-05-01", "--no-cache", "--profile", profile, "--nbd", f"unix:{at}")
        began = time.monotonic()
        with running(command.argv, environment=command.environment):
            return self.replay(at, "day", began)

    def replay_qemu(self, line: Line) -> float:
        need("qemu-nbd")
        at = self.work / "qemu.sock"
        at.unlink(missing_ok=True)
        node = json.dumps({"driver": "raw", "file": {"driver": "http", "url": f"http://127.0.0.1:{line.port}/day.raw"}})
        began = time.monotonic()
        with running(["qemu-nbd", "--read-only", f"--socket={at}", f"json:{node}"]):
            return self.replay(at, "", began)

    def replay_nbdkit(self, line: Line) -> float:
        need("nbdkit")
        at = self.work / "nbdkit.sock"
        at.unlink(missing_ok=True)
        began = time.monotonic()
        with running(["nbdkit", "-f", "-r", "-U", str(at), "curl", f"url=http://127.0.0.1:{line.port}/day.raw"]):
            return self.replay(at, "", began)

    def replay_desync(self, line: Line) -> float:
        need("desync", "fusermount3")
        index, chunks, at = self.www / "day.caibx", self.www / "chunks", self.work / "mounted"
        if not index.is_file():
            chunks.mkdir()
            subprocess.run(["desync", "make", "-s", str(chunks), str(index), str(self.day)], check=True, capture_output=True)
        at.mkdir(exist_ok=True)
        url = f"http://127.0.0.1:{line.port}"
        began = time.monotonic()
        with running(["desync", "mount-index", "-s", f"{url}/chunks", f"{url}/day.caibx", str(at)]):
            for _ in range(6000):
                files = list(at.iterdir())
                if files:
                    break
                time.sleep(0.01)
            else:
                raise CannotMeasure("desync mounts nothing")
            with open(files[0], "rb", buffering=0) as disk:
                for offset, length in self.reads:
                    os.pread(disk.fileno(), length, offset)
                seconds = time.monotonic() - began
            subprocess.run(["fusermount3", "-u", str(at)], check=False)
            return seconds

    def replay(self, at: Path, export: str, began: float) -> float:
        wait_for(at)
        with open(self.day, "rb") as day, NbdClient(at, export) as client:
            for offset, length in self.reads:
                if client.read(offset, length) != os.pread(day.fileno(), length, offset):
                    raise CannotMeasure(f"other bytes than those of the raw file, at {offset}")
            return time.monotonic() - began


class NbdClient:
    """Reads an export, one request at a time."""

    def __init__(self, at: Path, export: str):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(at))
        if self.exactly(18)[:16] != b"NBDMAGICIHAVEOPT":
            raise CannotMeasure(f"no NBD server listens at {at}")
        name = export.encode()
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
        self.exactly(10)

    def __enter__(self) -> "NbdClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise CannotMeasure("the NBD server has closed the connection")
            found += more
        return bytes(found)

    def read(self, offset: int, length: int) -> bytes:
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, offset, length))
        magic, error, _ = struct.unpack(">IIQ", self.exactly(16))
        if magic != 0x67446698 or error != 0:
            raise CannotMeasure(f"the read at {offset} has failed: {error}")
        return self.exactly(length)
