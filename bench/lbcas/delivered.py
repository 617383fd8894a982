"""Starts a machine from a published disk over a slow line, and reads in the client's log and in the server's what
came from where, and when."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.lbcas.disks import Disk
from bench.lbcas.recorded import Started, start
from bench.machines import wait_for
from bench.measure import remove
from bench.shaped_line import Line
from bench.web_server import WebServer

ACCESS = re.compile(r"^(\d+\.\d+) block \d+ (?:zeros|[0-9a-f]+ (\w+) (\d+) B (\d+\.\d+) ms)", re.MULTILINE)
SERVED = re.compile(r"^(\d+\.\d+) \S+ 20[06] (\d+) /\S*/objects/", re.MULTILINE)
ISSUED = re.compile(r"block_rq_issue: \d+,\d+ \S+ \d+ \(.*\) \d+ \+ (\d+) ", re.MULTILINE)
TRACING = Path("/sys/kernel/tracing")


class Publications:
    """A store, and a folder with one publication at a time, which nginx serves behind the line."""

    def __init__(self, varve: Path, work: Path):
        self.varve, self.work, self.www = varve, work, work / "www"
        self.web = WebServer(self.www, work)
        remove(work / "store")
        self.say("init", "--plaintext")

    def say(self, *words: object) -> list[Any]:
        environment = os.environ | {"HOME": str(self.work / "home")}
        command = [str(self.varve), "-s", str(self.work / "store"), "--json", *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def archive(self, image: Path, name: str) -> None:
        self.say("snapshot", image, "--name", name)

    def publish(self, name: str, size: int, profile: object) -> dict[str, Any]:
        remove(self.www)
        self.www.mkdir()
        words = ("--block-size", f"{size}K", "--compression", "zlib:6", "--profile", profile, "--key", self.work / "key")
        return dict(self.say("publish", name, self.www / "pub", *words)[-1])

    @contextlib.contextmanager
    def served(self) -> Iterator[Line]:
        with self.web.running() as port:
            yield Line(port)

    @contextlib.contextmanager
    def attached(self, address: str, name: str, *words: object) -> Iterator[list[Any]]:
        """Attaches a published disk. The list gets the client's own records when it has ended."""
        records: list[Any] = []
        environment = os.environ | {"HOME": str(self.work / "home")}
        command = [str(self.varve), "--json", "attach", address, name, *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            yield records
        finally:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate()
            records += [json.loads(line) for line in said.splitlines()]

    def start(self, disk: Disk, name: str, edition: dict[str, Any], with_profile: bool) -> dict[str, Any]:
        """Starts a machine over the line, with empty caches."""
        remove(self.work / "home")
        at, log = self.work / "attached.sock", self.work / "accesses"
        for file in (at, log):
            file.unlink(missing_ok=True)
        with self.served() as line:
            address = f"http://127.0.0.1:{line.port}/pub/#{edition['key']}"
            words = ("--nbd", f"unix:{at}", "--log", log, "--profile", "auto" if with_profile else "none")
            with self.attached(address, name, *words) as records:
                wait_for(at)
                started = start(disk, f"file.driver=nbd,file.server.type=unix,file.server.path={at},file.export={name}", self.work)
            return self.figures(started, log.read_text(), line.received_bytes, records)

    def figures(self, started: Started, log: str, received: int, records: list[Any]) -> dict[str, Any]:
        found: dict[str, tuple[int, float]] = {}
        spans, accesses = [], []
        for at, origin, _, milliseconds in ACCESS.findall(log):
            seconds = float(milliseconds or 0) / 1000
            count, total = found.get(origin or "zeros", (0, 0.0))
            found[origin or "zeros"] = (count + 1, total + seconds)
            end = float(at) - started.began
            accesses.append(f"{end:.3f} {origin or 'zeros'}")
            spans.append((end - seconds, end, origin in ("fetched", "waited")))
        served = [(float(at) - started.began, int(count)) for at, count in SERVED.findall(self.web.requests.read_text())]
        return {
            "seconds": round(started.seconds, 2),
            "guest_waiting_percent": round(started.waiting_percent, 2),
            "stalled_seconds": round(length_of_union([span[:2] for span in spans if span[2]]), 3),
            "client_seconds": round(length_of_union([span[:2] for span in spans]), 3),
            "opening_seconds": next((one["opening_seconds"] for one in reversed(records) if "opening_seconds" in one), None),
            "origins": {origin: {"count": count, "seconds": round(total, 3)} for origin, (count, total) in found.items()},
            "received_bytes": received,
            "accesses": accesses,
            "served": [f"{at:.3f} {count}" for at, count in served],
        }

    def host_requests(self, disk: Disk, name: str, edition: dict[str, Any]) -> dict[int, int]:
        """Starts a machine from a loop device over the mounted published disk, so that the host's page cache and its
        read-ahead are between. Returns the number of requests to the loop device by their bytes."""
        remove(self.work / "home")
        folder = self.work / "mounted"
        folder.mkdir(exist_ok=True)
        address = f"{self.www / 'pub'}#{edition['key']}"
        with self.attached(address, name, "--mount", folder, "--profile", "none"):
            file = first_file(folder)
            words = ["losetup", "--find", "--show", "--read-only", str(file)]
            device = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
            try:
                with block_requests(device) as requests:
                    start(disk, f"file={device}", self.work)
                    issued = requests()
            finally:
                subprocess.run(["losetup", "-d", device], check=True)
        found: dict[int, int] = {}
        for sectors in ISSUED.findall(issued):
            found[int(sectors) * 512] = found.get(int(sectors) * 512, 0) + 1
        return found


@contextlib.contextmanager
def block_requests(device: str) -> Iterator[Any]:
    """Records the requests to a block device by the kernel's trace events."""
    if not (TRACING / "instances").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", str(TRACING)], check=True)
    number = os.stat(device).st_rdev
    instance = TRACING / "instances" / f"varve-{os.getpid()}"
    instance.mkdir()
    try:
        event = instance / "events" / "block" / "block_rq_issue"
        (instance / "buffer_size_kb").write_text("16384")
        (event / "filter").write_text(f"dev == {os.major(number) << 20 | os.minor(number)}")
        (event / "enable").write_text("1")
        yield lambda: (instance / "trace").read_text()
        (event / "enable").write_text("0")
    finally:
        instance.rmdir()


def length_of_union(spans: list[tuple[float, float]]) -> float:
    """Returns the length of the time that is in at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def first_file(folder: Path) -> Path:
    for _ in range(1000):
        for path in folder.rglob("disk.raw"):
            return path
        time.sleep(0.02)
    raise FileNotFoundError(f"{folder} has no disk.raw")
