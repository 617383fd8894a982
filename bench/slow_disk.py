"""Slows down a disk of this machine to a given rate, by the control groups of the system (version 1 or 2)."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.measure import CannotMeasure

OLD, NEW = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
READS_PER_SECOND = {OLD: "blkio.throttle.read_iops_device", NEW: "riops="}
WRITES_PER_SECOND = {OLD: "blkio.throttle.write_iops_device", NEW: "wiops="}
BYTES_READ_PER_SECOND = {OLD: "blkio.throttle.read_bps_device", NEW: "rbps="}
BYTES_WRITTEN_PER_SECOND = {OLD: "blkio.throttle.write_bps_device", NEW: "wbps="}


@contextlib.contextmanager
def slow_disk(file: Path, what: dict[Path, str], limit: int) -> Iterator[None]:
    """Limits the disk of `file` to `limit` of `what` for this process and its children, until the block
    ends."""
    with held_disk(file, [(what, limit)]):
        yield


@contextlib.contextmanager
def held_disk(file: Path, limits: Sequence[tuple[dict[Path, str], int]]) -> Iterator[None]:
    """Limits several rates of the disk of `file` for this process and its children, until the block ends."""
    device = whole_disk(file)
    for root in (OLD, NEW):
        group = root / f"varve-bench-{os.getpid()}"
        before = home(root)
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if root == NEW:
                with contextlib.suppress(OSError):
                    (root / "cgroup.subtree_control").write_text("+io")
                rates = " ".join(f"{what[NEW]}{limit}" for what, limit in limits)
                (group / "io.max").write_text(f"{device} {rates}\n")
            else:
                for what, limit in limits:
                    (group / what[OLD]).write_text(f"{device} {limit}\n")
            (group / "cgroup.procs").write_text("0")
        except OSError:
            group.rmdir()
            continue
        try:
            yield
        finally:
            (before / "cgroup.procs").write_text("0")
            group.rmdir()
        return
    raise CannotMeasure("disks cannot be slowed down here (this needs root, and control groups for block devices)")


def home(root: Path) -> Path:
    """The control group below `root` that this process is in."""
    # Version 2 has one tree for all controllers, and lists none of them.
    wanted = "blkio" if root.name == "blkio" else ""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if wanted in controllers.split(","):
            return root / path.lstrip("/")
    return root


def whole_disk(file: Path) -> str:
    """Returns MAJOR:MINOR of the disk, even if the file lies in one of its partitions."""
    device = file.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    # Overlays and similar file systems have numbers that belong to no disk.
    if not place.exists():
        raise CannotMeasure(f"the disk of {file} cannot be slowed down")
    place = place.resolve()
    disk = place.parent if (place / "partition").exists() else place
    return (disk / "dev").read_text().strip()
