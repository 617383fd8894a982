"""Runs a scenario: every tool does each step in turn, round after round, with the raw limit measured beside
it.

The speed of a disk changes from one minute to the next, most of all in a virtual machine. The raw limit is
therefore measured again for each measurement of a tool: before it in odd rounds, after it in even ones.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.fresh_disk import fresh_disk
from bench.measure import CommandFailed, Cost, is_same, logical_bytes, make_cold, make_warm, occupied_bytes, remove, run
from bench.scenarios import Action, Scenario, Step
from bench.tools import Place, Tool


@dataclass(frozen=True)
class Measurement:
    scenario: str
    step: int
    row: str
    tool: str
    round: int
    seconds: float
    raw_seconds: float
    peak_bytes: int
    source_bytes: int
    store_bytes: int
    grown_bytes: int


@dataclass(frozen=True)
class Failure:
    scenario: str
    tool: str
    reason: str


def run_scenario(scenario: Scenario, tools: list[Tool], data: Path, work: Path, rounds: int) -> list[Measurement | Failure]:
    able = [tool for tool in tools if tool.scenarios is None or scenario.name in tool.scenarios]
    results: list[Measurement | Failure] = []
    for round_number in range(1, rounds + 1):
        first = (round_number - 1) % max(len(able), 1)
        turns = [Turn(scenario, tool, data, work, round_number) for tool in able[first:] + able[:first]]
        for step_number, step in enumerate(scenario.steps):
            for turn in list(turns):
                is_over = step_number == len(scenario.steps) - 1
                try:
                    measured = turn.take(step_number, step)
                    if measured is not None:
                        results.append(measured)
                        show_progress(measured)
                except CommandFailed as failure:
                    results.append(Failure(scenario.name, turn.tool.name, str(failure)))
                    print(f"  {turn.tool.name} fails: {failure}", file=sys.stderr)
                    able.remove(turn.tool)
                    turns.remove(turn)
                    is_over = True
                if is_over:
                    remove(turn.place.root)
    return results


def show_progress(measured: Measurement) -> None:
    where = f"{measured.scenario}, round {measured.round}, step {measured.step + 1}: {measured.row}"
    times = f"{measured.seconds:8.2f} s   raw {measured.raw_seconds:.2f} s"
    print(f"  {where:<70} {measured.tool:<10} {times}", file=sys.stderr)


class Turn:
    """The steps of one tool in one round of a scenario, with a store of its own."""

    def __init__(self, scenario: Scenario, tool: Tool, data: Path, work: Path, round_number: int):
        self.scenario, self.tool, self.data, self.work, self.round = scenario, tool, data, work, round_number
        self.place = Place(work / tool.name)
        self.snapshot_count = 0
        remove(self.place.root)
        self.place.home.mkdir(parents=True)

    def take(self, step_number: int, step: Step) -> Measurement | None:
        """Measures one step and its raw limit. Returns `None` if the tool cannot do the step."""
        if step_number == 0:
            for command in self.tool.init(self.place):
                run(command)
        source = self.data / step.source
        store_bytes_before = occupied_bytes(self.place.store)
        if self.round % 2 == 1:
            raw = self.measure_raw(step, source)
            cost = self.measure_tool(step, source)
        else:
            cost = self.measure_tool(step, source)
            raw = self.measure_raw(step, source)
        if cost is None:
            return None
        store_bytes = occupied_bytes(self.place.store)
        return Measurement(
            scenario=self.scenario.name,
            step=step_number,
            row=step.row,
            tool=self.tool.name,
            round=self.round,
            seconds=cost.seconds,
            raw_seconds=raw.seconds,
            peak_bytes=cost.peak_bytes,
            source_bytes=logical_bytes(source),
            store_bytes=store_bytes,
            grown_bytes=store_bytes - store_bytes_before,
        )

    def measure_raw(self, step: Step, source: Path) -> Cost:
        with self.destination(step, source, self.work / "raw") as into:
            self.prepare(step, source)
            return run(step.raw.command(source, into), then_sync=into if step.raw.writes else None)

    def measure_tool(self, step: Step, source: Path) -> Cost | None:
        with self.destination(step, source, self.place.root / "restored") as into:
            return self.measure_tool_into(step, source, into)

    def measure_tool_into(self, step: Step, source: Path, into: Path) -> Cost | None:
        match step.action:
            case Action.SNAPSHOT:
                self.snapshot_count += 1
                command = self.tool.snapshot(self.place, source, self.snapshot_count)
            case Action.RESTORE:
                command = self.tool.restore(self.place, source, self.snapshot_count, into)
            case Action.DISCARD:
                command_or_none = self.tool.discard(self.place, source, self.snapshot_count)
                if command_or_none is None:
                    return None
                command = command_or_none
        self.prepare(step, source)
        written = into if step.action == Action.RESTORE else self.place.root
        cost = run(command, then_sync=None if step.action == Action.DISCARD else written)
        if step.action == Action.RESTORE and not is_same(source, into / source.name):
            raise CommandFailed(f"{step.row}: the restored data differs from {step.source}")
        return cost

    @contextlib.contextmanager
    def destination(self, step: Step, source: Path, plain: Path) -> Iterator[Path]:
        """Yields an empty folder for what a step writes besides a store."""
        if step.fresh:
            with fresh_disk(self.work, logical_bytes(source)) as into:
                yield into
            return
        remove(plain)
        plain.mkdir()
        yield plain
        remove(plain)

    def prepare(self, step: Step, source: Path) -> None:
        if step.touched:
            os.utime(source)
        if step.cold:
            make_cold(source, self.place.store)
        else:
            make_warm(source)
            os.sync()
