"""Makes two disks of 4 GiB with Debian 12 and other programs on each, and the files of each as a folder. Most of the
second disk's bytes are in files that the first one has, too, at other places."""

import subprocess
from pathlib import Path

from bench.bootable_disk import System, attached, making, mounted

COMMON = ("linux-image-cloud-amd64", "initramfs-tools", "systemd-sysv", "udev", "less")
PROGRAMS = {"a": ("git", "gcc"), "b": ("nginx-light", "postgresql")}


def make_pair(out: Path) -> None:
    """Makes `a.raw`, `b.raw`, `a/` and `b/` in a folder. Takes about 6 minutes."""
    out.mkdir()
    for name, programs in PROGRAMS.items():
        image = out / f"{name}.raw"
        with making(System("bookworm", 4 << 30, "ext4", (*COMMON, *programs)), image):
            pass
        with attached(image) as device, mounted(device, out / "root", "ro") as root:
            subprocess.run(["cp", "--archive", str(root), str(out / name)], check=True)
