#!/usr/bin/env python3
"""Makes the image for containers twice, and runs it: container.py PROGRAM FOLDER

Both images must have the same bytes. One is run by podman, without other words, with a configuration, a folder and
a store from outside: `varve run --watch` takes a snapshot, and ends in order when the container is stopped. No
registry is needed: the system below is the loader and the libraries of PROGRAM, which is that of the tests.
"""

import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

SECONDS_MAX = 120
# A container gets control groups of version 2 alone, in a mount namespace of its own: crun refuses both
# versions side by side. It gets no rights that this machine may lack.
RUN = """
set -e
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || true
exec podman "$@"
"""
LIMITS = ("--network", "none", "--cgroups", "disabled", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
INTERRUPTED = 130
CONFIG = """
machine = "kept"
[store.main]
at = "/backup/store"
key-file = "/etc/varve/varve.key"
[source.home]
folder = "/home"
every = "day"
"""


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Engine:
    """Images and containers in a folder of their own."""

    def __init__(self, folder: Path):
        self.where = ("--root", str(folder / "images"), "--runroot", str(folder / "run"), "--storage-driver", "vfs")

    def buildah(self, *words: str | Path) -> str:
        return run("buildah", *self.where, *words)

    def podman(self, *words: str | Path) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", RUN, "podman", *self.where, "--cgroup-manager", "cgroupfs", *map(str, words)]


def base(engine: Engine, program: Path, folder: Path) -> str:
    """Makes an image of what the loader needs to start the program, and returns its name for a FROM."""
    files = folder / "base"
    for library in re.findall(r"/\S+", run("ldd", program)):
        (files / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, files / library[1:])
    (files / "tmp").mkdir()
    (folder / "Containerfile").write_text("FROM scratch\nCOPY . /\n")
    engine.buildah("build", "--quiet", "--tag", "base", "--file", folder / "Containerfile", files)
    engine.buildah("push", "--quiet", "base", f"oci-archive:{folder / 'base.oci'}")
    engine.buildah("rmi", "--all", "--force")
    return f"oci-archive:{folder / 'base.oci'}"


def main() -> int:
    program, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    engine = Engine(folder)
    below = base(engine, program, folder)
    images = [folder / "first.oci", folder / "second.oci"]
    for image in images:
        run("script/package", "--program", program, "--base", below, image)
    assert filecmp.cmp(*images, shallow=False), "two images of the same program differ"
    print(f"ok: two images have the same bytes, {images[0].stat().st_size} of them", flush=True)

    for name in ("etc", "home", "backup"):
        (folder / name).mkdir()
    (folder / "etc/varve.toml").write_text(CONFIG)
    key = folder / "etc/varve.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    (folder / "home/letter").write_text("dear\n")
    outside = (program, "--quiet", "--store", folder / "backup/store", "--key-file", key)
    run(*outside, "init")
    mounts = [f"--volume={folder / name}:{at}" for name, at in (("etc", "/etc/varve:ro"), ("home", "/home:ro"), ("backup", "/backup"))]
    container = engine.podman("run", "--rm", "--quiet", *LIMITS, *mounts, f"oci-archive:{images[0]}")
    with open(folder / "output", "w+") as output:
        process = subprocess.Popen(container, stdout=output, stderr=subprocess.STDOUT)
        try:
            ends = time.monotonic() + SECONDS_MAX
            while "snapshot of home: done" not in (folder / "output").read_text():
                assert process.poll() is None and time.monotonic() < ends, (folder / "output").read_text()
                time.sleep(0.1)
            # podman passes the signal on to the program.
            process.send_signal(signal.SIGTERM)
            status = process.wait(SECONDS_MAX)
        finally:
            process.kill()
    assert status == INTERRUPTED, f"{status}: {(folder / 'output').read_text()}"
    assert run(*outside, "cat", "home:letter") == "dear\n"
    assert " kept " in run(*outside, "snapshots"), run(*outside, "snapshots")
    print("ok: a container does what is due, and ends in order when it is stopped")
    engine.buildah("rmi", "--all", "--force")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
