"""Measures the cost of reading a past day: a mounted snapshot of a disk, beside the raw image that it was
archived from.

  random      1,000 reads of 4 KiB at random places of `disk.raw` with a cold page cache, beside the same
              reads of the image itself. The image is read once with all its zeros on the disk, as on a
              device, and once with holes, which cost it nothing. The mounts of restic and borg are measured
              too, if those are installed and can mount: on Debian `apt-get install restic borgbackup
              python3-pyfuse3`
  folder      the same reads of the disk in a snapshot of a folder that it is a file of, beside those of
              `disk.raw`, each in a store of its own
  listing     `ls -lR` of the Debian root in the mounted snapshot, beside the same in the image mounted from a
              loop device; with a cold page cache, and once more right after
  sequential  all of `disk.raw` in order with a cold page cache, beside the image itself

Every round mounts anew. The measurements need root, FUSE, loop devices, and the workload `days`.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measure import CannotMeasure, Command, make_cold, remove, run
from bench.tools import Borg, Place, Restic, Tool

LOOK = ["look-random", "look-folder", "look-listing", "look-sequential"]
READS = """
import os, random, sys, time
draw, disk = random.Random(7), os.open(sys.argv[1], os.O_RDONLY)
blocks = os.fstat(disk).st_size // 4096
places = [draw.randrange(blocks) * 4096 for _ in range(1000)]
begun = time.monotonic()
for place in places:
    os.pread(disk, 4096, place)
