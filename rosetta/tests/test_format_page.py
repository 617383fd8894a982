"""Checks the numbers in docs/internals/format.md: each is read from the page, and computed or read again."""
from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import zstandard
from argon2.low_level import Type, hash_secret_raw
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from xxhash import xxh3_64_digest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import parity
import replica
import rosetta

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "internals" / "format.md").read_text()
COUNTING = bytes(range(32))
MARKS = ("needed to restore", "only to check", "only to mend", "only to write", "only to find", "only to read")


@cache
def fenced(name: str) -> str:
    """Returns the text of the fence with this name."""
    found = re.findall(rf"^```text {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{len(found)} fences {name!r}"
    return str(found[0])


@cache
def dumped(name: str) -> bytes:
    """Returns the bytes of a dump, after a check of its offsets."""
    out = b""
    for line in fenced(name).splitlines():
        offset, digits = re.fullmatch(r"([0-9a-f]{4})  ((?:(?:[0-9a-f]{2}|×\d+) ?)+?)(?:  +\S.*)?", line).groups()  # type: ignore[union-attr]
        assert int(offset, 16) == len(out), line
        for word in digits.split():
            out += out[-1:] * (int(word[1:]) - 1) if word[0] == "×" else bytes.fromhex(word)
    return out


@cache
def vector(name: str) -> bytes:
    found = re.findall(rf"^{re.escape(name)} = ([0-9a-f]+)$", PAGE, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} vectors {name!r}"
    return bytes.fromhex(found[0])


def derive(context: str, *parts: bytes) -> bytes:
    return bytes(blake3(b"".join(parts), derive_key_context=context).digest())


def unpack(folder: Path, *files: str) -> Path:
    """Makes a store of files that are printed in the page. Each file name begins with the name of the
    store."""
    for name in files:
        path = folder / "store" / name.partition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dumped(name) if name.endswith(".arena") else fenced(name).encode())
    return folder / "store"


def run(script: str, *args: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, ROOT / "rosetta" / script, *map(str, args)], capture_output=True)


def is_one_file(store: Path, dest: Path) -> None:
    """Checks that the list and the only file are read, and that nothing is damaged."""
    done = run("rosetta.py", store, "check")
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    done = run("rosetta.py", store, "restore", "home", dest)
    assert done.stderr == b"" or os.geteuid() != 0, done.stderr
    assert [path.name for path in dest.iterdir()] == ["hello"]
    assert (dest / "hello").read_bytes() == b"hello world\n"
    assert (dest / "hello").stat().st_mtime_ns == 1_795_608_000 * 10**9


# -- The page itself

