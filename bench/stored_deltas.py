"""Stores versions of a database with and without deltas: the part `deltas-stored` of script/experiments. The
versions are those of bench/deltas.py."""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.deltas import DAYS, QUICK_ROWS, ROWS, database_versions

FORMS = {"without deltas": [], "with deltas": ["--deltas"]}
ROUNDS = 3


def measure(varve: Path, work: Path, quick: bool) -> list[dict[str, Any]]:
    """Returns the bytes and seconds of each form of a store."""
    work.mkdir(parents=True, exist_ok=True)
    versions = database_versions(work, QUICK_ROWS if quick else ROWS)
    found = [stored(varve, work, form, words, versions) for form, words in FORMS.items()]
    for version in versions:
        version.unlink()
    return found


def stored(varve: Path, work: Path, form: str, words: Sequence[str], versions: Sequence[Path]) -> dict[str, Any]:
    store, key, source = work / "store", work / "key", work / "source"
    source.mkdir()
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)

    def run(*command: object) -> float:
        began = time.monotonic()
        subprocess.run([varve, "-s", store, "--key-file", key, *map(str, command)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - began

    run("init", *words)
    taken, first_bytes = [], 0
    for version in versions:
        shutil.copyfile(version, source / "orders.sqlite")
        taken.append(run("snapshot", source, "--name", "orders"))
        first_bytes = first_bytes or log_bytes(store)
    restored = min(run("cat", "orders:orders.sqlite") for _ in range(ROUNDS))
    verified = min(run("verify", "--data") for _ in range(ROUNDS))
    found = {
        "form": form,
        "first_bytes": first_bytes,
        "log_bytes": log_bytes(store),
        "first_seconds": taken[0],
        "later_seconds": sorted(taken[1:])[len(taken[1:]) // 2],
        "restore_bytes": versions[-1].stat().st_size,
        "restore_seconds": restored,
        "verify_seconds": verified,
    }
    for folder in (store, source):
        shutil.rmtree(folder)
    return found


def log_bytes(store: Path) -> int:
    return sum(file.stat().st_size for file in (store / "arenas").iterdir())


def table(forms: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [[
        form["form"], f"{form['first_bytes'] / 1e6:.1f}", f"{form['log_bytes'] / 1e6:.1f}", f"{form['first_seconds']:.2f}",
        f"{form['later_seconds']:.2f}", f"{form['restore_seconds']:.2f}", f"{form['verify_seconds']:.2f}",
    ] for form in forms]
    return ["store", "first day, MB", f"{DAYS} days, MB", "first day, s", "median day, s", "read the last day, s", "verify all, s"], rows
