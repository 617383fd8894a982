"""Starts a machine in QEMU without hardware virtualisation, records its reads at the virtual disk, and replays them
as the paper's client would serve them."""

import re
import subprocess
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lbcas.disks import UNIT, Disk
from bench.lbcas.paper import check_identities

PATIENCE_SECONDS = 1500
REQUEST = re.compile(r"^\d+@(\d+\.\d+):blk_co_preadv .* offset (\d+) bytes (\d+) ", re.MULTILINE)
SAMPLE = re.compile(r"^(\d+\.\d+) cpu +((?:\d+ ?)+)\r?$", re.MULTILINE)

Trace = list[tuple[float, int, int]]
"""The reads: seconds since the first one, offset and length in bytes."""


@dataclass(frozen=True)
class Started:
    began: float
    """The time when the emulator was started, in seconds since 1970."""
    seconds: float
    """From then until the machine is up."""
    trace: Trace
    waiting_percent: float
    """The part of the time of the guest's processor that it waits for the disk, without idle time."""


def start(disk: Disk, drive: str, work: Path) -> Started:
    """Starts a machine, and stops it as soon as it is up. `drive` says where its disk is."""
    console, samples, log = work / "console", work / "samples", work / "trace"
    words = ["-nodefaults", "-display", "none", "-machine", "pc,accel=tcg", "-cpu", "max", *disk.machine]
    words += ["-drive", f"{drive},format=raw,if=virtio,snapshot=on", "-serial", f"file:{console}", "-serial", f"file:{samples}"]
    words += ["-trace", "blk_co_preadv", "-msg", "timestamp=on", "-D", str(log)]
    console.write_text("")
    began = time.time()
    process = subprocess.Popen(["qemu-system-x86_64", *words])
    try:
        while disk.up not in console.read_text(errors="replace"):
            if process.poll() is not None or time.time() > began + PATIENCE_SECONDS:
                raise subprocess.CalledProcessError(process.returncode or 1, "qemu-system-x86_64")
            time.sleep(0.1)
        seconds = time.time() - began
    finally:
        process.terminate()
        process.wait()
    reads = [(float(at), int(offset), int(length)) for at, offset, length in REQUEST.findall(log.read_text(errors="replace"))]
    trace = [(at - reads[0][0], offset, length) for at, offset, length in reads]
    return Started(began, seconds, trace, waiting_percent(samples.read_text(errors="replace")))


def waiting_percent(samples: str) -> float:
    """Returns the part of the guest's time that is waiting for the disk, of that which is work or waiting."""
    counts = [[int(number) for number in numbers.split()] for _, numbers in SAMPLE.findall(samples)]
    if not counts:
        raise ValueError("the guest has reported no times of its processor")
    # user, nice, system, idle, waiting for the disk, interrupts
    last = counts[-1]
    busy = sum(last[:3]) + sum(last[5:8])
    return 100 * last[4] / (busy + last[4])


def units_of(trace: Trace) -> Iterator[tuple[float, int]]:
    """Yields each unit of the disk once, at its first read."""
    seen: set[int] = set()
    for at, offset, length in trace:
        for unit in range(offset // UNIT, (offset + length - 1) // UNIT + 1):
            if unit not in seen:
                seen.add(unit)
                yield at, unit


def profile_of(trace: Trace, size: int) -> str:
    """Returns the profile as a file. Units that are read one after the other are one line."""
    runs: list[list[int]] = []
    for at, unit in units_of(trace):
        if runs and runs[-1][1] + runs[-1][2] == unit * UNIT:
            runs[-1][2] += UNIT
        elif unit * UNIT < size:
            runs.append([int(at * 1000), unit * UNIT, UNIT])
    return "\n".join(["varve profile 1", f"size = {size}", *(f"{at} {offset} {length}" for at, offset, length in runs), ""])


def replay(trace: Trace, image: Path, block_bytes: int) -> dict[str, Any]:
    """Counts what a client as in the paper does: it keeps every downloaded block on its disk, and one unpacked
    block in memory."""
    counts = {"requests": len(trace), "downloads": 0, "storage": 0, "memory": 0}
    spans: dict[int, int] = {}
    stored: set[int] = set()
    last = None
    for _, offset, length in trace:
        blocks = range(offset // block_bytes, (offset + length - 1) // block_bytes + 1)
        spans[len(blocks)] = spans.get(len(blocks), 0) + 1
        for block in blocks:
            if block == last:
                counts["memory"] += 1
            elif block in stored:
                counts["storage"] += 1
            else:
                counts["downloads"] += 1
            stored.add(block)
            last = block
    unpacked = counts["downloads"] + counts["storage"]
    check_identities(counts["requests"], unpacked, counts["memory"], spans)
    assert counts["downloads"] == len(stored)
    with image.open("rb") as file:
        downloaded = sum(len(zlib.compress(content(file, block * block_bytes, block_bytes), 6)) for block in sorted(stored))
    needed = sum(1 for _ in units_of(trace)) * UNIT
    return counts | {"spans": spans, "downloaded_bytes": downloaded, "touched_bytes": len(stored) * block_bytes, "needed_bytes": needed}


def content(file: Any, offset: int, length: int) -> bytes:
    file.seek(offset)
    return bytes(file.read(length))


def in_a_row(trace: Trace) -> float:
    """Returns the mean number of bytes that are read for the first time one after the other."""
    units = [unit for _, unit in units_of(trace)]
    rows = 1 + sum(unit != before + 1 for before, unit in zip(units, units[1:], strict=False))
    return len(units) * UNIT / rows


def densest(units: Sequence[int], window: int) -> float:
    """Returns the largest part of the units that lies within one window of the disk, whose length is in bytes."""
    units = sorted(units)
    first = most = 0
    for place, unit in enumerate(units):
        while (unit - units[first]) * UNIT >= window:
            first += 1
        most = max(most, place - first + 1)
    return most / len(units)
