"""A disk of its own for a measurement, held to given rates: a loop device over a file, with a file system. With
version 1 of the control groups, a limit of a group does not hold the writes that the kernel makes later for a process.
The limits are therefore those of the root group, and for this device only."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.measure import CannotMeasure
from bench.slow_disk import OLD


@contextlib.contextmanager
def own_disk(folder: Path, size: int, limits: Sequence[tuple[dict[Path, str], int]]) -> Iterator[Path]:
    """Makes a disk of `size` bytes in `folder`. Returns the folder at which it is mounted, until the block ends."""
    image, mounted = folder / "disk.image", folder / "disk"
    if not (OLD / next(iter(limits))[0][OLD]).exists():
        raise CannotMeasure("a disk cannot be held here (this needs root, and version 1 of the control groups)")
    with contextlib.ExitStack() as ends:
        ends.callback(image.unlink, missing_ok=True)
        with image.open("wb") as file:
            file.truncate(size)
        device = run("losetup", "--find", "--show", "--direct-io=on", image).strip()
        ends.callback(run, "losetup", "--detach", device)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        mounted.mkdir(exist_ok=True)
        run("mount", device, mounted)
        ends.callback(run, "umount", mounted)
        number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
        for what, limit in limits:
            rate = OLD / what[OLD]
            rate.write_text(f"{number} {limit}\n")
            ends.callback(rate.write_text, f"{number} 0\n")
        yield mounted


def run(*command: object) -> str:
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotMeasure(f"{command[0]} fails: {getattr(error, 'stderr', '') or error}") from error
    return done.stdout
