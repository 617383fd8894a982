"""The blocks that disks share, before and after `varve optimize` (section 6 of the paper, which expects a loss)."""

import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import distributions
from bench.lbcas import disks
from bench.lbcas.disks import Disk
from bench.lbcas.recorded import profile_of, start
from bench.svg import number

SIZES = (4, 64, 128, 256, 512)
"""The block sizes in KiB."""
DAYS = {f"day{day}": f"DAY-{day} IS UP" for day in (1, 2, 3)}
GROUPS: Mapping[str, Sequence[str]] = {
    "three days of a Debian 12": tuple(DAYS),
    "Debian 12 and Debian 13": ("day1", "trixie"),
    "Debian 12 and Debian 11": ("day1", "bullseye"),
}
STATES = {"before": "as they are", "after": "optimized"}


def systems(folder: Path) -> list[Disk]:
    found = [Disk(day, day, folder / "days" / f"{day}.raw", up, ("-m", "1024"), ()) for day, up in DAYS.items()]
    return found + [
        Disk(name, title, folder / f"{name}.raw", distributions.UP, ("-m", "1024"), ())
        for name, title in distributions.NAMES.items()
    ]


def lacking(folder: Path) -> str | None:
    return next((reason for disk in systems(folder) if (reason := disks.lacking(disk))), None)


def measure(folder: Path, varve: Path, work: Path) -> dict[str, Any]:
    """Counts the blocks of each group: of all disks together, and of each disk by itself."""
    blocks: dict[tuple[str, str], dict[int, set[bytes]]] = {}
    for disk in systems(folder):
        print(f"  {disk.title}", flush=True)
        normal, optimized, profile = work / "normal.raw", work / "optimized.raw", work / "start.profile"
        disks.make_normal(disk, normal, work)
        blocks[disk.name, "before"] = {size: distinct(normal, size << 10) for size in SIZES}
        profile.write_text(profile_of(start(disk, f"file={normal}", work).trace, normal.stat().st_size))
        words = [varve, "--quiet", "optimize", normal, "--profile", profile, "--output", optimized]
        subprocess.run(list(map(str, words)), check=True)
        blocks[disk.name, "after"] = {size: distinct(optimized, size << 10) for size in SIZES}
        for image in (normal, optimized):
            image.unlink()
    return {
        group: {
            state: {str(size): {"alone": sum(len(one) for one in sets), "together": len(set.union(*sets))} for size, sets in by_size(blocks, names, state)}
            for state in STATES
        }
        for group, names in GROUPS.items()
    }


def by_size(blocks: Mapping[tuple[str, str], Mapping[int, set[bytes]]], names: Sequence[str], state: str) -> Iterator[tuple[int, list[set[bytes]]]]:
    for size in SIZES:
        yield size, [blocks[name, state][size] for name in names]


def distinct(image: Path, block_bytes: int) -> set[bytes]:
    """Returns the hashes of the blocks that are not all zeros."""
    zeros, found = bytes(block_bytes), set()
    with image.open("rb") as file:
        while block := file.read(block_bytes):
            if block != zeros:
                found.add(hashlib.sha256(block).digest()[:16])
    return found


def table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The part of the blocks that need not be stored, since another disk of the group has them."""
    head = ["shared blocks, %"]
    for group in GROUPS:
        head += [f"{group}, {title}" for title in STATES.values()]
    rows = []
    for size in SIZES:
        row = [f"{size} KiB"]
        for group in GROUPS:
            for state in STATES:
                one = found[group][state][str(size)]
                row.append(number(100 * (1 - one["together"] / one["alone"])))
        rows.append(row)
    return head, rows
