"""Stores of the test writer are read back. Damaged and hostile stores do no harm."""
from __future__ import annotations

import fcntl
import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import rosetta
from writer import (
    BLOCK,
    CATALOG,
    CHARACTER,
    FIFO,
    FILE,
    FOLDER,
    NOTE,
    SOCKET,
    SYMLINK,
    Writer,
    fields,
    record,
    signed,
    varint,
)

DAY = 86_400 * 10**9
KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "raw": {"codec": 0}, "sha1": {"score": "sha1"}, "passphrase": {"passphrase": "sesame"},
    "key-file": {"key_file": b"\0key\n"}, "sha1-passphrase": {"score": "sha1", "passphrase": "sesame"},
    "small-arenas": {"arena_bytes": 4096}, "small-arenas-key-file": {"arena_bytes": 4096, "key_file": b"\0key\n"}}
noise = random.Random(1).randbytes
IMAGE = noise(5000) + bytes(70_000) + noise(3000) + bytes(1024) + noise(700) + bytes(40_000)
LINES = b"".join(b"line %d\n" % i for i in range(300)) + bytes(3000) + noise(2000)


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARVE_PASSPHRASE", "sesame")
    (tmp_path / "key").write_bytes(b"\0key\n")


def rosetta_run(store: Path, *words: str, key: bool = False) -> subprocess.CompletedProcess[bytes]:
    options = ["--key-file", str(store.parent / "key")] if key else []
    command = [sys.executable, str(Path(rosetta.__file__)), str(store), *options, *words]
    return subprocess.run(command, capture_output=True)


def opened(store: Path, key: bool = False) -> tuple[rosetta.Store, io.StringIO]:
    out = io.StringIO()
    return rosetta.Store(store, store.parent / "key" if key else None, out), out


def complain(store: Path, key: bool = False) -> str:
    """Returns the complaints of `check` about a store."""
    try:
        reader, out = opened(store, key)
        rosetta.check(reader)
        assert bool(reader.troubles) == ("damage: " in out.getvalue())
        return out.getvalue()
    except (ValueError, OSError, rosetta.NewerVersion) as error:
        return f"rosetta: {error}"


# A time that does not fit into 64 bits of nanoseconds, and that all current file systems support.
YEAR_2400 = 13_569_465_600_000_000_005


def folder_nodes(w: Writer, file: bytes = LINES) -> list[tuple[int, bytes]]:
    """A folder with every kind of node."""
    xattrs = [(14, varint(6) + b"user.a" + b"\0value"), (14, varint(6) + b"user.b")]
    link = [(9, varint(42))]
    numbered = [w.node(b"x%03d" % i, FILE, b"%d" % i) for i in range(200)]
    nodes = [
        w.node(b"char", CHARACTER, more=[(13, varint(1) + varint(300))]),
        w.node(b"block", BLOCK, more=[(13, varint(7) + varint(0))]),
        w.node(b"empty", FILE), w.node(b"fifo", FIFO, mode=0o600), w.node(b"socket", SOCKET),
        w.node(b"file", FILE, file, mode=0o4755, more=[*xattrs, *link]),
        w.node(b"link", FILE, file, mode=0o4755, more=[*xattrs, *link]),
        w.node(b"fixed", FILE, IMAGE, cut=False, mtime=-1), w.node(b"zeros", FILE, bytes(5000), cut=False),
        w.node(b"wide", FILE, mtime=YEAR_2400), w.node(b"flagged", FILE, b"flags", more=[(18, varint(0x40 | 0x80))]),
        w.node(b"symlink", SYMLINK, more=[(12, b"../nowhere")], mode=0o777), w.node(b"none", FOLDER, mode=0o500),
        w.node(b"na\xffme \xc3\xbc", FILE, b"odd name"), w.node(b"problem", FILE, more=[(15, varint(1))]),
        # Only root can look into a folder without the permission to search it.
        w.node(b"sub", FOLDER, [w.node(b"deep", FOLDER, numbered, mode=0o750)], mode=0o750),
        w.node(b"future", FILE, b"?", more=[(77, b"not yet known"), (77, b"")]),
    ]
    return w.node(b"", FOLDER, sorted(nodes, key=lambda node: node[0][1]), mode=0o750)


