#!/usr/bin/env python3
"""Makes a store with harmless sources of three years, as a person who looks at the page with many sources needs it.

  demo_store.py PROGRAM FOLDER [--sources COUNT] [--years COUNT]

PROGRAM is the built `varve`. The store is in FOLDER/backup, the sources in FOLDER/data, and the configuration in
FOLDER/varve.toml. Its newest snapshots are of today, so that the promises hold. Older snapshots are as sparse as rules
of retention leave them: 30 days, 26 weeks, and months before. The run log has the nights of the last month, and a run
of today, in which the source `camera` fails because its card is not there. All contents are made here, and equal for
equal arguments.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import zlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

# Names, and the rhythm in days.
SOURCES = [
    ("home", 1), ("photos", 1), ("mail", 1), ("website", 1), ("accounting", 7), ("music", 30), ("wiki", 1), ("etc", 1),
    ("projects", 1), ("designs", 7), ("shop", 1), ("scans", 7), ("recipes", 30), ("family", 1), ("garden", 7), ("maps", 30),
    ("notes", 1), ("videos", 7), ("letters", 30), ("games", 7),
]
COMMENTS = {0: "after the move to the new machine", 9: "before the upgrade"}

CONFIG = """
state = "{folder}/state"
[store.main]
at = "{folder}/backup"
[defaults]
store = "main"
every = "day"
{sources}
[source.camera]
folder = "{folder}/data/camera"
[care]
verify = {{ share = "100%", every = "week" }}
drill = {{ restore = "5 files", sources = ["home", "photos"], every = "month" }}
[promise]
snapshot-within = "40d"
verified-within = "60d"
drill-within = "40d"
"""


def picture(width: int, height: int, shade: int) -> bytes:
    """A PNG of hills under an evening sky."""
    rows = []
    for y in range(height):
        row = bytearray([0])
        for x in range(width):
            hill = height * 0.55 + 18 * ((x * 7 // width) % 2) + (x % 90) / 6
            sky = (230 - y // 2, 170 + shade % 40 - y // 4, 130 + y // 3)
            row += bytes(max(0, min(255, value)) for value in ((40, 90 + shade % 60, 60) if y > hill else sky))
        rows.append(bytes(row))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")


def kept_days(years: int, step: int) -> list[int]:
    """The days that rules of retention leave, counted back from today, the oldest first."""
    days = {day for day in range(0, 30, step)} | {day for day in range(0, 26 * 7, max(7, step))}
    days |= {day for day in range(0, years * 365, max(30, step))}
    return sorted(days, reverse=True)


def change(source: Path, name: str, day: int, chance: random.Random) -> None:
    """The work of a day: a diary grows, and there is a new file now and then."""
    (source / "documents").mkdir(parents=True, exist_ok=True)
    with (source / "documents" / "diary.txt").open("a") as diary:
        diary.write(f"day {day}: {name}, {chance.randrange(1000)} steps, and a walk along the river\n")
    if chance.random() < 0.6:
        (source / "documents" / f"report-{day:04}.txt").write_text(f"Report of {name}\n" + "All is well.\n" * chance.randrange(2000))
    # Bytes that do not compress, so that the archive grows.
    (source / f"data-{day % 7}.bin").write_bytes(chance.randbytes(chance.randrange(2_000, 60_000)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sources", type=int, default=len(SOURCES))
    parser.add_argument("--years", type=int, default=3)
    arguments = parser.parse_args()
    varve, folder = arguments.program.resolve(), arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HOME": str(folder / "user"), "VARVE_STORE": str(folder / "backup"), "TZ": "UTC"}

    def run(*words: str | Path, statuses: tuple[int, ...] = (0,)) -> bytes:
        ended = subprocess.run([varve, "--quiet", *words], env=environment, check=False, stdout=subprocess.PIPE)
        if ended.returncode not in statuses:
            sys.exit(f"varve {words[0]} ended with {ended.returncode}")
        return ended.stdout

    run("init", "--plaintext")
    today = datetime.now(timezone.utc).replace(hour=1, minute=30, second=0, microsecond=0)
    chosen = SOURCES[: arguments.sources]
    for number, (name, step) in enumerate(chosen):
        source, chance = folder / "data" / name, random.Random(name)
        (source / "pictures").mkdir(parents=True)
        (source / "pictures" / "hills.png").write_bytes(picture(480, 270, number * 13))
        (source / "first.bin").write_bytes(chance.randbytes(4 << 20))
        days = kept_days(arguments.years, step)
        for place, day in enumerate(reversed(range(len(days)))):
            change(source, name, place, chance)
            time = today - timedelta(days=days[place], minutes=-number)
            words = ["--time", time.strftime("%Y-%m-%dT%H:%M:%SZ")]
            if day in COMMENTS:
                words += ["--tag", "why=upgrade", "--comment", COMMENTS[day]]
            # One night of the second source was missed.
            if (number, day) != (1, 4):
                run("snapshot", source, *words)
        print(f"{name}: {len(days)} snapshots", flush=True)
    sources = "".join(f'[source.{name}]\nfolder = "{folder}/data/{name}"\nevery = "{rhythm(step)}"\n' for name, step in chosen)
    config = folder / "varve.toml"
    config.write_text(CONFIG.format(folder=folder, sources=sources))
    write_run_log(folder / "state", run("snapshots", "--json"), today - timedelta(days=31))
    # The job of the camera fails.
    run("run", "--config", config, statuses=(1,))
    return 0


def write_run_log(state: Path, snapshots: bytes, since: datetime) -> None:
    """Notes the runs that have taken these snapshots."""
    state.mkdir(mode=0o700)
    taken = [json.loads(line) for line in snapshots.splitlines()]
    taken = sorted((one for one in taken if one.get("time", "") >= since.isoformat()[:10]), key=lambda one: one["time"])
    with (state / "runs.jsonl").open("w") as log:
        for one in taken:
            sizes = {key: one.get(key) for key in ("size", "new_bytes", "stored_bytes")}
            line = {"time": one["time"], "job": f"snapshot {one['name']}", "outcome": "done", "snapshot": one["id"]} | sizes
            log.write(json.dumps(line | {"seconds": 0.2 + one["size"] / 5e7}) + "\n")


def rhythm(step: int) -> str:
    return {1: "day", 7: "week", 30: "month"}[step]


if __name__ == "__main__":
    sys.exit(main())
