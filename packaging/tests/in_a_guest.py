#!/usr/bin/env python3
"""Installs a package in an emulated Debian and lives with it for a while: in_a_guest.py DEB DISK FOLDER

DISK is a bootable disk with Debian, as script/workloads makes it; it is not changed. FOLDER gets an overlay of
it, two disks for archives, and the log of the console. The story:

1. The lines of docs/guide/first-night.md are run, one after the other, and print what the page shows.
2. A week passes. One day the machine is off, and the timer makes up for it.
3. The disk fills, the key is removed, the replica vanishes, and the clock jumps to 2030. Each time
   `varve status`, a mail and the web page name it, and the heartbeat stops. Each time all is well afterwards.
4. A user has an archive of her own, and her own timer takes a snapshot.
5. The package is purged. Keys and archives stay, and open again with a new installation.

The processor is emulated, so nothing here depends on speed: each step waits for what it expects.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.dont_write_bytecode = True

from emulated_debian import Guest, missing, prepare, step

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "first-night.md"
PARTS = Path(__file__).resolve().parent / "guest"
# The guide says an address that nobody has. The guest has this one.
HEARTBEAT = ("https://hc.example/ping/UUID", "http://127.0.0.1:8100/ping")
UNIT = {
    "take-mail.socket": "[Socket]\nListenStream=127.0.0.1:25\nListenStream=[::1]:25\nAccept=yes\nFreeBind=yes\n",
    "take-heartbeat.socket": "[Socket]\nListenStream=127.0.0.1:8100\nAccept=yes\n",
    "take-mail@.service": "[Service]\nExecStart=/root/take mail\nStandardInput=socket\n",
    "take-heartbeat@.service": "[Service]\nExecStart=/root/take heartbeat\nStandardInput=socket\n",
}


# ---- the page

def console_lines(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields each command of the page's console blocks, with the lines that the page shows after it."""
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.M | re.S):
        command, shown, end = "", [], ""
        for line in block.splitlines():
            if end:
                command += f"\n{line}"
                end = "" if line == end else end
            elif line.startswith("# "):
                if command:
                    yield command, shown
                command, shown = line[2:], []
                here = re.search(r"<<(\w+)", command)
                end = here[1] if here else ""
            else:
                shown.append(line)
        yield command, shown


def assert_shows(output: str, shown: list[str], command: str) -> None:
    """Each line of the page is in the output. Words with a digit may differ in value and number, as in `1m 5s`
    for `5s`."""
    for line in shown:
        pattern = r"\s+".join(r"\S+(?:\s+\d\S*)*" if re.search(r"\d", word) else re.escape(word) for word in line.split())
        assert re.search(pattern, output), f"{command}: the page shows {line!r}, but it printed:\n{output}"


def follow(guest: Guest, page: Path) -> int:
    """Runs all lines of the page. Returns their number."""
    count = 0
    for command, shown in console_lines(page):
        count += 1
        step(f"# {command.splitlines()[0]}")
        if command == "varve setup":
            answer_questions(guest, command, shown)
        else:
            output = guest.run(command.replace(*HEARTBEAT))
            assert_shows(output, shown, command)
    return count


def answer_questions(guest: Guest, command: str, shown: list[str]) -> None:
    guest.type(f"{command}; printf '\\n%s-%s\\n' STATUS \"$?\"")
    answers = 0
    while shown and (found := re.match(r"(.*\?(?: [(\[].*[)\]])?) ?(.*)", shown[0])):
        guest.wait_for(found[1])
        guest.type(found[2])
        shown = shown[1:]
        answers += 1
    assert answers == 5, answers
    output = guest.wait_for("STATUS-")
    assert guest.wait_for("\n") == "0", output
    assert_shows(output, shown, command)
    assert len(output.splitlines()) > 20, f"the paper key is printed: {output}"


# ---- the story

def first_night(guest: Guest, deb: Path) -> None:
    step("the machine is up")
    guest.run("tar -x -f /dev/vdd -C /root --no-same-owner && cp /root/units/* /etc/systemd/system/")
    guest.run("systemctl daemon-reload && systemctl start take-mail.socket take-heartbeat.socket")
    # The installer of Debian writes this file, but the tool that made this disk does not. Its lists of
    # packages take an emulated processor a minute, and nothing here needs them.
    guest.run("echo '127.0.0.1 localhost' >>/etc/hosts; rm -rf /var/lib/apt/lists/*; dmesg -n 1")
    guest.run("mkdir -p /home/anna && echo 'dear diary' >/home/anna/diary && cd /root")
    version = re.search(r"varve_\S+\.deb", PAGE.read_text())
    assert version and version[0] == deb.name, f"the page installs {version}, but the package is {deb.name}"
    count = follow(guest, PAGE)
    step(f"{count} lines of the page were run")
    guest.run("systemctl is-active varve.timer")
    wait_for_mail(guest, "Subject: ")
    guest.until("[ -s /root/heartbeats ]")


