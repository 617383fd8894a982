"""Tables of the engines in virtual time, for docs/evidence/notebooks/simulation.md: Foundation's six cases on
its disk, the thesis's Tables 5.1 and 7.1 on its two disks, and all engines on devices that differ from disks.
The figures of Table 5.1, and of Venti's algorithm in the other tables, are of an earlier version."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.svg import number

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Runs = Sequence[Mapping[str, Any]]
# Blocks in a store, and blocks that are read one by one, with blocks of 512 bytes and of 8 KB.
SIZES = {512: (150_000, 500), 8192: (100_000, 500)}
PAPER_DEVICE = "foundation-maxtor"
DEVICES = ["wd800jb-read-ahead", "wd800jb-shingled", "wd800jb-shingled-uncached", "compact-flash-usb", "nand-module", "mems-first", "object-store"]
CASES = {
    "out-of-order-read": "out-of-order read",
    "sequential-read": "sequential read",
    "out-of-order-duplicate": "out-of-order duplicate",
    "near-duplicate": "near duplicate",
    "sequential-duplicate": "sequential duplicate",
    "fresh-write": "fresh write",
}
# The names of the engines in the output of varve-lab, for the columns of Foundation's Figure 6.
PAPER_ENGINES = ["Venti's algorithm", "by hash, index on disk", "by value, index on disk"]
PROGRAMS = {"venti": "Venti's algorithm", "value-memory": "by value, index in memory", "hash-memory": "by hash, index in memory"}


def runs(quick: bool) -> list[list[object]]:
    """Returns the arguments of the runs of varve-lab."""
    found = []
    for device in [PAPER_DEVICE, *DEVICES]:
        size = 512 if device == PAPER_DEVICE else 8192
        count, sample = SIZES[size]
        smaller = 50 if quick else 1
        found.append(["foundation", "--device", device, "--block-size", size, "--blocks", count // smaller, "--sample", max(sample // smaller, 20)])
    return [*found, ["randtest", "--size", "8M" if quick else "2G"]]


def tables(results: Runs, paper: Mapping[str, tuple[float, float, float]], known: Mapping[str, str]) -> dict[str, Table]:
    """`paper` has Figure 6, and `known` the names of devices by the names in their files."""
    loads = [run for run in results if run["type"] == "randtest_simulation"]
    engines = [run for run in results if run["type"] == "foundation_benchmark"]
    first = [run for run in engines if run["block_bytes"] == 512]
    return {
        "simulated-figure-6": figure_6(first, paper),
        "simulated-loads": thesis(loads),
        "engines-on-devices": on_devices([run for run in engines if run["block_bytes"] != 512], known),
    }


def speed(run: Mapping[str, Any], case: str) -> float:
    """Returns the kilobytes a second, of 1024 bytes as in the papers."""
    found = next(found for found in run["cases"] if found["case"] == case)
    return found["bytes"] / 1024 / (found["nanoseconds"] / 1e9)


def figure_6(engines: Runs, paper: Mapping[str, tuple[float, float, float]]) -> Table:
    by_name = {run["engine"]: run for run in engines}
    heads = ["Venti: paper", "by hash: paper", "by value: paper"]
    shown = [(place, engine) for place, engine in enumerate(PAPER_ENGINES) if engine in by_name]
    rows = []
    for case, title in CASES.items():
        row = [title]
        for place, engine in shown:
            row += [number(paper[case][place]), number(speed(by_name[engine], case))]
        rows.append(row)
    return ["kB/s", *(head for place, _ in shown for head in (heads[place], "here"))], rows


def thesis(loads: Runs) -> Table:
    rows = []
    for run in loads:
        theirs, ours = run["thesis_megabytes_per_second"], run["megabytes_per_second"]
        rows.append([run["table"], PROGRAMS[run["engine"]], run["load"], number(theirs), number(ours), f"{ours / theirs:.2f}"])
    return ["", "engine here", "load", "thesis, MB/s", "here", "ratio"], rows


def on_devices(engines: Runs, known: Mapping[str, str]) -> Table:
    rows = []
    places = {run["device"]: place for place, run in reversed(list(enumerate(engines)))}
    for run in sorted(engines, key=lambda run: places[run["device"]]):
        device = known.get(run["device"], run["device"])
        rows.append([f"`{device}`", run["engine"], *(number(speed(run, case)) for case in CASES)])
    return ["kB/s", "engine", *CASES.values()], rows
