"""The bytes that the replay of a start receives with its profile, beside those of the 4 KiB blocks that the start
uses, in order of first access and compressed with zstd at the publisher's level in pieces of a block. The times are
those that the line needs for these bytes. The second row is for the disk after `varve optimize`, with the profile
of a start of the new disk."""

import subprocess
import time
from pathlib import Path

from bench.machines import PATIENCE, UP, need
from bench.measure import remove, run
from bench.publication import NIGHTS, Publication, Row, accesses, split
from bench.shaped_line import BITS_PER_SECOND

UNIT = 4096
PIECE_BYTES = 128 << 10
OPTIMIZED = "optimized"


def measure(publication: Publication) -> list[Row]:
    need("zstd", "e2fsck")
    rows = [row(publication, "a start", "with")]
    optimized = publication.work / "optimized.raw"
    profile = publication.work / "optimized.profile"
    for old in (optimized, profile, publication.www / OPTIMIZED):
        remove(old)
    run(publication.varve("optimize", NIGHTS[0], "--profile", publication.profile, "--output", optimized))
    run(publication.varve("snapshot", optimized, "--name", "day", "--time", "2026-05-03T23:00:00Z"))
    newest = "day@2026-05-03"
    run(publication.varve("boot", newest, "--no-kvm", "--check", UP, "--timeout", int(PATIENCE), "--profile", profile))
    publication.publish(newest, OPTIMIZED, "--profile", profile)
    other = Publication(publication.program, publication.work, publication.days)
    other.key, other.day, other.profile, other.image = publication.key, optimized, profile, newest
    other.reads = [read for start, length in accesses(profile) for read in split(start, length)]
    rows.append(row(other, "a start after `optimize`", OPTIMIZED))
    optimized.unlink()
    remove(publication.www / OPTIMIZED)
    run(publication.varve("forget", newest))
    return rows


def row(publication: Publication, told: str, name: str) -> Row:
    needed = needed_bytes(publication.day, publication.profile)
    with publication.served() as line:
        with publication.attached(publication.address(line.port, name), "auto") as at:
            publication.replay(at, "day", time.monotonic())
    received = line.received_bytes
    seconds = [count * 8 / BITS_PER_SECOND for count in (received, needed)]
    return (f"{told}: {received / 1e6:.2f} MB received", f"{needed / 1e6:.2f} MB are used", seconds[0], seconds[1], received)


def needed_bytes(day: Path, profile: Path) -> int:
    used = bytearray()
    seen: set[int] = set()
    with open(day, "rb") as disk:
        for start, length in accesses(profile):
            for unit in range(start // UNIT, -(-(start + length) // UNIT)):
                if unit in seen:
                    continue
                seen.add(unit)
                disk.seek(unit * UNIT)
                content = disk.read(UNIT)
                used += content if any(content) else b""
    pieces = [bytes(used[at : at + PIECE_BYTES]) for at in range(0, len(used), PIECE_BYTES)]
    return sum(len(subprocess.run(["zstd", "-3", "-q", "-c"], input=piece, capture_output=True, check=True).stdout) for piece in pieces)