def test_every_section_says_what_it_is_for() -> None:
    sections = re.split(r"^#{2,3} (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    unmarked, inherited = [], False
    for title, text in zip(sections[::2], sections[1::2]):
        is_marked = any(f"*{mark}" in text.lower() for mark in MARKS)
        if f"\n## {title}\n" in PAGE:
            inherited = is_marked           # by the parts of a section, unless they have a mark of their own
        if not is_marked and not inherited:
            unmarked.append(title)
    assert not unmarked


def test_every_step_of_a_restore_has_a_function() -> None:
    steps = re.findall(r"^(\d+)\. \*\*(.*?)[.*:]", PAGE.split("### What can be skipped")[0], re.MULTILINE)
    readme = (ROOT / "rosetta" / "README.md").read_text()
    rows = re.findall(r"^\| *(\d+) \| [^|]* \| (.*?) \|$", readme, re.MULTILINE)
    assert [number for number, _ in steps] == [number for number, _ in rows] == [str(n) for n in range(1, 13)]
    modules = {"rosetta": rosetta, "replica": replica, "parity": parity}
    for _, names in rows:
        assert re.findall(r"`[^`]*`", names)
        for name in re.findall(r"`([\w.]+)`", names):
            module, *path = name.split(".")
            found: object = modules[module]
            for part in path:
                found = getattr(found, part)
            assert callable(found), name


def test_references_lead_somewhere() -> None:
    titles = re.findall(r"^## (?:(\d)|Appendix ([A-Z]))\. ", PAGE, re.MULTILINE)
    assert set(re.findall(r"\bsections? (\d)\b", PAGE.lower().replace("the same, section 2", ""))) <= {n for n, _ in titles}
    assert set(re.findall(r"Appendix ([A-Z])\b", PAGE)) == {letter for _, letter in titles if letter}


# -- The algorithms

def test_algorithms() -> None:
    assert vector("BLAKE3 of abc") == blake3(b"abc").digest()
    assert vector("BLAKE3 of abc, keyed") == blake3(b"abc", key=COUNTING).digest()
    assert vector("SHA-1 of abc") == hashlib.sha1(b"abc").digest()
    assert vector("XXH3 of abc, as stored") == xxh3_64_digest(b"abc")[::-1]
    assert vector("AES-256-GCM") == AESGCM(COUNTING).encrypt(bytes(12), b"abc", b"varve")
    frame = vector("zstd frame")
    assert zstandard.ZstdDecompressor().decompress(frame, max_output_size=1000) == b"abc" * 100
    assert rosetta.unpacked(1, frame, 300) == b"abc" * 100
    assert rosetta.varint(vector("varint of 300"), 0) == (300, 2)
    fields = rosetta.parse(b"\6" + b"\1" + vector("signed varint of -1"), rosetta.NODE, 32)
    assert fields["mtime"] == -1


def test_key_schedule(tmp_path: Path) -> None:
    lines = "".join(f"{line}\n" for line in (
        "varve store 1", f"id = {COUNTING[:16].hex()}", "score = blake3", "compare = hash", "encryption = aes-256-gcm",
        "arena_bytes = 67108864"))
    assert vector("binding") == blake3(lines.encode()).digest()
    key = hash_secret_raw(b"correct horse", COUNTING[:16], 3, 8192, 4, 32, Type.ID, 0x13)
    assert vector("wrapping key") == key
    said = "varve key 1\nid = 0011223344556677\nkind = passphrase\nrole = full\ncreated = 1795591256\nlabel = \n"
    wrapped = AESGCM(key).encrypt(bytes(12), COUNTING, vector("binding") + said.encode())
    file = fenced("encrypted/keys/0011223344556677.toml")
    assert f'wrapped = "{wrapped.hex()}"\n' in file
    said += f"memory_kib = 8192\npasses = 3\nlanes = 4\nsalt = {COUNTING[:16].hex()}\nwrapped = {wrapped.hex()}\n"
    assert f'check = "{blake3(said.encode()).hexdigest()[:16]}"\n' in file
    assert vector("master key") == COUNTING
    assert vector("read key") == derive("varve 1 read", COUNTING)
    assert vector("names key") == derive("varve 1 names", COUNTING)
    assert vector("open key") == derive("varve 1 open", vector("read key"))
    public = X25519PrivateKey.from_private_bytes(vector("open key")).public_key()
    assert vector("write key") == public.public_bytes(Encoding.Raw, PublicFormat.Raw)
    for name in ("score", "digest", "fingerprint", "seal"):
        assert vector(f"{name} key") == derive(f"varve 1 {name}", vector("names key"))
    assert vector("parity key") == derive("varve 1 parity", vector("seal key"))
    # The keys of the arena.
    uid, record = dumped("encrypted/arenas/0000000000.arena")[48:64], dumped("encrypted/arenas/0000000000.arena")[512:]
    assert vector("directory key") == derive("varve 1 directory", vector("names key"), uid)
    assert vector("wrap key") == derive("varve 1 wrap", vector("read key"), uid)
    head = dumped("encrypted/arenas/0000000000.arena")[:512]
    assert vector("data key") == AESGCM(vector("wrap key")).decrypt(bytes(12), head[72:120], head[:72])
    assert vector("key of the session's clumps") == derive("varve 1 session", vector("data key"), record[16:32])
    assert vector("key of the session's pages") == derive("varve 1 session", vector("directory key"), record[16:32])
    assert vector("score of hello world, encrypted") == blake3(b"hello world\n", key=vector("score key")).digest()
    assert vector("score of the empty block, encrypted") == blake3(b"", key=vector("score key")).digest()
    for name, algorithm in (("blake3", blake3), ("sha1", hashlib.sha1)):
        assert vector(f"score of hello world, {name}") == algorithm(b"hello world\n").digest()
        assert vector(f"score of the empty block, {name}") == algorithm(b"").digest()


def test_paper_key() -> None:
    digits, master = "0123456789ABCDEFGHJKMNPQRSTVWXYZ", b""
    for line in fenced("encrypted/paper key").splitlines():
        number, value = line.split()[0], 0
        for digit in "".join(line.split()[1:]):
            value = value << 5 | digits.index(digit)
        part = (value >> 15).to_bytes(8, "big")
        code = derive("varve 1 paper line", bytes([int(number)]), part, COUNTING[:16])
        assert value & 0x7FFF == int.from_bytes(code[:2], "little") & 0x7FFF
        if number == "5":
            assert part == derive("varve 1 paper key", master, vector("binding"))[:8]
        else:
            master += part
    assert master == COUNTING


# -- The stores

def test_the_plain_store_is_read(tmp_path: Path) -> None:
    is_one_file(unpack(tmp_path, "plain/config.toml", "plain/arenas/0000000000.arena"), tmp_path / "dest")


def test_the_encrypted_store_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack(tmp_path, "encrypted/config.toml", "encrypted/keys/0011223344556677.toml",
                   "encrypted/arenas/0000000000.arena")
    monkeypatch.setenv("VARVE_PASSPHRASE", "correct horse")
    is_one_file(store, tmp_path / "dest")
    monkeypatch.setenv("VARVE_PASSPHRASE", "correct horse\n")       # in the environment a newline counts
    assert run("rosetta.py", store, "list").returncode == 1


def test_the_write_only_header_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack(tmp_path, "encrypted/config.toml", "encrypted/keys/0011223344556677.toml")
    path = store / "0000000000.arena"
    path.write_bytes(dumped("write-only/header"))
    monkeypatch.setenv("VARVE_PASSPHRASE", "correct horse")
    arena = rosetta.Arena(path, rosetta.Keys(store, None))
    assert arena.blind and arena.clump_key == vector("data key of the write-only arena")
    (name,) = re.findall(r"^```text write-only/keys/(.*)\.toml$", PAGE, re.MULTILINE)
    unpack(tmp_path, f"write-only/keys/{name}.toml")
    (tmp_path / "key").write_bytes(b"a key file for the format page.\n")
    keys = rosetta.Keys.__new__(rosetta.Keys)
    role, found = keys.unwrap([store / "keys" / f"{name}.toml"], vector("binding"), tmp_path / "key")
    origin_key = derive("varve 1 origin", vector("read key"), f"write-only {name}".encode())
    assert origin_key == vector("origin key of the write-only key")
    assert (role, found) == ("write-only", vector("names key") + vector("write key") + origin_key)
    fields = b"".join(struct.pack("BB", number, len(text)) + text for number, text in ((1, name.encode()), (2, b"write-only")))
    assert vector("code of the origin") == blake3(b"\xee" * 16 + fields, key=origin_key).digest()


def test_the_framed_clump_is_read(tmp_path: Path) -> None:
    config = fenced("plain/config.toml").replace('"hash"', '"value"').replace("format = 1", "format = 2")
    (tmp_path / "config.toml").write_text(config)
    keys, record = rosetta.Keys(tmp_path, None), dumped("by-value/clump")
    arena = rosetta.Arena.__new__(rosetta.Arena)
    arena.path, arena.keys, arena.uid, arena.size = tmp_path / "arena", keys, vector("uid of the framed clump"), 512 + len(record)
    arena.page_key = arena.clump_key = derive("varve 1 directory", keys.names, arena.uid)
    arena.path.write_bytes(bytes(512) + record)
    blocks, names = arena.clump(arena.head(4), pytest.fail)
    fingerprint = derive("varve 1 fingerprint", keys.names)
    assert blocks[0] == (0, b"hello world\n")
    for i, block in enumerate(blocks):
        score = names[14 + 10 * i:24 + 10 * i] + names[:14]
        assert block and score[:8] == blake3(block[1], key=fingerprint).digest()[:8]
        assert struct.unpack("<HQIxxxx", score[8:10] + bytes(8) + score[16:])[0] == i


def page_of_store(folder: Path) -> bytes:
    """Returns the page as the program writes it beside the store without encryption: with its code."""
    (folder / "config.toml").write_text(fenced("plain/config.toml"))
    code = blake3(PAGE.encode(), key=derive("varve 1 page", rosetta.Keys(folder, None).names)).hexdigest()
    return PAGE.encode() + f"<!-- code {code} -->\n".encode()


def test_the_page_has_a_code(tmp_path: Path) -> None:
    page = page_of_store(tmp_path)
    assert re.match(r"# .*, revision [0-9]+\n", PAGE)
    store = unpack(tmp_path, "plain/config.toml", "plain/arenas/0000000000.arena")
    for contents, is_good in ((page, True), (page.replace(b"never trust", b"always trust"), False), (PAGE.encode(), False),
                              (page + b"more\n", False), (b"# The format of a Varve store\n", True)):
        (store / "FORMAT.md").write_bytes(contents)
        assert (run("rosetta.py", store, "check").returncode == 0) == is_good, contents[-100:]


def test_the_replica_is_the_store(tmp_path: Path) -> None:
    arena, there = dumped("plain/arenas/0000000000.arena"), tmp_path / "replica"
    files = {"config.toml": fenced("plain/config.toml").encode(), "FORMAT.md": page_of_store(tmp_path),
             "replica.toml": fenced("replica/replica.toml").encode()}
    for line in fenced("replica").splitlines():
        *size, name = line.split()
        path = there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.get(name, arena[:int(size[0]) if size else 0]))
        assert not size or path.stat().st_size == int(size[0]), name
    (segment,) = (there / "arenas" / "0000000000.0").iterdir()
    assert segment.name.split("-")[:2] == ["000000000000", arena[48:64].hex()]
    replica.assemble(there, tmp_path / "store")
    made = tmp_path / "store/arenas/0000000000.arena"
    assert made.read_bytes() == arena[:segment.stat().st_size]
    (code,) = re.findall(r"-([0-9a-f]{32})$", segment.name)
    assert made.read_bytes()[-256:][40:56].hex() == code
    is_one_file(tmp_path / "store", tmp_path / "dest")
    # A segment of another history, which does not follow the current one, is not appended to it.
    other = segment.with_name(f"{made.stat().st_size:012}-{bytes(16).hex()}-{bytes(16).hex()}")
    other.write_bytes(b"another history")
    shutil.rmtree(tmp_path / "store")
    replica.assemble(there, tmp_path / "store")
    assert made.stat().st_size == segment.stat().st_size


