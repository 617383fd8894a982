"""Writes the measurements as a table for people and as JSON for programs."""

import json
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from bench.faults import Rate
from bench.looking import Look
from bench.rounds import Failure, Measurement
from bench.scenarios import Scenario
from bench.svg import bars
from bench.upkeep import Pair

COLUMNS = f"{'':<12}{'best s':>9}{'median s':>10}{'MB/s':>8}{'of raw':>8}{'store MB':>10}{'grew MB':>9}{'peak MB':>9}"


def table(scenario: Scenario, results: Iterable[Measurement | Failure]) -> str:
    """Returns a few lines for each row of the scenario: the raw limit, then the tools, the fastest first."""
    rows: dict[str, dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    failures = []
    for result in results:
        if isinstance(result, Failure):
            failures.append(f"  {result.tool} failed: {result.reason}")
        else:
            rows[result.row][result.tool].append(result)
    raw_of = {step.row: step.raw for step in scenario.steps}
    lines = [f"\n## {scenario.name}: {scenario.title}"]
    for row, tools in rows.items():
        runs = {name: sum_by_round(measurements) for name, measurements in tools.items()}
        lines += [f"\n{row} (raw limit: {raw_of[row].value})", COLUMNS, raw_line(runs.values())]
        for name in sorted(runs, key=lambda name: min(run.seconds for run in runs[name])):
            lines.append(tool_line(name, runs[name]))
    return "\n".join(lines + failures)


def sum_by_round(measurements: list[Measurement]) -> list[Measurement]:
    """Combines one tool's steps of one row in each round. It adds the times, the sources and the growth, and
    takes the last store and the highest peak."""
    by_round: dict[int, list[Measurement]] = defaultdict(list)
    for measured in measurements:
        by_round[measured.round].append(measured)
    return [
        replace(
            steps[-1],
            seconds=sum(step.seconds for step in steps),
            raw_seconds=sum(step.raw_seconds for step in steps),
            peak_bytes=max(step.peak_bytes for step in steps),
            source_bytes=sum(step.source_bytes for step in steps),
            grown_bytes=sum(step.grown_bytes for step in steps),
        )
        for steps in by_round.values()
    ]


def raw_line(runs_of_tools: Iterable[list[Measurement]]) -> str:
    runs = [run for runs in runs_of_tools for run in runs]
    best = min(run.raw_seconds for run in runs)
    median = statistics.median(run.raw_seconds for run in runs)
    return f"{'raw limit':<12}{best:>9.2f}{median:>10.2f}{runs[0].source_bytes / best / 1e6:>8.0f}"


def tool_line(name: str, runs: list[Measurement]) -> str:
    best = min(runs, key=lambda run: run.seconds)
    median = statistics.median(run.seconds for run in runs)
    of_raw = statistics.median(run.raw_seconds / run.seconds for run in runs)
    rate = best.source_bytes / best.seconds / 1e6
    peak_bytes = max(run.peak_bytes for run in runs)
    times = f"{name:<12}{best.seconds:>9.2f}{median:>10.2f}{rate:>8.0f}{of_raw:>8.2f}"
    return f"{times}{best.store_bytes / 1e6:>10.1f}{best.grown_bytes / 1e6:>9.1f}{peak_bytes / 1e6:>9.1f}"


def picture(results: Iterable[Measurement | Failure], tools: list[str]) -> str:
    """Draws the median seconds of each row, with a bar for each tool."""
    rows: dict[str, dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if isinstance(result, Measurement):
            rows[f"{result.scenario}: {result.row.split(',')[0]}"][result.tool].append(result)
    medians = {
        row: {name: statistics.median(run.seconds for run in sum_by_round(runs)) for name, runs in by_tool.items()}
        for row, by_tool in rows.items()
    }
    return bars("Seconds for each step, shorter is better", "s", medians, tools)


def machine() -> dict[str, object]:
    return {"cores": len(os.sched_getaffinity(0)), "system": platform.system(), "kernel": platform.release()}


def write_json(
    path: Path,
    versions: dict[str, str],
    skipped: dict[str, str],
    results: list[Measurement | Failure],
    kept: Iterable[Pair] = (),
    looks: Iterable[Look] = (),
    rates: Iterable[Rate] = (),
) -> None:
    whole = {
        "machine": machine(),
        "versions": versions,
        "skipped": skipped,
        "measurements": [asdict(result) for result in results if isinstance(result, Measurement)],
        "upkeep": [asdict(pair) for pair in kept],
        "looking": [asdict(look) for look in looks],
        "faults": [asdict(rate) for rate in rates],
        "failures": [asdict(result) for result in results if isinstance(result, Failure)],
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")
