"""Measures virtual machines: a disk over NBD, a booted snapshot, and a running machine that is archived. Only
varve is measured here, each time beside another way to the same bytes on this machine.

  nbd         an image of a warm store over NBD: scattered reads of 4 KiB with 32 requests in flight
              (`qemu-img bench`), and a sequential read of everything (`nbdcopy`); beside `qemu-nbd` with the
              raw file
  boot        a snapshot of the workload `days`, booted until its console reports that it is up, beside the
              same emulator on the raw file; both without KVM, with the writes of the guest thrown away
  night       a snapshot of a running machine's disk of which 1 % has changed, beside the same with --reread;
              and the first snapshot of the machine
"""

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import CannotMeasure, Command, make_warm, remove, run
from bench.upkeep import Pair

NAMES = ["nbd", "boot", "night"]
DISK_BYTES = 1 << 30
QUICK_DISK_BYTES = 32 << 20
# The disk of the running machine is small for a machine. A snapshot has a fixed cost: a start and about
# thirty requests to QEMU. The larger the disk, the less this cost matters.
MACHINE_BYTES = 4 << 30
READ_BYTES = 4096
READ_COUNT = 200_000
QUICK_READ_COUNT = 2_000
# The distance between one read and the next. It is odd, and so large that no read-ahead helps. All of the
# disk is read before a place is read again.
STRIDE_READS = 30_011
CHANGED_PIECE_BYTES = 64 << 10
UP = "DAY-1 IS UP"
PATIENCE = 600.0

Row = tuple[str, str, float, float, int]