def wait_for_mail(guest: Guest, text: str) -> None:
    guest.until(f"grep -q -e '{text}' /root/mails")


def days(guest: Guest) -> list[str]:
    """The days that have a snapshot of /home."""
    return re.findall(r"(\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d .*\bhome\b", guest.run("varve snapshots"))


def week(guest: Guest, numbers: list[int]) -> None:
    for day in numbers:
        guest.run(f"echo 'day {day}' >>/home/anna/diary")
        guest.set_clock(f"2026-05-{day:02} 02:00:30")
        guest.until(f"varve snapshots | grep -q '2026-05-{day:02} .* home'")
        step(f"the snapshot of 2026-05-{day:02} is there")


class Fault:
    """Something that goes wrong, and is mended."""

    def __init__(self, guest: Guest, name: str) -> None:
        self.guest = guest
        self.name = name
        step(name)
        is_quiet(guest)
        guest.run("rm -f /root/mails; touch /root/mails")

    def is_named(self, promise: str, subject: str, words: str, page: str) -> None:
        """Waits for the mail, and looks at the status, the page and the heartbeat."""
        guest = self.guest
        wait_for_mail(guest, f"^BROKEN {promise} .*{subject}")
        is_quiet(guest)
        mail = guest.run("cat /root/mails")
        status = guest.run("varve status", 4)
        assert re.search(rf"^BROKEN +{promise} .*{subject} .*{words}", status, re.M), f"{self.name}: status says\n{status}"
        shown = guest.run("/root/look /backup/varve /root/second.key")
        assert re.search(page, shown), f"{self.name}: the page shows\n{shown}"
        # All promises have been judged since, and the service of the heartbeat hears nothing.
        guest.run("rm -f /root/heartbeats; systemctl start varve.service || true; varve notify")
        guest.run("! [ -e /root/heartbeats ]")
        broken = re.search(rf"^BROKEN {promise} .*{subject}.*", mail, re.M)
        step(f"  named by status, mail and page, and the heartbeat is silent: {broken[0] if broken else ''}")

    def is_mended(self, when: str) -> None:
        """Sets the clock, and waits until a later run has made all well again."""
        guest = self.guest
        guest.set_clock(when)
        guest.until("[ -s /root/heartbeats ]")
        wait_for_mail(guest, "every promise is kept")
        guest.run("varve status")
        step("  all is well again")


def is_quiet(guest: Guest) -> None:
    """Waits for the end of a run that the timer may have begun."""
    guest.until("[ \"$(systemctl show --value -p ActiveState varve.service)\" != activating ]")


def faults(guest: Guest) -> None:
    # The page is served with a copy of the key: what a server has read in time does not help the runs.
    guest.run("cp -a /etc/varve/varve.key /root/second.key")

    fault = Fault(guest, "the disk fills")
    guest.run("head -c 30000000 /dev/urandom >/home/anna/film; dd if=/dev/zero of=/backup/full bs=1M; sync", None)
    guest.set_clock("2026-05-14 02:00:30")
    fault.is_named("snapshot-within", "home", "last failure: .*(space|room)", "home : snapshot-within|BROKEN|broken")
    status = guest.run("varve status", 4)
    assert re.search(r"^BROKEN +room-for ", status, re.M), status
    guest.run("rm /backup/full")
    fault.is_mended("2026-05-15 02:00:30")

    fault = Fault(guest, "the key is removed")
    guest.run("mv /etc/varve/varve.key /root/removed.key")
    guest.set_clock("2026-05-16 02:00:30")
    fault.is_named("store", "main", "varve.key", "main.*(cannot|broken)")
    guest.run("mv /root/removed.key /etc/varve/varve.key")
    fault.is_mended("2026-05-17 02:00:30")

    fault = Fault(guest, "the replica vanishes")
    guest.run("umount /mnt/copy")
    guest.set_clock("2026-05-18 02:00:30")
    fault.is_named("replica-within", "copy", "its place holds no copy", "its place holds no copy")
    # No second copy was begun below the mount point.
    guest.run("[ -z \"$(ls -A /mnt/copy)\" ]")
    guest.run("mount /mnt/copy")
    fault.is_mended("2026-05-19 02:00:30")

    fault = Fault(guest, "the clock jumps to 2030")
    guest.set_clock("2030-01-01 02:00:30")
    guest.until("varve snapshots | grep -q '2030-01-01 .* home'")
    is_quiet(guest)
    step("  a snapshot of 2030 is there, and the clock is set right")
    guest.set_clock("2026-05-20 02:00:30")
    # The timer, too, has to go on after a clock that was ahead.
    guest.set_clock("2026-05-20 02:20:30")
    fault.is_named("clock", "main", "ahead of this clock", "ahead of this clock")
    guest.run("varve snapshots | grep ' 2030-' | cut -d ' ' -f 1 >/root/wrong; varve forget $(cat /root/wrong)")
    fault.is_mended("2026-05-21 02:00:30")


