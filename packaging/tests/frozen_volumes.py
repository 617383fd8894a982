#!/usr/bin/env python3
"""Freezes volumes of LVM in an emulated Debian, whose kernel has the device mapper: frozen_volumes.py DEB DISK FOLDER

DISK is a bootable disk with Debian, as script/workloads makes it; it is not changed. FOLDER gets an overlay of
it, and the log of the console. The packages of LVM come from this machine's package mirror. The story:

1. A folder, a file and a disk on a volume, and a folder on a thin volume, are archived as they were when they
   were frozen, although they change while they are read. Nothing of a view is left.
2. `varve run` is killed at several moments, and a machine goes down with a view. The next run removes the view
   and goes on.
3. A view overflows before it is mounted, before and while it is read. The run fails and says why.
4. The volume group has no room. The error says so, and the next run with room is well.
"""

import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from emulated_debian import Guest, missing, prepare, step

# The disk has none of these. The list is that of `apt-get install lvm2 thin-provisioning-tools` on it.
PACKAGES = ["lvm2", "dmeventd", "libaio1", "libbsd0", "libdevmapper-event1.02.1", "libedit2", "libexpat1",
            "liblvm2cmd2.03", "thin-provisioning-tools"]
CONFIG = """\
state = "/root/state"
[store.main]
at = "/root/archive"
key-file = "/root/key"
[defaults]
every = "day"
[source.home]
folder = "/srv/home/anna"
freeze = "lvm"
[source.letter]
file = "/srv/home/anna/letter"
freeze = "lvm"
[source.disk]
disk = "/dev/group/data"
freeze = "lvm"
[source.slim]
folder = "/srv/slim"
freeze = "lvm"
"""
# Programs in front of lvcreate and mount, which do something as soon as the view is there, or is mounted.
LVCREATE = """\
#!/bin/sh
/usr/sbin/lvcreate "$@" || exit
case "$*" in *--snapshot*) . /root/after-freezing;; esac
"""
MOUNT = """\
#!/bin/sh
/usr/bin/mount "$@" || exit
. /root/after-mounting
"""
# A run of a source that is to be killed.
BEGIN = "varve run home --config /root/varve.toml >/root/killed 2>&1 </dev/null & echo $! >/root/pid"


