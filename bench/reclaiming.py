"""Measures how fast the space of forgotten snapshots comes back: six of seven nights of a disk are forgotten.
Every measurement begins with a cold cache, on a fresh copy of the store.

  reclaim     `varve forget` and `varve gc`, beside `borg delete` with `borg compact`, and beside
              `restic forget --prune`, each with a store of its own of the same nights. `varve gc --dry-run`
              (mark and plan), beside `varve verify` without data, which reads the same trees. What `varve gc`
              takes longer than its dry run, beside `cp` and sync of as many bytes of the log as it wrote

The nights are made here: half of the disk can be compressed, and each night overwrites about a tenth of it in
runs of 64 KiB to 4 MiB. Each round also prints the share of dead bytes before and after, the peak memory of
`forget` and `gc`, and the time for which the longest batch of `gc` kept other writers waiting.
"""

import json
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from bench.measure import CannotMeasure, Command, Cost, logical_bytes, make_cold, remove, run
from bench.nightly_disk import MIB, NIGHTS, contents, overwrite
from bench.tools import Borg, Place, Restic, Tool, Varve
from bench.upkeep import Pair

NAMES = ["reclaim"]
DISK_BYTES, QUICK_DISK_BYTES = 1 << 30, 24 << 20


class Reclaiming:
    def __init__(self, program: str, work: Path, quick: bool):
        self.work, self.disk_bytes = work, QUICK_DISK_BYTES if quick else DISK_BYTES
        self.varve = Varve(Path(program))
        self.peers: list[Tool] = [peer for peer in (Borg(), Restic()) if peer.version() is not None]
        self.arena_size = "1M" if quick else "64M"
        self.work_bytes = 0

    def prepare(self) -> None:
        """Archives the seven nights with each tool."""
        remove(self.work)
        for tool in [self.varve, *self.peers]:
            self.place(tool).home.mkdir(parents=True)
            for command in tool.init(self.place(tool)):
                # Small arenas leave as many of them in the quick test as there are in the full one.
                is_ours = tool is self.varve and command.argv[-1] == "init"
                run(Command([*command.argv, "--arena-size", self.arena_size], environment=command.environment) if is_ours else command)
        disk, chance = self.work / "disk.raw", random.Random("nights")
        with open(disk, "wb") as file:
            for _ in range(self.disk_bytes // MIB):
                file.write(contents(chance, MIB))
        for night in range(1, NIGHTS + 1):
            overwrite(disk, chance, self.disk_bytes // 10)
            for tool in [self.varve, *self.peers]:
                run(tool.snapshot(self.place(tool), disk, night))
        disk.unlink()
        self.work_bytes = logical_bytes(self.place(self.varve).store)

    def place(self, tool: Tool) -> Place:
        return Place(self.work / tool.name)

    def take(self, name: str, round_number: int) -> list[Pair]:
        """Takes the measurements of one round."""
        ours, measured = self.reclaim_ours(round_number)
        pairs = [
            Pair(name, "gc --dry-run, cold cache", "varve verify without data", round_number, measured["plan"].seconds, measured["verify"].seconds, self.work_bytes),
            Pair(name, "gc without its dry run, cold cache", "cp and sync of as many bytes", round_number,
                 max(0.001, measured["gc"].seconds - measured["plan"].seconds), measured["copy"].seconds, self.work_bytes),
        ]
        for peer in self.peers:
            words = "borg delete, borg compact" if peer.name == "borg" else "restic forget --prune"
            theirs = self.reclaim_of(peer)
            pairs.append(Pair(name, "forget six of seven nights and gc, cold", words, round_number, ours, theirs, self.work_bytes))
        if not self.peers:
            raise CannotMeasure("neither borg nor restic is installed")
        return pairs

    def fresh(self, tool: Tool) -> Place:
        """A copy of a tool's store, which was not read yet. Tools that remember where their store is get the
        copy in its place."""
        place, kept = self.place(tool), self.work / f"{tool.name}.kept"
        if not kept.exists():
            place.root.rename(kept)
        remove(place.root)
        shutil.copytree(kept, place.root, symlinks=True)
        make_cold(place.root)
        return place

    def reclaim_ours(self, round_number: int) -> tuple[float, dict[str, Cost]]:
        place = self.fresh(self.varve)
        measured: dict[str, Cost] = {}

        def cold(what: str, command: Command, is_writer: bool = False) -> None:
            make_cold(place.root)
            measured[what] = run(command, then_sync=place.root if is_writer else None)

        listed = self.say(place, "snapshots", "--json")
        older = [json.loads(line)["id"] for line in listed.splitlines()][:-1]
        cold("forget", self.varve.varve(place, "forget", "--undo-days", "0", *older), is_writer=True)
        # What `verify` reads is what the newest night needs, as what `gc` reads.
        cold("verify", self.varve.varve(place, "verify"))
        plan_words = ("gc",)
        cold("plan", self.varve.varve(place, *plan_words, "--dry-run"))
        before = json.loads(self.say(place, *plan_words, "--dry-run", "--json").splitlines()[0])
        report = self.work / "gc.json"
        cold("gc", replace(self.varve.varve(place, *plan_words, "--json"), stdout=report), is_writer=True)
        batches = json.loads(report.read_text().splitlines()[-1]).get("batches", [])
        locked = max((batch["locked_seconds"] for batch in batches), default=0.0)
        after = json.loads(self.say(place, *plan_words, "--dry-run", "--json").splitlines()[0])
        subprocess.run([self.varve.program, "-s", place.store, "--key-file", place.key, "verify", "--data", "--quiet"], check=True)
        sample, copy = self.work / "sample", self.work / "copy"
        with open(sample, "wb") as file:
            written = before["written_bytes"]
            for arena in sorted((self.work / f"{self.varve.name}.kept" / "store" / "arenas").iterdir()):
                with open(arena, "rb") as part:
                    # In pieces: a child's peak is at least the memory of this interpreter.
                    while file.tell() < written and (piece := part.read(min(MIB, written - file.tell()))):
                        file.write(piece)
        make_cold(sample)
        measured["copy"] = run(Command(["cp", str(sample), str(copy)]), then_sync=self.work)
        for made in (sample, copy):
            remove(made)
        peak = max(measured[what].peak_bytes for what in ("forget", "gc"))
        freed = before["bytes"] - after["bytes"]
        print(f"  reclaim, round {round_number}: {before['dead_bytes'] / before['bytes']:.1%} of the log was dead, {freed / max(1, before['dead_bytes']):.1%} of that is freed, "
              f"{after['dead_bytes'] / after['bytes']:.1%} of the rest is dead; wrote {written / MIB:.0f} MiB; peak memory {peak / MIB:.0f} MiB; locked for {locked:.2f} s; "
              f"{', '.join(f'{what} {cost.seconds:.2f} s' for what, cost in measured.items())}", flush=True)
        return measured["forget"].seconds + measured["gc"].seconds, measured

    def say(self, place: Place, *words: str) -> str:
        command = self.varve.varve(place, *words)
        return subprocess.run(command.argv, capture_output=True, text=True, check=True).stdout

    def reclaim_of(self, peer: Tool) -> float:
        place = self.fresh(peer)
        if peer.name == "borg":
            doomed = [str(number) for number in range(1, NIGHTS)]
            commands = [peer.command(place, "delete", f"::{doomed[0]}", *doomed[1:]), peer.command(place, "compact")]
        else:
            commands = [peer.command(place, "forget", "--keep-last", "1", "--prune", "--quiet")]
        before, seconds, peak = logical_bytes(place.store), 0.0, 0
        for command in commands:
            cost = run(command, then_sync=place.root)
            seconds, peak = seconds + cost.seconds, max(peak, cost.peak_bytes)
        after = logical_bytes(place.store)
        print(f"  {peer.name}: {before / MIB:.0f} MiB are {after / MIB:.0f} MiB; peak memory {peak / MIB:.0f} MiB", flush=True)
        return seconds
