#!/usr/bin/env python3
"""Mends a damaged arena from its parity file, as appendix A of the store's FORMAT.md describes it, and by
nothing else.

    parity.py STORE ARENA OUT [--key-file FILE]     writes arena number ARENA, mended, to the new file OUT

The formulas are those of the page, with its names. Each symbol has a low and a high byte. The page keeps them
apart in every column of 64 bytes. To multiply all symbols of a shard by one coefficient, four look-ups in
tables of 256 bytes are therefore enough, which Python does fast.
"""
from __future__ import annotations

import argparse
import struct
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rosetta import Keys, derive, keyed, must

BLOCK, PIECE, CODES = 4096, 64, 255             # bytes of a table block; shards of a piece; codes of a block
BASIS = [int(digits, 16) for digits in ("0001 acca 3c0e 163e c582 ed2e 914c 4012 "
                                        "6c98 10d8 6a72 b900 fdb8 fb34 ff38 991e").split()]
POLYNOMIAL = 0x1002D

# ---- The field, and symbols in it --------------------------------------------------------------------------
def product(a: int, b: int) -> int:
    out = 0
    while b:
        out ^= a * (b & 1)
        a, b = a << 1, b >> 1
        a ^= POLYNOMIAL if a >> 16 else 0
    return out
def inverse(a: int) -> int:             # a^(2^16 − 2)
    out = 1
    for _ in range(15):
        a = product(a, a)
        out = product(out, a)
    return out
@cache
def omega(symbol: int) -> int:          # the element that a symbol stands for
    return omega(symbol & symbol - 1) ^ BASIS[(symbol & -symbol).bit_length() - 1] if symbol else 0
