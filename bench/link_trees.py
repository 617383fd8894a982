"""Measures the import of trees of hard links, as rsnapshot makes them.

  link-trees  135 trees of 20,000 files in 200 folders, 1.6 GiB each, half of it compressible. 40 files are new
              in each tree, and the others are hard links to those of the tree before: 25,360 inodes with
              2.1 GB. `varve import rsnapshot` of all of them into an empty store, beside reading each inode
              once. Both begin with a cold cache
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

from bench.measure import Command, make_cold, remove, run
from bench.upkeep import Pair

NAMES = ["link-trees"]
TREES, QUICK_TREES = 135, 5
FOLDERS, FILES_IN_A_FOLDER, NEW_FILES = 200, 100, 40
FILE_BYTES = 84_000


class LinkTrees:
    def __init__(self, program: str, work: Path, quick: bool):
        self.program, self.work = program, work
        self.trees, self.list, self.key = work / "trees", work / "each-inode-once", work / "key"
        self.tree_count, self.shrink = (QUICK_TREES, 20) if quick else (TREES, 1)
        self.work_bytes = 0

    def prepare(self) -> None:
        """Makes the trees, and the list of one name of each inode."""
        remove(self.work)
        self.trees.mkdir(parents=True)
        (self.work / "home").mkdir()
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        chance = random.Random("link-trees")
        names = [f"folder-{folder:03}/file-{file:03}" for folder in range(FOLDERS // self.shrink) for file in range(FILES_IN_A_FOLDER)]
        before: Path | None = None
        with open(self.list, "wb") as listed:
            for number in range(self.tree_count):
                tree = self.trees / f"2026-{number // 28 + 1:02}-{number % 28 + 1:02}"
                if before is None:
                    new = names
                    for folder in sorted({name.split("/")[0] for name in names}):
                        (tree / folder).mkdir(parents=True)
                else:
                    subprocess.run(["cp", "--archive", "--link", before, tree], check=True)
                    new = sorted(chance.sample(names, NEW_FILES))
                for name in new:
                    path = tree / name
                    path.unlink(missing_ok=True)
                    size = FILE_BYTES // 2 + chance.randrange(FILE_BYTES)
                    path.write_bytes(chance.randbytes(size // 2) + (b"%08d, and so on\n" % chance.randrange(10**8)) * (size // 40))
                    self.work_bytes += path.stat().st_size
                    listed.write(os.fsencode(path) + b"\0")
                before = tree

    def varve(self, store: Path, *words: object) -> Command:
        argv = [self.program, "--quiet", "-s", str(store), "--key-file", str(self.key), *map(str, words)]
        return Command(argv, environment={"HOME": str(self.work / "home")})

    def take(self, name: str, round_number: int) -> list[Pair]:
        store = self.work / "store"
        remove(store)
        run(self.varve(store, "init"))
        read = Command(["xargs", "--null", f"--arg-file={self.list}", "cat"])
        costs = {}
        # Another one begins each round, since the speed of a disk changes by the minute.
        order = ["read", "import"] if round_number % 2 else ["import", "read"]
        for what in order:
            make_cold(self.trees)
            if what == "read":
                costs[what] = run(read)
            else:
                costs[what] = run(self.varve(store, "import", "rsnapshot", self.trees), then_sync=self.work)
        print(f"  link-trees, round {round_number}: reading each inode once {costs['read'].seconds:.1f} s, import {costs['import'].seconds:.1f} s, "
              f"{costs['import'].seconds / costs['read'].seconds:.2f} times as long; peak memory {costs['import'].peak_bytes >> 20} MiB", flush=True)
        shutil.rmtree(store)
        return [Pair(name, f"import of {self.tree_count} trees, cold cache", "reading each inode once", round_number,
                     costs["import"].seconds, costs["read"].seconds, self.work_bytes)]
