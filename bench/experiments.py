"""Repeats the papers' experiments on this machine, and writes tables and plots for
docs/evidence/notebooks/experiments.md and docs/evidence/notebooks/simulation.md.

  script/experiments                 runs everything: half an hour on a quiet machine, needs 5 GB of disk
  script/experiments PART...         runs these parts only; script/experiments --list lists the parts
  script/experiments --parts GROUP   runs the parts of a group: --parts simulate for those named simulate-...
  script/experiments --quick         uses a hundredth of the data, as a quick test; writes nothing to docs/
  script/experiments --render        measures nothing; writes tables and plots of the last measurements
  script/experiments --from DIR      does the same with the measurements of another checkout, which are in its
                                     folder docs/evidence/notebooks/experiments

The measurements are kept in docs/evidence/notebooks/experiments/, one file for each part. Those of Venti's
algorithm, whose names end with -venti, are of an earlier version, and are not repeated. The tables go into
two pages, between the lines with their names. The plots are put beside the measurements. A machine without
other work gives better figures. A part takes a few minutes at most, so each part can run when the machine is
quiet. A part that fails leaves nothing of an earlier run behind, and the other parts still run. The program
lists incomplete tables at the end, and its exit status is then 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import (
    caching,
    deltas,
    lbcas,
    modelled_devices,
    predicting,
    simulated_cases,
    simulating,
    sizing,
    stored_deltas,
)
from bench.lbcas import disks, sharing
from bench.lbcas import tables as lbcas_tables
from bench.measure import CannotMeasure
from bench.svg import bars, histogram, number

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORKLOADS = Path(os.environ.get("VARVE_WORKLOADS") or TARGET / "bench")
# For each block size in bytes: the number of blocks in a store, and the number of blocks that are read one by
# one. The engine caches 96 MiB of unpacked data. A store must therefore be far larger than that, and the
# reads one by one must not cover the whole store.
SIZES = {512: (150_000, 500), 4096: (400_000, 1_000), 8192: (100_000, 500)}
# Only earlier versions could be measured with this one.
VENTI = "venti"
ENGINES = {
    VENTI: "Venti's algorithm",
    "hash-memory": "by hash, index in memory",
    "hash-disk": "by hash, index on disk",
    "value-memory": "by value, index in memory",
    "value-disk": "by value, index on disk",
}
CASES = simulated_cases.CASES
LBCAS_DISKS = {f"lbcas-{disk.name}": disk for disk in lbcas.parts(WORKLOADS)}
# Foundation, Figure 6: the measured kB/s of Venti's algorithm, by hash, and by value. Blocks of 512 bytes, a
# USB disk.
FIGURE_6 = {
    "out-of-order-read": (15, 4.8, 19),
    "sequential-read": (76, 13_000, 16_000),
    "out-of-order-duplicate": (79, 6.0, 5.2),
    "near-duplicate": (22_000, 22_000, 19),
    "sequential-duplicate": (78, 23_000, 16_000),
    "fresh-write": (37, 3_800, 7_100),
}
STORED, INDEX_MEMORY, MUCH_MEMORY, DEPTHS = "50%", "1M", "256M", (1, 32)
# Memventi's histograms of candidates at 68 GB of blocks of 2 KB (section 7.2.4), when written and when read.
MEMVENTI = {"candidates_when_written": {1: 18_093, 2: 5}, "candidates_when_read": {1: 35_633_951, 2: 36_181, 3: 15}}


def main() -> int:
    chosen = parse()
    parts = dict(all_parts(chosen.quick))
    if chosen.list:
        print("\n".join(parts))
        return 0
    for group in chosen.groups:
        chosen.parts += [name for name in parts if name.startswith(f"{group}-")] or [group]
    unknown = [name for name in chosen.parts if name not in parts]
    if unknown:
        print(f"unknown part {unknown[0]!r}; the parts are: {', '.join(parts)}", file=sys.stderr)
        return 2
    docs = chosen.data / "docs" if chosen.quick else ROOT / "docs" / "evidence" / "notebooks"
    results = docs / "experiments"
    results.mkdir(parents=True, exist_ok=True)
    failed = []
    if chosen.take:
        there = [name for name in parts if (chosen.take / f"{name}.json").is_file()]
        if not there:
            print(f"{chosen.take} has no measurements; name the folder docs/evidence/notebooks/experiments of another checkout", file=sys.stderr)
            return 2
        for name in there:
            (results / f"{name}.json").write_bytes((chosen.take / f"{name}.json").read_bytes())
        if left := [name for name in parts if name not in there]:
            print(f"not measured there, and not changed here: {', '.join(left)}", file=sys.stderr)
    elif not chosen.render:
        if not chosen.no_build:
            subprocess.run(["cargo", "build", "--release", "--locked", "--bin", "varve", "--bin", "varve-plan", "--bin", "varve-lab"], cwd=ROOT, check=True)
        work = chosen.data / "work"
        work.mkdir(parents=True, exist_ok=True)
        try:
            for name in chosen.parts or parts:
                if reason := missing_for(name):
                    print(f"{name} is left out: {reason}", file=sys.stderr)
                    continue
                print(f"{name} …", flush=True)
                file = results / f"{name}.json"
                file.unlink(missing_ok=True)
                try:
                    file.write_text(json.dumps(parts[name](work, results), indent=1) + "\n")
                except (subprocess.CalledProcessError, json.JSONDecodeError, IndexError, CannotMeasure) as error:
                    failed.append(name)
                    print(f"{name} has failed: {error}", file=sys.stderr)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    lacking = render(results, docs)
    if lacking:
        print(f"incomplete tables: {', '.join(lacking)}", file=sys.stderr)
    if failed:
        print(f"run again: script/experiments {' '.join(failed)}", file=sys.stderr)
    return 1 if lacking or failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="script/experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--parts", dest="groups", action="append", default=[], metavar="GROUP", help="the parts whose names begin with GROUP")
    parser.add_argument("--data", type=Path, default=TARGET / "experiments", metavar="DIR", help="the folder for temporary stores")
    parser.add_argument("--quick", action="store_true", help="tiny data; tables and plots go to the data folder")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--from", dest="take", type=Path, metavar="DIR", help="measure nothing; take the measurements in this folder")
    parser.add_argument("--no-build", action="store_true", help="use the existing target/release/varve")
    parser.add_argument("--list", action="store_true", help="list the parts, and stop")
    return parser.parse_args()


Part = Callable[[Path, Path], Any]


def all_parts(quick: bool) -> Iterator[tuple[str, Part]]:
    """Yields the parts by name, in an order in which each part finds the files of the earlier parts that it
    needs."""
    smaller = 100 if quick else 1
    device = ["--size", "16M", "--seconds", "0.1"] if quick else []
    yield "device", lambda work, _: plan("bench", "device", work, *device)
    for size, (count, sample) in SIZES.items():
        words = ["--block-size", size, "--incompressible", STORED]
        asked = ["--blocks", count // smaller, "--sample", max(sample // smaller, 20)]
        for engine in (engine for engine in ENGINES if engine != VENTI):
            yield f"foundation-{size}-{engine}", foundation([*words, *asked, "--index-memory", INDEX_MEMORY, "--engine", engine])
        # The buffer has room for everything, so this measures a fresh write without its flush.
        yield f"unflushed-{size}", foundation([*words, *asked, "--index-memory", MUCH_MEMORY, "--engine", "hash-disk,value-disk"])
        # The disk space of blocks that compress by half, with their directory.
        disk = count // smaller * (size // 2 + 41)
        yield f"plan-{size}", prediction(["--disk-size", disk, "--block-size", size, "--stored", STORED, "--index-memory", INDEX_MEMORY])
    for depth in DEPTHS:
        indexes = "2622:8K,35651:2K" if quick else "262144:8K,35651584:2K" if depth == 1 else "1:8K"
        words = ["--size", "20M" if quick else "2G", "--depth", depth, "--index-blocks", indexes]
        yield f"memventi-{depth}", memventi(words)
    yield "simulate-devices", simulation([["devices"]])
    yield "simulate-cases", simulation(simulated_cases.runs(quick))
    yield "simulate-snapshots", simulation(simulating.snapshots(quick))
    yield "simulate-restores", simulation(simulating.restores(quick))
    yield "simulate-defragmentation", simulation(simulating.defragmentation(quick))
    yield "simulate-caches", lambda work, _: caching.measure(lab, work, quick)
    yield "simulate-sizes", simulation(sizing.runs(quick))
    yield "predict-free", lambda work, _: predicting.free(plan, lab, work, quick)
    yield "predict-held", lambda work, _: predicting.held(say, plan, lab, work, [] if quick else sorted((WORKLOADS / "days").glob("day*.raw")), quick)
    yield "deltas", lambda work, _: deltas.measure(lab, work, quick)
    yield "deltas-stored", lambda work, _: stored_deltas.measure(TARGET / "release" / "varve", work, quick)
    if not quick:
        for name, disk in LBCAS_DISKS.items():
            yield name, lbcas_starts(disk)
        yield "lbcas-sharing", lambda work, _: sharing.measure(WORKLOADS, TARGET / "release" / "varve", work)


def lbcas_starts(disk: disks.Disk) -> Part:
    return lambda work, _: lbcas.measure(disk, TARGET / "release" / "varve", work)


def missing_for(part: str) -> str | None:
    """Returns what a part lacks on this machine."""
    if part == "lbcas-sharing":
        return sharing.lacking(WORKLOADS)
    disk = LBCAS_DISKS.get(part)
    return disks.lacking(disk) if disk else None


def foundation(words: Sequence[object]) -> Part:
    return lambda work, _: lab("foundation", work, *words)


def memventi(words: Sequence[object]) -> Part:
    return lambda work, _: lab("memventi", work, *words)[0]


def simulation(runs: Sequence[Sequence[object]]) -> Part:
    """A part in virtual time, which needs no disk."""
    return lambda *_: [result for words in runs for result in lab(*words)]


def prediction(words: Sequence[object]) -> Part:
    return lambda _, results: plan("predict", "--device", results / "device.json", *words)


def say(*words: object) -> Any:
    return output("varve", "--json", *words)[0]


def plan(*words: object) -> Any:
    return output("varve-plan", "--json", *words)[0]


def lab(*words: object) -> list[Any]:
    return output("varve-lab", *words)


def output(program: str, *words: object) -> list[Any]:
    command = [TARGET / "release" / program, *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Results:
    """The measurements that exist."""

    def __init__(self, folder: Path):
        self.folder = folder

    def of(self, name: str) -> Any:
        file, earlier = self.folder / f"{name}.json", self.folder / f"{name}-{VENTI}.json"
        if not file.is_file():
            return None
        found = json.loads(file.read_text())
        return json.loads(earlier.read_text()) + found if earlier.is_file() else found

    def cases(self, size: int, engine: str) -> dict[str, Any]:
        runs = self.of(f"foundation-{size}-{engine}") or []
        return {case["case"]: case for run in runs for case in run["cases"]}

    def engines(self, size: int) -> list[str]:
        return [engine for engine in ENGINES if engine != VENTI or self.cases(size, engine)]


def render(folder: Path, docs: Path) -> list[str]:
    """Writes plots and tables. Returns the names of the tables that are incomplete or have no place in the
    page."""
    results = Results(folder)
    tables = {"disk": disk_table(results), "unflushed": unflushed_table(results)}
    if ratios(results, 512):
        tables["ratios"] = ratio_table(results)
    for size in SIZES:
        tables[f"counts-{size}"] = count_table(results, size)
        tables[f"rates-{size}"] = rate_table(results, size)
        tables[f"predicted-{size}"] = predicted_table(results, size)
    tables |= {"table-7-1": table_7_1(results), "candidates": candidate_table(results), "shape": shape_table(results)}
    # Not every machine has what this measurement needs.
    for name, disk in LBCAS_DISKS.items():
        if found := results.of(name):
            tables |= {table: markdown(head, rows) for table, (head, rows) in lbcas_tables.tables(disk.name, found).items()}
    if (taken := results.of("simulate-snapshots")) and (restored := results.of("simulate-restores")):
        tables |= {table: markdown(head, rows) for table, (head, rows) in simulating.tables(taken, restored).items()}
    if found := results.of("simulate-defragmentation"):
        tables["defragmentation"] = markdown(*simulating.moved_blocks(found))
    if found := results.of("simulate-caches"):
        tables |= {table: markdown(head, rows) for table, (head, rows) in caching.tables(found).items()}
    if found := results.of("simulate-sizes"):
        tables["sizes"] = markdown(*sizing.table(found))
    if figures := results.of("simulate-devices"):
        tables |= {table: markdown(head, rows) for table, (head, rows) in modelled_devices.tables(figures).items()}
        if cases := results.of("simulate-cases"):
            known = {figure["name"]: figure["device"] for figure in figures}
            found = simulated_cases.tables(cases, FIGURE_6, known)
            tables |= {table: markdown(head, rows) for table, (head, rows) in found.items()}
    found = predicting.tables(results.of("predict-free"), results.of("predict-held"))
    tables |= {table: markdown(head, rows) for table, (head, rows) in found.items()}
    if found := results.of("deltas"):
        tables["deltas"] = markdown(*deltas.table(found))
    if found := results.of("deltas-stored"):
        tables["deltas-stored"] = markdown(*stored_deltas.table(found))
    if found := results.of("lbcas-sharing"):
        tables["lbcas-sharing"] = markdown(*sharing.table(found))
    for name, plot in plots(results):
        (folder / f"{name}.svg").write_text(plot)
    shown = set()
    for page in (docs / "experiments.md", docs / "simulation.md"):
        if not page.is_file():
            page.write_text("".join(f"<!-- {name} -->\n<!-- end -->\n\n" for name in tables))
        text = page.read_text()
        shown |= {name for name in tables if f"<!-- {name} -->" in text}
        for name, rows in tables.items():
            text = re.sub(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", lambda at: at[1] + rows + at[2], text, flags=re.DOTALL)
        page.write_text(text)
    return [name for name, rows in tables.items() if name not in shown or lacks_something(rows)]


def lacks_something(table: str) -> bool:
    rows = table.splitlines()[2:]
    return not rows or any(not cell.strip() for row in rows for cell in row.split("|")[1:-1])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def each(case: dict[str, Any], count: int) -> str:
    return number(count / case["blocks"])


def disk_table(results: Results) -> str:
    device = results.of("device")
    names = {("read", "sequential"): "sequential read", ("write", "sequential"): "sequential write",
             ("read", "random"): "random read", ("write", "random"): "random write"}  # fmt: skip
    rows = [
        [names[row["action"], row["order"]], f"{row['bytes']:,}", str(row["depth"]), number(row["per_second"]),
         number(row["per_second"] * row["bytes"] / 1e6)]
        for row in (device or {"rows": []})["rows"]
    ]  # fmt: skip
    return markdown(["", "bytes", "at a time", "a second", "MB/s"], rows)


def count_table(results: Results, size: int) -> str:
    rows = []
    for case, title in CASES.items():
        row = [title]
        for engine in results.engines(size):
            measured = results.cases(size, engine).get(case)
            if measured is None:
                row.append("")
                continue
            disk, index = measured["disk"], measured["index"]
            counts = [disk["seeks"], disk["read_bytes"], index["pages_read"]]
            row.append(" / ".join(each(measured, count) for count in counts))
        rows.append(row)
    return markdown(["seeks / bytes read / pages of the index read", *(ENGINES[engine] for engine in results.engines(size))], rows)


def rate_table(results: Results, size: int) -> str:
    rows = []
    for case, title in CASES.items():
        measured = [results.cases(size, engine).get(case) for engine in results.engines(size)]
        rows.append([title, *(number(one["megabytes_per_second"]) if one else "" for one in measured)])
    return markdown(["MB/s", *(ENGINES[engine] for engine in results.engines(size))], rows)


def ratios(results: Results, size: int) -> dict[str, list[float]]:
    """The speed divided by that of Venti's algorithm, by hash and by value, here and in the paper."""
    found = {}
    for case in CASES:
        venti, by_hash, by_value = (results.cases(size, engine).get(case) for engine in (VENTI, "hash-disk", "value-disk"))
        if venti and by_hash and by_value:
            theirs = FIGURE_6[case]
            ours = [one["megabytes_per_second"] / venti["megabytes_per_second"] for one in (by_hash, by_value)]
            found[case] = [ours[0], theirs[1] / theirs[0], ours[1], theirs[2] / theirs[0]]
    return found


