"""The table of modelled devices for docs/evidence/notebooks/simulation.md: each published figure beside the
model's, by `varve-lab devices`."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.svg import number

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def tables(figures: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    rows = []
    for figure in figures:
        # A place may say after a semicolon why the model cannot reproduce the figure.
        place, _, remark = figure["place"].partition(";")
        difference = f"{figure['difference_percent']:+.1f}{' *' if remark else ''}"
        rows.append([f"`{figure['device']}`", place, pattern(figure["pattern"]), milliseconds(figure["published_milliseconds"]), milliseconds(figure["milliseconds"]), difference])
    return {"devices": (["device", "source", "accesses", "published, ms", "model, ms", "difference, %"], rows)}


def pattern(accesses: Mapping[str, Any]) -> str:
    order = "random" if accesses["is_random"] else "sequential"
    many = f", {accesses['depth']} at a time" if accesses["depth"] > 1 else ""
    return f"{order} {accesses['action']} of {accesses['bytes']:,} B{many}"


def milliseconds(value: float) -> str:
    return number(value) if value >= 1 else f"{value:.3g}"
