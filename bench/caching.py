"""Tables and plots of the caches' hits, for docs/evidence/notebooks/simulation.md: the part `simulate-caches`
of script/experiments (`varve-lab caches`).

Three workloads: Foundation's disk of 400 days at its full size, and two generated traces. `varve-lab caches
--engine` lets the engine do the work as well, with the disk divided by 64.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.svg import curves, number

ENGINE_SCALE, QUICK_SCALE = 64, 512
# The tree has 2.5 GB of files, and changes for 30 days. The disk is one of a Debian machine: its profile is in
# this folder.
TREE_FILES, QUICK_TREE_FILES, DAYS, QUICK_DAYS = 20_000, 200, 30, 5
IMAGE_PROFILE = Path(__file__).parent / "profiles" / "debian-nights.json"
USES = {
    "duplicates": "duplicates of all snapshots",
    "again": "the newest snapshot, put again",
    "restore": "a restore of the newest snapshot",
}
UNITS = {"block": "block", "frame": "frame", "clump": "clump", "page": "directory page", "arena": "arena"}
WORKLOADS = {"foundation-400": "Foundation's disk", "fsl": "a tree of files", "images": "a Debian disk"}
# The sizes in the tables, of those in the plots. Contents take more room than names.
SHOWN = [1 << power for power in range(16, 33, 2)]
CONTENTS_SHOWN = SHOWN[2:]

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Runs = Sequence[Mapping[str, Any]]


def measure(lab: Callable[..., list[Any]], work: Path, quick: bool) -> list[Any]:
    """Makes the traces, and counts the hits."""
    folder = work / "caches"
    folder.mkdir(parents=True, exist_ok=True)
    days = QUICK_DAYS if quick else DAYS
    tree, image, profile = folder / "fsl.vtrace", folder / "images.vtrace", folder / "profile.json"
    profile.write_text(json.dumps({"files": QUICK_TREE_FILES if quick else TREE_FILES}))
    for trace in (tree, image):
        trace.unlink(missing_ok=True)
    lab("generate", "fsl", tree, "--profile", profile, "--snapshots", days)
    lab("generate", "images", image, "--profile", IMAGE_PROFILE, "--snapshots", days)
    whole, divided = (QUICK_SCALE, QUICK_SCALE) if quick else (1, ENGINE_SCALE)
    return [*lab("caches", "--scale", whole), *lab("caches", tree, image), *lab("caches", "--scale", divided, "--engine")]


def curves_of(runs: Runs) -> Runs:
    return [run for run in runs if run["engine"] is None and (run["scale"] == runs[0]["scale"])]


def tables(runs: Runs) -> dict[str, Table]:
    found = {f"caches-{use}": hits(use, [run for run in curves_of(runs) if run["use"] == use][: len(WORKLOADS)]) for use in USES}
    return found | {"caches-engine": engine([run for run in runs if run["engine"]])}


def hits(use: str, runs: Runs) -> Table:
    """Returns the hits in percent, and for contents the bytes that are loaded for each requested byte."""
    head = [f"{USES[use]}: hits, %"]
    for run in runs:
        head += [f"{WORKLOADS[run['workload']]}: by {UNITS[unit]}" for unit in ordered(run)]
    rows = []
    for size in CONTENTS_SHOWN if use == "restore" else SHOWN:
        row = [size_name(size)]
        for run in runs:
            at = run["sizes"].index(size)
            for unit in ordered(run):
                misses, loaded = run["units"][unit]["misses"][at], run["units"][unit]["loaded_bytes"][at]
                cell = percent(1 - misses / run["requests"]) if run["requests"] else "–"
                if use == "restore":
                    cell += f" ({loaded / run['requested_bytes']:.2f})"
                row.append(cell)
        rows.append(row)
    return head, rows


def engine(runs: Runs) -> Table:
    """Returns the reads of the engine with its own caches, beside the misses of a cache of the same units."""
    beside = {"again": "page", "restore": "frame"}
    head, columns = ["size of the cache"], []
    for run in runs:
        unit = beside[run["use"]]
        head += [f"{USES[run['use']]}: misses of least recently used, by {UNITS[unit]}", "reads of the engine", "MB read"]
        found = run["engine"]
        columns.append([run["units"][unit]["misses"][: len(found["sizes"])], found["reads"], [count / 1e6 for count in found["read_bytes"]]])
    rows = []
    for at, size in enumerate(runs[0]["engine"]["sizes"] if runs else []):
        rows.append([size_name(size), *(number(figures[at]) for column in columns for figures in column)])
    return head, rows


def plots(runs: Runs) -> Iterator[tuple[str, str]]:
    for use, title in USES.items():
        series = {}
        for run in curves_of(runs):
            if run["use"] == use and run["requests"]:
                for unit in ordered(run):
                    rates = [100 * (1 - misses / run["requests"]) for misses in run["units"][unit]["misses"]]
                    series[f"{WORKLOADS[run['workload']]}, {UNITS[unit]}"] = rates
        if series:
            yield f"caches-{use}", curves(f"Hits: {title}", "size of the cache", "%", [size_name(size) for size in runs[0]["sizes"]], series)


def ordered(run: Mapping[str, Any]) -> list[str]:
    return [unit for unit in UNITS if unit in run["units"]]


def percent(share: float) -> str:
    if share >= 0.99995:
        return "100"
    return f"{100 * share:.1f}" if share < 0.999 else f"{100 * share:.2f}"


def size_name(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
