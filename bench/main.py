"""Measures varve beside the tools a user would pick instead, and beside the raw limit of the machine.

  script/bench                            everything; about an hour with three peers, needs 25 GB of disk
  script/bench --quick                    a hundredth of the data, one round, as a quick test
  script/bench --scenarios days,tree      only these scenarios
  script/bench --tools varve,borg         only these tools
  script/bench --before PROGRAM           another build of varve beside this one (bench/before.py)
  script/bench --list                     lists the scenarios and tools

Every tool does a step of a scenario before the next step begins. This is repeated in N rounds, and another
tool begins each round. The raw limit is measured again beside each of these, since the speed of a disk
changes by the minute. The table gives the best and the median round. The column `of raw` divides the raw
limit's time by the tool's, and gives the median over the rounds: 1.00 is as fast as the machine allows. All
tools run on two cores, with encryption (except desync, which has none), with compression, and with their own
defaults. The time of every program that writes, including `cp`, includes `sync -f` of the file system written
to. Sources are in the page cache unless the row says cold. The size of a store is the space that it occupies
on disk, without the tool's cache in its $HOME. Peak memory is that of the largest process; values below 20 MB
cannot be measured.

A cold cache means: root drops it by /proc/sys/vm/drop_caches, and other users remove only the files concerned
from the page cache. The tmpfs is /dev/shm. Further measurements are not scenarios:

  verify, replicate, clone, repair, parity       the upkeep of a store (bench/upkeep.py)
  reclaim                                        the space of forgotten snapshots (bench/reclaiming.py)
  rotating                                       folders on a model of a rotating disk (bench/rotating.py)
  look-random, look-folder, look-listing, look-sequential
                                                 the reading of a past day (bench/looking.py)
  nbd, boot, night                               disks over NBD, booted snapshots, running machines
                                                 (bench/machines.py)
  streaming, streaming-replay, streaming-lines, streaming-http2, streaming-bytes, streaming-loopback,
  streaming-publish, streaming-faults            a published disk over a slow line (bench/streaming.py)
  venti                                          blocks over Venti's protocol (bench/venti.py)
  web-page                                       the pages that a browser asks for (bench/web_page.py)
  link-trees                                     the import of hard-linked trees (bench/link_trees.py)
  plan                                           predictions beside measurements (bench/planning.py)
  faults                                         the speed of the fault tests (bench/faults.py)

The data comes from script/workloads. Missing tools, and workloads that cannot be made here, are listed and
skipped.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench import before, faults, link_trees, looking, machines, planning, reclaiming, rotating, streaming, upkeep, venti, web_page
from bench.measure import remove
from bench.report import picture, table, write_json
from bench.rounds import Failure, run_scenario
from bench.scenarios import SCENARIOS, Scenario
from bench.tools import PEERS, Tool, Varve, VarveAtFiles

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CORES = 2


def main() -> int:
    chosen = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # script/need puts the programs there that it gets from the registries of Go and Python.
    os.environ["PATH"] += f":{(TARGET / 'tools' / 'bin').resolve()}"
    skipped: dict[str, str] = {}
    # The fault tests are a program of their own.
    needs_tools = any(name not in faults.NAMES for name in chosen.scenarios)
    tools, versions = find_tools(chosen.tools if needs_tools else [], chosen, skipped)
    scenarios = find_scenarios(chosen.scenarios, chosen.data, chosen.quick, skipped)
    for name, version in versions.items():
        print(f"{name}: {version}")
    for name, reason in skipped.items():
        print(f"{name}: skipped: {reason}")

    results = []
    for scenario in scenarios:
        work = Path("/dev/shm/varve-bench") if scenario.in_memory else chosen.data / "work"
        work.mkdir(exist_ok=True)
        try:
            measured = run_scenario(scenario, tools, chosen.data, work, chosen.rounds)
        finally:
            remove(work)
        results += measured
        write_json(chosen.json, versions, skipped, results)
        print(table(scenario, measured), flush=True)
    if chosen.svg and results:
        chosen.svg.write_text(picture(results, list(versions)))
    program = str(TARGET / "release" / "varve")
    needs_days = [name for name in chosen.scenarios if name in ("boot", *streaming.NAMES, *looking.LOOK)]
    if needs_days and not chosen.quick:
        # Plain data cannot boot, and contains no Debian root.
        subprocess.run([ROOT / "script" / "workloads", chosen.data, "days"], check=True)
    pairs: list[upkeep.Pair] = []
    measured_in_pairs = paired(program, chosen.data, "", chosen.quick)
    if chosen.before is not None:
        older = paired(str(chosen.before.resolve()), chosen.data, "before", chosen.quick)
        measured_in_pairs = [
            # The predictions need a program of their own, which an older build may lack.
            (title, names, measured if names is planning.NAMES else before.WithBefore(measured, older_measured))
            for (title, names, measured), (_, _, older_measured) in zip(measured_in_pairs, older, strict=True)
        ]
    for title, names, measured in measured_in_pairs:
        asked = [name for name in chosen.scenarios if name in names]
        taken = upkeep.measure(asked, chosen.rounds, measured, skipped)
        if taken:
            pairs += taken
            write_json(chosen.json, versions, skipped, results, pairs)
            print(upkeep.table(taken, title), flush=True)
        for name in names:
            if name in skipped:
                print(f"{name}: skipped: {skipped[name]}")
    looks_asked = [name for name in chosen.scenarios if name in looking.LOOK]
    looks = looking.measure(looks_asked, chosen.rounds, looking.Looking(program, chosen.data, chosen.tools), skipped)
    if looks:
        write_json(chosen.json, versions, skipped, results, pairs, looks)
        print(looking.table(looks), flush=True)
    for name in [*looking.LOOK, "restic mount", "borg mount"]:
        if name in skipped:
            print(f"{name}: skipped: {skipped[name]}")
    rates: list[faults.Rate] = []
    if "faults" in chosen.scenarios:
        try:
            rates = faults.measure(ROOT, chosen.rounds, chosen.quick)
            write_json(chosen.json, versions, skipped, results, pairs, looks, rates)
            print(faults.table(rates), flush=True)
        except upkeep.CannotMeasure as reason:
            print(f"faults: skipped: {reason}")
    print(f"\nall measurements: {chosen.json}")
    return 1 if any(isinstance(result, Failure) for result in results) else 0


def paired(program: str, data: Path, below: str, quick: bool) -> list[tuple[str, list[str], upkeep.Measured]]:
    """Returns the measurements in pairs: a title, the names of the rows, and the object that measures. Each
    works in the folder `below` its own."""
    return [
        ("upkeep", upkeep.NAMES, upkeep.Upkeep(program, TARGET / "python" / "bin" / "python", data / "upkeep" / below, quick)),
        ("forgetting", reclaiming.NAMES, reclaiming.Reclaiming(program, data / "reclaim" / below, quick)),
        ("reading ahead", rotating.NAMES, rotating.Rotating(program, data, data / "rotating" / below, quick)),
        ("machines", machines.NAMES, machines.Machines(program, data / "machines" / below, data / "days", quick)),
        ("published disks", streaming.NAMES, streaming.Streaming(program, data / "streaming" / below, data / "days", quick)),
        ("blocks over Venti's protocol", venti.NAMES, venti.Venti(program, data / "venti" / below, quick)),
        ("the web page", web_page.NAMES, web_page.WebPage(program, data / "web-page" / below, quick)),
        ("trees of hard links", link_trees.NAMES, link_trees.LinkTrees(program, data / "link-trees" / below, quick)),
        ("predictions", planning.NAMES, planning.Planning(program, data / "plan" / below, quick)),
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="script/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    scenario_names = [scenario.name for scenario in SCENARIOS] + upkeep.NAMES + reclaiming.NAMES + rotating.NAMES + machines.NAMES + streaming.NAMES + venti.NAMES + web_page.NAMES + link_trees.NAMES + planning.NAMES + looking.LOOK + faults.NAMES
    tool_names = ["varve", "varve-files", *(tool.name for tool in PEERS)]
    parser.add_argument("--scenarios", type=some_of(scenario_names), default=scenario_names, metavar="NAME,…")
    parser.add_argument("--tools", type=some_of(tool_names), default=tool_names, metavar="NAME,…")
    parser.add_argument("--before", type=Path, metavar="PROGRAM", help="another build of varve, measured in the same rounds")
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 3, with --quick 1")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder for the data, which is reused; default: target/bench")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: results.json in the data folder")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also draw the scenarios as bars, a picture in SVG")
    parser.add_argument("--quick", action="store_true", help="tiny data, in a data folder of its own")
    parser.add_argument("--no-build", action="store_true", help="use the existing target/release/varve")
    parser.add_argument("--list", action="store_true", help="list the scenarios and tools, and stop")
    chosen = parser.parse_args()
    if chosen.list:
        print("scenarios:")
        for scenario in SCENARIOS:
            print(f"  {scenario.name:<10} {scenario.title}")
        print(f"  {', '.join(upkeep.NAMES)}: the cost of keeping a store")
        print(f"  {', '.join(reclaiming.NAMES)}: the space of forgotten snapshots comes back, beside other tools")
        print(f"  {', '.join(rotating.NAMES)}: a folder on a model of a rotating disk")
        print(f"  {', '.join(looking.LOOK)}: the cost of reading a past day")
        print(f"  {', '.join(venti.NAMES)}: blocks over Venti's protocol")
        print(f"  {', '.join(web_page.NAMES)}: the pages that a browser asks for")
        print(f"  {', '.join(link_trees.NAMES)}: the import of trees of hard links, beside reading each inode once")
        print(f"  {', '.join(planning.NAMES)}: the engine in six cases, beside the predictions of `varve-plan predict`")
        print(f"  {', '.join(machines.NAMES)}: disks over NBD, booted snapshots, running machines")
        print(f"  {', '.join(streaming.NAMES)}: published disks over a slow line")
        print(f"  {', '.join(faults.NAMES)}: the simulated operations a second of the fault tests")
        print("tools:\n  varve\n  varve-files  with --cut files, in the scenario pair")
        for tool in PEERS:
            print(f"  {tool.name:<10} {tool.note}".rstrip())
        sys.exit(0)
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.data = (chosen.data or TARGET / "bench").resolve()
    if chosen.quick:
        chosen.data /= "quick"
    chosen.json = chosen.json or chosen.data / "results.json"
    return chosen


def some_of(names: list[str]) -> Callable[[str], list[str]]:
    """Parses a list of names that is separated by commas. The names may be in any order, and are returned in
    the order of `names`."""

    def parse_list(text: str) -> list[str]:
        asked = text.split(",")
        for name in asked:
            if name not in names:
                raise argparse.ArgumentTypeError(f"no {name!r} here; there are: {', '.join(names)}")
        return [name for name in names if name in asked]

    return parse_list


def find_tools(names: list[str], chosen: argparse.Namespace, skipped: dict[str, str]) -> tuple[list[Tool], dict[str, str]]:
    """Returns the requested tools that are installed, and their versions. The others go to `skipped`."""
    tools: list[Tool] = []
    versions: dict[str, str] = {}
    varve = Varve(TARGET / "release" / "varve")
    at_files = VarveAtFiles(TARGET / "release" / "varve")
    others = [Varve(chosen.before.resolve(), before.NAME)] if chosen.before is not None and names else []
    for tool in [tool for tool in [varve, at_files, *PEERS] if tool.name in names] + others:
        if tool is varve and not chosen.no_build:
            subprocess.run(["cargo", "build", "--release", "--bin", "varve", "--bin", "varve-plan", "--bin", "varve-lab"], cwd=ROOT, check=False)
        version = tool.version()
        if version is None:
            skipped[tool.name] = "does not build" if tool is varve else "is not installed"
        else:
            tools.append(tool)
            versions[tool.name] = version + (f" ({tool.note})" if tool.note else "")
    return tools, versions


def find_scenarios(names: list[str], data: Path, quick: bool, skipped: dict[str, str]) -> list[Scenario]:
    """Runs script/workloads, and returns the requested scenarios that have their data. The others go to
    `skipped`."""
    asked = [scenario for scenario in SCENARIOS if scenario.name in names]
    if not asked:
        data.mkdir(parents=True, exist_ok=True)
        return []
    workloads = sorted({scenario.workload for scenario in asked})
    options = ["--quick"] if quick else []
    subprocess.run([ROOT / "script" / "workloads", data, *workloads, *options], check=True)
    possible = []
    for scenario in asked:
        if not all((data / step.source).exists() for step in scenario.steps):
            skipped[scenario.name] = f"script/workloads cannot make its data ({scenario.workload}) here"
        elif scenario.in_memory and not Path("/dev/shm").is_dir():
            skipped[scenario.name] = "there is no /dev/shm"
        else:
            possible.append(scenario)
    return possible
