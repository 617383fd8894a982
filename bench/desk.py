"""Makes a bootable disk of 8 GiB with a Debian desktop that has aged: packages were installed, removed and unpacked
again thirty times, as upgrades do it. The experiments of LBCAS (Suzaki and others, Linux Symposium 2009) start such
a disk: Ubuntu 9.04 on ext3, 8 GB with 2 GB in use.

Booted (BIOS, virtio disk, a VGA card, serial console), it starts the desktop of the user `desk`, and prints the
line `DESK IS UP` on its console."""

import random
from pathlib import Path

from bench.bootable_disk import Root, System, making

UP = "DESK IS UP"
ROUNDS = 30
# Each night, so many packages are unpacked again: their files get new places.
AGAIN = 25
DESKTOP = (
    "linux-image-amd64 initramfs-tools systemd-sysv udev dbus dbus-x11 dbus-user-session libpam-systemd less"
    " xserver-xorg-core xserver-xorg-input-libinput xinit xfce4 xfce4-terminal lightdm lightdm-gtk-greeter fonts-dejavu"
    " adwaita-icon-theme firefox-esr libreoffice-writer libreoffice-calc gimp inkscape thunderbird network-manager"
    " policykit-1"
).split()
COME_AND_GO = (
    "git perl-doc vim-runtime emacs-common python3-doc gcc g++ cmake-data ruby php-cli nodejs golang-src"
    " libboost-dev openjdk-17-jre-headless texlive-base fonts-noto-core ghostscript imagemagick mariadb-common"
    " postgresql-client nginx-core apache2-bin samba-common blender-data audacity-data vlc-data wireshark-common"
    " qemu-system-data octave-common r-base-core scilab-data"
).split()
AUTOSTART = """[Desktop Entry]
Type=Application
Name=Says on the console that the desktop is up
Exec=/bin/sh -c 'echo "DESK IS UP" >/dev/ttyS0'
"""
LIGHTDM = """[Seat:*]
autologin-user=desk
autologin-user-timeout=0
user-session=xfce
"""


def make_desk(image: Path) -> None:
    """Makes the disk. Takes about 20 minutes, and 5 GiB of disk."""
    system = System("bookworm", 8 << 30, "ext3", DESKTOP)
    source = random.Random("desk")
    with making(system, image) as root:
        root.inside("useradd", "-m", "-s", "/bin/bash", "-G", "dialout,tty", "desk")
        root.write("etc/lightdm/lightdm.conf.d/desk.conf", LIGHTDM)
        root.write("etc/xdg/autostart/desk-up.desktop", AUTOSTART)
        packages = root.packages()
        for night in range(ROUNDS):
            age(root, night, packages, source)


def age(root: Root, night: int, packages: list[str], source: random.Random) -> None:
    """A package comes, an older one goes, others are unpacked again, and files grow."""
    root.apt("install", COME_AND_GO[night % len(COME_AND_GO)])
    if night >= 3:
        root.apt("remove", COME_AND_GO[(night - 3) % len(COME_AND_GO)])
        root.apt("autoremove")
    root.apt("install", "--reinstall", *source.sample(packages, AGAIN))
    for name in ("syslog", "mail", "journal"):
        with open(root.root / f"var/log/{name}.log", "ab") as file:
            file.write(source.randbytes(source.randrange(1 << 20)).hex().encode())
