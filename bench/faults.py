"""Measures the speed of the fault tests: simulated operations and seeds a second, with one thread for each
core.

  faults      runs fresh seeds of all kinds for 20 seconds and checks each one as `script/test faults` does;
              nothing else is measured beside it

The tests are built as `script/test faults` builds them, and share its build. They are linked without
optimization across crates, which took longer than all measurements together and does not matter here. The
build is reported and not measured. The build and each run have a time limit.
"""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.measure import CannotMeasure

NAMES = ["faults"]
SECONDS, QUICK_SECONDS = 20, 3
BUILD = ["cargo", "test", "--release", "--locked", "-p", "varve-archive", "--test", "faults"]
RUN = [*BUILD, "--", "--ignored", "--exact", "many_seeds", "--nocapture"]
AS_TESTS_ARE_BUILT = {"CARGO_PROFILE_RELEASE_LTO": "off"}
BUILD_SECONDS_MAX = 20 * 60
# The seeds that failed before are run in any case, and the last seed that was started is finished. That takes
# seconds, or a minute on a slow machine.
RUN_SECONDS_MORE = 5 * 60
LINE = re.compile(r"(\d+) seeds, (\d+) of them failed; (\d+) simulated operations in (\d+) s: (\d+) a second")


@dataclass(frozen=True)
class Rate:
    """The result of one round."""

    round: int
    seeds: int
    operations: int
    seconds: int
    operations_per_second: int


def measure(root: Path, rounds: int, quick: bool) -> list[Rate]:
    """Runs all rounds. Each round has seeds of its own, which are the same in every run."""
    seconds = QUICK_SECONDS if quick else SECONDS
    rates = []
    print("  faults: building the tests, as script/test does", file=sys.stderr)
    if ended([*BUILD, "--no-run"], root, {}, BUILD_SECONDS_MAX, None).returncode != 0:
        raise CannotMeasure("the tests of faults cannot be built")
    for round_number in range(1, rounds + 1):
        settings = {"VARVE_FAULT_SECONDS": str(seconds), "VARVE_FAULT_FIRST": str(round_number * 1_000_000)}
        done = ended(RUN, root, settings, seconds + RUN_SECONDS_MORE, subprocess.PIPE)
        found = LINE.search(done.stdout)
        if done.returncode != 0 or not found:
            raise CannotMeasure(f"the tests of faults end with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        print(f"  faults, round {round_number}: {found[0]}", file=sys.stderr)
        seeds, _, operations, took, rate = map(int, found.groups())
        rates.append(Rate(round_number, seeds, operations, took, rate))
    return rates


def ended(
    command: list[str], root: Path, settings: dict[str, str], seconds: int, output: int | None
) -> subprocess.CompletedProcess[str]:
    """Runs a command and returns its output. If it takes longer than `seconds`, it is killed with all
    processes that it has started."""
    environment = os.environ | AS_TESTS_ARE_BUILT | settings
    started = subprocess.Popen(
        command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True, start_new_session=True
    )
    try:
        said, complained = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"{' '.join(command[:2])} did not end within {seconds} s") from None
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    return subprocess.CompletedProcess(command, started.returncode, said, complained)


def table(rates: list[Rate]) -> str:
    lines = ["\nfaults: simulated operations", f"{'round':>6}{'seeds':>9}{'operations':>13}{'a second':>11}"]
    lines += [f"{rate.round:>6}{rate.seeds:>9}{rate.operations:>13}{rate.operations_per_second:>11}" for rate in rates]
    return "\n".join(lines)
