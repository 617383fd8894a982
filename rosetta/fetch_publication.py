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
place, key, (name, _, time) = place.rstrip("/") + "/", base64.urlsafe_b64decode(key + "="), sys.argv[2].partition("@")
def get(path, limit):
    with urllib.request.urlopen(place + path) if "://" in place else open(place + path, "rb") as file:
        return file.read(limit)
body, _, signatures = get("head", 1 << 20).partition(b"\nsignature = ")
pairs = [[base64.b64decode(w, validate=True) for w in l.split(b" ")] for l in signatures[:-1].split(b"\nsignature = ")]
assert all(has_signed(signer, signature, body + b"\n") for signer, signature in pairs), "head: a signature is wrong"
assert key in dict(pairs) and body.startswith(b"varve publication 1\n"), "head: not signed, or of an unknown version"
images = [line[8:].split(" ") for line in body.decode().split("\n") if line.startswith("image = ")]
print(*[line for line in body.decode().split("\n") if line.startswith(("id", "serial", "expires"))], file=sys.stderr)
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
    return {0: lambda p: p, 1: lambda p: zstandard.ZstdDecompressor().decompress(p, limit, allow_extra_data=False),
            2: lambda p: (z := zlib.decompressobj()).decompress(p, limit + 1) + z.unused_data}[stored[0]](stored[1:])
def entries(page, level, count):
    objects = (len(page) - 24 - 44 * count) / 32
    assert struct.unpack_from("<8s4I", page) == (b"VARVEMAP", 1, level, objects, count), "not the page for this place"
    for at in range(len(page) - 44 * count, len(page), 44):
        digest, index, offset, length = page[at:at + 32].hex(), *struct.unpack_from("<3I", page, at + 32)
        name = digest if index == 2**32 - 1 else page[24 + 32 * index:56 + 32 * index].hex()
        yield length and (digest, name, offset, length)
with open(sys.argv[3], "wb") as disk:
    for p, page in enumerate(entries(block(root, root, 0, root_bytes, 1 << 24), 1, -(-size // block_bytes // 1024))):
        count = min(1024, -(-size // block_bytes) - 1024 * p)
        for b, entry in enumerate(entries(block(*page, 1 << 17), 0, count) if page else ()):
            room = min(block_bytes, size - disk.seek((p * 1024 + b) * block_bytes))
            if entry and disk.write(block(*entry, room)) != room: sys.exit(f"block {b} of page {p}: a wrong length")
    disk.truncate(size)
