"""Repeats the experiments of LBCAS (Suzaki and others, Linux Symposium 2009, sections 4 and 5): the requests of a
start and the blocks that they need, in three ways, replayed for each block size; and starts over a slow line. As a
fourth way, the disk is published with a profile, so that its blocks lie together in the publication and not on the
disk. The machine starts in QEMU without hardware virtualisation."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.lbcas import disks
from bench.lbcas.delivered import Publications
from bench.lbcas.disks import Disk
from bench.lbcas.paper import SIZES, check_own_rows
from bench.lbcas.recorded import Trace, profile_of, replay, start, units_of

DELIVERED = {"normal": False, "readahead": False, "opt": False, "packs": True}
"""The ways of the starts over the line, and whether the reader prefetches the profile."""
HOST_SIZE = 256
"""The block size in KiB of the start behind the host's page cache, and of the plots over time."""


def measure(disk: Disk, varve: Path, work: Path) -> dict[str, Any]:
    check_own_rows()
    publications = Publications(varve, work)
    images = {way: work / f"{way}.raw" for way in ("normal", "readahead", "opt")}
    found: dict[str, Any] = {"sizes": list(disk.sizes), "ways": {}}
    disks.make_normal(disk, images["normal"], work)
    trace = record(disk, images["normal"], work, found, "normal")
    units = [unit for _, unit in units_of(trace)]
    files = disks.files_of(images["normal"], units, work)
    found["files"] = {"count": len(files), "bytes": sum(size for _, size in files)}
    profile = work / "start.profile"
    profile.write_text(profile_of(trace, images["normal"].stat().st_size))
    publications.archive(images["normal"], "normal")

    disks.make_readahead(images["normal"], images["readahead"], [name for name, _ in files], work)
    record(disk, images["readahead"], work, found, "readahead")
    publications.archive(images["readahead"], "readahead")
    images["readahead"].unlink()

    words = [varve, "--json", "optimize", images["normal"], "--profile", profile, "--output", images["opt"]]
    lines = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    found["relocation"] = [json.loads(line) for line in lines]
    record(disk, images["opt"], work, found, "opt")
    publications.archive(images["opt"], "opt")
    for way in ("normal", "opt"):
        images[way].unlink()

    found["delivered"] = {way: {} for way in DELIVERED}
    for way, has_profile in DELIVERED.items():
        name = "normal" if way == "packs" else way
        for size in disk.sizes:
            edition = publications.publish(name, size, profile if has_profile else "none")
            print(f"  {disk.name}, {way}, {size} KiB", flush=True)
            figures = publications.start(disk, name, edition, has_profile)
            # Only the plots need each access.
            if (way, size) != ("normal", HOST_SIZE):
                del figures["accesses"]
            if size != HOST_SIZE:
                del figures["served"]
            else:
                figures["host_requests"] = publications.host_requests(disk, name, edition)
            found["delivered"][way][str(size)] = figures
    return found


def record(disk: Disk, image: Path, work: Path, found: dict[str, Any], way: str) -> Trace:
    """Records a start from the disk itself, and what its requests need."""
    print(f"  {disk.name}, {way}, from the disk itself", flush=True)
    started = start(disk, f"file={image}", work)
    units = [unit for _, unit in units_of(started.trace)]
    found["ways"][way] = {
        "seconds": round(started.seconds, 2),
        "requests": [f"{seconds:.3f} {offset} {length}" for seconds, offset, length in started.trace],
        "fragmented_percent": disks.fragmented_percent(image),
        "layout": disks.layout(image, units),
        "replays": {str(size): replay(started.trace, image, size << 10) for size in SIZES},
    }
    return started.trace


def parts(folder: Path) -> Sequence[Disk]:
    """Returns the disks that the experiments can start; `folder` has the workloads."""
    return (disks.days(folder), disks.desktop(folder))
