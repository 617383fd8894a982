#!/usr/bin/env python3
"""Starts the programs of a .tar.gz in an old Debian: old_system.py TARBALL [SUITE]

The Debian is the smallest that debootstrap makes of SUITE, without a network and without any package that Varve
asks for. There a folder is archived, verified and restored. bullseye, with glibc 2.31, is the oldest Debian whose
packages all mirrors have. Needs root.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

STORY = """
set -e
# Links are read through /proc.
mount -t proc proc /proc
export VARVE_PASSPHRASE="correct horse battery staple" VARVE_STORE=/store
ldd --version | head -n 1
varve --version
varve-plan --version
varve --quiet init
varve snapshot /etc --name etc
varve verify --data
varve restore etc /restored
diff -r --no-dereference /etc /restored
varve-plan predict --disk-size 1T >/dev/null
"""


def main() -> int:
    tarball, suite = Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "bullseye"
    with tempfile.TemporaryDirectory(prefix="varve-old.") as folder:
        root = Path(folder)
        root.chmod(0o755)
        subprocess.run(["debootstrap", "--variant=minbase", suite, root], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["tar", "--extract", "--gzip", "--file", tarball, "--directory", root / "usr", "--strip-components=1"], check=True)
        subprocess.run(["unshare", "--net", "--mount", "chroot", root, "sh", "-c", STORY], check=True)
    print(f"ok: the programs work in {suite}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
