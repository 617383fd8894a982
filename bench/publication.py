"""Publications of the workload `days`, for the measurements of bench/streaming.py: night 1 with the profile of a
start and without one, in the folder of a web server."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.machines import PATIENCE, UP, need, running, wait_for
from bench.measure import CannotMeasure, Command, remove, run
from bench.nbd_client import NbdClient
from bench.shaped_line import BITS_PER_SECOND, ROUND_TRIP, Line
from bench.web_server import PLAIN, WebServer

READ_BYTES_MAX = 64 << 10
NIGHTS = ("day@2026-05-01", "day@2026-05-02")

Row = tuple[str, str, float, float, int]


class Publication:
    def __init__(self, program: str, work: Path, days: Path):
        self.program, self.work, self.days = program, work, days
        self.day = days / "day1.raw"
        self.www, self.home, self.profile = work / "www", work / "home", work / "start.profile"
        self.web = WebServer(self.www, work)
        self.reads: list[tuple[int, int]] = []
        self.key, self.image = "", NIGHTS[0]
        # Called by each replay after half of its reads.
        self.at_half: Callable[[], None] = lambda: None

    def varve(self, *words: object) -> Command:
        argv = [self.program, "-s", str(self.work / "store"), "--key-file", str(self.work / "key"), *map(str, words)]
        environment = {"HOME": str(self.home)}
        if self.web.authority.is_file():
            environment["SSL_CERT_FILE"] = str(self.web.authority)
        return Command(argv, environment=environment)

    def prepare(self) -> None:
        need("qemu-system-x86_64", "qemu-img", "nginx")
        if not self.day.is_file():
            raise CannotMeasure("script/workloads cannot make its data (days) here")
        remove(self.work)
        self.www.mkdir(parents=True)
        key = self.work / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        run(self.varve("init"))
        for night in (1, 2):
            run(self.varve("snapshot", self.days / f"day{night}.raw", "--name", "day", "--time", f"2026-05-0{night}T23:00:00Z"))
        run(self.varve("boot", NIGHTS[0], "--no-kvm", "--check", UP, "--timeout", int(PATIENCE), "--profile", self.profile))
        for name, choice in (("with", self.profile), ("without", "none")):
            self.key = self.publish(NIGHTS[0], name, "--profile", choice)[-1]["key"]
        shutil.copytree(self.www / "with", self.work / "first")
        self.reads = [read for start, length in accesses(self.profile) for read in split(start, length)]
        (self.www / "day.raw").symlink_to(self.day)
        (self.www / "mirror").symlink_to(self.work / "first")

    def forget_later_editions(self) -> None:
        remove(self.www / "with")
        shutil.copytree(self.work / "first", self.www / "with")

    def publish(self, snapshot: str, name: str, *options: object) -> list[dict[str, Any]]:
        """Publishes a snapshot below www, and returns the records of the image and of the edition."""
        told = self.work / "told"
        command = self.varve("--json", "publish", snapshot, self.www / name, "--key", self.work / "publisher.key", *options)
        run(Command(command.argv, stdout=told, environment=command.environment))
        return [json.loads(line) for line in told.read_text().splitlines()]

    @contextlib.contextmanager
    def served(self, protocol: str = PLAIN, cut_share: float = 0.0, bits_per_second: int = BITS_PER_SECOND, round_trip: float = ROUND_TRIP) -> Iterator[Line]:
        """nginx behind the line."""
        with self.web.running(protocol) as port:
            yield Line(port, cut_share, bits_per_second, round_trip)

    def address(self, port: int, publication: str, protocol: str = PLAIN) -> str:
        return f"{self.url(port, publication, protocol)}/#{self.key}"

    def url(self, port: int, publication: str, protocol: str = PLAIN) -> str:
        return f"http{'' if protocol == PLAIN else 's'}://127.0.0.1:{port}/{publication}"

    def attach(self, address: str, profile: str, *more: object) -> Command:
        return self.varve("attach", address, self.image, "--no-cache", "--profile", profile, *more)

    @contextlib.contextmanager
    def attached(self, address: str, profile: str, *more: object) -> Iterator[Path]:
        """Yields the socket of an attached disk, which may not listen yet."""
        at = self.work / "ours.sock"
        at.unlink(missing_ok=True)
        command = self.attach(address, profile, *more, "--nbd", f"unix:{at}")
        with running(command.argv, environment=command.environment):
            yield at

    def replay(self, at: Path, export: str, began: float) -> float:
        """Reads from an NBD server what a start has read, one read after the other."""
        wait_for(at)
        with open(self.day, "rb") as day, NbdClient(at, export) as client:
            for number, (offset, length) in enumerate(self.reads):
                if number == len(self.reads) // 2:
                    self.at_half()
                if client.read(offset, length) != os.pread(day.fileno(), length, offset):
                    raise CannotMeasure(f"other bytes than those of the raw file, at {offset}")
            return time.monotonic() - began


def accesses(profile: Path) -> list[tuple[int, int]]:
    """The ranges of a profile, in the order of first access."""
    lines = (line.split() for line in profile.read_text().splitlines()[2:])
    return [(int(start), int(length)) for _, start, length in lines]


def split(start: int, length: int) -> list[tuple[int, int]]:
    end = start + length
    return [(at, min(READ_BYTES_MAX, end - at)) for at in range(start, end, READ_BYTES_MAX)]
