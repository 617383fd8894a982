"""Compares the simulator with real disks, for docs/evidence/simulation.md. The disk of the data folder is measured
by `varve bench device`, which makes a device of it, and `varve-lab predict` runs the six cases on both. The part
`predict-held` does the same on a disk that is held to the rates of an old one, and replays a trace of daily snapshots
there."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.own_disk import own_disk
from bench.slow_disk import BYTES_READ_PER_SECOND, BYTES_WRITTEN_PER_SECOND, READS_PER_SECOND, WRITES_PER_SECOND
from bench.svg import number

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Run = Callable[..., Any]
MEMORY = Path("/dev/shm")
BYTES, PLACES = 30_000_000, 100
HELD = [(BYTES_READ_PER_SECOND, BYTES), (BYTES_WRITTEN_PER_SECOND, BYTES), (READS_PER_SECOND, PLACES), (WRITES_PER_SECOND, PLACES)]


def free(say: Run, lab: Run, work: Path, quick: bool) -> dict[str, Any]:
    """Measures the disk as it is."""
    figures = work / "free.json"
    device(say, work, figures, quick)
    few = ["--blocks", "2K", "--sample", 20, "--rounds", 1] if quick else ["--blocks", "20K", "--rounds", 3]
    return {"cases": lab("predict", work, "--device", figures, *few)}


def held(say: Run, lab: Run, work: Path, quick: bool) -> dict[str, Any]:
    """Measures a disk that is held to the rates of an old one."""
    figures, trace = work / "held.json", work / "days.vtrace"
    lab("generate", "fsl", trace, "--snapshots", 2 if quick else 7, "--seed", 7)
    with own_disk(work, 3 << 30, HELD) as disk:
        device(say, disk, figures, quick)
        few = ["--blocks", "1K" if quick else "5K", "--sample", 20 if quick else 200, "--rounds", 1]
        cases = lab("predict", disk, "--device", figures, *few)
        real = lab("replay", trace, "--folder", disk)
    # In memory, the same work is that of the processor.
    memory = lab("replay", trace, "--folder", MEMORY)
    naming, packing = rates(memory)
    simulated = lab("replay", trace, "--device", figures, "--page-cache", 0, "--naming-rate", naming, "--packing-rate", packing)
    return {"figures": json.loads(figures.read_text()), "cases": cases, "replays": [real, memory, simulated]}


def rates(memory: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Returns the bytes a second at which the processor names blocks, by the fastest day, and packs new ones, by
    the first."""
    first, *later = [run for run in memory if run["type"] == "replayed_snapshot"]
    naming = max(day["put_bytes"] / day["nanoseconds"] for day in later)
    packing = first["new_bytes"] / max(first["nanoseconds"] - first["put_bytes"] / naming, 1)
    return int(naming * 1e9), int(packing * 1e9)


def device(say: Run, work: Path, figures: Path, quick: bool) -> None:
    few = ["--size", "16M", "--seconds", "0.1"] if quick else []
    figures.write_text(json.dumps(say("bench", "device", work, *few)))


def tables(free: Mapping[str, Any] | None, held: Mapping[str, Any] | None) -> dict[str, Table]:
    found = {}
    if free and held:
        found["predicted-cases"] = predicted({"free": free, "held": held})
        found["predicted-days"] = days(*held["replays"])
    return found


def predicted(disks: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for disk, measured in disks.items():
        by_case: dict[str, list[float]] = {}
        for case in measured["cases"]:
            if case["type"] == "predicted_case":
                by_case.setdefault(case["case"], []).append(case["error_percent"])
        every = [error for errors in by_case.values() for error in errors]
        for title, errors in [*by_case.items(), ("all cases", every)]:
            sizes = sorted(abs(error) for error in errors)
            rows.append([disk, title, str(len(errors)), number(sizes[len(sizes) // 2]), f"{min(errors):+.0f}", f"{max(errors):+.0f}"])
    return ["disk", "case", "compared", "median error, %", "lowest", "highest"], rows


def days(real: Sequence[Mapping[str, Any]], memory: Sequence[Mapping[str, Any]], simulated: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for one, processor, device in zip(real, memory, simulated):
        title = f"day {one['number'] + 1}" if one["type"] == "replayed_snapshot" else "all"
        took, busy, predicted = (run["nanoseconds"] / 1e9 for run in (one, processor, device))
        written = device["log"]["written_bytes"] / 1e6
        rows.append([title, number(one["put_bytes"] / 1e6), number(written), *map(number, (took, predicted)), f"{100 * (predicted / took - 1):+.0f}", number(busy)])
    return ["", "MB", "written MB", "real, s", "simulated, s", "error, %", "in memory, s"], rows
