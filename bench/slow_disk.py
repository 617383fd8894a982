"""A disk that answers no more than so many reads a second, made of the one that is here by the system's control groups (of either version)."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from bench.measure import CannotMeasure

ROOTS = {Path("/sys/fs/cgroup/blkio"): "blkio.throttle.read_iops_device", Path("/sys/fs/cgroup"): "io.max"}


@contextlib.contextmanager
def slow_disk(file: Path, reads_per_second: int) -> Iterator[None]:
    """The disk that `file` lies on is so slow for this process, and for those that it starts, until the block ends."""
    device = whole_disk(file)
    for root, limit in ROOTS.items():
        group = root / f"varve-bench-{os.getpid()}"
        before = home(root)
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if limit == "io.max":
                with contextlib.suppress(OSError):
                    (root / "cgroup.subtree_control").write_text("+io")
            (group / limit).write_text(f"{device} {'riops=' if limit == 'io.max' else ''}{reads_per_second}\n")
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
    raise CannotMeasure("no disk can be slowed down here (it takes root, and control groups for block devices)")


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
        raise CannotMeasure(f"{file} lies on no disk that can be slowed down")
    place = place.resolve()
    disk = place.parent if (place / "partition").exists() else place
    return (disk / "dev").read_text().strip()
