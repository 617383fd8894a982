"""The disks that are started, and the three ways of the paper to prepare them. All get a service that reports the
processor's time once a second on the second serial port, as BootChart records it."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import desk
from bench.bootable_disk import FILES_AT, attached, mounted

UNIT = 4096
SAMPLER = """[Unit]
Description=Reports the time since the start and the processor's time
DefaultDependencies=no
[Service]
ExecStart=/bin/sh -c 'while :; do read up rest </proc/uptime; read line </proc/stat; echo "$up $line" >/dev/ttyS1; sleep 1; done'
"""
READAHEAD = """[Unit]
Description=Reads the files of a list, so that they are in memory when they are needed
DefaultDependencies=no
[Service]
ExecStart=/bin/sh -c 'exec xargs -d "\\\\n" -a /etc/readahead cat >/dev/null 2>&1'
"""
LAYOUT_CELLS = 800


@dataclass(frozen=True)
class Disk:
    name: str
    title: str
    image: Path
    up: str
    """The line on the console that says that the machine is up."""
    machine: Sequence[str]
    """The words for QEMU."""
    sizes: Sequence[int]
    """The block sizes in KiB with which the disk is started over the line."""


def days(folder: Path) -> Disk:
    return Disk("days", "Debian", folder / "days" / "day2.raw", "DAY-2 IS UP", ("-m", "1024"), (64, 128, 256, 512))


def desktop(folder: Path) -> Disk:
    return Disk("desk", "Debian with a desktop", folder / "desk.raw", desk.UP, ("-m", "1536", "-device", "VGA"), (256,))


def lacking(disk: Disk) -> str | None:
    """Returns what the measurement lacks on this machine."""
    if not disk.image.is_file():
        return f"{disk.image} is missing: script/workloads makes it, and VARVE_WORKLOADS names its folder"
    if os.geteuid() != 0:
        return "loop devices need root"
    missing = [program for program in ("qemu-system-x86_64", "nginx", "e2fsck", "debugfs", "dumpe2fs") if not tool(program)]
    return f"{missing[0]} is not installed" if missing else None


def tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


@contextlib.contextmanager
def opened(image: Path, folder: Path, writable: bool) -> Iterator[Path]:
    """Mounts the file system of a disk."""
    with attached(image) as device, mounted(device, folder, "rw" if writable else "ro,noload") as root:
        yield root


def make_normal(disk: Disk, image: Path, work: Path) -> None:
    copy(disk.image, image)
    with opened(image, work / "root", writable=True) as root:
        add_service(root, "cpu-samples", SAMPLER)


def make_readahead(normal: Path, image: Path, files: Sequence[str], work: Path) -> None:
    copy(normal, image)
    with opened(image, work / "root", writable=True) as root:
        (root / "etc/readahead").write_text("".join(f"{name}\n" for name in files))
        add_service(root, "readahead", READAHEAD)


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--sparse=always", "--no-target-directory", str(source), str(target)], check=True)


def add_service(root: Path, name: str, text: str) -> None:
    unit = root / f"etc/systemd/system/{name}.service"
    unit.write_text(text)
    wants = root / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit.name).symlink_to(f"../{unit.name}")


def files_of(image: Path, units: Sequence[int], work: Path) -> list[tuple[str, int]]:
    """Returns the path and the size of each file with one of these units, in the order of the units."""
    request, block = work / "icheck", FILES_AT // UNIT
    blocks = [unit - block for unit in units if unit >= block]
    request.write_text("".join(f"icheck {' '.join(map(str, blocks[at : at + 500]))}\n" for at in range(0, len(blocks), 500)))
    words = [tool("debugfs"), "-f", request, f"{image}?offset={FILES_AT}"]
    said = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    inodes = dict.fromkeys(int(number) for number in re.findall(r"^\d+\t(\d+)$", said, re.MULTILINE))
    paths: dict[int, tuple[str, int]] = {}
    with opened(image, work / "root", writable=False) as root:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    status = path.stat()
                    paths.setdefault(status.st_ino, (f"/{path.relative_to(root)}", status.st_size))
    return [paths[inode] for inode in inodes if inode in paths]


def fragmented_percent(image: Path) -> float:
    """Returns the part of the files that e2fsck calls non-contiguous, and checks that the file system is clean."""
    words = [tool("e2fsck") or "e2fsck", "-fn", f"{image}?offset={FILES_AT}"]
    said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    found = re.search(r"\(([0-9.]+)% non-contiguous\)", said)
    return float(found[1]) if found else 0.0


def layout(image: Path, units: Sequence[int]) -> list[str]:
    """Returns for each of the cells of equal length that the disk is divided into: the part that is in use, and the
    part that the start reads, each from 0 to 1."""
    words = [tool("dumpe2fs") or "dumpe2fs", f"{image}?offset={FILES_AT}"]
    said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    first = FILES_AT // UNIT
    count = image.stat().st_size // UNIT
    cell = -(-count // LAYOUT_CELLS)
    used, read = [0] * -(-count // cell), [0] * -(-count // cell)
    is_free = bytearray(count)
    is_free[:first] = b"\1" * first
    for ranges in re.findall(r"^  Free blocks: (.*)$", said, re.MULTILINE):
        for low, _, high in (part.partition("-") for part in ranges.split(", ") if part):
            start, end = int(low) + first, int(high or low) + first + 1
            is_free[start:end] = b"\1" * (end - start)
    for unit in range(count):
        used[unit // cell] += not is_free[unit]
    for unit in set(units):
        read[unit // cell] += 1
    return [f"{one / cell:.3f} {other / cell:.3f}" for one, other in zip(used, read, strict=True)]


