"""A tiny writer of test stores, made from the format page. It shares no code with the reader, so each checks
the other.

It is not fast, not durable and not secure (its key files have the weakest settings). It is only for tests.
"""
from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

import zstandard
from argon2.low_level import Type, hash_secret_raw
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from xxhash import xxh3_64_intdigest

DATA, DIRECTORY, CATALOG, NOTE = 0x00, 0x20, 0x60, 0x80
IMAGE, TREE = 1, 2                                      # kinds of snapshot
FILE, FOLDER, SYMLINK, CHARACTER, BLOCK, FIFO, SOCKET = range(1, 8)


def keyed(key: bytes, data: bytes) -> bytes:
    return blake3(data, key=key).digest()


def derive(context: str, data: bytes) -> bytes:
    return blake3(data, derive_key_context=context).digest()


def varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def signed(n: int) -> bytes:
    return varint(n << 1 if n >= 0 else (-n << 1) - 1)


def fields(values: list[tuple[int, bytes]]) -> bytes:
    """The fields of a record, without its length."""
    return b"".join(bytes([number]) + varint(len(value)) + value for number, value in values)


def record(values: list[tuple[int, bytes]]) -> bytes:
    return varint(len(fields(values))) + fields(values)


class Writer:
    """Writes one store. Blocks are collected in a clump, and clumps before a page; `clump`, `page` and `seal`
    end them."""

    def __init__(self, folder: Path, *, score: str = "blake3", passphrase: str | None = None,
                 key_file: bytes | None = None, arena_bytes: int = 1 << 20, codec: int = 1) -> None:
        self.folder, self.sha1, self.codec = folder, score == "sha1", codec
        self.arena_bytes = arena_bytes
        self.encrypted = passphrase is not None or key_file is not None
        self.id, self.session, self.counter = os.urandom(16), os.urandom(16), 0
        (folder / "arenas").mkdir(parents=True)
        (folder / "keys").mkdir()
        encryption = "aes-256-gcm" if self.encrypted else "none"
        binding = blake3(f"varve store 1\nid = {self.id.hex()}\nscore = {score}\ncompare = hash\n"
                         f"encryption = {encryption}\narena_bytes = {arena_bytes}\n".encode()).digest()
        (folder / "config.toml").write_text(
            f'format = 1\nid = "{self.id.hex()}"\nscore = "{score}"\ncompare = "hash"\nencryption = "{encryption}"\n'
            f"arena_bytes = {arena_bytes}\nblock_bytes = 8192\ncompression_level = 3\n")
        master = os.urandom(32)
        if passphrase is not None:
            salt = os.urandom(16)
            key = hash_secret_raw(passphrase.encode(), salt, 1, 8, 1, 32, Type.ID, 0x13)
            self.wrap("passphrase", "memory_kib = 8\npasses = 1\nlanes = 1\n", salt, key, master, binding)
        if key_file is not None:
            salt = os.urandom(16)
            self.wrap("key-file", "", salt, derive("varve 1 key file", salt + key_file), master, binding)
        self.read_key = derive("varve 1 read", master)
        self.names = derive("varve 1 names", master) if self.encrypted else derive("varve 1 plain", binding)
        self.seal_key = derive("varve 1 seal", self.names)
        self.width = 20 if self.sha1 else 32
        self.zeros = self.score(b"")
        self.have: set[tuple[bytes, int]] = set()
        self.catalog: list[bytes] = []                      # records of the snapshots
        self.ledger = b""
        self.gaps: set[tuple[str, int]] = set()             # file and offset of each unused byte
        self.number = -1
        self.begin_arena()

    def wrap(self, kind: str, more: str, salt: bytes, key: bytes, master: bytes, binding: bytes) -> None:
        wrapped = AESGCM(key).encrypt(bytes(12), master, binding)
        (self.folder / "keys" / f"{kind}.toml").write_text(
            f'kind = "{kind}"\n{more}salt = "{salt.hex()}"\nwrapped = "{wrapped.hex()}"\n')

    def score(self, block: bytes) -> bytes:
        if self.sha1:
            return hashlib.sha1(block).digest()
        return keyed(derive("varve 1 score", self.names), block) if self.encrypted else blake3(block).digest()

    # -- Arenas

    def begin_arena(self) -> None:
        self.number += 1
        self.uid = os.urandom(16)
        cipher = int(self.encrypted)
        head = struct.pack("<8sII16sQII16sII", b"varveAR1", 1, 512, self.id, self.number, 0, cipher, self.uid, cipher,
                           48 * cipher)
        self.directory_key = self.data_key = derive("varve 1 directory", self.names + self.uid)
        if self.encrypted:
            self.data_key = os.urandom(32)
            wrap_key = derive("varve 1 wrap", self.read_key + self.uid)
            head += AESGCM(wrap_key).encrypt(bytes(12), self.data_key, head)
        head = head.ljust(480, b"\0")
        self.header_code = keyed(self.seal_key, head)
        self.path = self.folder / "arenas" / f"{self.number:010}.arena"
        self.path.write_bytes(head + self.header_code)
        self.rows: list[bytes] = []                         # of the pages
        self.blocks: list[tuple[int, bytes]] = []           # of the current clump
        self.clumps: list[tuple[int, int, bytes, list[tuple[int, bytes]]]] = []     # not yet in a page

    def whole_granules(self) -> bytes:
        """Returns the arena, padded to a whole granule."""
        data = self.path.read_bytes()
        gap = -len(data) % 128
        self.gaps |= {(self.path.name, len(data) + i) for i in range(gap)}
        return data + bytes(gap)

    def write_record(self, magic: bytes, body: bytes) -> tuple[int, int, bytes]:
        """Appends a record. Returns its granule, its body's length and its code."""
        data = self.whole_granules()
        granule = len(data) // 128
        self.counter += 1
        head = struct.pack("<4sIQ16sII", magic, len(body), self.counter, self.session, granule, 0)
        key = self.data_key if magic == b"clmp" else self.directory_key
        if self.encrypted:
            session_key = derive("varve 1 session", key + self.session)
            nonce = bytes(4) + struct.pack("<Q", self.counter)
            sealed = AESGCM(session_key).encrypt(nonce, body, head + self.uid)
            body, code = sealed[:-16], sealed[-16:]
        else:
            code = keyed(key, head + self.uid + body)[:16]
        head += code
        self.path.write_bytes(data + head + struct.pack("<Q", xxh3_64_intdigest(head)) + body)
        return granule, len(body), code

    def pack(self, content: bytes) -> bytes:
        return zstandard.compress(content) if self.codec else content

    def put(self, block: bytes, block_type: int) -> bytes:
        score = self.score(block)
        if score != self.zeros and (score, block_type) not in self.have:
            self.have.add((score, block_type))
            self.blocks.append((block_type, block))
            if sum(len(block) for _, block in self.blocks) >= 4096:
                self.clump()
        return score

    def clump(self) -> None:
        if self.blocks:
            shapes = b"".join(struct.pack("<I", len(block) | block_type << 24) for block_type, block in self.blocks)
            content = struct.pack("<I", len(self.blocks)) + shapes + b"".join(block for _, block in self.blocks)
            body = struct.pack("<II", self.codec, len(content)) + self.pack(content)
            self.clumps.append((*self.write_record(b"clmp", body), self.blocks))
            self.blocks = []

    def page(self) -> None:
        self.clump()
        blocks = [block for *_, blocks in self.clumps for block in blocks]
        digest_key = derive("varve 1 digest", self.names)
        digests = [keyed(digest_key, block)[:16] for _, block in blocks] if self.sha1 else []
        granules, lengths, codes, lists = zip(*self.clumps) if self.clumps else ((), (), (), ())
        table = b"".join(struct.pack("<I", n) for n in (
            *granules, *lengths, *map(len, lists), *(len(block) | block_type << 24 for block_type, block in blocks)))
        body = struct.pack("<IIIHHIIQ32s", len(self.clumps), len(blocks), 4, self.width, 16 if self.sha1 else 0,
                           self.codec, len(table), len(self.ledger) // 44,
                           keyed(self.seal_key, b"ledger" + self.ledger))
        body += b"".join([*(self.score(block) for _, block in blocks), *digests, *codes]) + self.pack(table)
        self.rows.append(struct.pack("<II16s", *self.write_record(b"page", body)))
        self.clumps = []
        if self.path.stat().st_size >= self.arena_bytes:
            self.seal()
            self.begin_arena()

    def seal(self) -> None:
        data = self.whole_granules()
        rows = b"".join(self.rows)
        footer = struct.pack("<8sIIQ32x", b"varveSL1", 1, len(self.rows), len(data))
        seal_code = keyed(self.seal_key, b"seal" + self.header_code + rows + footer)
        footer += seal_code
        self.path.write_bytes(data + rows + footer + struct.pack("<Q", xxh3_64_intdigest(footer)))
        self.ledger += struct.pack("<QI", self.number, 0) + seal_code

    # -- Hash trees

    def fixed(self, data: bytes, leaf_type: int = DATA, leaf: int = 1024, pointer: int = 160) -> bytes:
        """Writes a tree whose leaves have the same size, and returns its entry."""
        scores = [self.put(data[at:at + leaf].rstrip(b"\0"), leaf_type) for at in range(0, len(data), leaf)]
        fan, depth = pointer // self.width, 0
        while len(scores) > 1:
            depth += 1
            groups = [scores[at:at + fan] for at in range(0, len(scores), fan)]
            scores = []
            for group in groups:
                while group and group[-1] == self.zeros:
                    group.pop()
                scores.append(self.put(b"".join(group), leaf_type | depth))
        return struct.pack("<4B2IQ", leaf_type, 0, depth, 0, leaf, pointer, len(data)) + scores[0]

    def cut(self, data: bytes, leaf_type: int = DATA, leaf: int = 512, pointer: int = 240) -> bytes:
        """Writes a tree that is cut by content, and returns its entry. Here a cut is after each byte 0x0A, or
        at the largest size."""
        rows, at = [], 0
        while at < len(data):
            end = data.find(b"\n", at, at + leaf) + 1 or min(at + leaf, len(data))
            rows.append((end - at, self.put(data[at:end].rstrip(b"\0"), leaf_type)))
            at = end
        fan, depth = pointer // (8 + self.width), 0
        while len(rows) > 1:
            depth += 1
            groups = [rows[at:at + fan] for at in range(0, len(rows), fan)]
            rows = [(sum(size for size, _ in group), self.zeros if all(score == self.zeros for _, score in group) else
                     self.put(b"".join(struct.pack("<Q", size) + score for size, score in group), leaf_type | depth))
                    for group in groups]
        return struct.pack("<4B2IQ", leaf_type, 1, depth, 0, leaf, pointer, len(data)) + rows[0][1]

    # -- Nodes, snapshots, the catalog

    def node(self, name: bytes, kind: int, content: bytes | list[list[tuple[int, bytes]]] = b"", *,
             more: list[tuple[int, bytes]] = [], mode: int = 0o640, mtime: int = 1_700_000_000_123_456_789,
             cut: bool = True) -> list[tuple[int, bytes]]:
        """Returns the fields of a node. The content of a folder is the list of its nodes."""
        data = b"".join(record(node) for node in content) if isinstance(content, list) else content
        values = [(1, name), (2, varint(kind)), (3, varint(mode)), (4, varint(os.geteuid())), (5, varint(os.getegid())),
                  (6, signed(min(max(mtime, -2**63), 2**63 - 1))), (7, signed(0)), (8, varint(7))]
        if not -2**63 <= mtime < 2**63:
            values.append((16, signed(mtime // 10**9) + varint(mtime % 10**9)))
        if kind == FILE:
            values.append((10, varint(len(data))))
        if data:
            tree = self.cut if cut else self.fixed
            values.append((11, tree(data, DIRECTORY if kind == FOLDER else DATA)))
        return sorted(values + more, key=lambda field: field[0])

    def snapshot(self, name: str, time: int, *, image: bytes | None = None,
                 root: list[tuple[int, bytes]] | None = None,
                 more: list[tuple[int, bytes]] | None = None) -> bytes:
        """Lists a snapshot and writes the catalog. Returns the snapshot's id."""
        snapshot_id = os.urandom(16)
        values = [(1, snapshot_id), (2, name.encode()), (3, signed(time)), (5, b"/source"), (6, b"host"), (7, b"a=1"),
                  (7, b"b=2"), (10, varint(len(image or b""))), *(more or [])]
        if image is not None:
            values += [(4, varint(IMAGE)), (8, self.fixed(image))]
        if root is not None:
            values += [(4, varint(TREE)), (9, fields(root))]
        self.catalog.append(record(sorted(values, key=lambda field: field[0])))
        self.page()
        self.put(record([(1, varint(len(self.catalog))), (2, self.cut(b"".join(self.catalog)))]), CATALOG)
        self.page()
        return snapshot_id
