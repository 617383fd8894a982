"""Makes bootable disks of 2 GiB with the releases of Debian before and after the one of the workload `days`. The
experiments of LBCAS look for blocks that such disks share."""

from pathlib import Path

from bench.bootable_disk import System, making

UP = "DISK IS UP"
COMMON = ("initramfs-tools", "systemd-sysv", "udev", "less")
SERVICE = """[Unit]
Description=Says on the console that the machine is up
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo "DISK IS UP" >/dev/ttyS0'
[Install]
WantedBy=multi-user.target
"""
NAMES = {"trixie": "Debian 13", "bullseye": "Debian 11"}


def make_trixie(image: Path) -> None:
    """Makes a disk with Debian 13. Takes about 3 minutes."""
    make(image, System("trixie", 2 << 30, "ext4", ("linux-image-cloud-amd64", *COMMON)))


def make_bullseye(image: Path) -> None:
    """Makes a disk with Debian 11. Takes about 3 minutes."""
    make(image, System("bullseye", 2 << 30, "ext4", ("linux-image-cloud-amd64", *COMMON)))


def make(image: Path, system: System) -> None:
    with making(system, image) as root:
        root.write("etc/systemd/system/up.service", SERVICE)
        root.inside("systemctl", "enable", "up.service")