def make(folder: Path, **options: Any) -> tuple[Path, Writer]:
    w = Writer(folder / "store", **options)   
    w.snapshot("disk", 1 * DAY, image=IMAGE)
    w.snapshot("home", 2 * DAY, root=folder_nodes(w))
    w.snapshot("disk", 3 * DAY, image=IMAGE[:6000] + b"changed" + IMAGE[6007:])
    return folder / "store", w


@pytest.mark.parametrize("kind", KINDS)
def test_reads_back(tmp_path: Path, kind: str) -> None:
    store, w = make(tmp_path, **KINDS[kind])
    key = "key-file" in kind
    assert "note: " not in complain(store, key) and complain(store, key) == ""
    listed = json.loads(rosetta_run(store, "list", "--json", key=key).stdout)
    assert [(s["name"], s["kind"], s["time"], s["size"]) for s in listed] == [
        ("disk", "image", DAY, len(IMAGE)), ("home", "folder", 2 * DAY, 0), ("disk", "image", 3 * DAY, len(IMAGE))]
    assert b"home" in rosetta_run(store, "list", key=key).stdout

    image = tmp_path / "image"
    assert rosetta_run(store, "restore", listed[0]["id"][:8], str(image), key=key).returncode == 0
    assert image.read_bytes() == IMAGE and image.stat().st_blocks * 512 < len(IMAGE) // 2
    changed = rosetta_run(store, "cat", "latest", "/", key=key).stdout
    assert changed[6000:6007] == b"changed" and changed == rosetta_run(store, "cat", "disk", "/", key=key).stdout
    assert rosetta_run(store, "cat", "home", "sub/deep/x123", key=key).stdout == b"123"
    assert rosetta_run(store, "cat", "home", "sub/deep", key=key).returncode == 1
    assert rosetta_run(store, "cat", "home", "file/no", key=key).returncode == 1
    assert rosetta_run(store, "cat", "hom", "file", key=key).returncode == 1

    w.seal()        # still so when the last arena is sealed
    assert complain(store, key) == ""


