"""Compares the simulator with real disks, for docs/evidence/simulation.md. The disk of the data folder is measured
by `varve bench device`, which makes a device of it, and `varve-lab predict` runs the six cases on both. The part
`predict-held` does the same on a disk that a control group holds to the rates of an old one, and replays a trace of
daily snapshots there."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.slow_disk import BYTES_READ_PER_SECOND, BYTES_WRITTEN_PER_SECOND, READS_PER_SECOND, WRITES_PER_SECOND, held_disk
from bench.svg import number

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Run = Callable[..., Any]
BYTES, PLACES = 30_000_000, 100
HELD = [(BYTES_READ_PER_SECOND, BYTES), (BYTES_WRITTEN_PER_SECOND, BYTES), (READS_PER_SECOND, PLACES), (WRITES_PER_SECOND, PLACES)]


def free(say: Run, lab: Run, work: Path, quick: bool) -> dict[str, Any]:
    """Measures the disk as it is."""
    figures = work / "free.json"
    device(say, work, figures, quick)
    few = ["--blocks", "2K", "--sample", 20, "--rounds", 1] if quick else ["--blocks", "20K", "--rounds", 3]
    return {"cases": lab("predict", work, "--device", figures, *few)}


def held(say: Run, lab: Run, work: Path, quick: bool) -> dict[str, Any]:
    """Measures the disk while a control group holds it."""
    figures, trace = work / "held.json", work / "days.vtrace"
    lab("generate", "fsl", trace, "--snapshots", 2 if quick else 7, "--seed", 7)
    with held_disk(work, HELD):
        device(say, work, figures, quick)
        few = ["--blocks", "2K" if quick else "5K", "--sample", 20 if quick else 200, "--rounds", 1]
        cases = lab("predict", work, "--device", figures, *few)
        real = lab("replay", trace, "--folder", work)
    simulated = lab("replay", trace, "--device", figures, "--page-cache", 0)
    return {"cases": cases, "replays": [real, simulated]}


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


def days(real: Sequence[Mapping[str, Any]], simulated: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for one, other in zip(real, simulated):
        title = f"day {one['number'] + 1}" if one["type"] == "replayed_snapshot" else "all"
        seconds = [run["nanoseconds"] / 1e9 for run in (one, other)]
        rows.append([title, number(one["put_bytes"] / 1e6), number(one["new_bytes"] / 1e6), *map(number, seconds), f"{100 * (seconds[1] / seconds[0] - 1):+.1f}"])
    return ["", "MB", "new MB", "real, s", "simulated, s", "error, %"], rows
