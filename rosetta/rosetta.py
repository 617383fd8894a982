#!/usr/bin/env python3
"""Rosetta reads a Varve store: a second reader, written from the store's FORMAT.md alone.

Read it from top to bottom beside that page, whose section numbers it gives. It uses the arenas only, never the index,
and trusts nothing that it reads: every code, seal and score is checked before use. What is damaged is reported, with
file and offset, and left out; all else is served. The exit status is 1 if anything was damaged or could not be done.
"""
from __future__ import annotations

import argparse, getpass, hashlib, json, os, re, stat, struct, sys, time, tomllib
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterable, Iterator, NamedTuple, TextIO

import zstandard
from argon2.exceptions import Argon2Error
from argon2.low_level import Type as Argon2Type, hash_secret_raw
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from xxhash import xxh3_64_intdigest

GRANULE, MAX_BLOCK, MAX_FIELDS = 128, 1 << 20, 16 << 20
LIMIT = 64 << 20                        # of a record's body, a clump's content, a page's table: the page sets none
CATALOG = 3 << 5                        # a block's type: kind in the upper 3 bits, depth below
FILE, FOLDER, SYMLINK, CHARACTER_DEVICE, BLOCK_DEVICE, FIFO, SOCKET = range(1, 8)
SPECIAL = {CHARACTER_DEVICE: stat.S_IFCHR, BLOCK_DEVICE: stat.S_IFBLK, FIFO: stat.S_IFIFO, SOCKET: stat.S_IFSOCK}


class Damage(ValueError):
    """Something that was read is not what it must be."""


def must(holds: object, otherwise: str) -> None:
    if not holds:
        raise Damage(otherwise)


def keyed(key: bytes, *parts: bytes) -> bytes:
    return blake3(b"".join(parts), key=key).digest()


def derive(context: str, *parts: bytes) -> bytes:
    return blake3(b"".join(parts), derive_key_context=context).digest()


def split(data: bytes, width: int) -> list[bytes]:
    return [data[at:at + width] for at in range(0, len(data), width)]


def shown(text: str | bytes) -> str:    # for terminals: without control characters
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in os.fsdecode(text))


def varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The varint at `at`, and where it ends."""
    value = 0
    for i, byte in enumerate(data[at:at + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80 and value < 1 << 64:
            return value, at + i + 1
    raise Damage("a varint is cut short or too long")


def unpacked(codec: int, data: bytes, size: int) -> bytes:
    must(codec in (0, 1) and size <= LIMIT, f"codec {codec} and length {size} are beyond reason")
    if codec == 1:              # the library believes a frame that tells its size, so look at that first
        must(size and zstandard.frame_content_size(data) in (size, -1), "a zstd frame has an odd length")
        data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    must(len(data) == size, f"there are {len(data)} bytes where {size} should be")
    return data


# ---- 1. The folder: config.toml and keys/ ---------------------------------------------------------------------------

class Keys:
    """What was chosen for the store, and the keys to it."""

    def __init__(self, folder: Path, key_file: Path | None) -> None:
        config = tomllib.loads((folder / "config.toml").read_text())
        bound = {name: str(config.get(name)) for name in ("id", "score", "compare", "encryption", "arena_bytes")}
        self.store_id, self.sha1 = bytes.fromhex(bound["id"]), bound["score"] == "sha1"
        self.encrypted = bound["encryption"] == "aes-256-gcm"
        must(config.get("format") == 1 and bound["compare"] == "hash" and (self.sha1 or bound["score"] == "blake3")
             and (self.encrypted or bound["encryption"] == "none"), "config.toml: not what this reader knows")
        must(self.encrypted or not key_file, "a key was given for a store that says it has no encryption")
        lines = ["varve store 1", *(f"{name} = {value}" for name, value in bound.items()), ""]
        binding = blake3("\n".join(lines).encode()).digest()
        master = self.unwrap(folder / "keys", binding, key_file) if self.encrypted else b""
        self.read = derive("varve 1 read", master)
        self.names = derive("varve 1 names", master) if self.encrypted else derive("varve 1 plain", binding)
        self.score, self.digest, self.seal = (derive(f"varve 1 {x}", self.names) for x in ("score", "digest", "seal"))

    def unwrap(self, folder: Path, binding: bytes, key_file: Path | None) -> bytes:
        """The master key: tries the secret on every file of its kind."""
        phrase = "" if key_file else os.environ.get("VARVE_PASSPHRASE") or getpass.getpass("Passphrase: ")
        for path in sorted(folder.glob("*.toml")):
            with suppress(OSError, KeyError, TypeError, ValueError, OverflowError, Argon2Error, InvalidTag):
                wrap = tomllib.loads(path.read_text())
                salt, wrapped = bytes.fromhex(wrap["salt"]), bytes.fromhex(wrap["wrapped"])
                if wrap["kind"] == "key-file" and key_file:
                    key = derive("varve 1 key file", salt, key_file.read_bytes())
                else:
                    memory, passes, lanes = wrap["memory_kib"], wrap["passes"], wrap["lanes"]
                    must(phrase and memory <= 4 << 20 and passes <= 64 and lanes <= 64, "beyond reason")
                    key = hash_secret_raw(phrase.encode(), salt, passes, memory, lanes, 32, Argon2Type.ID, 0x13)
                return AESGCM(key).decrypt(bytes(12), wrapped, binding)
        raise Damage("the store does not open: wrong secret, or config.toml or keys/ were changed")


# ---- 3. Arenas: header, records, seal -------------------------------------------------------------------------------

Row = tuple[int, int, bytes]            # where a record lies: its granule, the length of its body, its code


def after(row: Row) -> int:
    """The granule where the next record begins."""
    return row[0] + -(-(64 + row[1]) // GRANULE)


class Arena:
    """One file of the log. Opening it checks its header; a record is checked when it is read."""

    def __init__(self, path: Path, keys: Keys) -> None:
        self.path, self.keys, self.number = path, keys, int(path.stem)
        self.seal_code = b""
        with self.at(0):
            self.size = path.stat().st_size
            (magic, version, header_bytes, store_id, number, self.generation, cipher, self.uid, wrap,
             wrapped_bytes) = struct.unpack("<8sII16sQII16sII", self.read(0, 72))
            must(magic == b"varveAR1" and version == 1, "this is no arena of version 1")
            must(header_bytes % GRANULE == 0 and 512 <= header_bytes <= MAX_BLOCK, "the header has an odd length")
            head = self.read(0, header_bytes)
            self.first, self.header_code = header_bytes // GRANULE, head[-32:]
            must(keyed(keys.seal, head[:-32]) == self.header_code, "the header's code is wrong")
            must((store_id, number) == (keys.store_id, self.number), "it belongs to another store or place")
            must(cipher == wrap == keys.encrypted and wrapped_bytes == 48 * wrap, "its cipher is not the store's")
            self.page_key = self.clump_key = derive("varve 1 directory", keys.names, self.uid)
            if keys.encrypted:
                wrap_key = derive("varve 1 wrap", keys.read, self.uid)
                self.clump_key = AESGCM(wrap_key).decrypt(bytes(12), head[72:120], head[:72])

    @contextmanager
    def at(self, offset: int) -> Iterator[None]:
        """Says where it was that something went wrong."""
        try:
            yield
        except (ValueError, OSError, struct.error, InvalidTag, zstandard.ZstdError) as error:
            raise Damage(f"{self.path}: offset {offset}: {str(error) or 'its code is wrong'}") from error

    def read(self, offset: int, length: int) -> bytes:
        must(offset + length <= self.size, "the file ends too early")
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def body(self, magic: bytes, granule: int, expected: Row | None = None) -> tuple[Row, bytes]:
        """A record's row and its body, authenticated and decrypted."""
        start = granule * GRANULE
        head = self.read(start, 64)
        found, body_bytes, counter, session, place, zero, code, checksum = struct.unpack("<4sI8s16sII16sQ", head)
        row = granule, body_bytes, code
        must(found == magic and xxh3_64_intdigest(head[:56]) == checksum, "no sound record header")
        must(place == granule and zero == 0 and expected in (None, row), "not the record that should be here")
        must(body_bytes <= LIMIT, "its body is beyond reason")
        body, key = self.read(start + 64, body_bytes), self.clump_key if magic == b"clmp" else self.page_key
        if self.keys.encrypted:
            session_key = AESGCM(derive("varve 1 session", key, session))
            return row, session_key.decrypt(bytes(4) + counter, body + code, head[:40] + self.uid)
        must(keyed(key, head[:40], self.uid, body)[:16] == code, "its code is wrong")
        return row, body

    def pages(self) -> Iterator[tuple[Row, bytes]]:
        """The authentic pages. The log is walked by its records; where there is none, on granule by granule."""
        granule = self.first
        with self.path.open("rb") as file:
            while granule < self.size // GRANULE:
                file.seek(granule * GRANULE)
                magic, body_bytes, place, checksum = struct.unpack("<4sI24xI20xQ", head := file.read(64))
                sound = place == granule and xxh3_64_intdigest(head[:56]) == checksum
                found, granule = granule, after((granule, body_bytes, b"")) if sound and magic == b"clmp" else granule + 1
                if sound and magic == b"page":
                    with suppress(ValueError, InvalidTag):          # such a page is torn or damaged: it leaves a hole
                        row, body = self.body(b"page", found)
                        granule = after(row)
                        yield row, body

    def check_seal(self, pages: list[Row], end: int) -> None:
        """Compares the seal with that of the sound pages, which end at `end`."""
        with self.at(self.size - 96):
            rows = b"".join(struct.pack("<II16s", *row) for row in pages)
            footer = struct.pack("<8sIIQ32x", b"varveSL1", 1, len(pages), end)
            footer += keyed(self.keys.seal, b"seal", self.header_code, rows, footer)
            sound = rows + footer + struct.pack("<Q", xxh3_64_intdigest(footer))
            must(self.read(end, self.size - end) == sound, "the seal, or a page, is damaged or lost")
            self.seal_code = footer[56:]