def test_comments_are_listed_and_later_fields_are_skipped(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    hold = fields([(1, b"audit"), (2, signed(DAY)), (9, b"later")])
    later = [(17, hold), (18, signed(5 * DAY)), (20, b"before the upgrade"), (30, b"later"), (30, b"twice"), (99, b"\xff")]
    w.snapshot("disk", 1 * DAY, image=IMAGE, more=later)
    (listed,) = json.loads(rosetta_run(tmp_path / "store", "list", "--json").stdout)
    assert listed["comment"] == "before the upgrade"
    assert (listed["hold"], listed["keep_until"]) == ([{"label": "audit", "set": DAY}], 5 * DAY)
    assert b"before the upgrade" in rosetta_run(tmp_path / "store", "list").stdout
    assert complain(tmp_path / "store") == ""


def test_a_snapshot_of_a_file_is_that_file(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("notes", 1 * DAY, root=w.node(b"", FOLDER, [w.node(b"notes.txt", FILE, LINES, mode=0o640)]),
               more=[(21, b"notes.txt")])
    (listed,) = json.loads(rosetta_run(tmp_path / "store", "list", "--json").stdout)
    assert (listed["kind"], listed["file"]) == ("file", "notes.txt")
    assert rosetta_run(tmp_path / "store", "cat", "notes").stdout == LINES
    assert rosetta_run(tmp_path / "store", "restore", "notes", str(tmp_path / "out")).returncode == 0
    assert (tmp_path / "out").read_bytes() == LINES and stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640
    assert complain(tmp_path / "store") == ""


def flags_of(path: Path) -> int:
    """Returns the flags of `chattr` that the tests use."""
    file = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("I", fcntl.ioctl(file, rosetta.GET_FLAGS, bytes(4)))[0] & (rosetta.LOCKS | 0x40 | 0x80)
    except OSError:
        return 0
    finally:
        os.close(file)


def test_locks_last(tmp_path: Path) -> None:
    """An immutable file in an immutable folder, with another name in a later folder."""
    w = Writer(tmp_path / "store")
    node = w.node(b"file", FILE, b"fixed", more=[(9, varint(1)), (18, varint(0x10 | 0x40))])
    folders = [w.node(name, FOLDER, [node], more=[(18, varint(0x10))], mode=0o750) for name in (b"a", b"b")]
    w.snapshot("home", 1 * DAY, root=w.node(b"", FOLDER, folders, more=[(18, varint(0x10))], mode=0o750))
    dest = tmp_path / "dest"
    probe = tmp_path / "probe"
    probe.write_bytes(b"")
    rosetta.set_flags(os.fsencode(probe), 0x10)
    may_lock = flags_of(probe) == 0x10
    try:
        done = rosetta_run(tmp_path / "store", "restore", "home", str(dest))
        assert b"not restored" not in done.stderr
        assert (dest / "b/file").read_bytes() == b"fixed" and (dest / "b/file").stat().st_nlink == 2
        if may_lock:
            assert {flags_of(path) for path in (dest, dest / "a", dest / "b")} == {0x10}
            assert flags_of(dest / "a/file") & 0x10
    finally:
        subprocess.run(["chattr", "-R", "-f", "-i", str(probe), str(dest)], check=False)


def test_restores_every_kind_of_node(tmp_path: Path) -> None:
    store, _ = make(tmp_path)
    dest = tmp_path / "dest"
    done = rosetta_run(store, "restore", "home", str(dest))
    root = os.geteuid() == 0
    assert done.returncode == (0 if root else 1), done.stderr
    assert stat.S_IMODE(dest.stat().st_mode) == 0o750
    assert (dest / "file").read_bytes() == LINES and (dest / "fixed").read_bytes() == IMAGE
    assert (dest / "zeros").read_bytes() == bytes(5000) and (dest / "zeros").stat().st_blocks == 0
    assert (dest / "empty").read_bytes() == b"" and b"problem" in done.stderr
    assert os.path.samefile(dest / "file", dest / "link") and (dest / "file").stat().st_nlink == 2
    assert stat.S_IMODE((dest / "file").stat().st_mode) == 0o4755
    assert os.readlink(dest / "symlink") == "../nowhere"
    assert (dest / "fixed").stat().st_mtime_ns == -1 and dest.stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert os.lstat(dest / "symlink").st_mtime_ns == 1_700_000_000_123_456_789
    assert (dest / "wide").stat().st_mtime_ns == YEAR_2400
    assert stat.S_ISFIFO(os.lstat(dest / "fifo").st_mode) and stat.S_ISSOCK(os.lstat(dest / "socket").st_mode)
    assert (os.fsencode(dest) + b"/na\xffme \xc3\xbc") in [os.fsencode(path) for path in dest.iterdir()]
    assert (dest / "sub/deep/x199").read_bytes() == b"199" and (dest / "sub/deep").stat().st_mtime_ns % 1000 == 789
    set_by_hand = tmp_path / "by hand"
    set_by_hand.write_bytes(b"")
    rosetta.set_flags(os.fsencode(set_by_hand), 0x40 | 0x80)       # no-dump, no access time, if supported
    assert flags_of(dest / "flagged") == flags_of(set_by_hand)
    if root:
        char, block = os.lstat(dest / "char"), os.lstat(dest / "block")
        assert stat.S_ISCHR(char.st_mode) and char.st_rdev == os.makedev(1, 300)
        assert stat.S_ISBLK(block.st_mode) and block.st_rdev == os.makedev(7, 0)
    try:
        assert os.getxattr(dest / "file", "user.a") == b"\0value"
        assert sorted(os.listxattr(dest / "file")) == ["user.a", "user.b"]
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    assert rosetta_run(store, "restore", "home", str(dest)).returncode == 1     # never over an existing file


def test_what_was_left_out(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    left_out = fields([(1, b"p2"), (2, b"swap"), (3, varint(4096)), (4, b"a header"), (9, b"not yet known")])
    kept = fields([(1, b"p3"), (2, b"swap"), (5, b"ZFS")])
    w.snapshot("disk", DAY, image=IMAGE, more=[(19, left_out), (19, kept), (30, b"not yet known")])
    listed = json.loads(rosetta_run(tmp_path / "store", "list", "--json").stdout)
    assert listed[0]["left_out"] == [
        {"volume": "p2", "what": "swap", "bytes": 4096, "why": "a header", "kept_because": ""},
        {"volume": "p3", "what": "swap", "bytes": 0, "why": "", "kept_because": "ZFS"}]
    assert rosetta_run(tmp_path / "store", "cat", "disk", "/").stdout == IMAGE


def test_wrong_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = make(tmp_path, passphrase="sesame", key_file=b"\0key\n")
    assert complain(store) == complain(store, key=True) == ""
    (tmp_path / "key").write_bytes(b"other")
    assert rosetta_run(store, "list", key=True).returncode == 1
    monkeypatch.setenv("VARVE_PASSPHRASE", "Sesame")
    failed = rosetta_run(store, "list")
    assert failed.returncode == 1 and b"does not open" in failed.stderr and b"Traceback" not in failed.stderr


def test_a_frame_need_not_tell_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    monkeypatch.setattr(Writer, "pack", lambda _, content: compressor.compress(content))
    assert complain(make(tmp_path)[0]) == ""


# -- Unfinished writes and damage

@pytest.mark.parametrize("kind", ["plain", "passphrase"])
def test_torn_tail(tmp_path: Path, kind: str) -> None:
    store, w = make(tmp_path, **KINDS[kind])
    w.put(noise(9000), 0)           # a clump that no page names
    whole = w.path.read_bytes()
    for tail in (whole, whole + noise(500), whole[:-200], whole + bytes(1000), whole + b"page" * 300):
        w.path.write_bytes(tail)
        said = complain(store)
        assert said.startswith("note: ") and "damage" not in said.replace("or else damage", "")
        assert rosetta_run(store, "cat", "home", "file").stdout == LINES


def tiny(folder: Path, **options: Any) -> tuple[Path, Writer]:
    """A store of a few kilobytes, in two arenas."""
    w = Writer(folder / "store", **options)   
    nodes = [w.node(b"a", FILE, b"alpha\n" * 9), w.node(b"b", SYMLINK, more=[(12, b"a")])]
    w.snapshot("t", DAY, root=w.node(b"", FOLDER, nodes))
    w.seal()
    w.begin_arena()
    w.snapshot("u", 2 * DAY, image=b"image" + bytes(900))
    return folder / "store", w


def contents(reader: rosetta.Store) -> list[object]:
    """Returns the contents of a store, with None for each unreadable part."""
    out: list[object] = []
    for snapshot in rosetta.snapshots(reader):
        root = snapshot["root"]
        for node in [root, *rosetta.children(reader, root, "")] if root["kind"] == FOLDER else [root]:
            try:
                out.append((snapshot["name"], node["name"], node["kind"], node["target"],
                            b"".join(rosetta.pieces(reader, node["content"]))))
            except ValueError:
                out.append(None)
    return out


def examine(store: Path) -> tuple[str, list[object]]:
    """Returns the complaints of `check` about a store, and the contents of the store."""
    try:
        reader, out = opened(store)
        rosetta.check(reader)
        return out.getvalue(), contents(reader)
    except (ValueError, OSError, rosetta.NewerVersion) as error:
        return f"does not open: {error}", []


@pytest.mark.parametrize("start, kind, sealed", [
    (0, "plain", False), (1, "plain", True), (2, "sha1", True), (3, "passphrase", False), (4, "passphrase", True)])
def test_a_flipped_byte_is_noticed_or_harmless(tmp_path: Path, start: int, kind: str, sealed: bool) -> None:
    store, w = tiny(tmp_path, **KINDS[kind])
    if sealed:
        w.seal()
    said, truth = examine(store)
    assert said == "" and len(truth) == 4
    unnoticed = []
    for path in sorted(store.rglob("*")):
        sound = path.read_bytes() if path.is_file() else b""
        for at in range(start, len(sound), 5):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << at % 8)]) + sound[at + 1:])
            said, got = examine(store)
            assert all(item is None or item in truth for item in got), f"{path} at {at}: false data was served"
            assert said or got == truth, f"{path} at {at}: unnoticed loss"
            if not said:
                unnoticed.append((path.name, at))
        if sound:
            path.write_bytes(sound)
    # Only gaps, the two settings, and the spelling of config.toml and keys/ may change unnoticed.
    assert not [(name, at) for name, at in unnoticed if name.endswith(".arena") and (name, at) not in w.gaps], unnoticed


