#!/usr/bin/env python3
"""Rosetta reads a Varve store: a second reader, written from the store's FORMAT.md alone.

Read this file from top to bottom beside that page, whose section numbers it gives. It uses only the arenas,
never the index, and trusts nothing that it reads: every code, seal and score is checked before use. Damage is
reported with file and offset, and the damaged part is left out; everything else is served. The exit status is
1 if anything was damaged or could not be done.
"""
from __future__ import annotations

import argparse, fcntl, getpass, hashlib, io, json, os, re, stat, struct, sys, time, tomllib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, TextIO

import zstandard
from argon2.exceptions import Argon2Error
from argon2.low_level import Type as Argon2id, hash_secret_raw
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from xxhash import xxh3_64_intdigest

GRANULE, MAX_BLOCK, MAX_FIELDS, CATALOG, NOTE = 128, 1 << 20, 16 << 20, 3 << 5, 4 << 5   # a type: kind << 5 | depth
KINDS = (1, "hash", "blake3"), (1, "hash", "sha1"), (2, "value", "blake3")     # of stores
LIMIT = 64 << 20                        # for a body, a content and a table; FORMAT.md sets none
FILE, FOLDER, SYMLINK, CHARACTER_DEVICE, BLOCK_DEVICE, FIFO, SOCKET = range(1, 8)
SPECIAL = {CHARACTER_DEVICE: stat.S_IFCHR, BLOCK_DEVICE: stat.S_IFBLK, FIFO: stat.S_IFIFO, SOCKET: stat.S_IFSOCK}
class NewerVersion(Exception):
    """A newer program has written it. That is no damage, and nothing may be concluded from the rest."""