# ---- 2. and 3. The store: directory pages, the ledger, clumps, blocks by their scores -------------------------------

@dataclass(eq=False)
class Clump:
    arena: Arena
    row: Row
    shapes: bytes                       # a u32 for each block: its size and type
    scores: list[bytes]
    digests: list[bytes]


class Store:
    def __init__(self, folder: Path, key_file: Path | None = None, out: TextIO = sys.stderr) -> None:
        self.out, self.troubles, self.said = out, 0, set[str]()
        self.keys = Keys(folder, key_file)
        self.width = 20 if self.keys.sha1 else 32
        self.zeros = self.score(b"")                                # stands for a whole subtree of zeros
        self.clumps: list[Clump] = []                               # in the order of the log
        self.places: dict[bytes, list[tuple[Clump, int]]] = {}      # score and type: all copies of the block
        self.catalog, ledger_count, ledger_code = b"", 0, b""       # the last catalog's score; the last page's ledger
        arenas: list[Arena] = []
        for path in sorted(path for path in (folder / "arenas").iterdir() if re.fullmatch("[0-9]{10}.arena", path.name)):
            try:
                arenas.append(Arena(path, self.keys))
                for body in self.sound_pages(arenas[-1]):
                    ledger_count, ledger_code = struct.unpack_from("<Q32s", body, 24)
            except (Damage, OSError) as error:
                self.report(error)
        rows = [struct.pack("<QI", arena.number, arena.generation) + arena.seal_code for arena in arenas[:ledger_count]]
        if ledger_code and keyed(self.keys.seal, b"ledger", *rows) != ledger_code:
            self.report(f"{folder}: one of the first {ledger_count} arenas, or its seal, is lost, damaged or replaced")

    def report(self, problem: object, word: str = "damage") -> None:
        self.troubles += word == "damage"
        if str(problem) not in self.said:
            self.said.add(str(problem))
            print(f"{word}: {shown(str(problem))}", file=self.out)

    def score(self, block: bytes) -> bytes:
        if self.keys.sha1:
            return hashlib.sha1(block).digest()
        return keyed(self.keys.score, block) if self.keys.encrypted else blake3(block).digest()

    def sound_pages(self, arena: Arena) -> Iterator[bytes]:
        """The bodies of an arena's pages. Notes where every block lies, and checks the seal."""
        free, rows = arena.first, []
        for row, body in arena.pages():
            yield body
            with arena.at(row[0] * GRANULE):
                self.clumps += (clumps := self.parse_page(arena, body))
            for record in [*(clump.row for clump in clumps), row]:      # they follow each other without a hole
                if record[0] != free:
                    self.report(f"{arena.path}: offset {free * GRANULE}: here begins what is in no sound page")
                free = after(record)
            rows.append(row)
        if arena.read(max(arena.size - 96, 0), 8) == b"varveSL1":
            arena.check_seal(rows, free * GRANULE)
        elif free * GRANULE < arena.size:
            self.report(f"{arena.path}: offset {free * GRANULE}: what follows was never finished, or is damaged", "note")

    def parse_page(self, arena: Arena, body: bytes) -> list[Clump]:
        """The clumps that a page names."""
        clump_count, block_count, _, width, digest_width, codec, table_bytes = struct.unpack_from("<IIIHHII40x", body)
        must(width == self.width and digest_width in (0, 16 * self.keys.sha1), "other scores than the store's")
        digests_at = 64 + block_count * width
        codes_at = digests_at + block_count * digest_width
        table_at = codes_at + clump_count * 16
        must(table_at <= len(body) and table_bytes == 12 * clump_count + 4 * block_count, "the page's counts do not fit")
        table = unpacked(codec, body[table_at:], table_bytes)
        granules, lengths, counts = (struct.unpack_from(f"<{clump_count}I", table, 4 * clump_count * i) for i in range(3))
        must(sum(counts) == block_count, "the page has another number of blocks than its clumps")
        scores, digests = split(body[64:digests_at], width), split(body[digests_at:codes_at], 16)
        shapes, clumps, at = table[12 * clump_count:], list[Clump](), 0
        for count, *row in zip(counts, granules, lengths, split(body[codes_at:table_at], 16)):
            end = at + count
            clumps.append(Clump(arena, (*row,), shapes[4 * at:4 * end], scores[at:end], digests[at:end]))
            for i in range(at, end):
                block_type = shapes[4 * i + 3]
                self.places.setdefault(scores[i] + bytes([block_type]), []).append((clumps[-1], i - at))
                self.catalog = scores[i] if block_type == CATALOG else self.catalog
            at = end
        return clumps

    @lru_cache(maxsize=16)
    def read_clump(self, clump: Clump) -> list[bytes]:
        """The blocks of a clump; their scores are still to be checked."""
        with clump.arena.at(clump.row[0] * GRANULE):
            _, body = clump.arena.body(b"clmp", clump.row[0], clump.row)
            codec, content_bytes = struct.unpack_from("<II", body)
            content, blocks, at = unpacked(codec, body[8:], content_bytes), [], 4 + len(clump.shapes)
            must(content[:at] == struct.pack("<I", at // 4 - 1) + clump.shapes, "not the blocks that its page names")
            for (shape,) in struct.iter_unpack("<I", clump.shapes):
                blocks.append(content[at:at + (shape & 0xFFFFFF)])
                at += shape & 0xFFFFFF
                must(len(blocks[-1]) <= MAX_BLOCK, "a block of the clump is too long")
            must(at == len(content), "the clump has another length than its blocks")
        return blocks

    def get(self, score: bytes, block_type: int) -> bytes:
        """A block, from whichever copy of it is sound."""
        for clump, ordinal in self.places.get(score + bytes([block_type]), ()):
            try:
                block = self.read_clump(clump)[ordinal]
                with clump.arena.at(clump.row[0] * GRANULE):
                    must(self.score(block) == score, f"block {ordinal} of this clump has another score")
                return block
            except Damage as damage:
                self.report(damage)
        raise Damage(f"no sound copy of block {score.hex()}, type {block_type:#04x}, is in the store")


# ---- 4. Hash trees --------------------------------------------------------------------------------------------------

class Entry(NamedTuple("Entry", [("type", int), ("cut", int), ("depth", int), ("zero", int), ("leaf_bytes", int),
                                 ("pointer_bytes", int), ("size", int), ("root", bytes)])):
    @classmethod
    def parse(cls, data: bytes, width: int) -> Entry:
        must(len(data) == 20 + width, "an entry has an odd length")
        entry = cls._make((*struct.unpack("<4B2IQ", data[:20]), data[20:]))     # cut: 1 by content, 0 fixed
        must(entry.type & 31 == 0 and entry.cut < 2 and entry.depth < 32 and entry.zero == 0 and entry.size < 1 << 63
             and 0 < entry.leaf_bytes <= MAX_BLOCK and entry.pointer_bytes <= MAX_BLOCK, f"a false entry: {data.hex()}")
        least = entry.below(entry.depth - 1) if entry.depth else -1
        must(entry.cut or least < entry.size <= entry.below(entry.depth), f"{entry.size} bytes at depth {entry.depth}")
        return entry

    def below(self, depth: int) -> int:
        """How many bytes a subtree stands for, if fixed."""
        return int(self.leaf_bytes * (self.pointer_bytes // len(self.root)) ** depth)

    def children(self, block: bytes, depth: int, length: int, zeros: bytes) -> list[tuple[bytes, int]]:
        """The scores in a pointer block, and how many bytes each stands for."""
        rows = split(block, 8 * self.cut + len(zeros))
        must(all(len(row) == len(rows[0]) >= len(zeros) for row in rows), "a pointer block has an odd length")
        if self.cut:
            found = [(row[8:], int.from_bytes(row[:8], "little")) for row in rows]
        else:
            each = self.below(depth - 1)
            rows += [zeros] * (-(-length // each) - len(rows))
            found = [(score, min(each, length - i * each)) for i, score in enumerate(rows)]
        must(all(size > 0 for _, size in found) and sum(size for _, size in found) == length, "pointers do not add up")
        return found


Spans = Iterator[tuple[int, int, bytes]]


def spans(store: Store, entry: Entry | None, where: str = "", seen: set[Any] | None = None) -> Spans:
    """The parts of a file as offset, length and data; what `data` lacks in length are zeros. With `where`, damage is
    reported under that name and left out, else raised. With `seen`, while all is sound, no subtree is read twice."""
    todo = [(entry.root, entry.depth, 0, entry.size)] if entry else []
    while entry and todo:
        score, depth, offset, length = todo.pop()
        key, end, block = (score, depth, length, entry[:6]), offset + length, b""
        if seen is not None and not store.troubles and key in seen:
            continue
        try:
            if score != store.zeros and length:
                block = store.get(score, entry.type | depth)
                must(len(block) <= (entry.pointer_bytes if depth else min(length, entry.leaf_bytes)), "an overlong block")
                for child, size in reversed(entry.children(block, depth, length, store.zeros) if depth else []):
                    end -= size
                    todo.append((child, depth - 1, end, size))
            if seen is not None:
                seen.add(key)
            if depth == 0 or not block:
                yield offset, length, block
        except Damage as damage:
            must(where, str(damage))
            store.report(f"{where}: bytes {offset} to {end} are lost: {damage}")


def pieces(store: Store, entry: Entry | None) -> Iterator[bytes]:
    """The bytes of a file, with all their zeros."""
    for _, length, data in spans(store, entry):
        yield data
        for at in range(len(data), length, MAX_BLOCK):
            yield bytes(min(MAX_BLOCK, length - at))


# ---- 5. Fields: nodes, snapshots, the catalog -----------------------------------------------------------------------

Fields = dict[str, Any]
# The fields by their numbers, which count from 1, as in the page's tables; those without a type are numbers.
NODE = ("name:bytes kind mode uid gid mtime:signed ctime:signed inode link_group:bytes size content:entry target:bytes "
        "device:bytes xattr:list problem")
SNAPSHOT = ("id:bytes name:text time:signed kind source:bytes host:text tag:list image:entry root:bytes size "
            "file_count problem_count stored_bytes elapsed new_bytes")
CATALOG_ROOT = "sequence list:entry"
ABSENT = {"": 0, "signed": 0, "bytes": b"", "text": "", "entry": None}


def parse(data: bytes, table: str, width: int) -> Fields:
    columns = [(name, kind) for name, _, kind in (word.partition(":") for word in table.split())]
    fields: Fields = {name: [] if kind == "list" else ABSENT[kind] for name, kind in columns}
    at = last = 0
    while at < len(data):
        number, (length, start) = data[at], varint(data, at + 1)
        value, at = data[start:start + length], start + length
        name, kind = columns[number - 1] if 0 < number <= len(columns) else ("", "unknown")
        must(at <= len(data) and (number > last or number == last and kind in ("list", "unknown")),
             f"field {number} is cut short or out of order")
        last = number
        if kind == "list":
            fields[name].append(value)
        elif kind == "entry":
            fields[name] = Entry.parse(value, width)
        elif kind in ("bytes", "text"):
            fields[name] = value.decode() if kind == "text" else value
        elif kind != "unknown":
            n, end = varint(value, 0)
            must(end == length, f"bytes are left over in field {number}")
            fields[name] = (n >> 1) ^ -(n & 1) if kind == "signed" else n
    return fields


def records(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The records of fields that follow each other in a file, without their lengths."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= 10 or any(byte < 0x80 for byte in buffer):     # then a whole varint is there
            length, start = varint(buffer, 0)
            must(length <= MAX_FIELDS, f"a record of {length} bytes is too long")
            if start + length > len(buffer):
                break
            yield bytes(buffer[start:start + length])
            del buffer[:start + length]
    must(not buffer, "the last record is cut short")


def snapshots(store: Store) -> Iterator[Fields]:
    """What the last catalog lists."""
    for block in [store.get(store.catalog, CATALOG)] if store.catalog else []:
        (root,) = records([block])
        for record in records(pieces(store, parse(root, CATALOG_ROOT, store.width)["list"])):
            snapshot = parse(record, SNAPSHOT, store.width)
            snapshot["root"] = parse(snapshot["root"], NODE, store.width)
            must(len(snapshot["id"]) == 16 and snapshot["kind"] in (1, 2), "a snapshot has no id or kind")
            if snapshot["kind"] == 1:           # an image is like a folder that is but a file
                snapshot["root"] |= {"kind": FILE, "content": snapshot["image"], "mode": 0o600,
                                     "mtime": snapshot["time"], "uid": os.geteuid(), "gid": os.getegid()}
            yield snapshot


def children(store: Store, folder: Fields, where: str) -> Iterator[Fields]:
    """The nodes in a folder, up to where it is damaged."""
    last = b""
    try:
        for record in records(pieces(store, folder["content"])):
            node = parse(record, NODE, store.width)
            must(re.fullmatch(rb"[^/\0]+", node["name"]) and node["name"] not in (b".", b".."), "an evil name")
            must(node["name"] > last, f"name {node['name']!r} is out of order")
            last = node["name"]
            yield node
    except ValueError as error:
        store.report(f"{where}: what comes after {last!r} in this folder is lost: {error}")


# ---- What can be asked for ------------------------------------------------------------------------------------------

def choose(store: Store, wanted: str) -> Fields:
    found = list(snapshots(store))
    named = [s for s in found if wanted in ("latest", s["name"])]
    begun = [s for s in found if s["id"].hex().startswith(wanted)]
    must(named or len(begun) == 1, f"{len(begun)} snapshots are called {wanted!r}")
    return max(reversed(named or begun), key=lambda snapshot: snapshot["time"])


def list_snapshots(store: Store, as_json: bool) -> None:
    rows = [{key: value for key, value in s.items() if key not in ("image", "root")} |
            {"id": s["id"].hex(), "kind": ("image", "folder")[s["kind"] - 1], "source": shown(s["source"]),
             "tag": [shown(tag) for tag in s["tag"]]} for s in snapshots(store)]
    if as_json:
        return print(json.dumps(rows, indent=1))
    for row in rows:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row["time"] // 10**9))
        print(row["id"][:12], moment, row["kind"], f"{row['size']:,}", shown(row["name"]), *row["tag"], sep="  ")


def cat(store: Store, node: Fields, path: bytes) -> None:
    for name in filter(None, path.split(b"/")):
        inside = children(store, node, shown(path)) if node["kind"] == FOLDER else ()
        node = next((child for child in inside if child["name"] == name), {})
        must(node, f"{path!r} is not in this snapshot")
    must(node["kind"] == FILE, f"{path!r} is not a file")
    for piece in pieces(store, node["content"]):
        sys.stdout.buffer.write(piece)


def restore(store: Store, node: Fields, path: bytes, links: dict[bytes, bytes]) -> None:
    kind, group = node["kind"], node["link_group"]
    try:
        if group in links:
            return os.link(links[group], path, follow_symlinks=False)
        if kind == FILE:
            with open(path, "xb") as file:
                for offset, _, data in spans(store, node["content"], shown(path)):
                    file.seek(offset)
                    file.write(data)
                file.truncate(node["content"].size if node["content"] else 0)
        elif kind == FOLDER:
            os.mkdir(path)
            for child in children(store, node, shown(path)):
                restore(store, child, path + b"/" + child["name"], links)
        elif kind == SYMLINK:
            os.symlink(node["target"], path)
        else:
            major, at = varint(node["device"] or bytes(2), 0)
            os.mknod(path, 0o600 | SPECIAL[kind], os.makedev(major, varint(node["device"] or bytes(2), at)[0]))
        if group:
            links[group] = path
        if os.geteuid() == 0:
            os.chown(path, node["uid"], node["gid"], follow_symlinks=False)
        for xattr in node["xattr"]:
            length, at = varint(xattr, 0)
            os.setxattr(path, xattr[at:at + length], xattr[at + length:], follow_symlinks=False)
        if kind != SYMLINK:
            os.chmod(path, node["mode"] & 0o7777)
        os.utime(path, ns=(node["mtime"], node["mtime"]), follow_symlinks=False)
    except (OSError, ValueError, OverflowError, KeyError, RecursionError) as error:
        store.report(f"{shown(path)}: not restored as it was: {error!r}")
    if node["problem"]:
        store.report(f"{shown(path)}: had a problem when it was archived: {node['problem']}", "note")


def check(store: Store) -> None:
    for clump in store.clumps:
        try:
            blocks = store.read_clump(clump)
            with clump.arena.at(clump.row[0] * GRANULE):
                must([store.score(block) for block in blocks] == clump.scores, "its blocks have other scores")
                must(clump.digests in ([], [keyed(store.keys.digest, block)[:16] for block in blocks]),
                     "its blocks have other second digests")
        except Damage as damage:
            store.report(damage)
    seen: set[Any] = set()
    for snapshot in snapshots(store):
        todo = [(f"snapshot {snapshot['id'].hex()} {snapshot['name']!r}", snapshot["root"])]
        while todo:
            where, node = todo.pop()
            if node["kind"] != FOLDER:
                deque(spans(store, node["content"], where, seen), maxlen=0)
            elif store.troubles or node["content"] not in seen:
                seen.add(node["content"])
                todo += [(f"{where}/{shown(child['name'])}", child) for child in children(store, node, where)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Reads a Varve store.")
    parser.add_argument("store", type=Path)
    parser.add_argument("--key-file", type=Path)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("--json", action="store_true")
    commands.add_parser("check")
    for name, argument in {"restore": "dest", "cat": "path"}.items():
        (command := commands.add_parser(name)).add_argument("snapshot")
        command.add_argument(argument, type=os.fsencode)
    words = parser.parse_args()
    os.umask(0o077)                         # what is restored is open to others only once it has its mode
    try:
        store = Store(words.store, words.key_file)
        if words.command == "list":
            list_snapshots(store, words.json)
        elif words.command == "check":
            check(store)
            print(f"{len(store.clumps)} clumps, {len(store.places)} blocks:", "damaged" if store.troubles else "sound")
        elif words.command == "cat":
            cat(store, choose(store, words.snapshot)["root"], words.path)
        else:
            restore(store, choose(store, words.snapshot)["root"], words.dest, {})
        return 1 if store.troubles else 0
    except (OSError, ValueError) as error:
        print(f"rosetta: {shown(str(error))}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
