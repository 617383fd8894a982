#!/usr/bin/env python3
"""Assembles a store from its replica, as section 6 of the store's FORMAT.md describes it.

    replica.py REPLICA OUT      REPLICA is the folder with the objects, OUT a new folder for rosetta.py

It needs no key. It trusts the names of the objects: a reader of the store checks their contents.
"""
from __future__ import annotations

import argparse
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Iterable, NamedTuple

from rosetta import must

NAME = re.compile(r"(\d{12})-([0-9a-f]{32})-(?:([0-9a-f]{32})|seal-([0-9a-f]{64}))")

class Segment(NamedTuple):
    offset: int
    before: str                         # the code of the record before it, or the arena's uid
    end: str                            # the code of its last record or of the seal, which nothing follows
    is_sealed: bool
    path: Path
    size: int

def segments(folder: Path) -> Iterable[Segment]:
    for path in folder.iterdir():
        if found := NAME.fullmatch(path.name):
            offset, before, record, seal = found.groups()
            yield Segment(int(offset), before, record or seal, bool(seal), path, path.stat().st_size)
def best_chain(found: list[Segment]) -> list[Segment]:
    """Returns the segments that fit together from offset 0 on: the chain that leads to the seal, or else the
    longest one."""
    best: dict[Segment, list[Segment]] = {}     # the best that can follow each segment, itself included
    def rank(chain: list[Segment]) -> tuple[bool, int]:
        return (chain[-1].is_sealed, chain[-1].offset + chain[-1].size) if chain else (False, -1)
    for segment in sorted(found, key=lambda one: one.offset, reverse=True):
        fits = [best[next] for next in best if not segment.is_sealed and next.before == segment.end and
                next.offset == segment.offset + segment.size]
        best[segment] = [segment, *max(fits, key=rank, default=[])]
    return max((chain for first, chain in best.items() if first.offset == 0), key=rank, default=[])
def with_seal(found: list[Segment], chain: list[Segment]) -> list[Segment]:
    """Adds the remaining segments of an arena whose seal is there and whose middle is missing, each at its
    offset."""
    if chain and not chain[-1].is_sealed and any(segment.is_sealed for segment in found):
        end = chain[-1].offset + chain[-1].size
        chain = chain + sorted(segment for segment in found if segment.offset >= end)
    return chain
def assemble(replica: Path, out: Path) -> None:
    layout = tomllib.loads((replica / "replica.toml").read_text())["layout"]
    must(layout == 1, f"a replica of layout {layout}")
    (out / "arenas").mkdir(parents=True)
    for name in ["config.toml", "FORMAT.md"]:
        if (replica / name).exists():
            shutil.copyfile(replica / name, out / name)
    if (replica / "keys").is_dir():
        shutil.copytree(replica / "keys", out / "keys")
    generations: dict[int, list[tuple[bool, bool, int, list[Segment]]]] = {}
    for folder in (replica / "arenas").iterdir():
        if named := re.fullmatch(r"(\d{10})\.(\d+)", folder.name):
            found = list(segments(folder))
            chain = best_chain(found)
            is_complete = bool(chain) and chain[-1].is_sealed
            row = is_complete, bool(chain), int(named[2]), with_seal(found, chain)
            generations.setdefault(int(named[1]), []).append(row)
    for number, rows in generations.items():
        *_, chain = max(rows, key=lambda row: row[:3])
        if chain:
            with (out / "arenas" / f"{number:010}.arena").open("xb") as file:
                for segment in chain:
                    file.seek(segment.offset)
                    file.write(segment.path.read_bytes())

def main() -> int:
    parser = argparse.ArgumentParser(description="Puts a Varve store together from its replica.")
    parser.add_argument("replica", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    try:
        assemble(args.replica, args.out)
        return 0
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"replica: {error}")
if __name__ == "__main__":
    sys.exit(main())
