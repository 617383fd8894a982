"""The scenarios. A scenario is a sequence of steps for one store, which is empty at first."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.measure import Command, read_command


class Action(Enum):
    SNAPSHOT = "snapshot"
    RESTORE = "restore"  # to a folder on the store's file system, and compared with the source afterwards
    DISCARD = "discard"  # to /dev/null


class Raw(Enum):
    """The limit that a step is compared with: the least that it could cost, or a large part of that."""

    COPY = "cp, then sync"
    READ = "read the source"
    READ_BY_ONE = "tar to a pipe"
    READ_BY_MANY = "16 parallel readers"
    WALK = "stat each file"

    def command(self, source: Path, into: Path) -> Command:
        match self:
            case Raw.COPY:
                return Command(["cp", "--archive", str(source), str(into)])
            case Raw.READ:
                return read_command(source)
            case Raw.READ_BY_ONE:
                return Command(["sh", "-c", 'tar --create --directory "$0" . | cat', str(source)])
            case Raw.READ_BY_MANY:
                many = 'find "$0" -type f -print0 | xargs -0 -P 16 -n 200 cat'
                return Command(["sh", "-c", many, str(source)])
            case Raw.WALK:
                return Command(["find", str(source), "-printf", "%s %T@ %C@ %i\n"])

    @property
    def writes(self) -> bool:
        return self is Raw.COPY


@dataclass(frozen=True)
class Step:
    row: str  # the steps of one row are added
    action: Action
    source: str  # below the data folder
    raw: Raw
    cold: bool = False  # with an empty page cache, else with the source in it
    fresh: bool = False  # restores to a new file system
    touched: bool = False  # the time of the source is changed before, so that no tool skips it unread


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    workload: str
    steps: list[Step]
    in_memory: bool = False  # the store is on a tmpfs


def snapshot(row: str, source: str, raw: Raw = Raw.COPY, touched: bool = False) -> Step:
    return Step(row, Action.SNAPSHOT, source, raw, touched=touched)


def cold(row: str, source: str, raw: Raw) -> Step:
    return Step(row, Action.SNAPSHOT, source, raw, cold=True)


def restore(row: str, source: str) -> Step:
    return Step(row, Action.RESTORE, source, Raw.COPY, cold=True)


def restore_anew(row: str, source: str) -> Step:
    return Step(row, Action.RESTORE, source, Raw.COPY, cold=True, fresh=True)


SCENARIOS = [
    Scenario(
        "random",
        "2 GiB that cannot be compressed, store on disk",
        "random",
        [
            snapshot("fresh", "random.bin"),
            snapshot("the same again, its time set anew", "random.bin", Raw.READ, touched=True),
            Step("restore to /dev/null, cold cache", Action.DISCARD, "random.bin", Raw.READ, cold=True),
            restore("restore to disk, cold cache", "random.bin"),
        ],
    ),
    Scenario(
        "tmpfs",
        "2 GiB that cannot be compressed, store on tmpfs",
        "random",
        [snapshot("fresh", "random.bin")],
        in_memory=True,
    ),
    Scenario(
        "small",
        "100,000 small files",
        "small",
        [snapshot("fresh", "small", Raw.READ), snapshot("unchanged", "small", Raw.WALK)],
    ),
    Scenario(
        "files",
        "100,000 files of 1 to 20 KiB, beside one reader of them",
        "files",
        [
            cold("fresh, cold cache", "files", Raw.READ_BY_ONE),
            cold("unchanged, cold cache", "files", Raw.WALK),
            snapshot("unchanged, warm cache", "files", Raw.WALK),
            restore_anew("restore to a new file system, cold cache", "files"),
        ],
    ),
    Scenario(
        "readers",
        "the same files, beside 16 readers and warm copies of them",
        "files",
        [
            cold("fresh, cold cache", "files", Raw.READ_BY_MANY),
            Step("restore to a new file system, warm cache", Action.RESTORE, "files", Raw.COPY, fresh=True),
        ],
    ),
    Scenario(
        "folder",
        "2 GiB that cannot be compressed, as a file in a folder",
        "folder",
        [
            cold("fresh, cold cache", "folder/1", Raw.COPY),
            snapshot("the same bytes under another path", "folder/2", Raw.READ),
            restore_anew("restore to a new file system, cold cache", "folder/2"),
        ],
    ),
    Scenario(
        "nights",
        "seven nights of a 512 MiB disk, as a file in a folder",
        "nights",
        [snapshot("all seven, one after the other", f"nights/{night}", Raw.READ) for night in range(1, 8)],
    ),
    Scenario(
        "nights-image",
        "the same nights as images",
        "nights",
        [snapshot("all seven, one after the other", f"nights/{night}/disk.raw", Raw.READ) for night in range(1, 8)],
    ),
    Scenario(
        "random-cold",
        "2 GiB that cannot be compressed, as an image",
        "random",
        [cold("fresh, cold cache", "random.bin", Raw.COPY)],
    ),
    Scenario(
        "tree",
        "six releases of a source tree of 8,000 files",
        "tree",
        [snapshot("all six, one after the other", f"tree/{number}", Raw.READ) for number in range(1, 7)],
    ),
    Scenario(
        "days",
        "three nights of a 2 GiB Debian disk",
        "days",
        [snapshot(f"night {number}", f"days/day{number}.raw") for number in (1, 2, 3)]
        + [restore("restore night 3 to disk, cold cache", "days/day3.raw")],
    ),
    Scenario(
        "pair",
        "two disks of 4 GiB with Debian 12 and other programs on each",
        "pair",
        [
            snapshot("the first disk", "pair/a.raw", Raw.READ),
            snapshot("then the second disk", "pair/b.raw", Raw.READ),
            snapshot("then the files of the first, as a folder", "pair/a", Raw.WALK),
        ],
    ),
    Scenario(
        "pair-folders",
        "the files of the same two disks, as folders",
        "pair",
        [snapshot("the first", "pair/a", Raw.WALK), snapshot("then the second", "pair/b", Raw.WALK)],
    ),
    Scenario(
        "insert",
        "a folder with a 1 GiB file, then with one byte inserted at its front",
        "insert",
        [snapshot("fresh", "insert/1"), snapshot("with the byte", "insert/2")],
    ),
]