def must(holds: object, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
def keyed(key: bytes, *parts: bytes) -> bytes:
    return blake3(b"".join(parts), key=key).digest()
def derive(context: str, *parts: bytes) -> bytes:
    return blake3(b"".join(parts), derive_key_context="varve 1 " + context).digest()
def split(data: bytes, width: int) -> list[bytes]:
    return [data[at:at + width] for at in range(0, len(data), width)]
def shown(text: str | bytes) -> str:    # for terminals: without control characters
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in os.fsdecode(text))
def varint(data: bytes | bytearray, at: int) -> tuple[int, int]:  # the varint at `at`, and its end
    value = 0
    for i, byte in enumerate(data[at:at + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80 and value < 1 << 64:
            return value, at + i + 1
    raise ValueError("a varint is cut short or too long")
def unpacked(codec: int, data: bytes, size: int, base: bytes = b"") -> bytes:
    if codec == (2 if base else 1) and size <= LIMIT:   # the library trusts the size in a frame, so check it
        must(zstandard.frame_content_size(data) in (size, -1), "a zstd frame has an odd length")
        must(base[:4] != b"\x37\xa4\x30\xec", "a dictionary is no base")
        prefix = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if base else None
        reader = zstandard.ZstdDecompressor(dict_data=prefix)
        data, codec = reader.decompress(data, max_output_size=size or 1, allow_extra_data=False), 1
    must(codec in (0, 1) and len(data) == size, f"codec {codec}: {len(data)} bytes where {size} should be")
    return data

# ---- 1. The folder: config.toml and keys/ ------------------------------------------------------------------
class Keys:
    """The settings of the store, and its keys."""
    def __init__(self, folder: Path, key_file: Path | None) -> None:
        config = tomllib.loads((folder / "config.toml").read_text())
        if isinstance(config.get("format"), int) and config["format"] > 2:
            raise NewerVersion(f"{folder}/config.toml: format {config['format']}")
        bound = {name: str(config.get(name)) for name in ("id", "score", "compare", "encryption", "arena_bytes")}
        self.store_id, self.sha1 = bytes.fromhex(bound["id"]), bound["score"] == "sha1"
        self.encrypted, self.by_value = bound["encryption"] == "aes-256-gcm", bound["compare"] == "value"
        must((config.get("format"), bound["compare"], bound["score"]) in KINDS and
             bound["encryption"] in ("aes-256-gcm", "none"), "config.toml: not what this reader knows")
        must(self.encrypted or not key_file, "a key was given for a store that says it has no encryption")
        lines = "".join(f"{name} = {value}\n" for name, value in bound.items())
        binding = blake3(f"varve store 1\n{lines}".encode()).digest()
        self.read = self.names = derive("plain", binding)
        if self.encrypted:
            role, found = self.unwrap(sorted((folder / "keys").glob("*.toml")), binding, key_file)
            must(role in ("full", "append-only"), f"a key that is {role} reads nothing")
            self.read, self.names = [derive(x, found) for x in ("read", "names")] if role == "full" else split(found, 32)
        self.score, self.digest, self.seal = (derive(x, self.names) for x in ("score", "digest", "seal"))
    def unwrap(self, paths: list[Path], binding: bytes, key_file: Path | None) -> tuple[str, bytes]:
        """Returns the wrapped key and its role. Tries the secret on every file of its kind."""
        phrase = "" if key_file else os.environ.get("VARVE_PASSPHRASE") or getpass.getpass("Passphrase: ")
        for path in paths:
            with suppress(OSError, KeyError, TypeError, ValueError, OverflowError, Argon2Error, InvalidTag):
                wrap = tomllib.loads(path.read_text())
                salt, wrapped = bytes.fromhex(wrap["salt"]), bytes.fromhex(wrap["wrapped"])
                if wrap["kind"] == "key-file" and key_file:
                    key = derive("key file", salt, key_file.read_bytes())
                else:
                    memory, passes, lanes = wrap["memory_kib"], wrap["passes"], wrap["lanes"]
                    must(phrase and memory <= 4 << 20 and passes <= 64 and lanes <= 64, "beyond reason")
                    key = hash_secret_raw(phrase.encode(), salt, passes, memory, lanes, 32, Argon2id.ID, 0x13)
                names = ("id", "kind", "role", "created", "label") if "id" in wrap else ()
                says = "varve key 1\n" * bool(names) + "".join(f"{name} = {wrap[name]}\n" for name in names)
                return wrap.get("role", "full"), AESGCM(key).decrypt(bytes(12), wrapped, binding + says.encode())
        raise ValueError("the store does not open: wrong secret, or config.toml or keys/ were changed")

# ---- 3. Arenas: header, records, seal ----------------------------------------------------------------------
Row = tuple[int, int, bytes]            # a record: its granule, the length of its body, its code
def after(row: Row) -> int:             # the granule where the next record begins
    return row[0] + -(-(64 + row[1]) // GRANULE)
class Head(NamedTuple):                 # the contents of the 64 bytes of a record header
    magic: bytes
    row: Row
    table: int
    counter: bytes
    session: bytes
    covered: bytes                      # the bytes that its code covers beside the body
    @property
    def is_page(self) -> bool:
        return self.magic == b"page"
Block = tuple[int, bytes]               # its type, and its bytes
def blocks_of(content: bytes) -> list[Block | None]:
    (count,) = struct.unpack_from("<I", content)
    must(4 + 4 * count <= len(content), "the content is too short for its blocks")
    shapes, data = struct.unpack_from(f"<{count}I", content, 4), io.BytesIO(content[4 + 4 * count:])
    blocks: list[Block | None] = [(shape >> 24, data.read(shape & 0xFFFFFF)) for shape in shapes]
    must(sum(shape & 0xFFFFFF for shape in shapes) == len(data.getbuffer()) and
         all(block and len(block[1]) <= MAX_BLOCK for block in blocks), "blocks of odd lengths")
    return blocks
class Arena:
    """One file of the log. Its header is checked when it is opened, and a record when it is read."""
    def __init__(self, path: Path, keys: Keys) -> None:
        self.path, self.keys, self.number, self.ordinal, self.seal_code = path, keys, int(path.stem), 0, b""
        self.durable = 0                    # the durable mark of its pages, in granules
        with self.at(0):
            self.size = path.stat().st_size
            head = self.read(0, 512)
            magic, version, length = struct.unpack_from("<8sII", head)
            must(magic == b"varveAR1" and version, "this is no arena")
            store_id, number, self.generation, cipher, self.uid, *wrap = struct.unpack_from("<16sQII16sII", head, 16)
            self.first, self.header_code, self.blind = length // GRANULE, head[-32:], wrap[0] == 2
            self.has_deltas = version > 3 and not self.blind
            must(self.header_code == keyed(keys.seal, head[:-32]), "its code is wrong")
            if version > 4:
                raise NewerVersion(f"{path}: version {version}")
            must(length == 512, "an odd header")
            must((store_id, number) == (keys.store_id, self.number), "it belongs to another store or place")
            must([cipher, *wrap] in ([[1, 1, 48], [1, 2, 80]] if keys.encrypted else [[0, 0, 0]]), "a foreign cipher")
            self.page_key = self.clump_key = derive("directory", keys.names, self.uid)
            if wrap[0] == 1:
                self.clump_key = AESGCM(derive("wrap", keys.read, self.uid)).decrypt(bytes(12), head[72:120], head[:72])
            elif self.blind:        # RFC 9180
                suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
                secret = X25519PrivateKey.from_private_bytes(derive("open", keys.read))
                self.clump_key = suite.decrypt(head[72:152], secret, b"varve 1 data key" + head[:72])
    @contextmanager
    def at(self, offset: int) -> Iterator[None]:  # adds the place to an error
        try:
            yield
        except (ValueError, OSError, struct.error, InvalidTag, zstandard.ZstdError) as error:
            raise ValueError(f"{self.path}: offset {offset}: {str(error) or 'its code is wrong'}") from error
    def read(self, offset: int, length: int) -> bytes:
        must(0 <= length <= self.size - offset, "the file ends too early")
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    def head(self, granule: int) -> Head:
        """Returns the header of the record at this granule."""
        head = self.read(granule * GRANULE, 64)
        magic, body_bytes, counter, session, place, table, code, checksum = struct.unpack("<4sI8s16sII16sQ", head)
        must(xxh3_64_intdigest(head[:56]) == checksum and place == granule, "no record begins here")
        must(magic in (b"clmp", b"page") and table <= body_bytes <= LIMIT, "a record that this reader does not know")
        return Head(magic, (granule, body_bytes, code), table, counter, session, head[:40] + self.uid)
    def opened(self, head: Head, at: int, length: int, code: bytes, frame: bytes = b"") -> bytes:
        """Returns a part of a record's body, authenticated and decrypted."""
        data, key = self.read(head.row[0] * GRANULE + 64 + at, length), self.page_key if head.is_page else self.clump_key
        if self.keys.encrypted:
            cipher = AESGCM(derive("session", key, head.session))
            return cipher.decrypt((frame or bytes(4)) + head.counter, data + code, head.covered)
        must(keyed(key, head.covered, frame, data)[:16] == code, "its code is wrong")
        return data
    def clump(self, head: Head, report: Callable[[object], None], width: int = 0,
              base: Callable[[bytes], bytes] | None = None) -> tuple[list[Block | None], bytes]:
        """Returns the blocks of a clump, with None for those in a damaged frame, and the names in its
        table. `base` returns the data leaf with a score of `width` bytes; without it, deltas are None as well."""
        if not head.table:
            body = self.opened(head, 0, head.row[1], head.row[2])
            codec, size = struct.unpack_from("<II", body)
            return blocks_of(unpacked(codec, body[8:], size)), b""
        table = self.opened(head, 0, head.table, head.row[2])
        frame_count, block_count = struct.unpack_from("<II", table)
        frames, names = table[8:8 + 32 * frame_count], table[8 + 32 * frame_count:]
        rows, blocks, at = list(struct.iter_unpack("<4I16s", frames)), list[Block | None](), head.table
        must(len(rows) == frame_count and sum(row[3] for row in rows) == block_count <= 4096 and
             sum(row[1] for row in rows) <= LIMIT and at + sum(row[2] for row in rows) == head.row[1] and
             len(names) == (14 + 10 * block_count if self.keys.by_value else 2 * block_count), "a false table of frames")
        for number, (codec, size, length, count, code) in enumerate(rows, 1):
            try:
                with self.at(head.row[0] * GRANULE + 64 + at):
                    frame = self.opened(head, at, length, code, struct.pack("<I", number))
                    is_delta = codec == 2 and count == 1 and self.has_deltas
                    if not is_delta:
                        part = blocks_of(unpacked(codec, frame, size))
                    elif base:
                        part = blocks_of(unpacked(codec, frame[width:], size, base(frame[:width])))
                    else:
                        part = [None]
                    must(len(part) == count, "not as many blocks as its row says")
                    blocks += part
            except ValueError as damage:
                report(damage)
                blocks += [None] * count
            at += length
        return blocks, names
    def walk(self) -> Iterator[tuple[Head, bytes]]:
        """Yields the headers of the records, and the bodies of authentic pages. Where no record begins, it
        continues with the next granule."""
        granule = self.first
        while granule < self.size // GRANULE:
            granule, here = granule + 1, granule
            with suppress(ValueError, InvalidTag):      # torn or damaged parts leave a hole
                head = self.head(here)
                yield head, self.opened(head, 0, head.row[1], head.row[2]) if head.is_page else b""
                granule = after(head.row)
    def check_seal(self, pages: list[Row], end: int) -> None:
        """Compares the seal with the seal of the authentic pages, which end at `end`."""
        rows = b"".join(struct.pack("<II16s", *row) for row in pages)
        self.ordinal = int.from_bytes(self.read(self.size - 72, 8), "little")
        footer = struct.pack("<8sIIQQ24x", b"varveSL1", 1, len(pages), end, self.ordinal)
        footer += keyed(self.keys.seal, b"seal", self.header_code, rows, footer)
        with self.at(self.size - 96):
            must(self.read(end, self.size - end) == rows + footer + struct.pack("<Q", xxh3_64_intdigest(footer)),
                 "the seal, or a page, is damaged or lost")
        self.seal_code = footer[56:]
# ---- 2. and 3. The store: directory pages, the ledger, clumps, blocks by their scores ----------------------
@dataclass(eq=False)
class Clump:
    """A clump as its page lists it, or as it was found without a page. For each block it has the size and
    type (u32), the score and the second digest. None stands for a lost block."""
    arena: Arena
    row: Row
    shapes: list[int | None]
    scores: list[bytes]
    digests: list[bytes]

class Store:
    def __init__(self, folder: Path, key_file: Path | None = None, out: TextIO = sys.stderr, older: bool = False) -> None:
        self.folder, self.out, self.keys, self.troubles, self.said = folder, out, Keys(folder, key_file), 0, set[str]()
        self.width = 24 if self.keys.by_value else 20 if self.keys.sha1 else 32
        self.zeros = b"\xff" * 24 if self.keys.by_value else self.score(b"")    # a whole subtree of zeros
        self.clumps: list[Clump] = []                               # in the order of the log
        self.places: dict[bytes, list[tuple[Clump, int]]] = {}      # score and type: all copies of the block
        self.roots = list[tuple[int, int, int, bytes, bool]]()      # of the catalog: place, score, is final
        self.notes = list[tuple[Clump, int]]()                      # of the store about its log
        self.ledger: list[Any] = [0, b""]
        self.unnamed = list[tuple[Arena, Head]]()                   # clumps without a sound page
        arenas: list[Arena] = []
        for path in sorted((folder / "arenas").glob("[0-9]" * 10 + ".arena")):
            try:
                arenas.append(Arena(path, self.keys))
                self.open_directory(arenas[-1])
            except (ValueError, OSError) as error:
                self.report(error)
            except NewerVersion as error:       # its catalog may be the newest
                if not older:
                    raise
                self.report(f"{error}: left out; the list of snapshots may be an old one, with forgotten ones", "warning")
        for arena, head in self.unnamed:        # deltas need blocks of other arenas
            self.salvage(arena, head)
        arenas = sorted((a for a in arenas if a.seal_code), key=lambda arena: (arena.ordinal, arena.number))
        rows, place = list[bytes](), 0                              # each seal has a place, a lost one too
        for a in arenas:
            if (at := max(place, a.ordinal)) < self.ledger[0]:
                rows, place = [*rows, struct.pack("<QI", a.number, a.generation) + a.seal_code], at + 1
        successors = dict(self.replaced())
        fits = [keyed(self.keys.seal, b"ledger", *seals) == self.ledger[1]
                for seals in (rows, [successors.get(row, row) for row in rows])]
        is_whole = len(rows) == self.ledger[0] and any(fits)
        if self.ledger[1] and not is_whole:
            self.report(f"{folder}: by the ledger one of the first {self.ledger[0]} seals is lost, damaged or replaced")
    def report(self, problem: object, word: str = "damage") -> None:
        self.troubles += word == "damage"
        if str(problem) not in self.said:
            self.said.add(str(problem))
            print(f"{word}: {shown(str(problem))}", file=self.out)
    def replaced(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the ledger's rows of the arenas that a collector has replaced, each with the row of its
        successor. A crash may have left the old arena under its name: it is as good."""
        for clump, ordinal in self.notes:
            try:
                note = self.read_clump(clump)[ordinal] or b""
                must(len(note) >= 32, "a note is too short")
                for row in split(note[32:], 80) if note[:4] == b"\1\0\0\0" else ():
                    yield row[:12] + row[16:48], row[:8] + row[12:16] + row[48:]
            except ValueError as damage:
                self.report(damage)
    def score(self, block: bytes, name: bytes = b"") -> bytes:
        if self.keys.by_value:          # a score is a check of the block, and its first place
            return keyed(derive("fingerprint", self.keys.names), block)[:8] + name[8:]
        plain = (hashlib.sha1 if self.keys.sha1 else blake3)(block).digest()
        return keyed(self.keys.score, block) if self.keys.encrypted and not self.keys.sha1 else plain

    def open_directory(self, arena: Arena) -> None:  # notes the place of every block, and checks the seal
        free, rows, unnamed, pages = arena.first, list[Row](), list[Head](), list[list[Clump]]()
        footer = arena.read(arena.size - 96, 96) if arena.size >= 96 else b""
        sealed = footer[:8] == b"varveSL1"
        if sealed and footer[8:12] != b"\1\0\0\0" and footer[88:] == struct.pack("<Q", xxh3_64_intdigest(footer[:88])):
            raise NewerVersion(f"{arena.path}: a footer of version {int.from_bytes(footer[8:12], 'little')}")
        for head, body in arena.walk():
            if not head.is_page:
                unnamed.append(head)
                continue
            rows.append(head.row)
            try:
                with arena.at(head.row[0] * GRANULE):
                    clumps = self.parse_page(arena, body)
            except ValueError as damage:
                self.report(damage)
                continue
            pages.append(clumps)
            for record in [*(clump.row for clump in clumps), head.row]:     # adjacent, without a hole
                if record[0] != free:
                    self.report(f"{arena.path}: offset {free * GRANULE}: here begins what is in no sound page")
                free = after(record)
            named = {clump.row for clump in clumps}
            unnamed = [head for head in unnamed if head.row not in named]
        for clumps in pages:
            if sealed or not self.outlived_its_root(arena, clumps):
                for clump in clumps:
                    self.take(clump)
        for head in unnamed:            # the page that named it is lost, or it was never acknowledged
            if sealed or rows and head.row[0] < rows[-1][0]:
                self.unnamed.append((arena, head))
        if sealed:
            arena.check_seal(rows, free * GRANULE)
        elif free * GRANULE < arena.size:
            self.report(f"{arena.path}: offset {free * GRANULE}: what follows was not finished, or else damage", "note")
    def outlived_its_root(self, arena: Arena, clumps: list[Clump]) -> bool:
        """Returns true if a power cut has kept a page of an arena without a seal, but not the root of the
        catalog that the page names."""
        for clump in clumps:
            if CATALOG in (shape >> 24 for shape in clump.shapes if shape) and clump.row[0] >= arena.durable:
                try:
                    with arena.at(clump.row[0] * GRANULE):
                        head = arena.head(clump.row[0])
                        must(None not in arena.clump(head, str)[0], "a frame is damaged")
                except ValueError as damage:
                    self.report(f"a page outlived the catalog's root that it names, which was not yet durable: {damage}", "note")
                    return True
        return False
    def take(self, clump: Clump) -> None:
        self.clumps.append(clump)
        for ordinal, (score, shape) in enumerate(zip(clump.scores, clump.shapes)):
            if shape is not None:
                self.places.setdefault(score + bytes([shape >> 24]), []).append((clump, ordinal))
                if shape >> 24 == NOTE and not clump.arena.blind:
                    self.notes.append((clump, ordinal))
                if shape >> 24 == CATALOG:
                    self.roots.append((clump.arena.number, clump.row[0], ordinal, score, not clump.arena.blind))
    def salvage(self, arena: Arena, head: Head) -> None:  # takes the blocks of a clump without a sound page
        try:
            with arena.at(head.row[0] * GRANULE):
                blocks, names = arena.clump(head, self.report, self.width, self.base)
        except ValueError as damage:
            return self.report(damage)
        scores = [names[14 + 10 * i:24 + 10 * i] + names[:14] if names and self.keys.by_value else
                  self.score(block[1]) if block else b"" for i, block in enumerate(blocks)]
        shapes = [block and block[0] << 24 | len(block[1]) for block in blocks]
        self.take(Clump(arena, head.row, shapes, scores, []))

    def parse_page(self, arena: Arena, body: bytes) -> list[Clump]:
        (clumps, blocks, durable, width, digest_width, codec, deltas, table_bytes,
         *ledger) = struct.unpack_from("<IIIHHHHIQ32s", body)
        must(width == self.width and digest_width in (0, 16 * self.keys.sha1), "other scores than the store's")
        must(blocks + clumps <= len(body) and table_bytes == 12 * clumps + 4 * blocks + 4 * deltas and
             deltas <= blocks * arena.has_deltas, "the page's counts do not fit")
        rest = io.BytesIO(body[64:])
        scores, digests = io.BytesIO(rest.read(blocks * width)), io.BytesIO(rest.read(blocks * digest_width))
        codes, bases = split(rest.read(clumps * 16), 16), rest.read(deltas * width)     # only to collect garbage
        table = io.BytesIO(unpacked(codec, rest.read(), table_bytes))
        granules, lengths, counts = (struct.unpack(f"<{clumps}I", table.read(4 * clumps)) for _ in range(3))
        must(sum(counts) == blocks and len(codes) == clumps and len(bases) == deltas * width,
             "the page's lists do not fit its counts")
        self.ledger, arena.durable = ledger, max(arena.durable, durable)
        return [Clump(arena, row, list(struct.unpack(f"<{count}I", table.read(4 * count))),
                      split(scores.read(count * width), width), split(digests.read(count * digest_width), 16))
                for count, row in zip(counts, zip(granules, lengths, codes))]
    @lru_cache(maxsize=16)
    def read_clump(self, clump: Clump, deltas: bool = True) -> list[bytes | None]:
        """Returns the blocks of a clump: None for one that its page contradicts, and without `deltas` for each
        that is one."""
        with clump.arena.at(clump.row[0] * GRANULE):
            head = clump.arena.head(clump.row[0])
            must((head.magic, head.row) == (b"clmp", clump.row), "not the clump that its page names")
            blocks, _ = clump.arena.clump(head, self.report, self.width, self.base if deltas else None)
            must(len(blocks) == len(clump.shapes), "not as many blocks as its page says")
        sound = list[bytes | None]()
        for ordinal, block in enumerate(blocks):
            is_sound = block is not None and self.is_named(clump, ordinal, *block)
            if block and not is_sound:
                self.report(f"{clump.arena.path}: offset {clump.row[0] * GRANULE}: block {ordinal} is not the one that "
                            "its page names")
            sound.append(block[1] if block and is_sound else None)
        return sound
    def is_named(self, clump: Clump, ordinal: int, block_type: int, block: bytes) -> bool:
        return (clump.shapes[ordinal] == block_type << 24 | len(block)
                and self.score(block, clump.scores[ordinal]) == clump.scores[ordinal]
                and clump.digests[ordinal:ordinal + 1] in ([], [keyed(self.keys.digest, block)[:16]]))
    def base(self, score: bytes) -> bytes:  # the data leaf that a delta needs, which is no delta itself
        return self.get(score, 0, deltas=False)
    def get(self, score: bytes, block_type: int, deltas: bool = True) -> bytes:  # the block, from any sound copy
        for clump, ordinal in self.places.get(score + bytes([block_type]), ()):
            try:
                block = self.read_clump(clump, deltas)[ordinal]
                if block is not None:
                    return block
            except ValueError as damage:
                self.report(damage)
        raise ValueError(f"no sound copy of block {score.hex()}, type {block_type:#04x}, is in the store")

# ---- 4. Hash trees -----------------------------------------------------------------------------------------
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
    def below(self, depth: int) -> int:  # the bytes in a subtree of a fixed tree
        return int(self.leaf_bytes * (self.pointer_bytes // len(self.root)) ** depth)
    def children(self, block: bytes, depth: int, length: int, zeros: bytes) -> list[tuple[bytes, int]]:
        """Returns the scores in a pointer block, with the number of bytes in the subtree of each."""
        width = 8 * self.cut + len(self.root)
        must(len(block) % width == 0, "a pointer block has an odd length")
        if self.cut:
            rows = [(row[8:], int.from_bytes(row[:8], "little")) for row in split(block, width)]
        else:
            each = self.below(depth - 1)
            rows = [(score, min(each, length - i * each)) for i, score in enumerate(split(block, width))]
            rows += [(zeros, length - len(rows) * each)] if len(rows) * each < length else []
        must(all(size > 0 for _, size in rows) and sum(size for _, size in rows) == length, "pointers do not add up")
        return rows
def spans(store: Store, entry: Entry | None, where: str = "") -> Iterator[tuple[int, int, bytes]]:
    """Yields the parts of a file as offset, length and data. If `data` is shorter than the length, zeros
    follow. With `where`, damage is reported under that name and left out; otherwise it is raised."""
    todo = [(entry.root, entry.depth, 0, entry.size)] if entry else []
    while entry and todo:
        score, depth, offset, length = todo.pop()
        try:
            block = store.get(score, entry.type | depth) if score != store.zeros and length else b""
            must(len(block) <= (entry.pointer_bytes if depth else min(length, entry.leaf_bytes)), "an overlong block")
            if depth == 0 or not block:
                yield offset, length, block
                continue
            end = offset + length
            for child, size in reversed(entry.children(block, depth, length, store.zeros)):
                end -= size
                todo.append((child, depth - 1, end, size))
        except ValueError as damage:
            must(where, str(damage))
            store.report(f"{where}: bytes {offset} to {offset + length} are lost: {damage}")
def pieces(store: Store, entry: Entry | None) -> Iterator[bytes]:  # the bytes of a file, with all their zeros
    for _, length, data in spans(store, entry):
        yield data
        for at in range(len(data), length, MAX_BLOCK):
            yield bytes(min(MAX_BLOCK, length - at))

# ---- 5. Fields: nodes, snapshots, the catalog --------------------------------------------------------------
Fields = dict[str, Any]
# The fields in the order of their numbers, from 1 on, as in the page's tables. A field without a type is a
# number.
NODE = ("name:bytes kind mode uid gid mtime:signed ctime:signed inode link_group:number size content:entry target:bytes "
        "device:bytes xattr:list problem mtime_wide:wide ctime_wide:wide inode_flags")
SNAPSHOT = ("id:bytes name:text time:signed kind source:bytes host:text tag:list image:entry root:bytes size "
            "file_count problem_count stored_bytes elapsed new_bytes machine:bytes hold:list keep_until:signed left_out:list comment:text "
            "file:bytes origin:bytes sector_bytes physical_sector_bytes")
MACHINE = "name:text uuid:hex architecture:text board:text processor:text cpu_count memory firmware drive:list"
LEFT_OUT = "volume:text what:text bytes why:text kept_because:text"
DRIVE = "name:text device:text controller:text boot_index size file:text format:text snapshot:hex pci_address"
HOLD = "label:text set:signed"
ORIGIN = "key:text role:text later:signed code:bytes"
ROOT = "sequence list:entry previous:list trash:entry gone:entry lost:entry"
TRASHED = "snapshot:bytes forgotten:signed forgotten_by:text undo_until:signed"
LOSS = "score:bytes type size arena generation first last may_hide_snapshots noticed:signed accepted:signed page:hex seal:hex"
ABSENT = {"": 0, "number": None, "signed": 0, "bytes": b"", "text": "", "hex": "", "entry": None, "wide": None}
def wide_time(value: bytes) -> int:
    seconds, at = varint(value, 0)
    nanoseconds, end = varint(value, at)
    must(end == len(value) and nanoseconds < 10**9, "a time is not one")
    return ((seconds >> 1) ^ -(seconds & 1)) * 10**9 + nanoseconds
def parse(data: bytes, table: str, width: int) -> Fields:
    columns = [(name, kind) for name, _, kind in (word.partition(":") for word in table.split())]
    fields: Fields = {name: [] if kind == "list" else ABSENT[kind] for name, kind in columns if name}
    at = last = 0
    while at < len(data):
        number, (length, start) = data[at], varint(data, at + 1)
        name, kind = columns[number - 1] if 0 < number <= len(columns) else ("", "unknown")
        must(last < number or last == number and kind in ("list", "unknown"), f"field {number} is out of order")
        last, at, value = number, start + length, data[start:start + length]
        must(len(value) == length, f"field {number} is cut short")
        if kind == "list":
            fields[name].append(value)
        elif kind == "entry":
            fields[name] = Entry.parse(value, width)
        elif kind == "wide":            # for a time that fields 6 and 7 cannot hold
            fields[name[:5]] = wide_time(value)
        elif kind in ("bytes", "text", "hex"):
            fields[name] = value.hex() if kind == "hex" else value.decode() if kind == "text" else value
        elif kind != "unknown":
            n, end = varint(value, 0)
            must(end == length, f"bytes are left over in field {number}")
            fields[name] = (n >> 1) ^ -(n & 1) if kind == "signed" else n
    return fields
def records(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the records of fields in a file, without their lengths."""
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
def snapshots(store: Store) -> list[Fields]:
    """Goes back from the last root to the first final one whose lists are readable. They have all earlier
    snapshots. Those that a final root has forgotten are left out."""
    final, added, forgotten = list[Fields](), list[Fields](), set[bytes]()
    for *_, score, is_final in sorted(store.roots, reverse=True):
        listed, newer, is_whole = list[Fields](), {snapshot["id"] for snapshot in final}, True
        try:
            root = parse(next(records([store.get(score, CATALOG)]), b""), ROOT, store.width)
            must(root["list"], "a root of the catalog without a list")
            for removed in removed_ids(store, root) if is_final else ():
                if removed not in newer:            # a newer root lists what was copied in again
                    forgotten.add(removed)
            for record in records(pieces(store, root["list"])):
                listed.append(parse_snapshot(record, store.width))
                settle_origin(store, listed[-1], is_final)
        except ValueError as damage:
            store.report(f"a root of the catalog, or its list, cannot be read; older ones are: {damage}")
            is_whole = False
        if not is_final:
            added = listed + added
            continue
        final = [snapshot for snapshot in listed if snapshot["id"] not in forgotten] + final
        if is_whole:
            break
    found = final + [snapshot for snapshot in added if snapshot["id"] not in forgotten]
    return list({snapshot["id"]: snapshot for snapshot in reversed(found)}.values())[::-1]
def removed_ids(store: Store, root: Fields) -> Iterator[bytes]:
    """Yields the ids of the snapshots in the trash of a root, and of those that are gone."""
    for record in records(pieces(store, root["trash"])):
        yield parse(parse(record, TRASHED, store.width)["snapshot"], SNAPSHOT, store.width)["id"]
    gone = b"".join(pieces(store, root["gone"]))
    must(len(gone) % 16 == 0, "the list of the snapshots that are gone is cut short")
    yield from (gone[at:at + 16] for at in range(0, len(gone), 16))
def settle_origin(store: Store, snapshot: Fields, is_final: bool) -> None:
    """Replaces the origin that a snapshot claims by the one that its code proves."""
    data, found, at, others = snapshot["origin"], parse(snapshot["origin"], ORIGIN, store.width), 0, b""
    while at < len(data):               # all fields but the code
        length, start = varint(data, at + 1)
        others, at = others + data[at:start + length] * (data[at] != 4), start + length
    key = derive("origin", store.keys.read, f"{found['role']} {found['key']}".encode())
    proven = store.keys.encrypted and found.pop("code") == keyed(key, snapshot["id"], others)
    early = None if is_final or not store.keys.encrypted else {"key": "", "role": "write-only", "later": 0}
    snapshot["origin"] = found if proven else early
def parse_snapshot(record: bytes, width: int) -> Fields:
    snapshot = parse(record, SNAPSHOT, width)
    must(len(snapshot["id"]) == 16 and snapshot["kind"] in (1, 2), "a snapshot has no id or kind")
    snapshot["root"] = parse(snapshot["root"], NODE, width)
    snapshot["machine"] = machine = parse(snapshot["machine"], MACHINE, width) if snapshot["machine"] else None
    if machine:                         # the machine with this disk
        machine["drives"] = [parse(drive, DRIVE, width) for drive in machine.pop("drive")]
    snapshot["hold"] = [parse(hold, HOLD, width) for hold in snapshot["hold"]]
    snapshot["left_out"] = [parse(part, LEFT_OUT, width) for part in snapshot["left_out"]]
    if snapshot["kind"] == 1:           # an image is treated as a single file
        snapshot["root"] |= {"kind": FILE, "content": snapshot["image"], "mode": 0o600, "mtime": snapshot["time"],
                             "uid": os.geteuid(), "gid": os.getegid()}
    return snapshot
def losses(store: Store) -> Iterator[tuple[Fields, str]]:
    """Yields the losses that the final root lists and that are still unreadable, each with a description."""
    final = [score for *_, score, is_final in sorted(store.roots) if is_final]
    for score in final[-1:]:
        lost = parse(next(records([store.get(score, CATALOG)]), b""), ROOT, store.width)["lost"]
        for record in records(pieces(store, lost)):
            loss = parse(record, LOSS, store.width)
            if loss["score"]:
                with suppress(ValueError):      # the block is there again
                    store.get(loss["score"], loss["type"])
                    continue
            place = f"arena {loss['arena']}, bytes {loss['first']} to {loss['last'] or 'the end'}"
            yield loss, f"block {loss['score'].hex()} of type {loss['type']}" if loss["score"] else place
def children(store: Store, folder: Fields, where: str) -> Iterator[Fields]:
    """Yields the nodes in a folder, up to the first damage."""
    last = b""
    try:
        for record in records(pieces(store, folder["content"])):
            node = parse(record, NODE, store.width)
            must(node["name"] > last, f"name {node['name']!r} is out of order")
            last = node["name"]
            must(re.fullmatch(rb"[^/\0]+", last) and last not in (b".", b".."), "an evil name")
            yield node
    except ValueError as error:
        store.report(f"{where}: what comes after {last!r} in this folder is lost: {error}")

# ---- The commands ------------------------------------------------------------------------------------------
def choose(store: Store, wanted: str) -> Fields:
    found = list(snapshots(store))
    named = [s for s in found if wanted in ("latest", s["name"])]
    begun = [s for s in found if s["id"].hex().startswith(wanted)]
    must(named or len(begun) == 1, f"{len(begun)} snapshots are called {wanted!r}")
    return max(reversed(named or begun), key=lambda snapshot: snapshot["time"])
def list_snapshots(store: Store, as_json: bool) -> None:
    rows = [{key: value for key, value in s.items() if key not in ("image", "root")} |
            {"id": s["id"].hex(), "kind": "file" if s["file"] else ("image", "folder")[s["kind"] - 1],
             "file": shown(s["file"]), "source": shown(s["source"]),
             "tag": [shown(tag) for tag in s["tag"]]} for s in snapshots(store)]
    for row in rows if not as_json else []:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row["time"] // 10**9))
        print(row["id"][:12], moment, row["kind"], f"{row['size']:,}", shown(row["name"]), *row["tag"], shown(row["comment"]), sep="  ")
    print(json.dumps(rows, indent=1) if as_json else "", end="")
def list_losses(store: Store, as_json: bool) -> None:
    found = list(losses(store))
    for loss, name in found if not as_json else []:
        print("accepted" if loss["accepted"] else "lost", name, sep="  ")
    print(json.dumps([loss | {"score": loss["score"].hex()} for loss, _ in found], indent=1) if as_json else "", end="")
def cat(store: Store, node: Fields, path: bytes) -> None:
    for name in filter(None, path.split(b"/")):
        inside = children(store, node, shown(path)) if node["kind"] == FOLDER else ()
        node = next((child for child in inside if child["name"] == name), {})
        must(node, f"{path!r} is not in this snapshot")
    must(node["kind"] == FILE, f"{path!r} is not a file")
    sys.stdout.buffer.writelines(pieces(store, node["content"]))
GET_FLAGS, SET_FLAGS, LOCKS = 0x80086601, 0x40086602, 0x30     # ioctl_iflags(2); immutable and append-only
def set_flags(path: bytes, flags: int) -> None:
    """Adds flags one by one. A flag that the file system or the user does not support is no failure."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        for bit in (1 << place for place in range(32) if flags >> place & 1):
            with suppress(OSError):
                there, = struct.unpack("I", fcntl.ioctl(file, GET_FLAGS, bytes(4)))
                fcntl.ioctl(file, SET_FLAGS, struct.pack("I", there | bit))
        os.close(file)
def restore(store: Store, node: Fields, path: bytes, links: dict[int, bytes], locked: dict[bytes, int]) -> None:
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
                restore(store, child, path + b"/" + child["name"], links, locked)
        elif kind == SYMLINK:
            os.symlink(node["target"], path)
        else:
            major, at = varint(node["device"] or bytes(2), 0)
            os.mknod(path, 0o600 | SPECIAL[kind], os.makedev(major, varint(node["device"] or bytes(2), at)[0]))
        links |= {} if group is None else {group: path}
        if os.geteuid() == 0:           # first: it removes setuid bits and capabilities
            uid, gid = (-1 if number == 0xFFFFFFFF else number for number in (node["uid"], node["gid"]))
            os.chown(path, uid, gid, follow_symlinks=False)
        for inherited in ("system.posix_acl_access", "system.posix_acl_default") if kind != SYMLINK else ():
            with suppress(OSError):
                os.removexattr(path, inherited)
        for xattr in node["xattr"]:
            length, at = varint(xattr, 0)
            os.setxattr(path, xattr[at:at + length], xattr[at + length:], follow_symlinks=False)
        if kind != SYMLINK:
            is_own = os.geteuid() == 0 or (node["uid"], node["gid"]) == (os.geteuid(), os.getegid())
            os.chmod(path, node["mode"] & (0o7777 if is_own else 0o1777))
        os.utime(path, ns=(node["mtime"], node["mtime"]), follow_symlinks=False)
        if flags := node["inode_flags"] if kind in (FILE, FOLDER) else 0:
            set_flags(path, flags & ~LOCKS)
            locked[path] = flags & LOCKS
    except (OSError, ValueError, OverflowError, KeyError, RecursionError) as error:
        store.report(f"{shown(path)}: not restored as it was: {error!r}")
    if node["problem"]:
        store.report(f"{shown(path)}: had a problem when it was archived: {node['problem']}", "note")
def check(store: Store) -> None:
    for clump in store.clumps:
        try:
            store.read_clump(clump)
        except ValueError as damage:
            store.report(damage)
    seen: set[Entry] = set()
    for snapshot in snapshots(store):
        todo = [(f"snapshot {snapshot['id'].hex()} {snapshot['name']!r}", snapshot["root"])]
        while todo:
            where, node = todo.pop()
            if store.troubles == 0 and node["content"] in seen:     # known to be sound
                continue
            seen.add(node["content"])
            if node["kind"] == FOLDER:
                todo += [(f"{where}/{shown(child['name'])}", child) for child in children(store, node, where)]
            else:
                all(True for _ in spans(store, node["content"], where))
    for loss, name in losses(store):
        if not loss["accepted"]:
            store.report(f"{name} was stored once and is lost")
    page = (store.folder / "FORMAT.md").read_bytes() if (store.folder / "FORMAT.md").exists() else b""
    text, _, code = page.rpartition(b"<!-- code ")
    expected = keyed(derive("page", store.keys.names), text).hex().encode() + b" -->\n"
    if b", revision " in page.split(b"\n")[0] and code != expected:     # a page of an early store has no code
        store.report(f"{store.folder}/FORMAT.md was altered")
    print(f"{len(store.clumps)} clumps, {len(store.places)} blocks:", "damaged" if store.troubles else "sound")
def main() -> int:
    parser = argparse.ArgumentParser(description="Reads a Varve store. A snapshot: name, begin of its id, or latest.")
    parser.add_argument("store", type=Path)
    parser.add_argument("command", choices=["list", "check", "cat", "restore", "lost"])
    parser.add_argument("snapshot", nargs="?", default="latest")
    parser.add_argument("path", nargs="?", type=os.fsencode, default=b"")
    parser.add_argument("--key-file", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--older", action="store_true", help="leave out what a newer program has written")
    words = parser.parse_args()
    os.umask(0o077)                         # others get access only when the mode is set
    try:
        store = Store(words.store, words.key_file, older=words.older)
        if words.command == "list":
            list_snapshots(store, words.json)
        elif words.command == "check":
            check(store)
        elif words.command == "lost":
            list_losses(store, words.json)
        else:
            chosen = choose(store, words.snapshot)
            root = chosen["root"]
            if chosen["file"]:              # a single file was archived: the only one in the folder
                root = next((node for node in children(store, root, "") if node["name"] == chosen["file"]), root)
            locked = dict[bytes, int]()
            cat(store, root, words.path) if words.command == "cat" else restore(store, root, words.path, {}, locked)
            for path, flags in locked.items():      # last: after this, nothing can be changed or linked
                set_flags(path, flags)
        return 1 if store.troubles else 0
    except (OSError, ValueError) as error:
        sys.exit(f"rosetta: {shown(str(error))}")
    except NewerVersion as error:
        sys.exit(f"rosetta: {shown(str(error))}: a newer program wrote it. Read the page that it left; --older leaves it out")
if __name__ == "__main__":
    sys.exit(main())
