"""How fast the tests of faults are: calls to the simulated disk in a second, and seeds, on as many threads as there are cores.

  faults      fresh seeds of all kinds for 20 seconds, each checked as `script/test faults` does; nothing else is beside it

The tests are built as `script/test faults` builds them, and share what that has built: linked without optimizing across crates, which took longer
than all measurements together, and is of no account here. Building is said, and not measured; neither lasts for ever.
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
# Those that failed once are begun in any case, and the last seed that was begun is ended: seconds, and a minute on a slow machine.
RUN_SECONDS_MORE = 5 * 60
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
    """What a command answers, with all that it has started gone, if it took no longer than so many seconds."""
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
