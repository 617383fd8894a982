"""The table of sizes on several devices, for docs/evidence/notebooks/simulation.md: the part `simulate-sizes`
of script/experiments (`varve-lab sizes`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.svg import number

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
SCALE, QUICK_SCALE = 64, 512
DEFAULTS = {"arena_bytes": 64 << 20, "frame_bytes": 32 << 10, "cache_bytes": 96 << 20, "batch_blocks": 1024}
TITLES = {"arena_bytes": "arenas of {}", "frame_bytes": "frames of {}", "cache_bytes": "a cache of {}", "batch_blocks": "batches of {} blocks"}


def runs(quick: bool) -> list[list[object]]:
    """Returns the arguments of the run of varve-lab."""
    return [["sizes", "--scale", QUICK_SCALE if quick else SCALE, "--reads", 500 if quick else 50_000]]


def table(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for run in sorted(runs, key=lambda run: (order(runs, run["device"]), *changed(run))):
        snapshots, restore, single = run["snapshots"], run["restore"], run["single_reads"]
        by_many = run["restore_by_readers"]
        # Caches and batches change nothing in the store.
        has_own_store = changed(run)[0] not in (2, 3)
        rows.append([
            f"`{run['device']}`", title(run), rate(snapshots) if has_own_store else "–", rate(restore), rate(by_many) if by_many else "–", number(restore["reads"] * run["scale"]),
            milliseconds(single), money(run),
        ])
    return ["device", "", "snapshots, MB/s", "restore, MB/s", f"by {runs[0]['readers']} readers, MB/s", "reads of the restore", "single read, ms", "requests of the restore, $"], rows


def order(runs: Sequence[Mapping[str, Any]], device: str) -> int:
    return list(dict.fromkeys(run["device"] for run in runs)).index(device)


def changed(run: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the place of the size that is no default, and the size."""
    for place, (key, value) in enumerate(DEFAULTS.items()):
        if run[key] != value:
            return place, run[key]
    return -1, 0


def title(run: Mapping[str, Any]) -> str:
    place, size = changed(run)
    if place < 0:
        return "**the defaults**"
    key = list(DEFAULTS)[place]
    return TITLES[key].format(f"{size:,}" if key == "batch_blocks" else size_name(size))


def size_name(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def rate(work: Mapping[str, Any]) -> str:
    return number(work["bytes"] / 1e6 / (work["nanoseconds"] / 1e9))


def milliseconds(single: Mapping[str, Any] | None) -> str:
    """Returns the time of a single read of a block of 16 KiB."""
    return number(single["nanoseconds"] / 1e6 / (single["bytes"] / 16384)) if single else "–"


def money(run: Mapping[str, Any]) -> str:
    """Returns the price of the requests of a restore of the whole disk."""
    price = run["restore"]["price_billionths"] * run["scale"] / 1e9
    return number(price) if price else "–"
