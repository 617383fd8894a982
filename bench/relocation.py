"""Repeats the experiments of LBCAS (Suzaki and others, Linux Symposium 2009) that concern the ext2/3optimizer:
the requests of a start, and the blocks that they need, before and after `varve optimize`. The machine starts in
QEMU without hardware virtualisation, from the disk of day 2 of `script/workloads`."""

import json
import re
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.svg import number, scatter

SIZES = (64, 128, 256, 512)
"""The block sizes in KiB, as in the paper."""
UNIT = 4096
WINDOW = 64 << 20
UP = "DAY-2 IS UP"
PATIENCE_SECONDS = 900
# The partition with the file system begins here.
FILES_AT = 1 << 20
REQUEST = re.compile(r"^\d+@(\d+\.\d+):blk_co_preadv .* offset (\d+) bytes (\d+) ", re.MULTILINE)
# Table 2: downloaded MB, and the occupancy: the part of the unpacked bytes that the start needs, in percent.
TABLE_2 = {
    "normal": {"downloaded": (86.1, 96.8, 114, 144), "occupancy": (51.5, 43.9, 35.5, 26.9)},
    "opt": {"downloaded": (55.3, 55.3, 55.6, 55.6), "occupancy": (88.7, 85.3, 80.0, 71.8)},
}
# Table 3: requests, downloads, blocks from storage, blocks from memory.
TABLE_3 = {
    ("normal", 64): (6338, 3958, 1663, 3647),
    ("normal", 128): (6381, 2321, 1729, 3793),
    ("normal", 256): (6379, 1435, 1748, 3908),
    ("normal", 512): (6395, 948, 1769, 4019),
    ("opt", 64): (2165, 2296, 626, 1311),
    ("opt", 128): (2148, 1189, 593, 1398),
    ("opt", 256): (2129, 634, 576, 1409),
    ("opt", 512): (2132, 353, 517, 1520),
}
WAYS = {"normal": "as it is", "opt": "optimized"}

Trace = list[tuple[float, int, int]]


def lacking(days: Path) -> str | None:
    """Returns what the measurement lacks on this machine."""
    if not (days / "day2.raw").is_file():
        return f"{days} has no day2.raw: script/workloads makes it, and VARVE_DAYS names its folder"
    missing = [program for program in ("qemu-system-x86_64", "e2fsck") if not tool(program)]
    return f"{missing[0]} is not installed" if missing else None


def tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def measure(varve: Path, days: Path, work: Path) -> dict[str, Any]:
    """Records a start, optimizes the disk for it, records a start of the result, and replays both."""
    images = {"normal": days / "day2.raw", "opt": work / "optimized.raw"}
    found: dict[str, Any] = {"ways": {}}
    for way, image in images.items():
        if way == "opt":
            profile = work / "start.profile"
            profile.write_text(profile_of(trace, images["normal"].stat().st_size))
            words = [varve, "--json", "optimize", images["normal"], "--profile", profile, "--output", image]
            lines = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
            found["relocation"] = [json.loads(line) for line in lines]
        trace = start(image, work)
        found["ways"][way] = {
            "requests": [f"{seconds:.3f} {offset} {length}" for seconds, offset, length in trace],
            "fragmented_percent": fragmented(image),
            "replays": {str(size): replay(trace, image, size << 10) for size in SIZES},
        }
    images["opt"].unlink()
    return found


def start(image: Path, work: Path) -> Trace:
    """Starts the machine, and returns its reads: seconds since the first one, offset and length."""
    console, log = work / "console", work / "trace"
    words = ["-nodefaults", "-display", "none", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "1024", "-drive"]
    words += [f"file={image},format=raw,if=virtio,snapshot=on", "-serial", f"file:{console}", "-trace", "blk_co_preadv"]
    words += ["-msg", "timestamp=on", "-D", str(log)]
    console.write_text("")
    process = subprocess.Popen(["qemu-system-x86_64", *words])
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while UP not in console.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > end:
                raise subprocess.CalledProcessError(process.returncode or 1, "qemu-system-x86_64")
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()
    reads = [(float(at), int(offset), int(length)) for at, offset, length in REQUEST.findall(log.read_text(errors="replace"))]
    return [(at - reads[0][0], offset, length) for at, offset, length in reads]


