"""Makes bootable disks with Debian or a relative of it: an MBR, and one partition at 1 MiB that EXTLINUX boots. The
bytes differ from one making to the next (time stamps, versions of packages); the steps do not."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

FILES_AT = 1 << 20
"""The partition begins here."""
EXTLINUX = """DEFAULT linux
PROMPT 0
TIMEOUT 1
LABEL linux
  LINUX {kernel}
  INITRD {initrd}
  APPEND root=LABEL=disk rw console=ttyS0 quiet
"""
TOOLS = ("debootstrap", "extlinux", "mkfs.ext4", "sfdisk")
BOOT_SECTORS = ("/usr/lib/EXTLINUX/mbr.bin", "/usr/lib/syslinux/mbr/mbr.bin")


@dataclass(frozen=True)
class System:
    suite: str
    disk_bytes: int
    file_system: str
    """ext3 or ext4; without the features that EXTLINUX does not read."""
    packages: Sequence[str]


def lacking() -> str | None:
    """Returns what is missing to make such disks here."""
    if os.geteuid() != 0:
        return "needs root, for loop devices"
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    return f"needs {missing[0]} (apt-get install debootstrap extlinux e2fsprogs fdisk)" if missing else None


class Root:
    """The mounted root of a disk that is being made."""

    def __init__(self, root: Path, log: IO[bytes]):
        self.root, self.log = root, log

    def apt(self, *words: str) -> None:
        self.inside("apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0", "--no-install-recommends", *words)

    def inside(self, *words: str) -> None:
        clean = ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"]
        command(["chroot", self.root, *clean, *words], self.log)

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def packages(self) -> list[str]:
        """Returns the installed packages that can be unpacked again without a new start-up image."""
        words = ["chroot", self.root, "dpkg-query", "-W", "-f", "${Package} ${Essential}\n"]
        lines = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        names = (line.split() for line in lines)
        return sorted(one[0] for one in names if one[1:] != ["yes"] and not one[0].startswith(("linux-image", "initramfs")))

    @contextlib.contextmanager
    def bound(self, name: str, *words: object) -> Iterator[None]:
        command(["mount", *words, self.root / name], self.log)
        try:
            yield
        finally:
            command(["umount", "-l", self.root / name], self.log)


@contextlib.contextmanager
def making(system: System, image: Path) -> Iterator[Root]:
    """Makes a disk with its packages. The caller changes its root, and then it becomes bootable. A failed command has
    its output in a file beside the image."""
    log_file, packages = image.with_name(image.name + ".log"), image.with_name("packages")
    with open(log_file, "wb") as log:
        with open(image, "wb") as file:
            file.truncate(system.disk_bytes)
        command(["sfdisk", "-q", image], log, f"label: dos\nstart={FILES_AT // 512}, type=83, bootable\n")
        boot_sector = next(path for path in map(Path, BOOT_SECTORS) if path.exists())
        with open(image, "r+b") as file:
            file.write(boot_sector.read_bytes()[:440])
        packages.mkdir(exist_ok=True)
        with attached(image) as device:
            features = ["-O", "^64bit,^metadata_csum"] if system.file_system == "ext4" else []
            command([f"mkfs.{system.file_system}", "-q", *features, "-L", "disk", device], log)
            with mounted(device, image.with_name("root")) as folder:
                root = Root(folder, log)
                install_base(root, system)
                with root.bound("proc", "-t", "proc", "proc"), root.bound("var/cache/apt/archives", "--bind", packages):
                    root.apt("install", *system.packages)
                    yield root
                make_bootable(root)
                # What was removed leaves no bytes behind.
                command(["fstrim", folder], log)
    shutil.rmtree(packages)
    log_file.unlink()


def install_base(root: Root, system: System) -> None:
    command(["debootstrap", "--variant=minbase", system.suite, root.root], root.log)
    copy_apt_settings(root.root)
    root.write("etc/dpkg/dpkg.cfg.d/fast", "force-unsafe-io\n")
    root.write("etc/fstab", f"LABEL=disk / {system.file_system} rw,relatime 0 1\n")
    root.write("etc/hostname", "disk\n")
    root.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", mode=0o755)


def copy_apt_settings(root: Path) -> None:
    """Gives a Debian the settings of apt on this machine, without which it may reach no packages."""
    for path in Path("/etc/apt/apt.conf.d").iterdir():
        # The others run programs that are missing there, or remove the downloaded packages.
        if not any(word in path.name for word in ("docker", "packagekit", "appstream")):
            shutil.copy(path, root / "etc/apt/apt.conf.d")


def make_bootable(root: Root) -> None:
    (root.root / "usr/sbin/policy-rc.d").unlink()
    root.inside("passwd", "-d", "root")
    boot = root.root / "boot"
    kernel = max(boot.glob("vmlinuz-*"))
    initrd = boot / kernel.name.replace("vmlinuz", "initrd.img")
    root.write("boot/extlinux/extlinux.conf", EXTLINUX.format(kernel=f"/boot/{kernel.name}", initrd=f"/boot/{initrd.name}"))
    command(["extlinux", "--install", boot / "extlinux"], root.log)


@contextlib.contextmanager
def attached(image: Path) -> Iterator[str]:
    """Yields a loop device of the partition."""
    words = ["losetup", "--find", "--show", "--offset", str(FILES_AT), str(image)]
    device = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@contextlib.contextmanager
def mounted(device: str, root: Path, options: str = "rw") -> Iterator[Path]:
    root.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", options, device, str(root)], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)
        root.rmdir()


def command(words: Sequence[object], log: IO[bytes], text: str = "") -> None:
    environment = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    subprocess.run(list(map(str, words)), input=text.encode(), stdout=log, stderr=log, check=True, env=environment)
