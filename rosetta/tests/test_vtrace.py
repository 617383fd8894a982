"""The reader of traces, on the golden trace that the program has written."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from vtrace import Damaged, Header, Trace

GOLDEN = Path(__file__).parent.parent.parent / "fixtures" / "trace-v1"
BYTES = (GOLDEN / "sample.vtrace").read_bytes()
LINES = (GOLDEN / "sample.expected.txt").read_text().splitlines()


def test_the_golden_trace_reads_as_the_program_reads_it() -> None:
    trace = Trace(BYTES)
    assert trace.header == Header("recorder", 0, 4096, "varve 0.1.0")
    assert list(trace.lines()) == LINES
    assert trace.is_complete


def test_a_cut_trace_is_read_to_its_last_whole_record() -> None:
    most = 0
    for end in range(24 + len("varve 0.1.0"), len(BYTES)):
        trace = Trace(BYTES[:end])
        lines = list(trace.lines())
        assert lines == LINES[:len(lines)]
        assert not trace.is_complete
        assert len(lines) >= most
        most = len(lines)
    assert most == len(LINES)
    for end, is_complete in ((len(BYTES), True), (len(BYTES) - 3, False), (len(BYTES) - 10, False)):
        with_zeros = Trace(BYTES[:end] + bytes(1000))
        assert list(with_zeros.lines()) == LINES
        assert with_zeros.is_complete == is_complete


def test_each_changed_byte_is_noticed() -> None:
    for place in range(8, len(BYTES)):
        changed = bytearray(BYTES)
        changed[place] ^= 0x40
        try:
            trace = Trace(bytes(changed))
            lines = list(trace.lines())
        except (Damaged, UnicodeDecodeError):
            continue
        assert not trace.is_complete, (place, lines)


def test_other_files_are_refused() -> None:
    for data in (b"", b"varve", b"x" * 100, b"varvetrc" + b"\x02" + bytes(50)):
        with pytest.raises(Damaged):
            Trace(data)