def ratio_table(results: Results) -> str:
    found = ratios(results, 512)
    rows = [
        [CASES[case], *(number(theirs / 1000) for theirs in FIGURE_6[case]), number(row[1]), number(row[0]), number(row[3]), number(row[2])]
        for case, row in found.items()
    ]
    head = ["blocks of 512 bytes", "paper: Venti, MB/s", "by hash", "by value", "by hash ÷ Venti: paper", "here", "by value ÷ Venti: paper", "here"]
    return markdown(head, rows)


def unflushed_table(results: Results) -> str:
    rows = []
    for size in SIZES:
        runs = results.of(f"unflushed-{size}") or []
        row = [f"{size:,} bytes"]
        for engine in ("hash-disk", "value-disk"):
            flushed = results.cases(size, engine).get("fresh-write")
            unflushed = {run["engine"]: case for run in runs for case in run["cases"] if case["case"] == "fresh-write"}.get(ENGINES[engine])
            for one in (flushed, unflushed):
                row.append(f"{number(one['megabytes_per_second'])}, {each(one, one['disk']['written_bytes'])}" if one else "")
        rows.append(row)
    return markdown(["MB/s, bytes written a block", "by hash", "without the flush", "by value", "without the flush"], rows)


def predicted(results: Results, size: int) -> dict[tuple[str, str], float]:
    """The predicted time divided by the measured time."""
    planned = results.of(f"plan-{size}")
    found = {}
    for forecast in planned["plan"]["forecasts"] if planned else []:
        engine = next(name for name, title in ENGINES.items() if title == forecast["engine"])
        measured = results.cases(size, engine)
        for choice in forecast["cases"]:
            if one := measured.get(choice["case"]):
                found[engine, choice["case"]] = one["megabytes_per_second"] * 1e6 / choice["rate"]
    return found