# -- Parity

def test_the_code_is_the_one_on_the_page() -> None:
    (basis,) = re.findall(r"^((?:[0-9a-f]{4} ){15}[0-9a-f]{4})$", PAGE, re.MULTILINE)
    assert parity.BASIS == [int(word, 16) for word in basis.split()]
    assert all(parity.product(b, b) ^ b == before for before, b in zip(parity.BASIS, parity.BASIS[1:]))
    assert all(parity.symbol_of(parity.omega(v)) == v for v in (0, 1, 2, 3, 255, 256, 4711, 65535))
    table = parity.coefficients(5, 2)
    assert struct.pack("<2H", table[0][0], table[1][4]) == vector("coefficients C(0, 0) and C(1, 4)")
    data = [bytes((7 * n + n // 256) % 256 for n in range(j * 4096, (j + 1) * 4096)) for j in range(5)]
    recovery = parity.recovery_shards(data, 2)
    assert blake3(b"".join(recovery)).digest() == vector("BLAKE3 of the recovery shards")
    for lost in ((), (0,), (4,), (1, 3), (0, 1)):
        left = [None if j in lost else shard for j, shard in enumerate(data)]
        assert parity.mend(left, list(recovery), 4096) == data
    left = [None, *data[1:]]
    assert parity.mend(left, [None, recovery[1]], 4096) == data
    with pytest.raises(ValueError, match="2 shards are lost, and 1"):
        parity.mend([None, None, *data[2:]], [None, recovery[1]], 4096)
