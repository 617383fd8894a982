"""Tables and plots of the experiments in virtual time, for docs/evidence/notebooks/simulation.md.

The part `simulate-snapshots` takes Foundation's 400 snapshots with the real engine on a modelled disk
(`varve-lab snapshots`), and `simulate-restores` restores some of the disks. `simulate-defragmentation` counts
what a restore would gain if scattered blocks were stored again. The results are the same on every machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.svg import bars, number, scatter

SNAPSHOT_SCALE, RESTORE_SCALE, QUICK_SCALE = 16, 64, 512
RESTORE_EVERY = 100
ENGINES = {"venti": "Venti's algorithm", "hash": "by hash", "value": "by value"}
# Foundation, Figure 8: kB/s, seconds, seconds of reading, writing and seeking, seeks to the index and to the log,
# and look-ups that read the index. 001 and 003 print the same table; 622.3, 2.2 and 4.5 s are restored from sums.
FIGURE_8 = {
    "venti": (849, 648.4, 4.1, 21.6, 622.3, 31_415, 14_684, 16_731),
    "hash": (20_581, 26.7, 2.2, 20.0, 2.6, 133, 58, 73),
    "value": (15_723, 35.0, 4.5, 19.8, 10.7, 133, 658, 73),
}
# Figure 7: the percentage of snapshots that end within a minute.
FIGURE_7 = {"hash": 94, "value": 90}
# Figure 9: kB/s, and seeks of a disk to the index and to the log.
FIGURE_9 = {
    ("venti", "unsorted"): (1_271, 1_613_802, 1_669_365),
    ("hash", "unsorted"): (13_894, 25_431, 156_906),
    ("value", "unsorted"): (15_309, 0, 153_853),
    ("value", "sort1024"): (20_842, 0, 79_495),
    ("value", "sorted"): (28_940, 0, 35_218),
}
ORDERS = {"unsorted": "one by one", "sort1024": "1024 at a time", "sorted": "all in the log's order"}

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def snapshots(quick: bool) -> list[list[object]]:
    """Returns the arguments of the run of varve-lab that Figures 7 and 8 show, beside earlier runs of Venti's
    algorithm."""
    return [["snapshots", "--scale", QUICK_SCALE if quick else SNAPSHOT_SCALE]]


def restores(quick: bool) -> list[list[object]]:
    """Returns the arguments of the run that Figure 9 shows."""
    return [["snapshots", "--scale", QUICK_SCALE if quick else RESTORE_SCALE, "--restore-every", RESTORE_EVERY]]


def defragmentation(quick: bool) -> list[list[object]]:
    return [["defragmentation", "--scale", QUICK_SCALE if quick else 1]]


def moved_blocks(rules: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the moves of a restore after some blocks were stored again, by the rule that chose them."""
    titles = {
        "clumps": "blocks of clumps of which 64 MiB of the disk use at most {} of 32 blocks",
        "shortest-runs": "shortest runs, {} % of the disk",
        "parts-of-4M": "scattered parts of 4 MiB, {} % of the disk",
        "parts-of-16M": "scattered parts of 16 MiB, {} % of the disk",
        "parts-of-64M": "scattered parts of 64 MiB, {} % of the disk",
    }
    before = rules[0]["before"]
    rows = [["as it is", "–", f"{before['one_by_one']:,}", "–", f"{before['in_batches']:,}", "–"]]
    for rule in rules:
        row = [titles[rule["rule"]].format(rule["limit"]), f"{100 * rule['moved'] / rule['blocks']:.1f}"]
        for order in ("one_by_one", "in_batches"):
            after = rule["after"][order]
            row += [f"{after:,}", f"{before[order] / after:.2f}"]
        rows.append(row)
    return ["stored again", "% of the disk", "moves one by one", "times fewer", "moves 1024 at a time", "times fewer"], rows