@pytest.mark.parametrize("sealed", [False, True])
def test_cut_and_lost_arenas(tmp_path: Path, sealed: bool) -> None:
    store, w = tiny(tmp_path)
    if sealed:
        w.seal()
    _, truth = examine(store)
    for path in sorted((store / "arenas").iterdir()):
        sound = path.read_bytes()
        last = path == w.path
        for length in range(0, len(sound) - 1, 61):
            path.write_bytes(sound[:length])
            said, got = examine(store)
            assert all(item is None or item in truth for item in got)
            assert said or (last and got == truth[:len(got)])   # an older state: see FORMAT.md on seals
        path.unlink()
        said, got = examine(store)
        assert got == truth[:3] if last else said
        path.write_bytes(sound)


def test_an_older_copy_of_an_arena_is_noticed(tmp_path: Path) -> None:
    store, _ = tiny(tmp_path)
    other, _ = tiny(tmp_path / "other")
    first = store / "arenas" / "0000000000.arena"
    sound = first.read_bytes()
    first.write_bytes((other / "arenas" / "0000000000.arena").read_bytes())
    assert "0000000000.arena: offset 0: " in rosetta_run(store, "check").stderr.decode()
    first.write_bytes(sound[:-96])
    assert "ledger" in complain(store)


def test_all_else_is_served(tmp_path: Path) -> None:
    """A lost leaf of an image leaves a hole and is reported. A second copy of a block heals it."""
    store, w = make(tmp_path, codec=0)
    data = bytearray(w.path.read_bytes())
    at = data.index(IMAGE[1024:1100])
    data[at] ^= 1
    w.path.write_bytes(data)
    done = rosetta_run(store, "restore", "disk", str(tmp_path / "image"))
    assert done.returncode == 1 and b"bytes 1024 to 2048 are lost" in done.stderr and b"offset" in done.stderr
    got = (tmp_path / "image").read_bytes()
    assert len(got) == len(IMAGE) and got[1024:2048] == bytes(1024) and got[10_000:] == IMAGE[10_000:]
    assert rosetta_run(store, "cat", "home", "file").stdout == LINES
    said = rosetta_run(store, "check")
    assert said.returncode == 1 and b"damaged" in said.stdout and b"'home'/fixed: bytes " in said.stderr

    w.have.clear()
    w.snapshot("again", 9 * DAY, image=IMAGE)
    assert rosetta_run(store, "cat", "again", "/").stdout == IMAGE