def predicted_table(results: Results, size: int) -> str:
    found = predicted(results, size)
    if not found:
        return ""
    engines = [engine for engine in ENGINES if engine != VENTI]
    rows = [[title, *(number(found[engine, case]) if (engine, case) in found else "" for engine in engines)] for case, title in CASES.items()]
    return markdown([f"predicted ÷ measured time, {size:,} bytes", *(ENGINES[engine] for engine in engines)], rows)


def table_7_1(results: Results) -> str:
    runs = [results.of(f"memventi-{depth}") for depth in DEPTHS]
    rows = []
    for place, first in enumerate(runs[0]["table"] if runs[0] else []):
        row = [first["name"], number(first["memventi_megabytes_per_second"])]
        row += [number(run["table"][place]["megabytes_per_second"]) if run else "" for run in runs]
        row += [each(first, first["disk"]["seeks"]), each(first, first["disk"]["read_bytes"])]
        rows.append(row)
    return markdown(["", "memventi, MB/s", *(f"{depth} at a time" for depth in DEPTHS), "seeks a block", "bytes read a block"], rows)


def shapes(results: Results) -> list[Any]:
    return (results.of("memventi-1") or {"indexes": []})["indexes"]


def candidate_table(results: Results) -> str:
    rows = []
    for at, told in (("candidates_when_written", "a new block"), ("candidates_when_read", "a block that is there")):
        numbers = sorted({0, 1, 2, 3} if at == "candidates_when_written" else {1, 2, 3})
        for count in numbers:
            ours = [f"{index['shape'][at].get(str(count), 0):,}" for index in shapes(results)]
            theirs = MEMVENTI[at].get(count)
            rows.append([f"{told}: {count}", *ours, "–" if theirs is None else f"{theirs:,}"])
    heads = [f"{index['shape']['block_count']:,} blocks" for index in shapes(results)]
    return markdown(["candidates", *heads, "memventi, 35,651,584"], rows)


