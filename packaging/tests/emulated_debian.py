"""A Debian in QEMU, with two empty disks, that a test uses through its console."""

import codecs
import io
import shutil
import socket
import subprocess
import tarfile
import time
from pathlib import Path

# The time-out of each step, for an emulated processor on a busy machine.
PATIENCE = 900.0
DISK_MIB = 192
STARTED = time.monotonic()


def step(text: str) -> None:
    print(f"{time.monotonic() - STARTED:5.0f} s  {text}", flush=True)


class Guest:
    """A machine in QEMU, used through its console."""

    def __init__(self, folder: Path, now: str) -> None:
        self.path = folder / "console"
        self.path.unlink(missing_ok=True)
        self.log = (folder / "console.log").open("ab")
        drives = [("system.qcow2", "qcow2"), ("backup.raw", "raw"), ("copy.raw", "raw"), ("parts.tar", "raw")]
        devices = [word for name, kind in drives for word in ("-drive", f"file={name},format={kind},if=virtio,cache=unsafe")]
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "1024",
             "-rtc", f"base={now}", "-chardev", "socket,id=console,path=console,server=on,wait=on", "-serial", "chardev:console",
             *devices], cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.console = socket.socket(socket.AF_UNIX)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.said = ""
        begun = time.monotonic()
        while True:
            try:
                self.console.connect(str(self.path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                assert self.process.poll() is None and time.monotonic() - begun < 60, "QEMU does not start"
                time.sleep(0.05)
        self.console.settimeout(1)

    def wait_for(self, text: str) -> str:
        """Waits until the console has shown a text. Returns what came before it."""
        begun = time.monotonic()
        while text not in self.said:
            assert time.monotonic() - begun < PATIENCE, f"the console does not show {text!r}:\n{self.said[-4000:]}"
            try:
                came = self.console.recv(65536)
            except TimeoutError:
                continue
            assert came, f"the machine ended before it showed {text!r}:\n{self.said[-4000:]}"
            self.log.write(came)
            self.log.flush()
            self.said += self.decoder.decode(came).replace("\r", "")
        before, _, self.said = self.said.partition(text)
        return before

    def type(self, text: str) -> None:
        self.console.sendall(text.encode() + b"\n")

    def log_in(self) -> None:
        # The prompt comes after what was printed during the start. Only the prompt is certain: when it begins, the
        # line is hung up, and the last words before it may be lost.
        self.wait_for("login:")
        self.type("root")
        self.wait_for("# ")
        # This shell neither edits lines nor shows a prompt.
        self.type("stty -echo; exec env PS1= PS2= HOME=/root TERM=dumb sh")
        self.type("printf '\\n%s-%s\\n' LOGGED IN")
        self.wait_for("LOGGED-IN\n")
        self.run("systemctl is-system-running --wait", None)

    def run(self, command: str, status: int | None = 0) -> str:
        """Runs a command of the shell. Returns its output with its messages."""
        self.type(f"{{ {command}\n}} >/tmp/output 2>&1 </dev/null; printf '\\n%s-%s\\n' STATUS \"$?\"; cat /tmp/output; printf '%s-%s\\n' END OF")
        found = int(self.wait_status())
        output = self.wait_for("END-OF\n")
        assert status is None or found == status, f"{command}: it ended with status {found}:\n{output}"
        return output

    def wait_status(self) -> str:
        self.wait_for("STATUS-")
        return self.wait_for("\n")

    def until(self, condition: str) -> None:
        """Waits until a condition of the shell holds."""
        begun = time.monotonic()
        while self.run(f"if {condition}\nthen echo holds; fi").strip() != "holds":
            if time.monotonic() - begun > PATIENCE:
                state = self.run("date; systemctl list-timers --all; journalctl -u varve.service -n 60 --no-pager; varve status; tail -n 40 /root/mails", None)
                raise AssertionError(f"it did not come true: {condition}\n{state}")
            time.sleep(0.5)

    def set_clock(self, when: str) -> None:
        self.run(f"date -u -s '{when}'")

    def off(self) -> None:
        self.type("systemctl poweroff")
        self.process.wait(PATIENCE)
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.console.close()
        self.log.close()


def missing(disk: Path) -> str:
    """Returns the programs, or else the disk, that the machine needs and that are missing here; or nothing."""
    names = [name for name in ("qemu-system-x86_64", "qemu-img") if not shutil.which(name)]
    return ", ".join(names) or ("" if disk.is_file() else str(disk))


def prepare(folder: Path, disk: Path, parts: list[Path], texts: dict[str, str]) -> None:
    """Makes the disks of a machine. The last one, /dev/vdd, is a tar file of these parts and texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("console.log", "system.qcow2"):
        (folder / name).unlink(missing_ok=True)
    create = ("qemu-img", "create", "-q", "-f")
    subprocess.run([*create, "qcow2", "-F", "raw", "-b", disk, folder / "system.qcow2"], check=True)
    for name in ("backup.raw", "copy.raw"):
        (folder / name).unlink(missing_ok=True)
        subprocess.run([*create, "raw", folder / name, f"{DISK_MIB}M"], check=True)
    with tarfile.open(folder / "parts.tar", "w") as tar:
        for part in parts:
            tar.add(part, part.name)
        for name, text in texts.items():
            header = tarfile.TarInfo(name)
            header.size = len(text)
            header.mode = 0o755 if name.startswith("bin/") else 0o644
            tar.addfile(header, io.BytesIO(text.encode()))
