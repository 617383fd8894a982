"""Measures the upkeep of a store: verify, replicate, clone, repair, and parity. Only varve is measured here,
each time beside its limit: the disk, one core, or the speed of another program with the same objects and the
same server.

  verify      `verify --data` with a cold cache, beside `cat` of the log's files, and beside one core that
              decrypts (AES-256-GCM) and hashes (BLAKE3) the same number of bytes; the slower one is the limit
  replicate   to an S3 server on this machine (versitygw, on the store's disk), beside `s5cmd cp` of the same
              objects to the same server, and beside that server's own benchmark client, which generates the
              same number of objects of the same size and reads no disk
  clone       from that server, beside `s5cmd cp` of the objects to this disk; all with `sync -f`. Two more
              measurements give the limit. The server's own client fetches the same number of objects and
              writes them nowhere. Four processes write the same number of bytes to the disk past the page
              cache. The slower of the two is the limit. A clone into memory (/dev/shm) is measured beside the
              client. Client, server and clone share this machine's processors. So the clone is repeated over
              a network link of 8 Gbit/s, if one can be made here; the link is then the limit
  repair      one arena of 64 MiB is lost and comes from a replica in a folder, with a cold cache: in a store,
              and in one of a quarter of its size, each with the bytes that it read from the disk. Both should
              cost the same. And beside `verify --data` of the larger store, with which `repair --data` begins
  parity      a snapshot into a store with `init --parity 5%`, beside one into a store without parity
"""

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.measure import CannotMeasure, Command, Cost, logical_bytes, make_cold, make_warm, remove, run
from bench.slow_line import slow_line

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["verify", "replicate", "clone", "repair", "parity"]
SOURCE_BYTES = 1 << 30
QUICK_SOURCE_BYTES = 24 << 20
LINE_BITS_PER_SECOND = 8_000_000_000
BUCKET_KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "not a secret", "AWS_REGION": "us-east-1"}
# The server, and the client to compare with. script/need has their versions.
NEEDED = ["versitygw", "s5cmd"]
# The client does not start if this variable is set.
NO_BUNDLE = {"AWS_CA_BUNDLE": ""}
# The size of the objects that `varve replicate` makes.
OBJECT_BYTES = 16 << 20
DECRYPT_AND_HASH = """
import os, sys, time
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
cipher, nonce, wanted = AESGCM(bytes(32)), bytes(12), int(sys.argv[1])
sealed = cipher.encrypt(nonce, os.urandom(256 << 10), None)
begun = time.monotonic()
for _ in range(wanted // (256 << 10)):
    blake3(cipher.decrypt(nonce, sealed, None)).digest()
print(time.monotonic() - begun)
"""


# A row, its limit, the seconds of both, the bytes of work, and the bytes that were read from the disk where
# they matter.
Figures = tuple[str, str, float, float, int] | tuple[str, str, float, float, int, int]


@dataclass(frozen=True)
class Pair:
    """One measurement, and the limit that was measured right beside it."""

    name: str
    row: str
    limit: str
    round: int
    seconds: float
    limit_seconds: float
    work_bytes: int
    read_bytes: int | None = None  # from the disk; only in rows where it matters


