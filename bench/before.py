"""Measures another, usually older build of varve in the same rounds, and shows if a change costs speed or
memory.

In scenarios, the older build is one more tool. Measurements in pairs (upkeep, machines, blocks over Venti's
protocol) are repeated with the older build in a folder of its own, and each row gets a second line beside it.
The older build goes first in even rounds. If a build lacks an option that is used here, PROGRAM can be a
script that leaves the option out and starts the build by `exec`.
"""

from bench.measure import CannotMeasure
from bench.upkeep import Measured, Pair

NAME = "varve-before"


class WithBefore:
    """The pairs of both builds, and pairs that compare one build with the other."""

    def __init__(self, now: Measured, before: Measured):
        self.now, self.before, self.work = now, before, now.work

    def prepare(self) -> None:
        self.now.prepare()
        self.before.prepare()

    def take(self, name: str, round_number: int) -> list[Pair]:
        if round_number % 2 == 0:
            before = self.take_before(name, round_number)
            now = self.now.take(name, round_number)
        else:
            now = self.now.take(name, round_number)
            before = self.take_before(name, round_number)
        return now + beside(now, before)

    def take_before(self, name: str, round_number: int) -> list[Pair]:
        try:
            return self.before.take(name, round_number)
        except CannotMeasure as reason:
            raise CannotMeasure(f"{NAME}: {reason}") from reason


def beside(now: list[Pair], before: list[Pair]) -> list[Pair]:
    """A pair for each row that both builds have."""
    seconds_before = {pair.row: pair.seconds for pair in before}
    rows = {pair.row: pair for pair in now if pair.row in seconds_before}
    return [Pair(pair.name, row, NAME, pair.round, pair.seconds, seconds_before[row], pair.work_bytes, pair.read_bytes) for row, pair in rows.items()]