def _symbols_of_bits() -> list[int]:    # the symbols of 1, x, x², …: all others are sums of them
    rows = [(BASIS[i], 1 << i) for i in range(16)]
    for bit in range(16):
        pivot = next(i for i in range(bit, 16) if rows[i][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        element, symbol = rows[bit]
        rows = [(e ^ element, s ^ symbol) if i != bit and e >> bit & 1 else (e, s) for i, (e, s) in enumerate(rows)]
    return [symbol for _, symbol in rows]
SYMBOLS = _symbols_of_bits()
def symbol_of(element: int) -> int:     # the reverse of omega
    out = 0
    for bit, symbol in enumerate(SYMBOLS):
        out ^= symbol * (element >> bit & 1)
    return out

def coefficients(data_count: int, recovery_count: int) -> list[list[int]]:
    """C(i, j) of each recovery shard i and data shard j."""
    m = 1 << (recovery_count - 1).bit_length()
    def s(x: int) -> int:
        out = 1
        for v in range(m):
            out = product(out, x ^ omega(v))
        return out
    c = 1
    for v in range(1, m):
        c = product(c, omega(v))
    scales = [product(s(omega(k * m)), inverse(c)) for k in range(1, 1 + -(-data_count // m))]
    return [[product(scales[j // m], inverse(omega(i) ^ omega(m + j))) for j in range(data_count)]
            for i in range(recovery_count)]

# ---- Shards as vectors -------------------------------------------------------------------------------------
Shard = tuple[int, int]                 # the low bytes of its symbols, and the high ones, as two numbers
def to_shard(data: bytes) -> Shard:
    columns = [data[at:at + 64] for at in range(0, len(data), 64)]
    return (int.from_bytes(b"".join(column[:32] for column in columns), "little"),
            int.from_bytes(b"".join(column[32:] for column in columns), "little"))
def from_shard(shard: Shard, length: int) -> bytes:
    low, high = (half.to_bytes(length // 2, "little") for half in shard)
    return b"".join(low[at:at + 32] + high[at:at + 32] for at in range(0, len(low), 32))
def times(shard: Shard, coefficient: int, length: int) -> Shard:
    """Multiplies each symbol of a shard by a coefficient. Products are linear in the symbol's bits, so tables
    for its two bytes are enough."""
    bits = [symbol_of(product(coefficient, BASIS[bit])) for bit in range(16)]
    out = [0, 0]
    for half, part in enumerate(shard):
        table = [0] * 256
        for byte in range(1, 256):
            table[byte] = table[byte & byte - 1] ^ bits[8 * half + (byte & -byte).bit_length() - 1]
        data = part.to_bytes(length // 2, "little")
        for to in (0, 1):
            out[to] ^= int.from_bytes(data.translate(bytes(value >> 8 * to & 255 for value in table)), "little")
    return out[0], out[1]
def plus(one: Shard, other: Shard) -> Shard:
    return one[0] ^ other[0], one[1] ^ other[1]

def recovery_shards(data: list[bytes], recovery_count: int) -> list[bytes]:
    length, shards = len(data[0]), [to_shard(shard) for shard in data]
    out = []
    for row in coefficients(len(data), recovery_count):
        total = (0, 0)
        for coefficient, shard in zip(row, shards):
            total = plus(total, times(shard, coefficient, length))
        out.append(from_shard(total, length))
    return out
def mend(data: list[bytes | None], recovery: list[bytes | None], length: int) -> list[bytes]:
    """Computes all data shards from the recovery shards and from the data shards that are left. Lost shards
    are None."""
    lost = [j for j, shard in enumerate(data) if shard is None]
    good = [i for i, shard in enumerate(recovery) if shard is not None][:len(lost)]
    must(len(good) == len(lost), f"{len(lost)} shards are lost, and {len(good)} recovery shards are good")
    table = coefficients(len(data), len(recovery)) if lost else []
    rows = []                           # Σ C(i, j) · d(j) over the lost j, and its value
    for i in good:
        total = to_shard(recovery[i] or b"")
        for j, shard in enumerate(data):
            if shard is not None:
                total = plus(total, times(to_shard(shard), table[i][j], length))
        rows.append(([table[i][j] for j in lost], total))
    for column in range(len(lost)):     # Gauss and Jordan
        pivot = next(i for i in range(column, len(rows)) if rows[i][0][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = inverse(rows[column][0][column])
        top = [product(scale, c) for c in rows[column][0]], times(rows[column][1], scale, length)
        rows[column] = top
        for i, (row, total) in enumerate(rows):
            if i != column and (factor := row[column]):
                rows[i] = ([a ^ product(factor, b) for a, b in zip(row, top[0])],
                           plus(total, times(top[1], factor, length)))
    mended = dict(zip(lost, (from_shard(total, length) for _, total in rows)))
    return [mended[j] if shard is None else shard for j, shard in enumerate(data)]

# ---- The file ----------------------------------------------------------------------------------------------
class Header(NamedTuple):
    percent: int
    store_id: bytes
    arena: int
    generation: int
    shard_bytes: int
    arena_bytes: int
    group_count: int
    arena_header_code: bytes
    arena_seal_code: bytes
    parity_code: bytes
def read_header(data: bytes, seal_key: bytes) -> Header:
    magic, version, *fields, zero, header, seal, code = struct.unpack("<8sII16sQIIQII32s32s32s", data[:160])
    must(magic == b"varvePR1" and version == 1 and zero == 0, "this is no parity file of version 1")
    must(code == keyed(derive("parity", seal_key), data[:128]), "the header's code is wrong")
    found = Header(*fields, header, seal, code)
    pieces = -(-found.arena_bytes // (found.shard_bytes * PIECE or 1))
    must(1 <= found.percent <= 100 and found.shard_bytes in (4096 << n for n in range(5)) and
         0 < found.arena_bytes <= 1 << 35 and 0 < found.group_count <= min(pieces, 1024), "a false header")
    return found
def mend_arena(damaged: bytes, parity: bytes, keys: Keys) -> tuple[bytes, int]:
    """Returns the arena as it was when it was sealed, and the number of its lost shards."""
    for copy in (parity[:BLOCK], parity[-BLOCK:]):
        try:
            head = read_header(copy, keys.seal)
            break
        except (ValueError, struct.error) as error:
            problem = error
    else:
        raise ValueError(f"both headers of the parity file are damaged: {problem}")
    must(head.store_id == keys.store_id, "it belongs to another store")
    file_key, length = derive("parity file", keys.seal, head.parity_code), head.shard_bytes
    shard_count = -(-head.arena_bytes // length)
    groups = [[shard for piece in range(group, -(-shard_count // PIECE), head.group_count)
               for shard in range(piece * PIECE, min(shard_count, (piece + 1) * PIECE))]
              for group in range(head.group_count)]
    recovery_counts = [-(-len(shards) * head.percent // 100) for shards in groups]
    table_bytes = [-(-(len(shards) + count) // CODES) * BLOCK for shards, count in zip(groups, recovery_counts)]
    out, lost_count, at = bytearray(head.arena_bytes), 0, BLOCK
    second = BLOCK + sum(table_bytes) + sum(recovery_counts) * length       # the second copy of the tables
    def is_good(shard: bytes, code: bytes) -> bool:
        return code == keyed(file_key, shard)[:16]
    for group, (shards, recovery_count) in enumerate(zip(groups, recovery_counts)):
        must((len(shards) + recovery_count) * length <= 128 << 20, "a group is too large")
        codes = b""
        for number in range(table_bytes[group] // BLOCK):
            begins = (at + number * BLOCK, second + number * BLOCK)
            blocks = [parity[begin:begin + BLOCK] for begin in begins]
            good = [block for block in blocks if len(block) == BLOCK and block[4080:] == keyed(
                file_key, b"table", struct.pack("<II", group, number), block[:4080])[:16]]
            codes += good[0][:4080] if good else b"\0" * 4080      # no shard has such a code
        def shard(data: bytes, begin: int, code: bytes) -> bytes | None:
            found = data[begin:begin + length].ljust(length, b"\0")
            return found if is_good(found, code) else None
        each = [codes[16 * n:16 * n + 16] for n in range(len(shards) + recovery_count)]
        data = [shard(damaged[:head.arena_bytes], number * length, code) for number, code in zip(shards, each)]
        begin = at + table_bytes[group]
        recovery = [shard(parity, begin + n * length, code) for n, code in enumerate(each[len(shards):])]
        lost_count += data.count(None)
        for number, mended, code in zip(shards, mend(data, recovery, length), each):
            must(is_good(mended, code) or code == bytes(16), f"shard {number} does not come back as it was")
            part = mended[:head.arena_bytes - number * length]
            out[number * length:number * length + len(part)] = part
        at, second = begin + recovery_count * length, second + table_bytes[group]
    must(out[480:512] == head.arena_header_code and out[-40:-8] == head.arena_seal_code, "it is of another arena")
    return bytes(out), lost_count

def main() -> int:
    parser = argparse.ArgumentParser(description="Mends an arena of a Varve store from its parity file.")
    parser.add_argument("store", type=Path)
    parser.add_argument("arena", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--key-file", type=Path)
    args = parser.parse_args()
    try:
        keys = Keys(args.store, args.key_file)
        path = args.store / "arenas" / f"{args.arena:010}.arena"
        damaged, problem = path.read_bytes() if path.exists() else b"", "there is no parity file of it"
        for parity in sorted((args.store / "parity").glob(f"{args.arena:010}.*.parity"), reverse=True):
            try:
                mended, count = mend_arena(damaged, parity.read_bytes(), keys)
            except ValueError as error:
                problem = f"{parity}: {error}"
                continue
            with args.out.open("xb") as file:
                file.write(mended)
            print(f"{args.out}: arena {args.arena}, {count} shards mended")
            return 0
        sys.exit(f"parity: arena {args.arena}: {problem}")
    except (OSError, ValueError) as error:
        sys.exit(f"parity: {error}")
if __name__ == "__main__":
    sys.exit(main())
