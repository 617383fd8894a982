#!/usr/bin/env python3
"""fetch_publication.py PLACE#varve1-KEY IMAGE[@TIME] OUT [CONTENT-KEY]: a published disk, each byte checked."""
import base64, hashlib, hmac, struct, sys, urllib.request, zlib
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)
def point(data):  # Ed25519: RFC 8032, section 5.1.3
    y = int.from_bytes(data, "little") & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * ROOT % P
    assert (x * x - square) % P == 0, "not a point of the curve"
    return (P - x if x & 1 != data[31] >> 7 else x), y
def add(one, other):
    (a, b), (c, d), e = one, other, D * one[0] * one[1] * other[0] * other[1]
    return (a * d + b * c) * pow(1 + e, -1, P) % P, (b * d + a * c) * pow(1 - e, -1, P) % P
def times(count, one):
    return add(times(count >> 1, add(one, one)), one if count & 1 else (0, 1)) if count else (0, 1)
def has_signed(key, signature, body):
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + body).digest(), "little") % ORDER
    s, base = int.from_bytes(signature[32:], "little"), point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    return len(signature) == 64 and s < ORDER and times(s, base) == add(point(signature[:32]), times(h, point(key)))
place, key = sys.argv[1].rsplit("#varve1-", 1)
key, (name, _, time) = base64.urlsafe_b64decode(key + "="), sys.argv[2].partition("@")
def get(path, limit):
    path = place.rstrip("/") + "/" + path
    with urllib.request.urlopen(path) if "://" in path else open(path, "rb") as file:
        return file.read(limit)
body, _, signatures = get("head", 1 << 20).partition(b"\nsignature = ")
pairs = [[base64.b64decode(word) for word in line.split()] for line in signatures.split(b"\nsignature = ")]
assert any(signer == key and has_signed(key, signature, body + b"\n") for signer, signature in pairs), "head: not signed"
assert body.startswith(b"varve publication 1\n"), "head: unknown version"
images = [line[8:].split(" ") for line in body.decode().splitlines() if line.startswith("image = ")]
image = max((i for i in images if urllib.parse.unquote(i[0]) == name and i[1].startswith(time)), key=lambda i: i[1])
size, block_bytes, root, root_bytes = int(image[2]), int(image[3]), image[4], int(image[5])
assert image[6] == "none" or image[6] == "aes-256-gcm" and sys.argv[4:], "unknown cipher, or no content key"
if image[6] != "none":  # the only package for an encrypted image; the derived keys are those of RFC 5869
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    secret = base64.b64decode(open(sys.argv[4]).read().split("\nsecret = ")[1].split("\n")[0])
    cipher = AESGCM(hmac.digest(hmac.digest(b"varve publication 1", secret, "sha256"), b"block key\1", "sha256"))
def block(digest, object_name, offset, length, limit):
    stored = get(f"objects/{object_name[:2]}/{object_name}", offset + length)[offset:]
    assert hashlib.sha256(stored).hexdigest() == digest, f"{object_name}: not what was published"
    if image[6] != "none": stored = cipher.decrypt(stored[:12], stored[12:], b"varve publication 1")
    if stored[0] == 1: import zstandard  # the only package, and only for a publication with --compression zstd
    return {0: lambda p: p, 1: lambda p: zstandard.ZstdDecompressor().decompress(p, limit),
            2: lambda p: zlib.decompressobj().decompress(p, limit)}[stored[0]](stored[1:])
def entries(page, level, count):
    magic, version, found, objects, rows = struct.unpack_from("<8s4I", page)
    assert (magic, version, found, rows) == (b"VARVEMAP", 1, level, count), "not the page for this place"
    for at in range(24 + 32 * objects, 24 + 32 * objects + 44 * rows, 44):
        digest, index, offset, length = page[at:at + 32].hex(), *struct.unpack_from("<3I", page, at + 32)
        name = digest if index == 2**32 - 1 else page[24 + 32 * index:56 + 32 * index].hex()
        yield length and (digest, name, offset, length)
blocks = -(-size // block_bytes)
with open(sys.argv[3], "wb") as disk:
    for p, page in enumerate(entries(block(root, root, 0, root_bytes, 1 << 24), 1, -(-blocks // 1024))):
        for b, entry in enumerate(entries(block(*page, 1 << 17), 0, min(1024, blocks - 1024 * p)) if page else ()):
            disk.seek((p * 1024 + b) * block_bytes)
            disk.write(block(*entry, block_bytes) if entry else b"")
    disk.truncate(size)