def shape_table(results: Results) -> str:
    rows = []
    for index in shapes(results):
        shape = index["shape"]
        lengths = {int(length): count for length, count in shape["segment_lengths"].items()}
        slots = {int(slots): count for slots, count in shape["slots_looked_at"].items()}
        mean = sum(at * count for at, count in slots.items()) / shape["block_count"]
        rows.append([
            f"{shape['block_count']:,}", number(shape["memory_bytes"] / 1e6), number(shape["memory_bytes"] / shape["block_count"]), str(shape["fingerprint_bits"]),
            number(shape["expected_shared"]), f"{sum(lengths.values()):,}", f"{min(lengths):,} to {max(lengths):,}", f"{number(mean)}, {max(slots)}",
        ])  # fmt: skip
    head = ["blocks", "MB", "bytes a block", "bits compared", "expected to share them", "segments", "entries of one", "slots looked at: mean, most"]
    return markdown(head, rows)


def plots(results: Results) -> Iterator[tuple[str, str]]:
    for size in SIZES:
        seeks = {}
        for case, title in CASES.items():
            found = {ENGINES[engine]: results.cases(size, engine).get(case) for engine in ENGINES}
            seeks[title] = {name: one["disk"]["seeks"] / one["blocks"] for name, one in found.items() if one}
        if any(seeks.values()):
            yield f"seeks-{size}", bars(f"Seeks for each block of {size:,} bytes", "seeks", seeks, list(ENGINES.values()))
    series = ["by hash, here", "by hash, paper", "by value, here", "by value, paper"]
    compared = {CASES[case]: dict(zip(series, row, strict=True)) for case, row in ratios(results, 512).items()}
    if compared:
        yield "against-venti", bars("How many times as fast as Venti's algorithm, blocks of 512 bytes", "times", compared, series)
    runs = {depth: results.of(f"memventi-{depth}") for depth in DEPTHS}
    if runs[1]:
        names = ["memventi", *(f"{depth} at a time" for depth in DEPTHS)]
        rows = {}
        for place, row in enumerate(runs[1]["table"]):
            rows[row["name"]] = {"memventi": row["memventi_megabytes_per_second"]}
            for depth, run in runs.items():
                if run:
                    rows[row["name"]][f"{depth} at a time"] = run["table"][place]["megabytes_per_second"]
        yield "table-7-1", bars("Memventi's Table 7.1, blocks of 8 KiB", "MB/s", rows, names)
    for index in shapes(results):
        shape = index["shape"]
        count = shape["block_count"]
        for name, at, across in (
            ("segments", "segment_lengths", "entries of a segment"),
            ("slots", "slots_looked_at", "slots that a search for a block looks at"),
        ):
            counts = {int(value): times for value, times in shape[at].items()}
            yield f"{name}-{count}", histogram(f"{across[0].upper()}{across[1:]}, in an index of {count:,} blocks", across, counts)
    if (taken := results.of("simulate-snapshots")) and (restored := results.of("simulate-restores")):
        yield from simulating.plots(taken, restored)
    if found := results.of("simulate-caches"):
        yield from caching.plots(found)
    for name, disk in LBCAS_DISKS.items():
        if found := results.of(name):
            yield from lbcas_tables.plots(disk.name, found)
