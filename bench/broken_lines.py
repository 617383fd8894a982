"""The reads of a start, with its profile, while something breaks. No read may fail. Each row has a limit: the same
replay with nothing broken, in the same round.

  - one of two mirrors ends after half of the reads, each mirror at a line of its own; the first one, and the
    second one
  - a line cuts 30 % of the connections, over HTTP/1.1 and HTTP/2
  - the line of the first of two mirrors loses 90 % of its rate after half of the reads
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from bench.publication import Publication, Row
from bench.shaped_line import BITS_PER_SECOND, Line
from bench.web_server import HTTP2, PLAIN

CUT_SHARE = 0.3


def measure(publication: Publication) -> list[Row]:
    with two_lines(publication) as (first, second):
        whole = replay(publication, first, second)
    beside = "the same with nothing broken"
    rows: list[Row] = []
    breaks: list[tuple[str, Callable[[Line, Line], None]]] = [
        ("the first of two mirrors ends", lambda first, _: first.end()),
        ("the second of two mirrors ends", lambda _, second: second.end()),
        ("the first of two lines loses 90 % of its rate", lambda first, _: slow_down(first)),
    ]
    for told, break_it in breaks:
        with two_lines(publication) as (first, second):
            publication.at_half = lambda first=first, second=second, break_it=break_it: break_it(first, second)
            seconds = replay(publication, first, second)
            rows.append((f"a replay: {told}", beside, seconds, whole, first.received_bytes + second.received_bytes))
    for told, protocol in (("HTTP/1.1", PLAIN), ("HTTP/2", HTTP2)):
        with publication.served(protocol) as line:
            whole = replay(publication, line, protocol=protocol)
        with publication.served(protocol, CUT_SHARE) as line:
            seconds = replay(publication, line, protocol=protocol)
            row = f"a replay: {line.cut_count} of {line.connections} connections are cut, {told}"
            rows.append((row, beside, seconds, whole, line.received_bytes))
    return rows


@contextlib.contextmanager
def two_lines(publication: Publication) -> Iterator[tuple[Line, Line]]:
    with publication.web.running() as port:
        yield Line(port), Line(port)


def slow_down(line: Line) -> None:
    line.bits_per_second = BITS_PER_SECOND // 10


def replay(publication: Publication, line: Line, mirror: Line | None = None, protocol: str = PLAIN) -> float:
    more = () if mirror is None else ("--mirror", publication.url(mirror.port, "mirror"))
    began = time.monotonic()
    try:
        with publication.attached(publication.address(line.port, "with", protocol), "auto", *more) as at:
            return publication.replay(at, "day", began)
    finally:
        publication.at_half = lambda: None
