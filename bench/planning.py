"""Compares the predictions of `varve-plan predict` with measurements. The disk is measured (`varve-plan bench device`),
and a plan is made from the result. Then the engine runs the six cases of the plan (`varve-lab foundation`)
for each kind of store. Each row is one case of one kind, beside its prediction.
"""

import json
import subprocess
from pathlib import Path

from bench.measure import CannotMeasure, remove
from bench.upkeep import Pair

NAMES = ["plan"]
BLOCK_BYTES = 4096
BLOCK_COUNT, QUICK_BLOCK_COUNT = 200_000, 2_000
SAMPLE_COUNT, QUICK_SAMPLE_COUNT = 1_000, 50
STORED = "50%"
INDEX_MEMORY = "1M"


class Planning:
    def __init__(self, program: str, work: Path, quick: bool):
        self.program, self.work = program, work
        self.block_count = QUICK_BLOCK_COUNT if quick else BLOCK_COUNT
        self.sample_count = QUICK_SAMPLE_COUNT if quick else SAMPLE_COUNT
        self.device_words = ["--size", "16M", "--seconds", "0.1"] if quick else []

    def prepare(self) -> None:
        remove(self.work)
        self.work.mkdir(parents=True)

    def take(self, name: str, round_number: int) -> list[Pair]:
        """Takes the measurements of one round."""
        figures = self.work / "disk.json"
        figures.write_text(self.say("bench", "device", self.work, *self.device_words))
        shape = ["--block-size", BLOCK_BYTES, "--index-memory", INDEX_MEMORY]
        stored = self.block_count * BLOCK_BYTES * 51 // 100
        predicted = json.loads(self.say("predict", "--disk-size", stored, "--stored", STORED, "--device", figures, *shape))
        rates = {
            (kind["engine"], choice["case"]): choice["rate"] for kind in predicted["plan"]["forecasts"] for choice in kind["cases"]
        }
        words = ["--blocks", self.block_count, "--sample", self.sample_count, "--incompressible", STORED]
        measured = [json.loads(line) for line in self.lab("foundation", self.work, *words, *shape).splitlines()]
        return [
            Pair(
                name, f"{kind['engine']}: {case['case']}", "as predicted", round_number, case["nanoseconds"] / 1e9,
                case["bytes"] / rates[kind["engine"], case["case"]], case["bytes"], case["disk"]["read_bytes"],
            )
            for kind in measured
            for case in kind["cases"]
        ]

    def say(self, *words: object) -> str:
        return self.output(str(Path(self.program).with_name("varve-plan")), "--json", *words)

    def lab(self, *words: object) -> str:
        return self.output(str(Path(self.program).with_name("varve-lab")), *words)

    def output(self, *words: object) -> str:
        said = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
        if said.returncode != 0:
            raise CannotMeasure(f"{' '.join(map(str, words))}: {(said.stdout + said.stderr).strip()}")
        return said.stdout
