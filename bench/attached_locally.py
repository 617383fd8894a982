"""A published disk that is attached over loopback, without a slow line:

  - all of it in order, with an empty cache: each block is fetched from nginx, checked and unpacked; beside
    qemu-nbd with the raw file, and beside `varve serve --nbd` with the snapshot of the same disk
  - reads of 4 KiB, 32 at a time, of what the first read has left in memory, beside the same
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.machines import need, running, wait_for
from bench.measure import Command, run
from bench.publication import NIGHTS, Publication, Row

READ_BYTES = 4096
READ_COUNT = 100_000
# The distance between one read and the next is odd, and so large that no read-ahead helps.
STRIDE_BYTES = 30_011 * READ_BYTES
# All of the disk's data fits.
MEMORY = "2G"


def measure(publication: Publication) -> list[Row]:
    need("qemu-nbd", "qemu-img", "nbdcopy")
    disk_bytes = publication.day.stat().st_size
    in_order, scattered = {}, {}
    servers = {"attach": attached(publication), "qemu-nbd, raw file": raw(publication), "serve --nbd": served(publication)}
    for name, server in servers.items():
        with server as uri:
            in_order[name] = run(Command(["nbdcopy", "--requests=16", uri, "null:"])).seconds
            scattered[name] = run(reads(uri)).seconds
    return [
        (row, f"the same from {name}", seconds["attach"], seconds[name], count)
        for row, seconds, count in (
            ("an attached disk in order, cold", in_order, disk_bytes),
            (f"{READ_COUNT} cached reads of 4 KiB, 32 at a time", scattered, READ_COUNT * READ_BYTES),
        )
        for name in servers
        if name != "attach"
    ]


def reads(uri: str) -> Command:
    size = str(READ_BYTES)
    return Command(["qemu-img", "bench", "-f", "raw", "-c", str(READ_COUNT), "-d", "32", "-s", size, "-S", str(STRIDE_BYTES), uri])


@contextlib.contextmanager
def attached(publication: Publication) -> Iterator[str]:
    with publication.web.running() as port, publication.attached(publication.address(port, "with"), "none", "--memory", MEMORY) as at:
        wait_for(at)
        yield f"nbd+unix:///day?socket={at}"


@contextlib.contextmanager
def raw(publication: Publication) -> Iterator[str]:
    at = publication.work / "raw.sock"
    with running(["qemu-nbd", "--read-only", "--persistent", "--shared=8", "--format=raw", f"--socket={at}", str(publication.day)]):
        wait_for(at)
        yield uri_of(at, "")


@contextlib.contextmanager
def served(publication: Publication) -> Iterator[str]:
    at = publication.work / "serve.sock"
    at.unlink(missing_ok=True)
    command = publication.varve("serve", "--nbd", f"unix:{at}", "--export", NIGHTS[0], "--memory", MEMORY)
    with running(command.argv, environment=command.environment):
        wait_for(at)
        yield uri_of(at, "")


def uri_of(at: Path, export: str) -> str:
    return f"nbd+unix:///{export}?socket={at}"
