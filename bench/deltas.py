"""Versions of a database, to see what deltas between similar blocks would save: the part `deltas` of
script/experiments.

The database is one of SQLite. Each day one row in a hundred is updated, at random places, and as many rows are
added as a fiftieth of the first day has.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROWS, QUICK_ROWS = 400_000, 4_000
DAYS = 30
UPDATED, ADDED = 100, 50
BLOCKS = ("4K", "16K", "64K")
WORDS = "amount account transfer order customer street invoice paid open shipped returned net gross euro total".split()


def measure(lab: Callable[..., list[Any]], work: Path, quick: bool) -> list[Any]:
    """Returns the bytes of each version, for each size of blocks."""
    work.mkdir(parents=True, exist_ok=True)
    versions = list(database_versions(work, QUICK_ROWS if quick else ROWS))
    found = [version for size in BLOCKS for version in lab("deltas", "--block-size", size, *versions)]
    for version in versions:
        version.unlink()
    return found


def database_versions(work: Path, rows: int) -> list[Path]:
    chance = random.Random("a database")
    file = work / "orders.sqlite"
    file.unlink(missing_ok=True)
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, changed INTEGER, state TEXT, note TEXT)")
    database.execute("CREATE INDEX by_customer ON orders (customer)")
    add(database, chance, rows, 0)
    versions = []
    for day in range(DAYS):
        if day:
            updated = [(day, chance.choice(WORDS), 1 + chance.randrange(rows)) for _ in range(rows // UPDATED)]
            database.executemany("UPDATE orders SET changed = ?, state = ? WHERE id = ?", updated)
            add(database, chance, rows // ADDED, day)
        database.commit()
        versions.append(work / f"day-{day:02}")
        shutil.copyfile(file, versions[-1])
    database.close()
    file.unlink()
    return versions


def add(database: sqlite3.Connection, chance: random.Random, count: int, day: int) -> None:
    rows = ((chance.randrange(50_000), day, chance.choice(WORDS), note(chance)) for _ in range(count))
    database.executemany("INSERT INTO orders (customer, changed, state, note) VALUES (?, ?, ?, ?)", rows)


def note(chance: random.Random) -> str:
    words = (chance.choice(WORDS) if chance.random() < 0.7 else f"{chance.getrandbits(40):x}" for _ in range(4 + chance.randrange(24)))
    return " ".join(words)


def table(versions: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Returns the sums of all versions, for each size of blocks."""
    rows = []
    for size in sorted({version["block_bytes"] for version in versions}):
        days = [version for version in versions if version["block_bytes"] == size]
        whole, deltas = (sum(day[name] for day in days) for name in ("stored_bytes", "stored_bytes_with_deltas"))
        new, changed = days[0]["new_blocks"], sum(day["new_blocks"] for day in days[1:]) / (len(days) - 1)
        rows.append([
            f"{size >> 10} KiB", f"{100 * changed / new:.0f}", f"{days[0]['stored_bytes'] / 1e6:.1f}", f"{whole / 1e6:.1f}",
            f"{deltas / 1e6:.1f}", f"{100 * (1 - deltas / whole):.0f}",
        ])
    return ["block", "new blocks a day, % of the first day's", "first day, MB", f"{DAYS} days, MB", "with deltas, MB", "saved, %"], rows