def units_of(trace: Trace) -> Iterator[tuple[float, int]]:
    """Yields each unit of the disk once, at its first read."""
    seen: set[int] = set()
    for at, offset, length in trace:
        for unit in range(offset // UNIT, (offset + length - 1) // UNIT + 1):
            if unit not in seen:
                seen.add(unit)
                yield at, unit


def profile_of(trace: Trace, size: int) -> str:
    lines = [f"{int(at * 1000)} {unit * UNIT} {UNIT}" for at, unit in units_of(trace) if unit * UNIT < size]
    return "\n".join(["varve profile 1", f"size = {size}", *lines, ""])


def replay(trace: Trace, image: Path, block_bytes: int) -> dict[str, Any]:
    """Counts what a reader as in the paper does: it keeps every downloaded block on its disk, and one unpacked
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
    # The identities of Table 3.
    assert counts["requests"] == sum(spans.values())
    assert counts["downloads"] + counts["storage"] + counts["memory"] == sum(span * count for span, count in spans.items())
    assert counts["downloads"] == len(stored)
    with image.open("rb") as file:
        packed = sum(len(zlib.compress(content(file, block * block_bytes, block_bytes), 6)) for block in sorted(stored))
    needed = sum(1 for _ in units_of(trace)) * UNIT
    return counts | {"spans": spans, "packed_bytes": packed, "unpacked_bytes": len(stored) * block_bytes, "needed_bytes": needed}


def content(file: Any, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)


def fragmented(image: Path) -> float:
    """The part of the files that e2fsck calls non-contiguous, in percent."""
    words = [tool("e2fsck") or "e2fsck", "-fn", f"{image}?offset={FILES_AT}"]
    said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    found = re.search(r"\(([0-9.]+)% non-contiguous\)", said)
    return float(found[1]) if found else 0.0


def recorded(way: Mapping[str, Any]) -> Trace:
    words = (request.split() for request in way["requests"])
    return [(float(at), int(offset), int(length)) for at, offset, length in words]


def in_a_row(trace: Trace) -> float:
    """The mean number of bytes that are read for the first time one after the other."""
    units = [unit for _, unit in units_of(trace)]
    rows = 1 + sum(unit != before + 1 for before, unit in zip(units, units[1:], strict=False))
    return len(units) * UNIT / rows


def densest(trace: Trace) -> float:
    """The largest part of the needed bytes that lies within one window of the disk."""
    units = sorted(unit for _, unit in units_of(trace))
    first = most = 0
    for place, unit in enumerate(units):
        while (unit - units[first]) * UNIT >= WINDOW:
            first += 1
        most = max(most, place - first + 1)
    return most / len(units)


def tables(found: Mapping[str, Any] | None) -> dict[str, tuple[list[str], list[list[str]]]]:
    """The head and the rows of each table, by its name; empty if nothing was measured."""
    if not found:
        return {}
    return {"relocation-2": table_2(found["ways"]), "relocation-3": table_3(found["ways"]), "relocation-whole": whole(found["ways"])}


def table_2(ways: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for place, size in enumerate(SIZES):
        row = [f"{size} KiB"]
        for way in WAYS:
            one = ways[way]["replays"][str(size)]
            occupancy = 100 * one["needed_bytes"] / one["unpacked_bytes"]
            theirs = TABLE_2[way]
            row += [number(theirs["downloaded"][place]), number(one["packed_bytes"] / 1e6)]
            row += [number(theirs["occupancy"][place]), number(occupancy)]
        rows.append(row)
    head = ["blocks of"]
    for title in WAYS.values():
        head += [f"{title}: paper, MB", "here, MB", "paper, % needed", "here, % needed"]
    return head, rows


def table_3(ways: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for way, title in WAYS.items():
        for size in SIZES:
            one = ways[way]["replays"][str(size)]
            ours = (one["requests"], one["downloads"], one["storage"], one["downloads"] + one["storage"], one["memory"])
            requests, downloads, storage, memory = TABLE_3[way, size]
            theirs = (requests, downloads, storage, downloads + storage, memory)
            rows.append([f"{title}, {size} KiB", *(f"{their:,} / {our:,}" for their, our in zip(theirs, ours, strict=True))])
    return ["paper / here", "requests", "downloaded", "from storage", "unpacked", "from memory"], rows


def whole(ways: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    columns = [(recorded(ways[way]), ways[way]["fragmented_percent"]) for way in WAYS]
    theirs = {"KB of a request": ("33", "67"), "fragmented files, %": ("0.21", "1.11")}
    ours = {
        "requests of the start": [f"{len(trace):,}" for trace, _ in columns],
        "KB of a request": [number(sum(length for _, _, length in trace) / len(trace) / 1000) for trace, _ in columns],
        "KB read in a row": [number(in_a_row(trace) / 1000) for trace, _ in columns],
        f"read within {WINDOW >> 20} MiB of the disk, %": [number(100 * densest(trace)) for trace, _ in columns],
        "fragmented files, %": [number(percent) for _, percent in columns],
    }
    none = ("–", "–")
    rows = [[name, *(cell for pair in zip(theirs.get(name, none), values, strict=True) for cell in pair)] for name, values in ours.items()]
    head = [""]
    for title in WAYS.values():
        head += [f"{title}: paper", "here"]
    return head, rows


def plots(found: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """The places on the disk that a start reads, over time (Figure 9)."""
    if found:
        series = {title: [(offset / 2**20, at) for at, offset, _ in recorded(found["ways"][way])] for way, title in WAYS.items()}
        yield "relocation", scatter("Reads of a start", "MiB from the beginning of the disk", "seconds", series)