def get_packages(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for package in folder.glob("*.deb"):
        package.unlink()
    subprocess.run(["apt-get", "download", "-qq", *PACKAGES], cwd=folder, check=False, stderr=subprocess.DEVNULL)
    return sorted(folder.glob("*.deb"))


def make_volumes(guest: Guest) -> None:
    guest.run("tar -x -f /dev/vdd -C /root --no-same-owner; dmesg -n 1")
    # The new tools are for the volumes below only, and not for the start of this machine.
    guest.run("sed -i 's/^update_initramfs=.*/update_initramfs=no/' /etc/initramfs-tools/update-initramfs.conf")
    guest.run("dpkg -i /root/*.deb")
    step("LVM and varve are installed")
    guest.run("vgcreate -q group /dev/vdb && lvcreate -q --yes -n data -L 80M group && lvcreate -q --yes --type thin-pool -n pool -L 40M group")
    guest.run("lvcreate -q --yes -n slim -V 48M --thinpool pool group")
    for name, at in {"data": "/srv/home", "slim": "/srv/slim"}.items():
        guest.run(f"mkfs.ext4 -q /dev/group/{name} && mkdir -p {at} && mount /dev/group/{name} {at}")
    guest.run("mkdir /srv/home/anna; head -c 12000000 /dev/urandom >/srv/home/anna/film; echo dear >/srv/home/anna/letter; "
              "echo thin >/srv/slim/letter; sync")
    guest.run("head -c 32 /dev/urandom >/root/key; chmod 600 /root/key; export VARVE_STORE=/root/archive VARVE_KEY_FILE=/root/key; varve -q init")
    guest.run("export PATH=\"/root/bin:$PATH\"")
    when(guest)
    step("a volume, a thin volume and a store are there")


def run(guest: Guest, sources: str, status: int = 0) -> str:
    return guest.run(f"varve run {sources} --config /root/varve.toml", status)


def is_clean(guest: Guest) -> None:
    """No view is left, and nothing that mentions one."""
    volumes = guest.run("lvs --noheadings -o lv_name group").split()
    assert sorted(volumes) == ["data", "pool", "slim"], volumes
    left = guest.run("ls -A /root/state; cat /proc/mounts; ls /dev/mapper")
    assert "frozen" not in left, left


def when(guest: Guest, frozen: str = ":", mounted: str = ":") -> None:
    """Sets what happens after a view is there, and after it is mounted."""
    guest.run(f"cat >/root/after-freezing <<'END'\n{frozen}\nEND\ncat >/root/after-mounting <<'END'\n{mounted}\nEND")


def changes_while_read(guest: Guest) -> None:
    when(guest, frozen="for at in /srv/home/anna /srv/slim; do echo later >$at/letter; echo new >$at/new; done; sync")
    # One run for each source, since each run changes all of them.
    for source, text in {"home": "dear", "slim": "thin", "letter": "dear"}.items():
        guest.run("echo dear >/srv/home/anna/letter; echo thin >/srv/slim/letter; rm -f /srv/slim/new /srv/home/anna/new; sync")
        run(guest, source)
        assert guest.run("cat /srv/home/anna/letter /srv/slim/new") == "later\nnew\n"
        assert guest.run(f"varve cat {source}:letter") == f"{text}\n", source
        assert "new" not in guest.run(f"varve ls {source}").split(), source
        is_clean(guest)
        step(f"{source} was archived as it was when it was frozen")
    when(guest, frozen="cat /dev/group/varve-frozen-* | sha256sum >/root/frozen; head -c 3000000 /dev/urandom >/srv/home/anna/new; sync")
    run(guest, "disk")
    assert guest.run("varve cat disk | sha256sum") == guest.run("cat /root/frozen")
    assert guest.run("sync; sha256sum </dev/group/data") != guest.run("cat /root/frozen")
    is_clean(guest)
    step("a disk was archived as it was when it was frozen")


def is_killed(guest: Guest) -> None:
    """Kills runs at several moments: before the view is mounted, before it is read, and while it is read."""
    for moment, condition in {
        "the view was there": "[ -e /root/frozen-now ]",
        "it was mounted": "[ -e /root/mounted-now ]",
        "it was being read": "[ -e /root/mounted-now ] && sleep 2.5",
    }.items():
        guest.run("rm -f /root/frozen-now /root/mounted-now; head -c 12000000 /dev/urandom >/srv/home/anna/film; sync")
        when(guest, frozen="touch /root/frozen-now; sleep 2", mounted="touch /root/mounted-now; sleep 2")
        guest.run(BEGIN)
        guest.run(f"until {condition}; do sleep 0.1; done; kill -9 $(cat /root/pid)")
        left = guest.run("ls /dev/mapper")
        assert "frozen" in left, left
        when(guest)
        # The program that the run has started ends by itself, and the next run waits for that.
        guest.run("until varve run home --config /root/varve.toml; do sleep 0.5; done")
        is_clean(guest)
        step(f"a run was killed after {moment}, and the next one went on")
    # A machine that goes down loses the mount, but neither the volume nor the note.
    guest.run("rm -f /root/mounted-now")
    when(guest, mounted="touch /root/mounted-now; sleep 2")
    guest.run(BEGIN)
    guest.run("until [ -e /root/mounted-now ]; do sleep 0.1; done; kill -9 $(cat /root/pid); until umount /root/state/varve-frozen-*; do sleep 0.3; done")
    when(guest)
    # A run that has nothing to do removes the view, too.
    guest.run("varve pause 1d --config /root/varve.toml")
    run(guest, "")
    is_clean(guest)
    guest.run("varve pause --end --config /root/varve.toml")
    guest.run("varve -q verify --data")
    step("a paused run has removed the view of a machine that went down")


def overflows(guest: Guest) -> None:
    before = guest.run("varve snapshots")
    too_much = "head -c 24000000 /dev/urandom >/srv/home/anna/more; sync"
    for source, moment in {"home": {"mounted": too_much}, "letter": {"frozen": too_much}, "disk": {"frozen": too_much}}.items():
        when(guest, **moment)
        output = run(guest, source, 1)
        assert "the room of the view was used up" in output, output
        is_clean(guest)
        guest.run("rm /srv/home/anna/more; sync")
        step(f"the view of {source} overflows: {output.strip().splitlines()[-1]}")
    when(guest)
    assert guest.run("varve snapshots") == before
    run(guest, "home")


def has_no_room(guest: Guest) -> None:
    guest.run("lvcreate -q --yes -n rest -l 100%FREE group")
    output = run(guest, "home", 1)
    assert re.search(r"lvcreate ended with .*[Ii]nsufficient", output), output
    guest.run("lvremove -q --yes group/rest")
    is_clean(guest)
    run(guest, "home")
    is_clean(guest)
    step(f"there was no room: {output.strip().splitlines()[-1]}")


def main() -> int:
    deb, disk, folder = (Path(name).resolve() for name in sys.argv[1:4])
    if absent := missing(disk):
        print(f"skipping: {absent} is missing")
        return 0
    packages = get_packages(folder / "packages")
    if len(packages) < len(PACKAGES):
        print(f"skipping: the packages of LVM could not be got; there are only: {', '.join(package.name for package in packages) or 'none'}")
        return 0
    prepare(folder, disk, [deb, *packages], {"varve.toml": CONFIG, "bin/lvcreate": LVCREATE, "bin/mount": MOUNT})
    guest = Guest(folder, "2026-05-04T20:00:00")
    try:
        guest.log_in()
        step("the machine is up")
        make_volumes(guest)
        changes_while_read(guest)
        is_killed(guest)
        overflows(guest)
        has_no_room(guest)
    finally:
        guest.close()
    step("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
