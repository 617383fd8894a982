"""Measures a published disk that is used while it is fetched over a slow line: 50 Mbit/s and a round trip of
40 ms (bench/shaped_line.py). nginx serves the publication. All of it needs the workload `days`.

  streaming           a start of night 1 until the console reports that it is up, with the profile of an earlier
                      start and without one, and once more with the server stopped; with falsified packs, whose
                      blocks come from a mirror; then night 2 is published to the same place and started, and
                      night 1 again; all beside the same emulator on the raw file of night 1
  streaming-replay    the reads of the recorded start, one after the other, beside the time that the line needs
                      for the received bytes; with QEMU's http driver and nbdkit's curl plugin on the raw file, and
                      desync's mount-index on chunks, where they are installed
  streaming-lines     the same reads with the profile over slower and faster lines
  streaming-http2     the same reads over TLS, with HTTP/1.1 and with HTTP/2
  streaming-bytes     the received bytes of the replay, beside the 4 KiB blocks that the start uses, compressed
                      (bench/published_bytes.py); also after `varve optimize`
  streaming-loopback  a disk that is attached without a slow line, beside other NBD servers
                      (bench/attached_locally.py)
  streaming-publish   the first edition and the next one (bench/editions.py)
  streaming-faults    the replay while mirrors end, connections are cut and a line becomes slow
                      (bench/broken_lines.py)
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import attached_locally, broken_lines, editions, published_bytes
from bench.machines import PATIENCE, UP, need, raw_boot_seconds, running
from bench.measure import CannotMeasure, make_warm, remove, run
from bench.publication import NIGHTS, Publication, Row
from bench.shaped_line import Line
from bench.upkeep import Pair
from bench.web_server import HTTP2, TLS

NAMES = ["streaming", "streaming-replay", "streaming-lines", "streaming-http2", "streaming-bytes", "streaming-loopback", "streaming-publish", "streaming-faults"]
# Larger than any block that is an object by itself.
PACK_BYTES_MIN = 1 << 20
# With less, QEMU waits for more round trips; with more, it receives more bytes that no read needs.
QEMU_READ_AHEAD_BYTES = 128 << 10
LINES = [(mbit * 1_000_000, milliseconds / 1000) for mbit in (10, 50, 100) for milliseconds in (10, 40, 200)]


class Streaming:
    def __init__(self, program: str, work: Path, days: Path, quick: bool):
        self.work, self.quick = work, quick
        self.publication = Publication(program, work, days)

    def prepare(self) -> None:
        if self.quick:
            raise CannotMeasure("the days of --quick do not boot")
        self.publication.prepare()

    def take(self, name: str, round_number: int) -> list[Pair]:
        make_warm(self.publication.day)
        self.publication.forget_later_editions()
        make_warm(self.publication.www)
        measure: dict[str, Callable[[Publication], list[Row]]] = {
            "streaming": starts,
            "streaming-replay": replays,
            "streaming-lines": lines,
            "streaming-http2": http2,
            "streaming-bytes": published_bytes.measure,
            "streaming-loopback": attached_locally.measure,
            "streaming-publish": editions.measure,
            "streaming-faults": broken_lines.measure,
        }
        return [Pair(name, row, limit, round_number, *figures) for row, limit, *figures in measure[name](self.publication)]


# ---- starts


def starts(publication: Publication) -> list[Row]:
    raw = raw_boot_seconds(publication.day, publication.work / "raw-boot")
    beside = "the same from the raw file"
    rows: list[Row] = []
    for name, choice, told in (("without", "none", "without a profile"), ("with", "auto", "with a profile")):
        remove(publication.home)
        with publication.served() as line:
            seconds = start(publication, line.port, name, choice)
            rows.append((f"a start over the line, {told}", beside, seconds, raw, line.received_bytes))
            port = line.port
    rows.append(("the same again, with the server stopped", beside, start(publication, port, "with", "auto"), raw, 0))
    log = publication.work / "log"
    with falsified(publication.www / "with"), publication.served() as line:
        log.unlink(missing_ok=True)
        more = ("--no-cache", "--mirror", publication.url(line.port, "mirror"), "--log", log)
        seconds = start(publication, line.port, "with", "auto", more=more)
        refused = log.read_text().count(" falsified object ")
        if refused == 0:
            raise CannotMeasure("no falsified object was read")
        rows.append((f"a start with falsified packs ({refused} blocks refused), and a mirror at the same line", beside, seconds, raw, line.received_bytes))
    edition = publication.publish(NIGHTS[1], "with")[-1]
    remove(publication.home)
    with publication.served() as line:
        start(publication, line.port, "with", "auto", NIGHTS[0])
        before = line.received_bytes
        seconds = start(publication, line.port, "with", "auto", up=UP.replace("1", "2"))
        told = f"{edition['objects']} new objects of {edition['bytes'] / 1e6:.1f} MB"
        rows.append((f"a start of night 2 after night 1 ({told})", beside, seconds, raw, line.received_bytes - before))
        rows.append(("night 1 again", beside, start(publication, line.port, "with", "auto", NIGHTS[0]), raw, 0))
    return rows


@contextlib.contextmanager
def falsified(folder: Path) -> Iterator[None]:
    """One byte of each pack is another one."""
    objects = [path for path in (folder / "objects").rglob("*") if path.is_file()]
    packs = {path: path.read_bytes() for path in objects if path.stat().st_size > PACK_BYTES_MIN}
    for path, good in packs.items():
        middle = len(good) // 2
        path.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    try:
        yield
    finally:
        for path, good in packs.items():
            path.write_bytes(good)


def start(publication: Publication, port: int, name: str, profile: str, image: str = "day", up: str = UP, more: Sequence[object] = ()) -> float:
    words = ["attach", publication.address(port, name), image, "--boot", "--no-kvm", "--profile", profile, *more]
    return run(publication.varve(*words, "--check", up, "--timeout", int(PATIENCE))).seconds


# ---- the reads of a start, one after the other


def replays(publication: Publication) -> list[Row]:
    rows: list[Row] = []
    by_name: dict[str, Callable[[Publication, Line], float]] = {
        "with a profile": lambda publication, line: replay_ours(publication, line, "with", "auto"),
        "without a profile": lambda publication, line: replay_ours(publication, line, "without", "none"),
        "by QEMU's http driver": replay_qemu,
        "by nbdkit's curl plugin": replay_nbdkit,
        "by desync mount-index": replay_desync,
    }
    for told, replay in by_name.items():
        with publication.served() as line:
            try:
                seconds = replay(publication, line)
            except CannotMeasure as reason:
                print(f"streaming-replay {told}: skipped: {reason}", flush=True)
                continue
            rows.append((f"the reads of a start {told}: {line.received_bytes / 1e6:.1f} MB", "the line alone", seconds, line.seconds_alone(), line.received_bytes))
    return rows


def lines(publication: Publication) -> list[Row]:
    rows: list[Row] = []
    for bits_per_second, round_trip in LINES:
        with publication.served(bits_per_second=bits_per_second, round_trip=round_trip) as line:
            seconds = replay_ours(publication, line, "with", "auto")
            told = f"the reads of a start over {bits_per_second // 1_000_000} Mbit/s and {round_trip * 1000:.0f} ms"
            rows.append((told, "the line alone", seconds, line.seconds_alone(), line.received_bytes))
    return rows


def http2(publication: Publication) -> list[Row]:
    rows: list[Row] = []
    for name, profile, told in (("with", "auto", "with a profile"), ("without", "none", "without a profile")):
        for protocol, version in ((TLS, "HTTP/1.1"), (HTTP2, "HTTP/2")):
            with publication.served(protocol) as line:
                seconds = replay_ours(publication, line, name, profile, protocol)
                row = f"the reads of a start {told}, {version} over TLS, {line.connections} connections"
                rows.append((row, "the line alone", seconds, line.seconds_alone(), line.received_bytes))
    return rows


def replay_ours(publication: Publication, line: Line, name: str, profile: str, protocol: str = "") -> float:
    began = time.monotonic()
    with publication.attached(publication.address(line.port, name, protocol), profile) as at:
        return publication.replay(at, "day", began)


def replay_qemu(publication: Publication, line: Line) -> float:
    need("qemu-nbd")
    at = publication.work / "qemu.sock"
    at.unlink(missing_ok=True)
    http = {"driver": "http", "url": f"http://127.0.0.1:{line.port}/day.raw", "readahead": QEMU_READ_AHEAD_BYTES}
    began = time.monotonic()
    with running(["qemu-nbd", "--read-only", f"--socket={at}", f"json:{json.dumps({'driver': 'raw', 'file': http})}"]):
        return publication.replay(at, "", began)


def replay_nbdkit(publication: Publication, line: Line) -> float:
    """The plugin of nbdkit 1.32 sends one request at a time, so its read-ahead filter cannot run beside it. The
    cache reads more at once instead."""
    need("nbdkit")
    at = publication.work / "nbdkit.sock"
    at.unlink(missing_ok=True)
    cache = ["--filter=cache", "cache-on-read=true", "cache-min-block-size=256K"]
    began = time.monotonic()
    with running(["nbdkit", "-f", "-r", "-U", str(at), cache[0], "curl", f"url=http://127.0.0.1:{line.port}/day.raw", *cache[1:]]):
        return publication.replay(at, "", began)


def replay_desync(publication: Publication, line: Line) -> float:
    need("desync", "fusermount3")
    www = publication.www
    index, chunks, at = www / "day.caibx", www / "chunks", publication.work / "mounted"
    if not index.is_file():
        chunks.mkdir()
        subprocess.run(["desync", "make", "-s", str(chunks), str(index), str(publication.day)], check=True, capture_output=True)
    at.mkdir(exist_ok=True)
    url = f"http://127.0.0.1:{line.port}"
    began = time.monotonic()
    with running(["desync", "mount-index", "-s", f"{url}/chunks", f"{url}/day.caibx", str(at)]):
        for _ in range(6000):
            files = list(at.iterdir())
            if files:
                break
            time.sleep(0.01)
        else:
            raise CannotMeasure("desync mounts nothing")
        with open(files[0], "rb", buffering=0) as disk:
            for offset, length in publication.reads:
                os.pread(disk.fileno(), length, offset)
            seconds = time.monotonic() - began
        subprocess.run(["fusermount3", "-u", str(at)], check=False)
        return seconds