print(time.monotonic() - begun)
"""


@dataclass(frozen=True)
class Look:
    """One measurement, and the same measurement of the raw image right beside it."""

    name: str
    row: str
    tool: str
    round: int
    seconds: float
    raw_seconds: float


class Looking:
    def __init__(self, program: str, data: Path, tools: list[str]):
        self.program, self.data, self.work = program, data, data / "looking"
        self.peers = [tool for tool in (Restic(), Borg()) if tool.name in tools]
        self.image = data / "days" / "day3.raw"
        self.full_image = self.work / "full.raw"
        self.place, self.folder_place = Place(self.work / "varve"), Place(self.work / "varve-folder")

    def varve(self, *words: object, place: Place | None = None) -> Command:
        place = place or self.place
        argv = [self.program, "--quiet", "-s", str(place.store), "--key-file", str(place.key), *map(str, words)]
        return Command(argv, environment={"HOME": str(place.home)})

    def prepare(self) -> None:
        if os.geteuid() != 0:
            raise CannotMeasure("only root can mount the image itself")
        if not self.image.exists():
            raise CannotMeasure("script/workloads cannot make its data (days) here")
        remove(self.work)
        folder = self.work / "folder"
        for place in (self.place, self.folder_place):
            place.home.mkdir(parents=True)
            place.key.write_bytes(os.urandom(32))
            place.key.chmod(0o600)
            run(self.varve("init", place=place))
        for number in (1, 2, 3):
            day = self.data / "days" / f"day{number}.raw"
            run(self.varve("snapshot", day, "--name", "disk"))
            remove(folder)
            folder.mkdir()
            subprocess.run(["cp", "--sparse=always", day, folder / "disk.raw"], check=True)
            run(self.varve("snapshot", folder, "--name", "folder", place=self.folder_place))
        remove(folder)
        subprocess.run(["cp", "--sparse=never", self.image, self.full_image], check=True)

    def take(self, name: str, round_number: int, skipped: dict[str, str]) -> list[Look]:
        match name:
            case "look-random":
                return self.random(round_number, skipped)
            case "look-folder":
                return self.in_folder(round_number)
            case "look-listing":
                return self.listing(round_number)
            case _:
                return self.sequential(round_number)

    @contextlib.contextmanager
    def mounted(self, place: Place | None = None, name: str = "disk") -> Iterator[Path]:
        """Mounts a store and yields the folder of the newest snapshot."""
        folder = self.work / f"mount of {name}"
        with mount(folder, self.varve("mount", folder, place=place)) as days:
            yield days / "latest" / name

    def random(self, round_number: int, skipped: dict[str, str]) -> list[Look]:
        row = "1,000 reads of 4 KiB, cold cache"
        looks = []
        for name, raw_path in {row: self.full_image, "the same, beside the image with holes": self.image}.items():
            with self.mounted() as night:
                ours, raw = self.beside(round_number, night / "disk.raw", reads_at_random, raw_path)
            looks.append(Look("look-random", name, "varve", round_number, ours, raw))
        for tool in self.peers:
            label = f"{tool.name} mount"
            if label in skipped:
                continue
            try:
                with self.peer_mounted(tool) as found:
                    theirs, raw = self.beside(round_number, found, reads_at_random, self.full_image)
                looks.append(Look("look-random", row, label, round_number, theirs, raw))
            except CannotMeasure as reason:
                skipped[label] = str(reason)
        return looks

    def in_folder(self, round_number: int) -> list[Look]:
        with self.mounted() as night, self.mounted(self.folder_place, "folder") as folder:
            ours, image = self.beside(round_number, folder / "disk.raw", reads_at_random, night / "disk.raw")
        row = "of the disk in a folder, beside disk.raw"
        return [Look("look-folder", row, "varve", round_number, ours, image)]

    def listing(self, round_number: int) -> list[Look]:
        with self.mounted() as night, self.looped() as root:
            volume = next(folder for folder in sorted(night.iterdir()) if (folder / "etc").is_dir())
            # The line above has looked up the root of the volume by name, as any reader of a snapshot has to.
            ours, raw = self.beside(round_number, volume, list_all, root)
            again, raw_again = list_all(volume), list_all(root)
        return [
            Look("look-listing", "ls -lR of a Debian root, cold cache", "varve", round_number, ours, raw),
            Look("look-listing", "the same again", "varve", round_number, again, raw_again),
        ]

    def sequential(self, round_number: int) -> list[Look]:
        with self.mounted() as night:
            ours, raw = self.beside(round_number, night / "disk.raw", read_all, self.image)
        row = f"disk.raw in order, {self.image.stat().st_size >> 20} MiB, cold cache"
        return [Look("look-sequential", row, "varve", round_number, ours, raw)]

    def beside(self, round_number: int, path: Path, look, raw_path: Path) -> tuple[float, float]:
        """Measures both with a cold page cache, the raw image first in odd rounds."""

        def cold(path: Path) -> float:
            make_cold(path)
            return look(path)

        if round_number % 2 == 1:
            raw = cold(raw_path)
            return cold(path), raw
        seconds = cold(path)
        return seconds, cold(raw_path)

    @contextlib.contextmanager
    def looped(self) -> Iterator[Path]:
        said = subprocess.run(["sfdisk", "--json", self.image], check=True, capture_output=True, text=True)
        table = json.loads(said.stdout)["partitiontable"]
        start = min(part["start"] for part in table["partitions"]) * table.get("sectorsize", 512)
        folder = self.work / "loop"
        folder.mkdir(exist_ok=True)
        options = f"ro,loop,noload,offset={start}"
        if subprocess.run(["mount", "-o", options, self.image, folder], check=False).returncode != 0:
            raise CannotMeasure("the image cannot be mounted from a loop device here")
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)

    @contextlib.contextmanager
    def peer_mounted(self, tool: Tool) -> Iterator[Path]:
        """Yields the image in another tool's mount. The tool's store is made once."""
        if tool.version() is None:
            raise CannotMeasure("is not installed")
        place = Place(self.work / tool.name)
        if not place.store.exists():
            place.home.mkdir(parents=True)
            for command in tool.init(place):
                run(command)
            run(tool.snapshot(place, self.image, 1))
        folder = self.work / f"{tool.name}-mount"
        words = ["mount", folder] if tool.name == "restic" else ["mount", "--foreground", "::1", folder]
        inside = f"snapshots/latest/{self.image.name}" if tool.name == "restic" else self.image.name
        with mount(folder, tool.command(place, *words)) as mounted:
            yield mounted / inside


@contextlib.contextmanager
def mount(folder: Path, command: Command) -> Iterator[Path]:
    """Mounts with this command until the block ends. The program ends then, too."""
    folder.mkdir(exist_ok=True)
    environment = os.environ | command.environment
    with open(folder.parent / "mount.log", "wb") as log:
        process = subprocess.Popen(command.argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            for _ in range(600):
                if folder.is_mount() or process.poll() is not None:
                    break
                time.sleep(0.05)
            if not folder.is_mount():
                raise CannotMeasure(f"cannot mount here: see {log.name}")
            yield folder
        finally:
            for unmount in (["fusermount3", "-u", folder], ["umount", folder]):
                if not folder.is_mount():
                    break
                with contextlib.suppress(FileNotFoundError):
                    subprocess.run(unmount, check=False, stderr=subprocess.DEVNULL)
            if process.poll() is None:
                process.terminate()
            process.wait()


def reads_at_random(disk: Path) -> float:
    said = subprocess.run([sys.executable, "-c", READS, disk], check=True, capture_output=True, text=True)
    return float(said.stdout)


def list_all(folder: Path) -> float:
    return run(Command(["ls", "-lR", f"{folder}/"])).seconds


def read_all(disk: Path) -> float:
    return run(Command(["dd", f"if={disk}", "of=/dev/null", "bs=1M", "status=none"])).seconds


def measure(names: list[str], rounds: int, looking: Looking, skipped: dict[str, str]) -> list[Look]:
    """Takes the requested measurements, round by round. A measurement that is not possible here goes to
    `skipped`."""
    looks: list[Look] = []
    if not names:
        return looks
    try:
        try:
            looking.prepare()
        except CannotMeasure as reason:
            skipped.update({name: str(reason) for name in names})
            return looks
        for round_number in range(1, rounds + 1):
            for name in [name for name in names if name not in skipped]:
                try:
                    taken = looking.take(name, round_number, skipped)
                except CannotMeasure as reason:
                    skipped[name] = str(reason)
                    continue
                for look in taken:
                    print(f"  {name}, round {round_number}: {look.row}: {look.tool} {look.seconds:.3f} s, raw {look.raw_seconds:.3f} s",
                          file=sys.stderr)
                looks += taken
    finally:
        shutil.rmtree(looking.work, ignore_errors=True)
    return looks


def table(looks: list[Look]) -> str:
    """Returns a line for each row and tool: the median time, the median raw time, and the median of their
    ratio over the rounds."""
    lines = [f"\n## looking at a past day\n\n{'':<44}{'':<14}{'median s':>10}{'raw s':>9}{'times raw':>11}"]
    for row, tool in dict.fromkeys((look.row, look.tool) for look in looks):
        taken = [look for look in looks if (look.row, look.tool) == (row, tool)]
        seconds = statistics.median(look.seconds for look in taken)
        raw = statistics.median(look.raw_seconds for look in taken)
        times = statistics.median(look.seconds / look.raw_seconds for look in taken)
        lines.append(f"{row:<44}{tool:<14}{seconds:>10.3f}{raw:>9.3f}{times:>11.2f}")
    return "\n".join(lines)
