"""Measures the speed of blocks over Venti's protocol: 8 KiB each, over loopback, with one connection and 32
requests in flight. The client is `varve-plan bench venti`.

  fresh writes   with one sync at the end; beside a snapshot of the same number of bytes into a store of the
                 same kind, which involves no protocol. Both are repeated on a disk that takes 200 MB a
                 second, if one can be made here: on a faster disk the processors are the limit, and the
                 client uses a part of them
  duplicates     the same blocks once more
  reads          of all blocks, the second time: from memory
  cold reads     of some of four times as many blocks at random places, after a start with a cold page cache;
                 beside the same number of random reads of 16 KiB from the disk itself, with the same depth
                 (`varve-plan bench device`). Both are repeated on a disk of 8,000 reads a second, if one can be
                 made here: a faster disk needs more processors than some machines have, since the client runs
                 on them too

All rows except the cold ones and those on a slow disk are also measured beside the same number of bytes
through a bare TCP connection on this machine. If plan9port is installed (in the folder that PLAN9 names, or
in PATH), they are also beside its server with arenas on the same disk, measured by the same program.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import CannotMeasure, Command, make_cold, remove, run
from bench.slow_disk import BYTES_WRITTEN_PER_SECOND, READS_PER_SECOND, slow_disk
from bench.upkeep import Figures, Pair

NAMES = ["venti"]
BLOCK_BYTES = 8 << 10
BLOCK_COUNT = 32768
QUICK_BLOCK_COUNT = 256
COLD_BLOCKS, COLD_READS = 4, 4
SLOW_READS_PER_SECOND = 8000
SLOW_BYTES_WRITTEN_PER_SECOND = 200_000_000
DEPTH = 32
# The bytes go to another process, as with a real server.
TAKE_ALL = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as taken:
    buffer = bytearray(256 << 10)
    while taken.recv_into(buffer):
        pass
"""


