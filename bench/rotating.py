"""Measures reading ahead on a rotating disk, which is a model (bench/turning_disk.py): many requests in flight
must not make its head slower than one reader does.

  rotating    a snapshot of 12,000 files of 1 to 20 KiB (130 MB) with a cold cache, beside `tar` to a pipe. With
              `--before`, an older build that reads one file after the other can be measured in the same rounds

The files are in an ext4 file system on the model, and the store is on the disk of the machine. The measurement
needs root, loop devices, FUSE, and Debian's python3-pyfuse3.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import CannotMeasure, Command, logical_bytes, make_cold, remove, run
from bench.tools import Place, Varve
from bench.upkeep import Pair

NAMES = ["rotating"]
ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path("/usr/bin/python3")
GROUPS = 3
IMAGE_BYTES = 1 << 30


class Rotating:
    def __init__(self, program: str, data: Path, work: Path, quick: bool):
        self.varve, self.data, self.work, self.quick = Varve(Path(program)), data, work, quick
        self.image = work / "image"

    def prepare(self) -> None:
        options = ["--quick"] if self.quick else []
        subprocess.run([ROOT / "script" / "workloads", self.data, "files", *options], check=True)
        remove(self.work)
        self.work.mkdir(parents=True)

    def take(self, name: str, round_number: int) -> list[Pair]:
        if os.geteuid() != 0:
            raise CannotMeasure("only root can mount the model")
        if not self.image.exists():
            self.make_image()
        with self.turning() as source:
            place = Place(self.work / "varve")
            remove(place.root)
            place.home.mkdir(parents=True)
            for command in self.varve.init(place):
                run(command)
            snapshot = self.varve.snapshot(place, source, 1)
            one_reader = Command(["sh", "-c", 'tar --create --directory "$0" . | cat', str(source)])
            seconds = {}
            for command in (snapshot, one_reader) if round_number % 2 == 1 else (one_reader, snapshot):
                make_cold(source)
                seconds[command is snapshot] = run(command).seconds
        row = "12,000 files on a rotating disk, fresh, cold cache"
        return [Pair(name, row, "tar to a pipe", round_number, seconds[True], seconds[False], self.content_bytes)]

    def make_image(self) -> None:
        with open(self.image, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", self.image], check=True)
        groups = sorted((self.data / "files").iterdir())[:GROUPS]
        with mounted(["-o", "loop"], self.image, self.work / "filled") as folder:
            (folder / "files").mkdir()
            subprocess.run(["cp", "--archive", *groups, folder / "files"], check=True)
            self.content_bytes = logical_bytes(folder / "files")

    @contextlib.contextmanager
    def turning(self) -> Iterator[Path]:
        """Yields the folder with the files, on the model."""
        folder = self.work / "turning"
        folder.mkdir(exist_ok=True)
        with open(self.work / "turning.log", "wb") as log:
            model = subprocess.Popen([PYTHON, ROOT / "bench" / "turning_disk.py", self.image, folder], stderr=log, stdout=log)
        try:
            for _ in range(100):
                if (folder / "disk").exists() or model.poll() is not None:
                    break
                time.sleep(0.05)
            if not (folder / "disk").exists():
                raise CannotMeasure((self.work / "turning.log").read_text().strip() or "the model does not start")
            losetup = ["losetup", "--read-only", "--find", "--show", "--direct-io=on", folder / "disk"]
            device = subprocess.run(losetup, check=True, capture_output=True, text=True).stdout.strip()
            try:
                with mounted(["-o", "ro,noload"], Path(device), self.work / "turned") as there:
                    yield there / "files"
            finally:
                subprocess.run(["losetup", "--detach", device], check=True)
        finally:
            if folder.is_mount():
                subprocess.run(["umount", folder], check=False)
            model.wait()


@contextlib.contextmanager
def mounted(options: list[str], device: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, device, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
