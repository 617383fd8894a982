"""A disk that does no more than so much a second, made of the one that is here by the system's control groups (of either version)."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from bench.measure import CannotMeasure

OLD, NEW = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
READS_PER_SECOND = {OLD: "blkio.throttle.read_iops_device", NEW: "riops="}
BYTES_WRITTEN_PER_SECOND = {OLD: "blkio.throttle.write_bps_device", NEW: "wbps="}


@contextlib.contextmanager
def slow_disk(file: Path, what: dict[Path, str], limit: int) -> Iterator[None]:
    """The disk that `file` lies on does no more than `limit` of `what` for this process, and for those that it starts, until the block ends."""
    device = whole_disk(file)
    for root, name in what.items():
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
                (group / "io.max").write_text(f"{device} {name}{limit}\n")
            else:
                (group / name).write_text(f"{device} {limit}\n")
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
    """The group below `root` that this process is in."""
    # Of the newer version there is one tree for all controllers, and none is named.
    wanted = "blkio" if root.name == "blkio" else ""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if wanted in controllers.split(","):
            return root / path.lstrip("/")
    return root


def whole_disk(file: Path) -> str:
    """MAJOR:MINOR of the disk, also where the file lies in one of its partitions."""
    device = file.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    # Overlays and the like have numbers that no disk has.
    if not place.exists():
        raise CannotMeasure(f"the disk of {file} cannot be slowed down")
    place = place.resolve()
    disk = place.parent if (place / "partition").exists() else place
    return (disk / "dev").read_text().strip()
