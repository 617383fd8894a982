"""A disk that changes every night: half of its bytes can be compressed, and runs of 64 KiB to 4 MiB are
overwritten."""

import random
import shutil
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
NIGHTS = 7


def contents(chance: random.Random, length: int) -> bytes:
    """Bytes of which half can be compressed well."""
    if chance.random() < 0.5:
        return chance.randbytes(length)
    line = b"%016x the same words again and again, with another number in front of them\n" % chance.getrandbits(60)
    return (line * (length // len(line) + 1))[:length]


def overwrite(disk: Path, chance: random.Random, byte_count: int) -> None:
    """Overwrites about so many bytes, in runs whose lengths are multiples of 4 KiB."""
    size = disk.stat().st_size
    with open(disk, "r+b") as file:
        while byte_count > 0:
            length = int(64 * KIB * 64 ** chance.random()) // (4 * KIB) * (4 * KIB)
            file.seek(chance.randrange((size - length) // (4 * KIB)) * 4 * KIB)
            file.write(contents(chance, length))
            byte_count -= length


def make_nights(out: Path, disk_bytes: int) -> None:
    """Writes `out`/1/disk.raw to `out`/7/disk.raw: a disk with one partition, of which a tenth is overwritten
    every night."""
    chance = random.Random("nights")
    disk = first_night(out / "1" / "disk.raw", chance, disk_bytes)
    for night in range(2, NIGHTS + 1):
        after = out / str(night) / "disk.raw"
        after.parent.mkdir(parents=True)
        shutil.copyfile(disk, after)
        overwrite(after, chance, disk_bytes // 10)
        write_partition_table(after)
        disk = after


def first_night(disk: Path, chance: random.Random, disk_bytes: int) -> Path:
    disk.parent.mkdir(parents=True)
    with open(disk, "wb") as file:
        for _ in range(disk_bytes // MIB):
            file.write(contents(chance, MIB))
    write_partition_table(disk)
    return disk


def write_partition_table(disk: Path) -> None:
    """One partition of Linux from 1 MiB to the end, by which programs recognise the disk."""
    start, end = 2048, disk.stat().st_size // 512
    entry = bytes([0x80, 0, 1, 0, 0x83, 0, 0, 0]) + start.to_bytes(4, "little") + (end - start).to_bytes(4, "little")
    with open(disk, "r+b") as file:
        file.seek(446)
        file.write(entry + bytes(48) + b"\x55\xaa")
