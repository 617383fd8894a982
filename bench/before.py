"""Another build of varve, as a rule an older one, measured in the same rounds: does a change cost speed or memory?

In scenarios it is one more tool. Whatever is measured in pairs (upkeep, machines, blocks over Venti's protocol) is measured once
more with it, in a folder of its own, and each row gains a line beside it; the older build goes first in even rounds. For a build that lacks an option
which is used here, PROGRAM is a script that leaves the option out and starts the build by `exec`.
"""

from bench.measure import CannotMeasure
from bench.upkeep import Measured, Pair

NAME = "varve-before"


class WithBefore:
    """The pairs of two builds, and pairs of the one beside the other."""

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