class Venti:
    def __init__(self, program: str, work: Path, quick: bool):
        self.program, self.work = program, work
        self.block_count = QUICK_BLOCK_COUNT if quick else BLOCK_COUNT
        self.byte_count = self.block_count * BLOCK_BYTES

    def prepare(self) -> None:
        remove(self.work)
        self.work.mkdir(parents=True)

    def take(self, name: str, round_number: int) -> list[Pair]:
        """Takes the measurements of one round."""
        return [Pair(name, row, limit, round_number, *figures) for row, limit, *figures in self.all_rows(round_number)]

    def all_rows(self, round_number: int) -> Iterator[Figures]:
        loopback = self.loopback()
        with self.ours() as address:
            ours = self.loads(address, round_number)
        others = {"as many bytes over loopback": dict.fromkeys(ours, loopback)}
        with contextlib.suppress(CannotMeasure), self.theirs() as address:
            others["plan9port's server"] = self.loads(address, round_number)
        others["a snapshot of as many bytes"] = {"fresh writes": self.snapshot()}
        yield from self.on_a_slow_disk("fresh writes", BYTES_WRITTEN_PER_SECOND, SLOW_BYTES_WRITTEN_PER_SECOND, lambda: self.fresh(round_number))
        self.fill(round_number)
        yield self.cold(round_number)
        yield from self.on_a_slow_disk("cold reads", READS_PER_SECOND, SLOW_READS_PER_SECOND, lambda: self.cold(round_number))
        remove(self.work / "store")
        for row, seconds in ours.items():
            for limit, limits in others.items():
                if row in limits:
                    yield row, limit, seconds, limits[row], self.byte_count

    def on_a_slow_disk(self, name: str, what: dict[Path, str], limit: int, measure: Callable[[], Figures]) -> Iterator[Figures]:
        """Yields a row that is measured while the disk gives no more than `limit`, if that is possible
        here."""
        try:
            with slow_disk(self.work, what, limit):
                row, beside, *figures = measure()
                yield f"{row}, a slow disk", f"{beside}, slow", *figures
        except CannotMeasure as reason:
            print(f"  {name}, a slow disk: skipped: {reason}", file=sys.stderr)

    def fresh(self, seed: int) -> Figures:
        """Measures fresh writes to a new store, beside a snapshot of the same number of bytes."""
        with self.ours() as address:
            seconds = self.load(address, "write", seed)
        return "fresh writes", "a snapshot of as many bytes", seconds, self.snapshot(), self.byte_count

    def loads(self, address: str, seed: int) -> dict[str, float]:
        """Returns the seconds of each row."""
        rows = [("fresh writes", "write"), ("duplicates", "write"), ("first reads", "read"), ("cached reads", "read")]
        return {row: self.load(address, action, seed) for row, action in rows}

    def fill(self, seed: int) -> None:
        """Writes the blocks for the cold reads."""
        with self.ours() as address:
            self.load(address, "write", seed, count=COLD_BLOCKS * self.block_count)

    def cold(self, seed: int) -> Figures:
        """Measures reads with nothing in memory, beside the same number of reads of the disk itself."""
        among, count = COLD_BLOCKS * self.block_count, self.block_count // COLD_READS
        with self.ours(begin=False) as address:
            make_cold(self.work / "store")
            seconds = self.load(address, "read", seed, "--order", "random", "--among", among, count=count)
        words = ["--size", "16M", "--seconds", "0.1"] if among < BLOCK_COUNT else ["--seconds", "1"]
        said = self.say("bench", "device", self.work, *words)
        wanted = {"action": "read", "order": "random", "bytes": 16 << 10, "depth": DEPTH}
        [rate] = [row["per_second"] for row in said["rows"] if wanted.items() <= row.items()]
        return "reads here and there, cold", f"the disk, {DEPTH} at a time", seconds, count / rate, count * BLOCK_BYTES

    def load(self, address: str, action: str, seed: int, *more: object, count: int | None = None) -> float:
        words = ["bench", "venti", address, "--action", action, "--count", count or self.block_count, "--depth", DEPTH]
        result = self.say(*words, "--seed", seed, "--block-size", BLOCK_BYTES, *more)
        return result["seconds"] + result["sync_seconds"]

    def say(self, *words: object) -> dict:
        said = subprocess.run([str(Path(self.program).with_name("varve-plan")), "--json", *map(str, words)], capture_output=True, text=True, check=False)
        if said.returncode != 0:
            raise CannotMeasure(f"{' '.join(map(str, words))}: {(said.stdout + said.stderr).strip()}")
        return json.loads(said.stdout)

    def varve(self, store: Path, *words: object) -> Command:
        return Command([self.program, "--quiet", "-s", str(store), *map(str, words)], environment={"HOME": str(self.work / "home")})

    @contextlib.contextmanager
    def ours(self, begin: bool = True) -> Iterator[str]:
        store = self.work / "store"
        if begin:
            remove(store)
            run(self.varve(store, "init", "--plaintext", "--score", "sha1"))
        served = subprocess.Popen(self.varve(store, "serve", "--venti", "127.0.0.1:0").argv, stdout=subprocess.PIPE, text=True)
        try:
            yield served.stdout.readline().removeprefix("serving at ").strip()
        finally:
            served.terminate()
            served.wait()

    @contextlib.contextmanager
    def theirs(self) -> Iterator[str]:
        folder = self.work / "plan9"
        programs = {name: plan9(f"venti/{name}") for name in ("venti", "fmtarenas", "fmtisect", "fmtindex")}
        remove(folder)
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"tcp!127.0.0.1!{port}"
        for name, size in (("arenas", 3 * self.byte_count + (256 << 20)), ("isect", 64 << 20)):
            with open(folder / name, "wb") as file:
                file.truncate(size)
        parts = f"index main\nisect {folder}/isect\narenas {folder}/arenas\n"
        # The server has memory for everything that is written, so its reads come from memory, too.
        memory = f"mem {2 * self.byte_count >> 20}m\nbcmem 64m\nicmem 64m\n"
        (folder / "venti.conf").write_text(f"{parts}{memory}addr {address}\n")
        for words in (["fmtarenas", "arenas", "arenas"], ["fmtisect", "isect", "isect"], ["fmtindex", "venti.conf"]):
            subprocess.run([programs[words[0]], *words[1:]], cwd=folder, check=True, capture_output=True)
        served = subprocess.Popen(
            [programs["venti"], "-d", "-c", "venti.conf"], cwd=folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(3000):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.01)
            yield address
        finally:
            # The server has several processes, in a session of their own.
            os.killpg(served.pid, 9)
            served.wait()
            remove(folder)

    def loopback(self) -> float:
        sent = bytes(256 << 10)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            argv = [sys.executable, "-c", TAKE_ALL, str(listening.getsockname()[1])]
            with subprocess.Popen(argv) as taking, listening.accept()[0] as connection:
                begun = time.monotonic()
                for _ in range(max(self.byte_count // len(sent), 1)):
                    connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                taking.wait()
                return time.monotonic() - begun

    def snapshot(self) -> float:
        """Measures a snapshot of the same number of bytes, which cannot be compressed either, in blocks of
        the same size."""
        store, source = self.work / "local", self.work / "source"
        remove(store)
        with open(source, "wb") as file:
            for _ in range(max(self.byte_count >> 20, 1)):
                file.write(os.urandom(1 << 20))
            # Without this, the disk would still be writing the source while it is read.
            file.flush()
            os.fsync(file.fileno())
        run(self.varve(store, "init", "--plaintext", "--score", "sha1", "--block-size", BLOCK_BYTES))
        seconds = run(self.varve(store, "snapshot", source, "--as", "image"), then_sync=store).seconds
        remove(store)
        return seconds


def plan9(program: str) -> str:
    folders = [str(Path(root) / "bin") for root in [os.environ.get("PLAN9")] if root]
    found = shutil.which(program.rsplit("/", 1)[-1], path=os.pathsep.join(f"{folder}/venti" for folder in folders))
    if found is None:
        beside = [folder for folder in os.get_exec_path() if (Path(folder) / program).is_file()]
        found = str(Path(beside[0]) / program) if beside else None
    if found is None:
        raise CannotMeasure(f"plan9port's {program} is not installed")
    return found