def tables(taken: Sequence[Mapping[str, Any]], restored: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    taken = sorted(taken, key=has_large_page_cache)
    return {"figure-7": figure_7(taken), "figure-8": figure_8(taken), "figure-9": figure_9(restored)}


def name(run: Mapping[str, Any]) -> str:
    """Returns the column of a run."""
    engine = ENGINES[run["engine"]]
    if run["setting"] == "shipped":
        return f"{engine}, as shipped"
    return f"{engine}, page cache of 64 MB" if has_large_page_cache(run) else engine


def has_large_page_cache(run: Mapping[str, Any]) -> bool:
    return run["setting"] == "paper" and run["page_cache_bytes"] > 64 << 10


def rate(run: Mapping[str, Any]) -> float:
    """Returns the kilobytes a second, of 1024 bytes as in the paper."""
    return run["sum"]["blocks"] * 32 / (run["sum"]["nanoseconds"] / 1e9)


def seconds(run: Mapping[str, Any]) -> list[float]:
    """Returns the time of each snapshot of the whole disk, ascending."""
    return sorted(us * run["scale"] / 1e6 for us in run["microseconds"])


def within_a_minute(run: Mapping[str, Any]) -> float:
    times = seconds(run)
    return 100 * sum(time <= 60 for time in times) / len(times)


def figure_7(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for run in runs:
        theirs = FIGURE_7.get(run["engine"])
        paper = str(theirs) if theirs and run["setting"] == "paper" else "–"
        times = seconds(run)
        median, most = times[len(times) // 2], times[-1]
        rows.append([name(run), paper, number(within_a_minute(run)), number(median), number(most)])
    return ["", "within a minute, %: paper", "here", "median, s", "longest, s"], rows


def figure_8(runs: Sequence[Mapping[str, Any]]) -> Table:
    titles = ["kB/s", "time, s", "reading, s", "writing, s", "seeking, s", "seeks to the index", "seeks to the log", "look-ups that read the index"]
    head, columns = [""], []
    for run in runs:
        if run["setting"] == "paper" and not has_large_page_cache(run):
            head += [f"{ENGINES[run['engine']]}: paper", "here"]
            columns.append([number(value) for value in FIGURE_8[run["engine"]]])
        else:
            head.append(name(run))
        share = run["scale"] / len(run["blocks"])
        index, log = run["sum"]["of_index"], run["sum"]["of_log"]
        both = [(index[key] + log[key]) * share / 1e9 for key in ("reading", "writing", "seeking")]
        counts = [index["seeks"] * share, log["seeks"] * share, run["sum"]["index"]["pages_read"] * share]
        ours = [rate(run), run["sum"]["nanoseconds"] * share / 1e9, *both, *counts]
        columns.append([number(value) for value in ours])
    return head, [[title, *(column[row] for column in columns)] for row, title in enumerate(titles)]


def figure_9(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for run in runs:
        for restore in run["restores"]:
            theirs = FIGURE_9.get((run["engine"], restore["order"])) if run["setting"] == "paper" else None
            whole = run["scale"] / restore["disks"]
            speed = restore["blocks"] * 32 / (restore["nanoseconds"] / 1e9)
            index, log = restore["of_index"]["seeks"] * whole, restore["of_log"]["seeks"] * whole
            paper = [number(value) for value in theirs] if theirs else ["–"] * 3
            title = f"{name(run)}, {ORDERS[restore['order']]}"
            rows.append([title, paper[0], number(speed), paper[1], number(index), paper[2], number(log)])
    return ["", "kB/s: paper", "here", "seeks to the index: paper", "here", "to the log: paper", "here"], rows


def plots(runs: Sequence[Mapping[str, Any]], restored: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    runs = sorted(runs, key=has_large_page_cache)
    shown = {name(run): run for run in runs if run["engine"] != "venti"}
    curves = {}
    for title, run in shown.items():
        times = seconds(run)
        curves[title] = [(min(time, 180.0), 100 * (place + 1) / len(times)) for place, time in enumerate(times)]
    yield "figure-7", scatter("Snapshots that end within a time", "seconds, at most 180", "%", curves)
    speeds = {}
    for run in runs:
        speeds[name(run)] = {"here": rate(run)}
        if run["setting"] == "paper" and not has_large_page_cache(run):
            speeds[name(run)]["paper"] = FIGURE_8[run["engine"]][0]
    yield "figure-8", bars("Figure 8: the speed of a snapshot", "kB/s", speeds, ["paper", "here"])
    rates = {}
    for run in restored:
        for restore in run["restores"]:
            title = f"{name(run)}, {ORDERS[restore['order']]}"
            rates[title] = {"here": restore["blocks"] * 32 / (restore["nanoseconds"] / 1e9)}
            if run["setting"] == "paper":
                rates[title]["paper"] = FIGURE_9[run["engine"], restore["order"]][0]
    yield "figure-9", bars("Figure 9: the speed of a restore", "kB/s", rates, ["paper", "here"])
