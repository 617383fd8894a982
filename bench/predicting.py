"""Compares the simulator with real disks, for docs/evidence/notebooks/simulation.md. The disk of the data
folder is measured by `varve-plan bench device`, which makes a device of it, and `varve-lab predict` runs the
six cases on both. The part `predict-held` does the same on a disk that is held to the rates of an old one,
and replays a trace of daily snapshots there."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.own_disk import own_disk, run
from bench.slow_disk import BYTES_READ_PER_SECOND, BYTES_WRITTEN_PER_SECOND, READS_PER_SECOND, WRITES_PER_SECOND
from bench.svg import number

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Run = Callable[..., Any]
MEMORY = Path("/dev/shm")
# The time from which the bursts of a held disk matter little, in nanoseconds.
LONG = 1_000_000_000
ROUNDS, DEVICE_ROUNDS, HELD_DEVICE_ROUNDS = 6, 10, 2


def limits(bytes_a_second: int, places: int) -> list[tuple[dict[Path, str], int]]:
    return [(BYTES_READ_PER_SECOND, bytes_a_second), (BYTES_WRITTEN_PER_SECOND, bytes_a_second), (READS_PER_SECOND, places), (WRITES_PER_SECOND, places)]


HELD, LATER = limits(30_000_000, 100), limits(100_000_000, 1000)


def free(plan: Run, lab: Run, work: Path, quick: bool) -> dict[str, Any]:
    """Measures the disk as it is. Of the device and of the cases alike, the fastest of some rounds count."""
    figures = work / "free.json"
    rounds = 1 if quick else ROUNDS
    device(plan, work, figures, quick, 1 if quick else DEVICE_ROUNDS)
    few = ["--blocks", "2K", "--sample", 20] if quick else ["--blocks", "20K"]
    cases = lab("predict", work, "--device", figures, "--memory", MEMORY, "--rounds", rounds, *few)
    return {"figures": json.loads(figures.read_text()), "cases": cases}


def held(say: Run, plan: Run, lab: Run, work: Path, days: Sequence[Path], quick: bool) -> dict[str, Any]:
    """Measures a disk that is held to the rates of an old one, and another that is held to higher ones. The first one
    also replays daily snapshots: of generated files, and of a machine's disk, if there are images of it."""
    traces = {"files": work / "files.vtrace"}
    lab("generate", "fsl", traces["files"], "--snapshots", 2 if quick else 7, "--seed", 7)
    if days:
        traces["machine"] = work / "machine.vtrace"
        record(say, plan, work, days, traces["machine"])
    figures, later = work / "held.json", work / "later.json"
    few = ["--sample", 20] if quick else ["--sample", 200]
    with own_disk(work, 3 << 30, HELD) as disk:
        device(plan, disk, figures, quick, 1 if quick else HELD_DEVICE_ROUNDS)
        cases = lab("predict", disk, "--device", figures, "--memory", MEMORY, "--blocks", "1K" if quick else "5K", "--rounds", 1, *few)
        real = {name: lab("replay", trace, "--restore", "--folder", disk) for name, trace in traces.items()}
    with own_disk(work, 3 << 30, LATER) as disk:
        device(plan, disk, later, quick, 1 if quick else HELD_DEVICE_ROUNDS)
        few = ["--sample", 20] if quick else ["--sample", 2000]
        later_cases = lab("predict", disk, "--device", later, "--memory", MEMORY, "--blocks", "1K" if quick else "20K", "--rounds", 1, *few)
    replays = {}
    for name, trace in traces.items():
        # In memory, the same work is that of the processor.
        memory = lab("replay", trace, "--restore", "--folder", MEMORY)
        simulated = lab("replay", trace, "--restore", "--device", figures, "--page-cache", 0, *rates(memory))
        replays[name] = [real[name], memory, simulated]
    return {
        "figures": json.loads(figures.read_text()), "cases": cases, "replays": replays,
        "later": {"figures": json.loads(later.read_text()), "cases": later_cases},
    }  # fmt: skip


def record(say: Run, plan: Run, work: Path, days: Sequence[Path], trace: Path) -> None:
    """Takes the images of a disk into a store, one a day, and makes a trace of it."""
    store, disk = work / "recorded", work / "disk.raw"
    say("-s", store, "init", "--plaintext")
    for number, image in enumerate(days, 1):
        run("cp", "--sparse=always", image, disk)
        say("-s", store, "snapshot", disk, "--as", "image", "--name", "machine", "--time", f"2026-05-{number:02}T23:00:00Z")
    plan("-s", store, "trace", "from-store", "--read", trace)
    disk.unlink()
    shutil.rmtree(store)


