"""Measures one process, and prepares or inspects the files around it."""

import filecmp
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Command:
    argv: list[str]
    cwd: Path | None = None
    stdout: Path = Path("/dev/null")
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    seconds: float
    read_bytes: int  # from the disk, by this process and those it waited for
    peak_bytes: int  # resident, of the largest process; at least the ~20 MB of this interpreter


class CommandFailed(Exception):
    pass


class CannotMeasure(Exception):
    """Something that a measurement needs is missing here."""


def run(command: Command, then_sync: Path | None = None) -> Cost:
    """Runs the command. If `then_sync` is given, the time includes making that folder's file system
    durable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    with tempfile.TemporaryFile() as stderr, open(command.stdout, "wb") as stdout:
        started = time.monotonic()
        process = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=environment | command.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if then_sync is not None:
            subprocess.run(["sync", "-f", then_sync], check=True)
        seconds = time.monotonic() - started
        if process.returncode != 0:
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").strip().splitlines()[-5:]
            raise CommandFailed(f"`{' '.join(command.argv)}` ended with {process.returncode}: " + " / ".join(said))
    return Cost(seconds, usage.ru_inblock * 512, usage.ru_maxrss * 1024)


def files_below(path: Path) -> Iterator[Path]:
    """Yields one file at a time. A child can never report a smaller peak than the memory of this interpreter,
    so the interpreter stays small."""
    if not path.is_dir():
        yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder) / name for name in names)


def occupied_bytes(path: Path) -> int:
    """The space that the folder occupies on its file system, as `du` counts it."""
    said = subprocess.run(["du", "-s", "--block-size=1", path], check=True, capture_output=True, text=True)
    return int(said.stdout.split()[0])


def logical_bytes(path: Path) -> int:
    return sum(file.lstat().st_size for file in files_below(path))


def make_warm(source: Path) -> None:
    """Reads everything once, so that the next read comes from the page cache."""
    run(read_command(source))


def make_cold(*paths: Path) -> None:
    """Removes everything (as root) or at least the given files from the page cache."""
    os.sync()
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return
    for file in (file for path in paths for file in files_below(path)):
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_command(source: Path) -> Command:
    return Command(["find", str(source), "-type", "f", "-exec", "cat", "{}", "+"])


def is_same(source: Path, restored: Path) -> bool:
    """True if every byte of a file, or of each file in a folder, was restored. The bytes of a disk's swap
    partitions may be zeros: Varve leaves them out."""
    if source.is_dir():
        return subprocess.run(["diff", "--recursive", "--brief", source, restored], capture_output=True).returncode == 0
    if filecmp.cmp(source, restored, shallow=False):
        return True
    if source.stat().st_size != restored.stat().st_size:
        return False
    piece_bytes = 1 << 20
    swap = swap_partitions(source)
    with open(source, "rb") as expected, open(restored, "rb") as actual:
        for offset in range(0, source.stat().st_size, piece_bytes):
            here, there = expected.read(piece_bytes), actual.read(piece_bytes)
            for start, end in swap:
                first, last = max(start - offset, 0), min(end - offset, len(here))
                if first < last and not any(there[first:last]):
                    here = here[:first] + bytes(last - first) + here[last:]
            if here != there:
                return False
    return True


def swap_partitions(image: Path) -> list[tuple[int, int]]:
    """Returns the start and the end of the contents of an image's swap partitions, in bytes. The first page
    of a partition is not included: it marks the partition as swap."""
    said = subprocess.run(["sfdisk", "--json", image], capture_output=True, text=True)
    if said.returncode != 0:
        return []
    table = json.loads(said.stdout)["partitiontable"]
    sector, kinds = table.get("sectorsize", 512), ("82", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F")
    swap = [part for part in table["partitions"] if part["type"].upper() in kinds]
    return [(part["start"] * sector + 4096, (part["start"] + part["size"]) * sector) for part in swap]


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
