#!/usr/bin/env python3
"""Reads a trace of a block store, as docs/internals/trace-format.md describes it, and by nothing else but the
page and `xxhash`.

    vtrace.py FILE          prints the header, a line for each record, and how the trace ends
"""
from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

KINDS = ("data", "directory", "root", "catalog", "note")
SOURCES = ("a source", "an image", "a folder")
PLAIN = {2: "open", 3: "close", 8: "sync", 10: "gc", 11: "ids full"}


class Damaged(Exception):
    """The bytes at an offset are not those of a trace."""


class Cut(Exception):
    """The file ends within a record."""


class Header(NamedTuple):
    maker: str
    seed: int
    block_bytes: int
    name: str


class Trace:
    """A trace in memory. `lines` gives its records, and `is_complete` is set after the last of them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.is_complete = data, 24, False
        if data[:8] != b"varvetrc" or len(data) < 24:
            raise Damaged("not a trace")
        version, maker, name_bytes, block_bytes, seed = struct.unpack("<HBBIQ", data[8:24])
        if version != 1 or maker > 1:
            raise Damaged(f"version {version}, maker {maker}")
        if len(data) < 24 + name_bytes:
            raise Damaged("the header is cut off")
        name = self.take(name_bytes).decode("ascii")
        self.header = Header(("recorder", "generator")[maker], seed, block_bytes, name)
        self.checked = 0                        # the end of the last check
        self.new_id, self.snapshots, self.time = 0, 0, 0
        self.place, self.id = 0, 0              # after the last run
        self.type, self.bytes, self.size_class = 0, 0, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise Cut
        self.at += count
        return self.data[self.at - count:self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                if value >> 64 or (byte == 0 and shift):
                    raise Damaged("a number is invalid")
                return value
            shift += 7
            if shift > 63:
                raise Damaged("a number is invalid")

    def distance(self) -> int:
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def lines(self) -> Iterator[str]:
        """Yields each record as `varve-plan trace show` prints it."""
        while True:
            begin = self.at
            if not any(self.data[begin:]):      # the end, or zeros that a crash has left
                return
            try:
                line = self.record(begin)
            except Cut:
                self.at = begin
                return
            if line == "end":
                if not self.is_complete:
                    self.at = begin
                return
            if line:
                yield line

    def record(self, begin: int) -> str:
        number = self.byte()
        if number == 1:
            self.check(begin)
            return ""
        if number in PLAIN:
            return PLAIN[number]
        if number == 4:
            return f"idle {self.number()} ms"
        if number == 5:
            self.time += self.distance()
            series, source = self.number(), self.byte()
            self.place, self.snapshots = 0, self.snapshots + 1
            if source >= len(SOURCES):
                raise Damaged(f"offset {begin}: source {source}")
            return f"snapshot of {SOURCES[source]}, series {series}, time {self.time}"
        if number in (6, 7):
            return self.run(begin, "put" if number == 6 else "get")
        if number == 9:
            snapshot = self.number()
            if snapshot >= self.snapshots:
                raise Damaged(f"offset {begin}: snapshot {snapshot} is forgotten before it is taken")
            return f"forget snapshot {snapshot}"
        if number == 12:
            expected = b"\x01" + xxh3_64_intdigest(self.data[self.checked:self.at]).to_bytes(8, "little")
            there = len(commonprefix([expected, self.data[self.at:self.at + 9]]))
            if any(self.data[self.at + there:]):    # zeros may be left by a crash
                raise Damaged(f"offset {self.at}: more than its check follows the end")
            self.is_complete = there == len(expected)
            return "end"
        raise Damaged(f"offset {begin}: record {number}")

    def check(self, begin: int) -> None:
        if xxh3_64_intdigest(self.data[self.checked:begin]) != int.from_bytes(self.take(8), "little"):
            raise Damaged(f"offset {begin}: the bytes before this check have changed")
        self.checked = self.at

    def run(self, begin: int, verb: str) -> str:
        flags = self.byte()
        if flags > 63:
            raise Damaged(f"offset {begin}: flags {flags}")
        place = self.place + self.distance() if flags & 1 else self.place
        first = self.id + self.distance() if flags & 2 else self.new_id
        count = self.number() if flags & 4 else 1
        self.type = self.byte() if flags & 8 else self.type
        self.bytes = self.number() if flags & 16 else self.bytes
        self.size_class = self.byte() if flags & 32 else self.size_class
        self.place, self.id = place + count * self.bytes, first + count
        is_good = (0 < count <= 1 << 32 and self.bytes <= 1 << 20 and self.type >> 5 < len(KINDS) and self.size_class <= 8
                   and 0 <= place and self.place <= 1 << 62 and 0 <= first and self.id <= 1 << 40
                   and (first == self.new_id or self.id <= self.new_id))
        if not is_good:
            raise Damaged(f"offset {begin}: a run is invalid")
        self.new_id = max(self.new_id, self.id)
        kind = KINDS[self.type >> 5] + (f" pointer {self.type & 31}" if self.type & 31 else "")
        return f"{verb} {count} × {self.bytes} bytes at {place}: {kind} from id {first}, class {self.size_class}"


def main() -> int:
    trace = Trace(Path(sys.argv[1]).read_bytes())
    print(trace.header)
    for line in trace.lines():
        print(line)
    print("complete" if trace.is_complete else f"cut at offset {trace.at}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