# -- Hostile stores, all with good codes

EVIL_NAMES = [b"..", b".", b"", b"a/b", b"/etc/x", b"a\0b", b"../../x"]


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_evil_names(tmp_path: Path, name: bytes) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("evil", DAY, root=w.node(b"", FOLDER, [w.node(name, FILE, b"evil")]))
    done = rosetta_run(tmp_path / "store", "restore", "evil", str(tmp_path / "dest"))
    assert done.returncode == 1 and list((tmp_path / "dest").iterdir()) == []
    assert b"Traceback" not in done.stderr


def test_a_link_and_a_folder_of_one_name(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    link = w.node(b"a", SYMLINK, more=[(12, os.fsencode(tmp_path))])
    w.snapshot("evil", DAY, root=w.node(b"", FOLDER, [link, w.node(b"a", FOLDER, [w.node(b"x", FILE, b"evil")])]))
    assert rosetta_run(tmp_path / "store", "restore", "evil", str(tmp_path / "dest")).returncode == 1
    assert not (tmp_path / "x").exists()


def entry(w: Writer, layout: int, depth: int, leaf: int, pointer: int, size: int, root: bytes) -> bytes:
    return struct.pack("<4B2IQ", 0, layout, depth, 0, leaf, pointer, size) + root


def evil_entries(w: Writer) -> dict[str, bytes]:
    leaf = w.put(b"leaf", 0)
    twice = w.put(struct.pack("<Q", 2**63) + leaf + struct.pack("<Q", 2**63 + 5) + leaf, 1)
    nothing = w.put((bytes(8) + leaf) * 3 + struct.pack("<Q", 4) + leaf, 1)
    return {"too big": entry(w, 0, 0, 1024, 160, 2**62, leaf), "no fan": entry(w, 0, 3, 1024, 8, 4096, leaf),
            "deep": entry(w, 0, 255, 1024, 160, 4096, leaf), "long leaf": entry(w, 0, 0, 2, 160, 2, leaf),
            "sums": entry(w, 1, 1, 1024, 160, 5, twice), "empty rows": entry(w, 1, 1, 1024, 160, 4, nothing),
            "size": entry(w, 1, 0, 1024, 160, 2**64 - 1, w.zeros), "short": bytes(20),
            "gone": entry(w, 1, 0, 9, 9, 9, bytes(32)),
            "layout": entry(w, 2, 0, 1024, 160, 4, leaf), "flat leaf": entry(w, 1, 1, 1024, 160, 4, leaf)}


@pytest.mark.parametrize("evil", ["too big", "no fan", "deep", "long leaf", "sums", "empty rows", "size", "short",
                                  "gone", "layout", "flat leaf"])
def test_evil_trees(tmp_path: Path, evil: str) -> None:
    w = Writer(tmp_path / "store")
    bad = [(1, b"bad"), (2, varint(FILE)), (11, evil_entries(w)[evil])]
    w.snapshot("good", DAY, image=IMAGE)
    w.snapshot("evil", DAY, root=w.node(b"", FOLDER, [bad]))
    assert "damage" in complain(tmp_path / "store")
    assert rosetta_run(tmp_path / "store", "cat", "good", "/").stdout == IMAGE
    done = rosetta_run(tmp_path / "store", "restore", "evil", str(tmp_path / "dest"))
    assert done.returncode == 1 and b"Traceback" not in done.stderr


def bomb(w: Writer) -> None:
    w.pack = lambda content: zstandard.compress(bytes(100 << 20))     # type: ignore[method-assign]
    w.put(b"boom", 0)
    w.clump()


def liar(w: Writer) -> None:
    w.write_record(b"clmp", struct.pack("<II", 0, 0xFFFFFFFF) + b"short")


def false_page(w: Writer) -> None:
    most = 2**32 - 1
    w.write_record(b"page", struct.pack("<IIIHHII", most, most, 0, 32, 0, 1, most))


def false_catalog(w: Writer) -> None:
    w.put(record([(1, varint(9)), (2, entry(w, 1, 0, 1 << 20, 160, 1 << 62, w.zeros))]), CATALOG)


def test_the_last_catalog_holds(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("good", DAY, image=IMAGE)
    false_catalog(w)
    w.page()
    assert "a snapshot has no id" in complain(tmp_path / "store")


def test_what_is_lost_is_listed(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("good", DAY, image=IMAGE)
    gone, back = b"\x07" * 32, w.put(b"back again", 0)
    noticed = (9, signed(DAY))
    losses = [[(1, gone), (2, varint(0)), (3, varint(5)), noticed], [(1, back), (2, varint(0)), noticed],
              [(4, varint(3)), (6, varint(512)), noticed, (10, signed(2 * DAY))]]
    lost = w.cut(b"".join(map(record, losses)))
    w.put(record([(1, varint(9)), (2, w.cut(b"".join(w.catalog))), (6, lost)]), CATALOG)
    w.page()
    assert f"block {gone.hex()} of type 0 was stored once and is lost" in complain(tmp_path / "store")
    listed = rosetta_run(tmp_path / "store", "lost").stdout.decode().splitlines()
    assert listed == [f"lost  block {gone.hex()} of type 0", "accepted  arena 3, bytes 512 to the end"]
    assert rosetta_run(tmp_path / "store", "restore", "good", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == IMAGE


def names(store: Path) -> list[str]:
    return [snapshot["name"] for snapshot in json.loads(rosetta_run(store, "list", "--json").stdout)]


def forget(w: Writer, listed: list[bytes], trash: list[bytes], gone: list[bytes]) -> None:
    """Writes a root with these lists."""
    trashed = b"".join(record([(1, one[one[0] // 128 + 1:]), (2, signed(DAY)), (4, signed(8 * DAY))]) for one in trash)
    lists = [(2, w.cut(b"".join(listed))), *([(4, w.cut(trashed))] if trash else [])]
    w.page()
    w.put(record([(1, varint(9)), *lists, (5, w.cut(b"".join(sorted(gone))))]), CATALOG)
    w.page()


def test_forgotten_snapshots_are_not_listed(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    ids = [w.snapshot(name, DAY, image=name.encode()) for name in ("kept", "trashed", "gone", "returned")]
    kept, trashed, _, returned = w.catalog
    forget(w, [kept], [trashed], [ids[2], ids[3]])
    assert names(tmp_path / "store") == ["kept"] and complain(tmp_path / "store") == ""
    # A later list that is damaged hides nothing, and the older ones bring back nothing.
    forget(w, [kept, returned, b"\5rubbish"], [trashed], [ids[2]])
    assert names(tmp_path / "store") == ["kept", "returned"]
    assert "a root of the catalog, or its list, cannot be read" in complain(tmp_path / "store")


@pytest.mark.parametrize("is_noted", [True, False])
def test_an_arena_that_was_replaced_but_not_renamed(tmp_path: Path, is_noted: bool) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("kept", DAY, image=IMAGE)
    w.seal()
    old, new = w.ledger[12:], os.urandom(32)
    w.begin_arena()
    # The note, and a page whose ledger counts the successor. A crash has left the old arena in its place.
    w.put(struct.pack("<4I16sQII", 1, 1, 0, 1, bytes(16), 0, 0, 1) + (old if is_noted else new) + new, NOTE)
    w.ledger = struct.pack("<QI", 0, 1) + new
    w.page()
    assert ("ledger" in complain(tmp_path / "store")) != is_noted
    assert names(tmp_path / "store") == ["kept"]


def test_ids_that_are_gone_are_whole(tmp_path: Path) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("kept", DAY, image=IMAGE)
    forget(w, w.catalog, [], [b"short"])
    assert names(tmp_path / "store") == ["kept"]
    assert "the snapshots that are gone is cut short" in complain(tmp_path / "store")


def test_an_empty_page_is_a_mark(tmp_path: Path) -> None:
    store, w = make(tmp_path, arena_bytes=4096)
    w.page()
    w.page()
    assert complain(store) == ""


def test_a_key_for_a_plain_store(tmp_path: Path) -> None:
    store, _ = make(tmp_path)
    refused = rosetta_run(store, "list", key=True)
    assert refused.returncode == 1 and b"no encryption" in refused.stderr


@pytest.mark.parametrize("evil", [bomb, liar, false_page])
def test_evil_lengths(tmp_path: Path, evil: Callable[[Writer], None]) -> None:
    w = Writer(tmp_path / "store")
    w.snapshot("good", DAY, image=IMAGE)
    evil(w)
    w.codec = 0
    w.page()
    assert "damage" in complain(tmp_path / "store")
    assert rosetta_run(tmp_path / "store", "cat", "good", "/").stdout == IMAGE


def raise_version(arena: Path, seal: bytes) -> None:
    """Writes an arena's header anew, as that of a later version."""
    data = bytearray(arena.read_bytes())
    data[8:12] = struct.pack("<I", 9)
    data[480:512] = rosetta.keyed(seal, bytes(data[:480]))
    arena.write_bytes(bytes(data))


@pytest.mark.parametrize("last", [True, False])
def test_an_arena_of_a_newer_program_is_no_damage(tmp_path: Path, last: bool) -> None:
    store, _ = make(tmp_path, arena_bytes=4096)
    arenas = sorted((store / "arenas").iterdir())
    raise_version(arenas[-1 if last else 0], opened(store)[0].keys.seal)
    for words in (["list"], ["check"], ["restore", "home", str(tmp_path / "dest")]):
        run = rosetta_run(store, *words)
        assert run.returncode == 1 and not run.stdout and b"a newer program wrote it" in run.stderr, run
    assert not (tmp_path / "dest").exists()
    run = rosetta_run(store, "list", "--older")
    assert b"may be an old one" in run.stderr
    (store / "config.toml").write_text("format = 9\n")
    assert b"a newer program wrote it" in rosetta_run(store, "list", "--older").stderr
