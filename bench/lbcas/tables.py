"""The tables of the paper beside ours, and its figures as plots."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.lbcas import HOST_SIZE, paper
from bench.lbcas.disks import UNIT
from bench.lbcas.paper import SIZES, WAYS
from bench.lbcas.recorded import Trace, densest, in_a_row, units_of
from bench.svg import bars, cells, number, scatter, stacked

Table = tuple[list[str], list[list[str]]]
DELIVERED = WAYS | {"packs": "with a profile"}
NONE = "–"
ORIGINS = {"memory": "memory", "storage": "storage", "waited": "waited for", "fetched": "fetched"}
REQUEST_BYTES = (4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10)


def tables(disk: str, found: Mapping[str, Any]) -> dict[str, Table]:
    """The head and the rows of each table, by its name."""
    return {
        f"lbcas-{disk}-waiting": waiting(found),
        f"lbcas-{disk}-volume": volume(found),
        f"lbcas-{disk}-blocks": blocks(found["ways"]),
        f"lbcas-{disk}-functions": functions(found["ways"]),
        f"lbcas-{disk}-layers": layers(found),
        f"lbcas-{disk}-parts": parts(found),
        f"lbcas-{disk}-places": places(found["ways"]),
    }


def recorded(way: Mapping[str, Any]) -> Trace:
    words = (request.split() for request in way["requests"])
    return [(float(at), int(offset), int(length)) for at, offset, length in words]


def waiting(found: Mapping[str, Any]) -> Table:
    """Table 1: the time that the guest waits for its disk. The second figure is ours: the time in which a read waits
    for a block that is not here yet, as a part of the start."""
    head = ["blocks of"]
    for way, title in DELIVERED.items():
        head += [f"{title}: paper, %"] if way in paper.WAITING else []
        head += [f"{title}: guest here, %", "line here, %"]
    rows = []
    for size in found["sizes"]:
        row = [f"{size} KiB"]
        for way in DELIVERED:
            one = found["delivered"][way][str(size)]
            row += [number(paper.WAITING[way][SIZES.index(size)])] if way in paper.WAITING else []
            row += [number(one["guest_waiting_percent"]), number(100 * one["stalled_seconds"] / one["seconds"])]
        rows.append(row)
    return head, rows


def volume(found: Mapping[str, Any]) -> Table:
    """Table 2, first part."""
    traces = {way: recorded(found["ways"][way]) for way in WAYS}
    needed = {way: found["ways"][way]["replays"][str(SIZES[0])]["needed_bytes"] for way in WAYS}
    files = found["files"]
    rows = [
        ["MB of the files that are read", f"{paper.FILES_MB} ({paper.FILES:,} files)", f"{number(files['bytes'] / 1e6)} ({files['count']:,} files)"],
        ["MB that the start needs", str(paper.NEEDED_MB), number(needed["normal"] / 1e6)],
    ]
    for way, title in WAYS.items():
        trace, (count, kilobytes) = traces[way], paper.REQUESTS[way]
        total = sum(length for _, _, length in trace)
        theirs = f"{paper.REQUESTED_MB[way]} ({count:,} requests of {kilobytes} KB)"
        ours = f"{number(total / 1e6)} ({len(trace):,} requests of {number(total / len(trace) / 1000)} KB)"
        rows.append([f"MB of all requests, {title}", theirs, ours])
    return ["", "paper", "here"], rows


def blocks(ways: Mapping[str, Any]) -> Table:
    """Table 2, second part."""
    head = ["paper / here"]
    for title in WAYS.values():
        head += [f"{title}: downloaded, MB", "unpacked, MB", "needed of it, %"]
    rows = []
    for place, size in enumerate(SIZES):
        row = [f"{size} KiB"]
        for way in WAYS:
            one = ways[way]["replays"][str(size)]
            unpacked = (one["downloads"] + one["storage"]) * (size << 10)
            pairs = (
                (paper.DOWNLOADED_MB[way][place], one["downloaded_bytes"] / 1e6),
                (paper.UNPACKED_MB[way][place], unpacked / 1e6),
                (paper.OCCUPANCY[way][place], 100 * one["needed_bytes"] / one["touched_bytes"]),
            )
            row += [f"{number(theirs)} / {number(ours)}" for theirs, ours in pairs]
        rows.append(row)
    return head, rows


def functions(ways: Mapping[str, Any]) -> Table:
    """Table 3."""
    rows = []
    for way, title in WAYS.items():
        for size in SIZES:
            one = ways[way]["replays"][str(size)]
            spans = {int(span): count for span, count in one["spans"].items()}
            ours = (one["requests"], one["downloads"], one["storage"], one["downloads"] + one["storage"], one["memory"])
            requests, downloads, storage, memory, their_spans = paper.FUNCTIONS[way, size]
            theirs = (requests, downloads, storage, downloads + storage, memory)
            row = [f"{title}, {size} KiB", *(f"{their:,} / {our:,}" for their, our in zip(theirs, ours, strict=True))]
            row.append(f"{their_spans[0]:,} / {spans.get(1, 0):,}")
            rows.append(row)
    return ["paper / here", "requests", "downloaded", "from storage", "unpacked", "from memory", "requests of one block"], rows


def layers(found: Mapping[str, Any]) -> Table:
    """The requests of Figure 11 at three layers, with blocks of 256 KiB."""
    rows = []
    for way, title in DELIVERED.items():
        one = found["delivered"][way][str(HOST_SIZE)]
        trace = recorded(found["ways"][way if way in WAYS else "normal"])
        guest = [length for _, _, length in trace]
        host = [int(length) for length, count in one["host_requests"].items() for _ in range(count)]
        served = [count for _, count in pairs(one["served"])]
        count, kilobytes = paper.REQUESTS.get(way, (0, 0))
        theirs = f"{count:,} of {kilobytes}" if count else NONE
        rows.append([title, theirs, *(f"{len(layer):,} of {number(sum(layer) / max(len(layer), 1) / 1000)}" for layer in (guest, host, served))])
    return ["requests of KB", "paper", "guest", "behind the host's page cache", "to the web server"], rows


def parts(found: Mapping[str, Any]) -> Table:
    """Figure 12: what the client of the disk takes of a start."""
    rows = []
    for way, title in DELIVERED.items():
        for size in found["sizes"]:
            one = found["delivered"][way][str(size)]
            origins, seconds = one["origins"], one["seconds"]
            row = [f"{title}, {size} KiB", number(seconds), paper.DELIVERY_SHARE.get(way, NONE), number(100 * one["client_seconds"] / seconds)]
            row.append(number(100 * one["stalled_seconds"] / seconds))
            row.append(number(100 * origins.get("storage", {"seconds": 0})["seconds"] / seconds))
            row.append(number(100 * one["opening_seconds"] / seconds))
            row.append(number(one["received_bytes"] / 1e6))
            rows.append(row)
    head = ["", "start, s", "paper: client, %", "here: reads, %", "of these waiting for the line", "reading the cache", "checking and unpacking, all threads, %", "received, MB"]
    return head, rows


def places(ways: Mapping[str, Any]) -> Table:
    """Figures 8 and 9 in figures. The window is the smallest power of two that could hold all that the start needs."""
    window = UNIT
    while window < ways["normal"]["replays"][str(SIZES[0])]["needed_bytes"]:
        window *= 2
    rows = []
    for way, title in WAYS.items():
        trace = recorded(ways[way])
        share = densest([unit for _, unit in units_of(trace)], window)
        theirs = paper.FRAGMENTED.get(way)
        rows.append(
            [title, number(theirs) if theirs else NONE, number(ways[way]["fragmented_percent"]), number(100 * share), number(in_a_row(trace) / 1000)]
        )
    return ["", "paper: fragmented files, %", "here", f"read within {window >> 20} MiB of the disk, %", "KB read in a row"], rows


def plots(disk: str, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    ways, delivered = found["ways"], {way: found["delivered"][way][str(HOST_SIZE)] for way in DELIVERED}
    log = [access.split() for access in delivered["normal"]["accesses"]]
    began = {origin: [(float(at), place) for place, (at, one) in enumerate(log) if one == origin] for origin in ORIGINS}
    yield f"lbcas-{disk}-log", scatter("Accesses to blocks, as the log has them (Figure 3)", "seconds", "accesses", {ORIGINS[origin]: points for origin, points in began.items()})
    layout = {WAYS[way]: pairs(ways[way]["layout"]) for way in ("normal", "opt")}
    yield f"lbcas-{disk}-layout", cells("The disk: in use, and read by the start (Figure 8)", layout)
    series = {title: [(offset / 2**20, at) for at, offset, _ in recorded(ways[way])] for way, title in WAYS.items()}
    yield f"lbcas-{disk}-places", scatter("Reads of a start (Figure 9)", "MiB from the beginning of the disk", "seconds", series)
    sizes = {f"up to {limit >> 10} KiB": {title: at_most(recorded(ways[way]), limit) for way, title in WAYS.items()} for limit in REQUEST_BYTES}
    yield f"lbcas-{disk}-requests", bars("Requests of the guest by their length (Figure 11)", "requests", sizes, list(WAYS.values()))
    yield f"lbcas-{disk}-parts", stacked("What a start waits for, blocks of 256 KiB (Figure 12)", "seconds", {title: shares(delivered[way]) for way, title in DELIVERED.items()})
    yield f"lbcas-{disk}-received", scatter("Received from the server, blocks of 256 KiB (Figure 13)", "seconds", "MB", {title: sums(pairs(delivered[way]["served"])) for way, title in DELIVERED.items()})


def at_most(trace: Trace, limit: int) -> float:
    """The requests of more than half of a length, up to it. The longest take all that are longer."""
    least = 0 if limit == REQUEST_BYTES[0] else limit // 2
    most = float("inf") if limit == REQUEST_BYTES[-1] else limit
    return float(sum(least < length <= most for _, _, length in trace))


def shares(one: Mapping[str, Any]) -> dict[str, float]:
    storage = one["origins"].get("storage", {"seconds": 0.0})["seconds"]
    other = max(0.0, one["client_seconds"] - one["stalled_seconds"] - storage)
    return {"waiting for the line": one["stalled_seconds"], "reading the cache": storage, "other work of the client": other, "the machine": one["seconds"] - one["client_seconds"]}


def pairs(lines: Sequence[str]) -> list[tuple[float, float]]:
    words = (line.split() for line in lines)
    return [(float(one), float(other)) for one, other in words]


def sums(served: list[tuple[float, float]]) -> list[tuple[float, float]]:
    total, points = 0.0, []
    for at, count in sorted(served):
        total += count / 1e6
        points.append((at, total))
    return points