class Upkeep:
    def __init__(self, program: str, python: Path, work: Path, quick: bool):
        self.program, self.python, self.work = program, python, work
        self.source, self.key, self.store = work / "source", work / "key", work / "store"
        self.source_bytes = QUICK_SOURCE_BYTES if quick else SOURCE_BYTES
        self.arena_size = "1M" if quick else "64M"

    def varve(self, *words: object, store: Path | None = None) -> Command:
        argv = [self.program, "--quiet", "-s", str(store or self.store), "--key-file", str(self.key), *map(str, words)]
        return Command(argv, environment={"HOME": str(self.work / "home"), **BUCKET_KEYS})

    def prepare(self) -> None:
        remove(self.work)
        self.work.mkdir(parents=True)
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        with open(self.source, "wb") as source:
            for _ in range(self.source_bytes >> 20):
                source.write(os.urandom(1 << 20))
        run(self.varve("init", "--arena-size", self.arena_size))
        run(self.varve("snapshot", self.source, "--as", "image"))

    def take(self, name: str, round_number: int) -> list[Pair]:
        """Takes the measurements of one round."""
        measure: dict[str, Callable[[], list[Figures]]] = {
            "verify": lambda: self.verify(round_number),
            "replicate": lambda: self.with_server(round_number, is_clone=False),
            "clone": lambda: self.with_server(round_number, is_clone=True) + self.clone_over_a_line(round_number),
            "repair": lambda: self.repair(round_number),
            "parity": self.parity,
        }
        return [Pair(name, row, limit, round_number, *figures) for row, limit, *figures in measure[name]()]

    def verify(self, round_number: int) -> list[Figures]:
        log = self.store / "arenas"
        log_bytes = logical_bytes(log)
        commands = {"cat": Command(["cat", *map(str, sorted(log.iterdir()))]), "verify": self.varve("verify", "--data")}
        costs = {}
        # The first command finds the page cache that was just freed. It is cheaper to fill than memory that
        # the host of this machine has taken back since.
        for name in sorted(commands, reverse=round_number % 2 == 0):
            make_cold(log)
            costs[name] = run(commands[name])
        raw, ours = costs["cat"], costs["verify"]
        core = self.one_core(log_bytes)
        row = "verify --data, cold cache"
        return [
            (row, "cat of the log, cold cache", ours.seconds, raw.seconds, log_bytes),
            (row, "one core decrypts and hashes as much", ours.seconds, core, log_bytes),
        ]

    def one_core(self, byte_count: int) -> float:
        said = subprocess.run(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), self.python, "-c", DECRYPT_AND_HASH, str(byte_count)],
            capture_output=True, text=True, check=False,
        )
        if said.returncode != 0:
            raise CannotMeasure(f"{self.python} lacks the modules cryptography and blake3: `script/test rosetta` installs them")
        return float(said.stdout)

    def with_server(self, round_number: int, is_clone: bool) -> list[Figures]:
        with s3_server(self.work / "server") as server:
            target = f"s3://bench/replica?endpoint={server}"
            s5cmd = ["s5cmd", "--endpoint-url", server, "--log", "error", "cp"]
            copy, there = self.work / "objects", self.work / "server" / "files" / "bench" / "replica"
            if is_clone:
                run(self.varve("replicate", target))
                ours = self.varve("clone", target, self.work / "clone")
                theirs = Command([*s5cmd, "s3://bench/replica/*", f"{copy}/"], environment=BUCKET_KEYS)
            else:
                # The other program uploads the objects that a first upload, which is not measured, has made.
                run(self.varve("replicate", target))
                shutil.copytree(there, copy)
                ours = self.varve("replicate", f"s3://bench/again?endpoint={server}")
                theirs = Command([*s5cmd, f"{copy}/", "s3://bench/raw/"], environment=BUCKET_KEYS)
                make_warm(copy)
                make_warm(self.store)
            byte_count = logical_bytes(there)
            count = max(1, round(byte_count / OBJECT_BYTES))
            size = byte_count // count
            of_server = own_client(server, count, size)
            own = Command([*of_server, "--download" if is_clone else "--upload"], environment=NO_BUNDLE)
            if is_clone:
                run(Command([*of_server, "--upload"], environment=NO_BUNDLE))
            commands = {"ours": ours, "theirs": theirs, "own": own}
            memory = Path("/dev/shm/varve-bench-clone")
            if is_clone:
                commands["memory"] = self.varve("clone", target, memory)
                writing = "for hand in 1 2 3 4; do dd if=/dev/zero of=$0.$hand bs=2M count=$1 oflag=direct conv=fsync status=none & all=\"$all $!\"; done; "
                writing += "for one in $all; do wait $one || exit; done"
                commands["disk"] = Command(["sh", "-c", writing, str(self.work / "written"), str(byte_count >> 23)])
            seconds = {}
            # The order alternates, because each command finds the disk as the command before has left it.
            for name, command in list(commands.items())[:: 1 if round_number % 2 else -1]:
                os.sync()
                seconds[name] = run(command, then_sync=None if name == "memory" else self.work).seconds
                remove(memory)
            for made in [self.work / "clone", copy, *self.work.glob("written.*")]:
                remove(made)
            row, client = ("clone from S3" if is_clone else "replicate to S3"), f"versitygw test bench, {count} of {size >> 20} MiB"
            figures: list[Figures] = [
                (row, "s5cmd cp of the same objects", seconds["ours"], seconds["theirs"], byte_count),
                (row, client, seconds["ours"], seconds["own"], byte_count),
            ]
            if is_clone:
                figures += [
                    (row, "dd of as many bytes, direct, 4 side by side", seconds["ours"], seconds["disk"], byte_count),
                    (row, "the slower of these two", seconds["ours"], max(seconds["own"], seconds["disk"]), byte_count),
                    (f"{row} into memory", client, seconds["memory"], seconds["own"], byte_count),
                ]
            return figures

    def clone_over_a_line(self, round_number: int) -> list[Figures]:
        """Measures the clone where neither the disk nor the processors are the limit."""
        try:
            with slow_line(LINE_BITS_PER_SECOND), s3_server(self.work / "server") as server:
                target = f"s3://bench/replica?endpoint={server}"
                run(self.varve("replicate", target))
                byte_count = logical_bytes(self.work / "server" / "files" / "bench" / "replica")
                count = max(1, round(byte_count / OBJECT_BYTES))
                of_server = own_client(server, count, byte_count // count)
                run(Command([*of_server, "--upload"], environment=NO_BUNDLE))
                commands = {
                    "ours": self.varve("clone", target, self.work / "clone"),
                    "own": Command([*of_server, "--download"], environment=NO_BUNDLE),
                }
                seconds = {}
                for name, command in list(commands.items())[:: 1 if round_number % 2 else -1]:
                    os.sync()
                    seconds[name] = run(command, then_sync=self.work).seconds
        except CannotMeasure as reason:
            print(f"  clone over a slow line: skipped: {reason}", file=sys.stderr)
            return []
        finally:
            remove(self.work / "clone")
        row = f"clone from S3, a line of {LINE_BITS_PER_SECOND // 10**9} Gbit/s"
        return [(row, "versitygw test bench over that line", seconds["ours"], seconds["own"], byte_count)]

    def repair(self, round_number: int) -> list[Figures]:
        quarter = self.work / "quarter"
        if not quarter.exists():
            part = self.work / "part"
            with open(self.source, "rb") as whole, open(part, "wb") as into:
                for _ in range(self.source_bytes >> 22):
                    into.write(whole.read(1 << 20))
            run(self.varve("init", "--arena-size", self.arena_size, store=quarter))
            run(self.varve("snapshot", part, "--as", "image", store=quarter))
            remove(part)
        small, _ = self.mend(quarter, round_number)
        large, whole = self.mend(self.store, round_number)
        lost_bytes = sorted((self.store / "arenas").iterdir())[1].stat().st_size
        row = "repair of one lost arena"
        return [
            (row, "the same in a store of a quarter", large.seconds, small.seconds, lost_bytes, large.read_bytes),
            (f"{row}, a quarter", "the larger one", small.seconds, large.seconds, lost_bytes, small.read_bytes),
            (row, "verify --data of the whole store", large.seconds, whole.seconds, lost_bytes, large.read_bytes),
        ]

    def mend(self, store: Path, round_number: int) -> tuple[Cost, Cost]:
        """Returns the cost of repairing a copy of this store that has lost an arena, and of verifying it
        before."""
        # Each round has a target of its own, because the store remembers the objects at each target.
        replica, hurt = self.work / f"replica-{store.name}-{round_number}", self.work / "hurt"
        run(self.varve("replicate", replica, store=store))
        shutil.copytree(store, hurt)
        make_cold(hurt)
        whole = run(self.varve("verify", "--data", store=hurt))
        sorted((hurt / "arenas").iterdir())[1].unlink()
        make_cold(hurt, replica)
        run(Command([self.program, "--version"]))
        mended = run(self.varve("repair", "--from", replica, store=hurt), then_sync=self.work)
        run(self.varve("verify", store=hurt))
        remove(replica)
        remove(hurt)
        return mended, whole

    def parity(self) -> list[Figures]:
        def night(*words: str) -> Cost:
            store = self.work / "other"
            run(self.varve("init", *words, store=store))
            make_warm(self.source)
            os.sync()
            cost = run(self.varve("snapshot", self.source, "--as", "image", store=store), then_sync=self.work)
            remove(store)
            return cost

        without, with_parity = night(), night("--parity", "5%")
        row = "a snapshot with --parity 5%"
        return [(row, "the same without", with_parity.seconds, without.seconds, self.source_bytes)]


def own_client(server: str, count: int, size: int) -> list[str]:
    """The benchmark client that comes with the server, for `count` objects of `size` bytes."""
    return ["versitygw", "test", "--access", BUCKET_KEYS["AWS_ACCESS_KEY_ID"], "--secret", BUCKET_KEYS["AWS_SECRET_ACCESS_KEY"],
            "--endpoint", server, "bench", "--bucket", "bench", "--files", str(count), "--objsize", str(size), "--prefix", "made-up/"]


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Runs versitygw on a free port, with a bucket. When the block ends, the server is stopped and its files
    are removed."""
    for needed in NEEDED:
        if shutil.which(needed) is None:
            subprocess.run([ROOT / "script" / "need", needed], stdin=subprocess.DEVNULL, check=False)
        if shutil.which(needed) is None:
            raise CannotMeasure(f"{needed} is missing, and could not be installed")
    remove(folder)
    (folder / "files" / "bench").mkdir(parents=True)
    (folder / "meta").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    access = ["--access", BUCKET_KEYS["AWS_ACCESS_KEY_ID"], "--secret", BUCKET_KEYS["AWS_SECRET_ACCESS_KEY"], "--quiet"]
    kept = ["posix", "--sidecar", str(folder / "meta"), str(folder / "files")]
    server = subprocess.Popen(
        ["versitygw", *access, "--port", f"127.0.0.1:{port}", *kept], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        remove(folder)


class Measured(Protocol):
    """A group of measurements in pairs, with a folder of its own."""

    work: Path

    def prepare(self) -> None: ...

    def take(self, name: str, round_number: int) -> list[Pair]: ...


def measure(names: list[str], rounds: int, measured: Measured, skipped: dict[str, str]) -> list[Pair]:
    """Takes the requested measurements, round by round. A measurement that is not possible here goes to
    `skipped`."""
    if not names:
        return []
    pairs: list[Pair] = []
    try:
        measured.prepare()
        for round_number in range(1, rounds + 1):
            for name in [name for name in names if name not in skipped]:
                try:
                    taken = measured.take(name, round_number)
                except CannotMeasure as reason:
                    skipped[name] = str(reason)
                    continue
                for pair in taken:
                    print(f"  {name}, round {round_number}: {pair.row} {pair.seconds:.2f} s, {pair.limit} {pair.limit_seconds:.2f} s",
                          file=sys.stderr)
                pairs += taken
    finally:
        remove(measured.work)
    return pairs


def table(pairs: list[Pair], title: str) -> str:
    """Returns a line for each row and limit: the median times of both, and the median of the limit's time
    divided by ours."""
    width = max(38, *(len(pair.row) + 1 for pair in pairs))
    lines = [f"\n## {title}\n\n{'':<{width}}{'median s':>10}{'MB/s':>8}   {'beside':<40}{'median s':>10}{'ratio':>8}"]
    for row, limit in dict.fromkeys((pair.row, pair.limit) for pair in pairs):
        taken = [pair for pair in pairs if (pair.row, pair.limit) == (row, limit)]
        seconds = statistics.median(pair.seconds for pair in taken)
        limit_seconds = statistics.median(pair.limit_seconds for pair in taken)
        ratio = statistics.median(pair.limit_seconds / pair.seconds for pair in taken)
        rate = taken[0].work_bytes / seconds / 1e6
        line = f"{row:<{width}}{seconds:>10.2f}{rate:>8.0f}   {limit:<40}{limit_seconds:>10.2f}{ratio:>8.2f}"
        if taken[0].read_bytes is not None:
            line += f"   {statistics.median(pair.read_bytes or 0 for pair in taken) / 1e6:.0f} MB read from the disk"
        lines.append(line)
    return "\n".join(lines)