class Machines:
    def __init__(self, program: str, work: Path, days: Path, quick: bool):
        self.program, self.work, self.day = program, work, days / "day1.raw"
        self.disk, self.key, self.store = work / "disk.raw", work / "key", work / "store"
        self.disk_bytes = QUICK_DISK_BYTES if quick else DISK_BYTES
        self.read_count = QUICK_READ_COUNT if quick else READ_COUNT
        self.machine_bytes = QUICK_DISK_BYTES if quick else MACHINE_BYTES
        self.quick = quick

    def varve(self, *words: object, store: Path | None = None) -> Command:
        argv = [self.program, "--quiet", "-s", str(store or self.store), "--key-file", str(self.key), *map(str, words)]
        return Command(argv, environment={"HOME": str(self.work / "home")})

    def prepare(self) -> None:
        remove(self.work)
        self.work.mkdir(parents=True)
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        write_noise(self.disk, self.disk_bytes)
        run(self.varve("init"))
        run(self.varve("snapshot", self.disk, "--as", "image", "--name", "disk"))

    def take(self, name: str, round_number: int) -> list[Pair]:
        """Takes the measurements of one round."""
        measure: dict[str, Callable[[], list[Row]]] = {"nbd": self.nbd, "boot": self.boot, "night": self.night}
        return [Pair(name, row, limit, round_number, *figures) for row, limit, *figures in measure[name]()]

    # ---- over NBD

    def nbd(self) -> list[Row]:
        need("qemu-nbd", "qemu-img", "nbdcopy")
        make_warm(self.store)
        make_warm(self.disk)
        with self.served() as ours, self.served_raw() as raw:
            # This comes first, so the data has to be unpacked.
            in_order = [run(Command(["nbdcopy", "--requests=64", uri, "null:"])).seconds for uri in (ours, raw)]
            scattered = [run(self.reads(uri)).seconds for uri in (ours, raw)]
        beside = "the same from qemu-nbd"
        row = f"{self.read_count} reads of 4 KiB, 32 at a time"
        return [
            (row, beside, scattered[0], scattered[1], self.read_count * READ_BYTES),
            ("all of a disk, in order", beside, in_order[0], in_order[1], self.disk_bytes),
        ]

    def reads(self, uri: str) -> Command:
        count, step = str(self.read_count), str(STRIDE_READS * READ_BYTES)
        return Command(["qemu-img", "bench", "-f", "raw", "-c", count, "-d", "32", "-s", str(READ_BYTES), "-S", step, uri])

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        at = self.work / "ours.sock"
        command = self.varve("serve", "--nbd", f"unix:{at}")
        with running(command.argv, environment=command.environment):
            wait_for(at)
            yield f"nbd+unix:///disk?socket={at}"

    @contextlib.contextmanager
    def served_raw(self) -> Iterator[str]:
        at = self.work / "raw.sock"
        words = ["qemu-nbd", "--read-only", "--persistent", "--shared=8", "--format=raw", f"--socket={at}", str(self.disk)]
        with running(words):
            wait_for(at)
            yield f"nbd+unix:///?socket={at}"

    # ---- a booted snapshot

    def boot(self) -> list[Row]:
        need("qemu-system-x86_64", "qemu-img")
        if self.quick:
            raise CannotMeasure("the days of --quick do not boot")
        if not self.day.is_file():
            raise CannotMeasure("script/workloads cannot make its data (days) here")
        nights = self.work / "nights"
        if not nights.exists():
            run(self.varve("init", store=nights))
            run(self.varve("snapshot", self.day, "--name", "day", store=nights))
        make_warm(nights)
        make_warm(self.day)
        raw = raw_boot_seconds(self.day, self.work / "raw-boot")
        ours = run(self.varve("boot", "day", "--no-kvm", "--check", UP, "--timeout", int(PATIENCE), store=nights))
        return [("a night, until it is up", "the same from the raw file", ours.seconds, raw, self.day.stat().st_size)]

    # ---- a running machine

    def night(self) -> list[Row]:
        need("qemu-system-x86_64", "qemu-img")
        folder = self.work / "machine"
        remove(folder)
        folder.mkdir()
        store, disk, monitor = folder / "store", folder / "disk.qcow2", folder / "own"
        run(self.varve("init", store=store))
        noise = folder / "noise"
        write_noise(noise, self.machine_bytes)
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(noise), str(disk)], check=True)
        noise.unlink()
        words = "-nodefaults -display none -machine pc,accel=tcg -m 64 -S -name bench".split()
        words += ["-drive", f"file={disk},if=virtio,id=d0"]
        for at in (monitor, folder / "qmp"):
            words += ["-qmp", f"unix:{at},server=on,wait=off"]
        archive = ("--json", "snapshot", "--qmp", folder / "qmp", "--scratch", folder)
        with running(["qemu-system-x86_64", *words]):
            machine = Monitor(monitor)
            first = self.read_by(*archive, store=store)
            piece_count = self.machine_bytes // CHANGED_PIECE_BYTES
            places = random.Random(1).sample(range(piece_count), piece_count // 100)
            for number, place in enumerate(places):
                machine.qemu_io(f"write -q -P {number % 255 + 1} {place * CHANGED_PIECE_BYTES} {CHANGED_PIECE_BYTES}")
            changed = self.read_by(*archive, store=store)
            whole = self.read_by(*archive, "--reread", store=store)
        row = f"a night, 1 % changed: {changed[1] / 1e6:.1f} MB read"
        return [
            (row, f"all of it again: {whole[1] / 1e6:.0f} MB read", changed[0], whole[0], self.machine_bytes),
            (row, f"the first night: {first[1] / 1e6:.0f} MB read", changed[0], first[0], self.machine_bytes),
        ]

    def read_by(self, *words: object, store: Path) -> tuple[float, int]:
        """Returns the time that a snapshot took, and the number of bytes that it read."""
        told = self.work / "told"
        command = self.varve(*words, store=store)
        cost = run(Command(command.argv, stdout=told, environment=command.environment))
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        return cost.seconds, next(line for line in lines if line["type"] == "snapshot")["read_bytes"]


def raw_boot_seconds(day: Path, folder: Path) -> float:
    """Boots the raw file, through an overlay, in the machine that `varve boot` uses for a disk without a
    description."""
    remove(folder)
    folder.mkdir()
    begun = time.monotonic()
    overlay, console = folder / "overlay.qcow2", folder / "console"
    make = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(day), str(overlay)]
    subprocess.run(make, check=True)
    nodes = [{"driver": "file", "node-name": "file", "filename": str(overlay)}, {"driver": "qcow2", "node-name": "disk", "file": "file"}]
    words = "-machine pc,accel=tcg -cpu max -m 2048 -smp 1 -nodefaults -no-user-config -nic none -vga std -display none".split()
    words += [word for node in nodes for word in ("-blockdev", json.dumps(node))]
    words += ["-device", "virtio-blk-pci,drive=disk,bootindex=1", "-device", "virtio-rng-pci"]
    words += ["-chardev", f"socket,id=console,path={console}", "-serial", "chardev:console"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(console))
        listener.listen()
        listener.settimeout(PATIENCE)
        with running(["qemu-system-x86_64", *words]):
            guest, _ = listener.accept()
            guest.settimeout(PATIENCE)
            said = b""
            while UP.encode() not in said:
                more = guest.recv(1 << 16)
                if not more:
                    raise CannotMeasure("the raw file does not boot")
                said += more
    return time.monotonic() - begun


class Monitor:
    """Makes a machine in QEMU do what its guest would do."""

    def __init__(self, path: Path):
        wait_for(path)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r")
        self.lines.readline()
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: object) -> object:
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        for line in self.lines:
            answer = json.loads(line)
            if "error" in answer:
                raise CannotMeasure(f"QEMU refuses {command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise CannotMeasure("QEMU has ended")

    def qemu_io(self, line: str) -> None:
        said = self.execute("human-monitor-command", **{"command-line": f'qemu-io d0 "{line}"'})
        if str(said).strip():
            raise CannotMeasure(f"{line}: {said}")


def write_noise(path: Path, byte_count: int) -> None:
    with open(path, "wb") as file:
        for _ in range(byte_count >> 20):
            file.write(os.urandom(1 << 20))


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise CannotMeasure(f"{program} is not installed")


def wait_for(path: Path) -> None:
    """Waits until a server listens at the socket."""
    for _ in range(3000):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
            tried.connect(str(path))
            return
        time.sleep(0.01)
    raise CannotMeasure(f"no server listens at {path}")


@contextlib.contextmanager
def running(argv: list[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(
        argv, env=os.environ | (environment or {}), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()
