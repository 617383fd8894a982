"""How fast the tests of faults are: calls to the simulated disk in a second, and seeds, on as many threads as there are cores.

  faults      fresh seeds of all kinds for 20 seconds, each checked as `script/test faults` does; nothing else is beside it
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.upkeep import CannotMeasure

NAMES = ["faults"]
SECONDS, QUICK_SECONDS = 20, 3
COMMAND = ["cargo", "test", "--release", "--locked", "-p", "varve-archive", "--test", "faults",
           "--", "--ignored", "--exact", "many_seeds", "--nocapture"]
LINE = re.compile(r"(\d+) seeds, (\d+) of them failed; (\d+) simulated operations in (\d+) s: (\d+) a second")


@dataclass(frozen=True)
class Rate:
    """One round."""

    round: int
    seeds: int
    operations: int
    seconds: int
    operations_per_second: int


def measure(root: Path, rounds: int, quick: bool) -> list[Rate]:
    """All rounds, each with seeds of its own; they are the same each time."""
    seconds = QUICK_SECONDS if quick else SECONDS
    rates = []
    for round_number in range(1, rounds + 1):
        settings = {"VARVE_FAULT_SECONDS": str(seconds), "VARVE_FAULT_FIRST": str(round_number * 1_000_000)}
        done = subprocess.run(COMMAND, cwd=root, env=os.environ | settings, capture_output=True, text=True, check=False)
        found = LINE.search(done.stdout)
        if done.returncode != 0 or not found:
            raise CannotMeasure(f"the tests of faults end with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        seeds, _, operations, took, rate = map(int, found.groups())
        rates.append(Rate(round_number, seeds, operations, took, rate))
    return rates


def table(rates: list[Rate]) -> str:
    lines = ["\nfaults: simulated operations", f"{'round':>6}{'seeds':>9}{'operations':>13}{'a second':>11}"]
    lines += [f"{rate.round:>6}{rate.seeds:>9}{rate.operations:>13}{rate.operations_per_second:>11}" for rate in rates]
    return "\n".join(lines)