def a_user(guest: Guest) -> None:
    step("a user has an archive of her own")
    guest.run("useradd --home-dir /home/anna anna && chown -R anna: /home/anna && install -d -m 700 -o anna /run/anna")
    # This disk has no login sessions, which would start her systemd.
    guest.run("systemd-run --quiet --unit=anna --uid=anna -p Type=notify -p Delegate=yes -p WorkingDirectory=/home/anna "
              "-E HOME=/home/anna -E XDG_RUNTIME_DIR=/run/anna /usr/lib/systemd/systemd --user")
    hers = "setpriv --reuid=anna --regid=anna --init-groups env -u VARVE_STORE -u VARVE_KEY_FILE HOME=/home/anna XDG_RUNTIME_DIR=/run/anna"
    answers = ['folders = ["/home/anna/letters"]', 'store = "/home/anna/archive"']
    guest.run(f"install -d -o anna /home/anna/letters; printf '%s\\n' '{answers[0]}' '{answers[1]}' >/tmp/answers")
    output = guest.run(f"{hers} varve setup --answers /tmp/answers")
    assert "systemctl --user enable --now varve.timer" in output, output
    guest.run(f"{hers} systemctl --user enable --now varve.timer")
    is_quiet(guest)
    # Her timer may come up to two minutes late.
    guest.set_clock("2026-05-22 02:02:30")
    guest.until(f"{hers} varve -s /home/anna/archive --key-file /home/anna/.config/varve/varve.key snapshots | grep -q '2026-05-22 .* letters'")
    # The same run drills it.
    guest.until(f"{hers} varve status >/dev/null")
    step("her own timer has taken a snapshot")


def purge(guest: Guest, deb: Path) -> None:
    step("the package is purged, and installed again")
    is_quiet(guest)
    before = guest.run("varve snapshots; cd /; find /etc/varve /backup /mnt/copy -type f | sort | xargs sha256sum")
    output = guest.run("apt-get purge -y varve")
    assert "kept: every archive" in output, output
    guest.run("! [ -e /usr/bin/varve ] && ! [ -e /var/lib/varve ] && ! [ -L /etc/systemd/system/timers.target.wants/varve.timer ]")
    guest.run("! systemctl is-active varve.timer", None)
    after = guest.run("find /etc/varve /backup /mnt/copy -type f | sort | xargs sha256sum")
    assert before.endswith(after) and "varve.key" in after and ".arena" in after, f"{before}\n{after}"
    guest.run(f"dpkg -i /root/{deb.name}")
    assert "disabled" in guest.run("systemctl is-enabled varve.timer", None)
    guest.run("varve run")
    guest.run("varve status")


def main() -> int:
    deb, disk, folder = (Path(name).resolve() for name in sys.argv[1:4])
    if absent := missing(disk):
        print(f"skipping: {absent} is missing")
        return 0
    prepare(folder, disk, [deb, *PARTS.iterdir()], {f"units/{name}": text for name, text in UNIT.items()})
    guest = Guest(folder, "2026-05-04T20:00:00")
    try:
        guest.log_in()
        first_night(guest, deb)
        week(guest, [5, 6])
        step("the machine is off on 2026-05-07")
        guest.off()
        guest = Guest(folder, "2026-05-08T11:00:00")
        guest.log_in()
        guest.run("export VARVE_STORE=/backup/varve VARVE_KEY_FILE=/etc/varve/varve.key; dmesg -n 1")
        guest.run("systemctl start take-mail.socket take-heartbeat.socket")
        guest.until("varve snapshots | grep -q '2026-05-08 .* home'")
        step("the timer has made up for it")
        week(guest, [9, 10])
        is_quiet(guest)
        found = days(guest)
        assert found == ["2026-05-04", "2026-05-05", "2026-05-06", "2026-05-08", "2026-05-09", "2026-05-10"], found
        guest.run("varve status")
        faults(guest)
        a_user(guest)
        purge(guest, deb)
    finally:
        guest.close()
    step("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