def rates(memory: Sequence[Mapping[str, Any]]) -> list[object]:
    """Returns the bytes a second at which the processor names blocks, by the fastest day, packs new ones, by the
    first, and unpacks them, by the restore."""
    first, *later = [run for run in memory if run["type"] == "replayed_snapshot"]
    naming = max(day["put_bytes"] / day["nanoseconds"] for day in later)
    packing = first["new_bytes"] / max(first["nanoseconds"] - first["put_bytes"] / naming, 1)
    restored = next(run for run in memory if run["type"] == "replayed_restore")
    unpacking = restored["read_bytes"] / restored["nanoseconds"]
    return ["--naming-rate", int(naming * 1e9), "--packing-rate", int(packing * 1e9), "--unpacking-rate", int(unpacking * 1e9)]


def device(plan: Run, work: Path, figures: Path, quick: bool, rounds: int) -> None:
    """Measures a device in some rounds, and writes the fastest of each measurement."""
    few = ["--size", "16M", "--seconds", "0.1"] if quick else ["--seconds", "0.5"] if rounds == DEVICE_ROUNDS else ["--size", "256M"]
    first, *more = [plan("bench", "device", work, *few) for _ in range(rounds)]
    for other in more:
        for row, again in zip(first["rows"], other["rows"], strict=True):
            row["per_second"] = max(row["per_second"], again["per_second"])
        first["sync_seconds"] = min(first["sync_seconds"], other["sync_seconds"])
        # Other work can hide budgets, and make separate ones look like one.
        budgets = [found["budget"] for found in (first, other) if "budget" in found]
        if budgets:
            first["budget"] = min(budgets, key=lambda budget: budget["is_shared"])
    figures.write_text(json.dumps(first))


def tables(free: Mapping[str, Any] | None, held: Mapping[str, Any] | None) -> dict[str, Table]:
    if not free or not held:
        return {}
    disks = {"free": free, "held": held, "held later": held["later"]}
    return {"predicted-cases": predicted(disks), "predicted-winners": winners(disks), "predicted-days": days(held["replays"])}


def compared(measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [case for case in measured["cases"] if case["type"] == "predicted_case"]


def predicted(disks: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for disk, measured in disks.items():
        by_case: dict[str, list[Mapping[str, Any]]] = {}
        for case in compared(measured):
            by_case.setdefault(case["case"], []).append(case)
        for title, cases in [*by_case.items(), ("all cases", compared(measured))]:
            rows.append([disk, title, *accuracy(cases), *accuracy([case for case in cases if case["measured_nanoseconds"] >= LONG])])
    columns = ["compared", "median error, %", "lowest", "highest"]
    return ["disk", "case", *columns, *(f"a second or longer: {column}" for column in columns)], rows


def accuracy(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    errors = [case["error_percent"] for case in cases]
    if not errors:
        return ["0", "–", "–", "–"]
    sizes = sorted(map(abs, errors))
    return [str(len(errors)), number(sizes[len(sizes) // 2]), f"{min(errors):+.0f}", f"{max(errors):+.0f}"]


def winners(disks: Mapping[str, Mapping[str, Any]]) -> Table:
    """Compares the engine that is predicted to be the fastest with the one that is, in each case and size."""
    rows = []
    for disk, measured in disks.items():
        titles = list(dict.fromkeys(case["case"] for case in compared(measured)))
        for title in titles:
            lost = []
            by_size: dict[int, list[Mapping[str, Any]]] = {}
            for case in compared(measured):
                if case["case"] == title:
                    by_size.setdefault(case["block_bytes"], []).append(case)
            spreads = []
            for engines in by_size.values():
                chosen = min(engines, key=lambda engine: engine["predicted_nanoseconds"])
                times = sorted(engine["measured_nanoseconds"] for engine in engines)
                lost.append(100 * (chosen["measured_nanoseconds"] / times[0] - 1))
                spreads.append(times[-1] / times[0])
            rows.append([
                disk, title, str(len(lost)), str(sum(loss == 0 for loss in lost)), str(sum(0 < loss <= 10 for loss in lost)),
                number(max(lost)), f"{number(min(spreads))} to {number(max(spreads))}",
            ])  # fmt: skip
    return ["disk", "case", "sizes", "the winner", "within 10 % of it", "most time lost, %", "slowest engine ÷ fastest"], rows


def days(replays: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> Table:
    rows = []
    for name, (real, memory, simulated) in replays.items():
        for one, processor, device in zip(real, memory, simulated, strict=True):
            kind = one["type"]
            title = f"day {one['number'] + 1}" if kind == "replayed_snapshot" else "restore" if kind == "replayed_restore" else "all"
            took, busy, expected = (run["nanoseconds"] / 1e9 for run in (one, processor, device))
            moved = [number(one[key] / 1e6) for key in ("put_bytes", "read_bytes")]
            rows.append([f"{name}, {title}", *moved, number(device["log"]["written_bytes"] / 1e6), *map(number, (took, expected)), f"{100 * (expected / took - 1):+.0f}", number(busy)])
    return ["", "put, MB", "read, MB", "written, MB", "real, s", "simulated, s", "error, %", "in memory, s"], rows
