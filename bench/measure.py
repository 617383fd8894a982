"""One process measured, and the state of the files around it."""

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
    peak_bytes: int  # resident, of the largest process in the command's tree; never below this interpreter's own ~20 MB


class CommandFailed(Exception):
    pass


def run(command: Command, then_sync: Path | None = None) -> Cost:
    """Runs the command. If `then_sync` is given, the time includes making that folder's file system durable."""
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
    """One at a time: what this interpreter holds is the least peak memory that it can tell of a child."""
    if not path.is_dir():
        yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder) / name for name in names)


def occupied_bytes(path: Path) -> int:
    """What the folder takes on its file system, as `du` counts it."""
    said = subprocess.run(["du", "-s", "--block-size=1", path], check=True, capture_output=True, text=True)
    return int(said.stdout.split()[0])


def logical_bytes(path: Path) -> int:
    return sum(file.lstat().st_size for file in files_below(path))


def make_warm(source: Path) -> None:
    """Reads everything once, so that it comes from the page cache next time."""
    run(read_command(source))


def make_cold(*paths: Path) -> None:
    """Takes everything (for root) or at least the named files out of the page cache."""
    os.sync()
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return
    for file in (file for path in paths for file in files_below(path)):
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_command(source: Path) -> Command:
    return Command(["find", str(source), "-type", "f", "-exec", "cat", "{}", "+"])


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
