"""The editions of a publication:

  - the first one, of night 1 with its profile, beside zstd at the same level with two threads, which writes
    nothing; and beside `desync make`, where it is installed
  - the next one, of night 2, beside the first one. The row tells the blocks that were read from the archive, those
    that differ between the nights, and the uploaded bytes beside those of the changed blocks, the pages that they
    lie in, the root and the head
  - the time and the requests until an attached disk has answered its first read over the line, beside the line's
    round trips: connection, head, root, page and block
"""

import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.machines import need, wait_for
from bench.measure import CannotMeasure, Command, remove, run
from bench.nbd_client import NbdClient
from bench.publication import NIGHTS, Publication, Row
from bench.shaped_line import ROUND_TRIP

ENTRIES_PER_PAGE = 1024
BLOCK_BYTES = 128 << 10
FIRST_READ_ROUND_TRIPS = 5

# An entry of a map: the name of its content, the object, the offset and the stored bytes.
Entry = tuple[str, str, int, int]


def measure(publication: Publication) -> list[Row]:
    need("zstd")
    folder = publication.www / "editions"
    remove(folder)
    disk_bytes = publication.day.stat().st_size
    began = time.monotonic()
    publication.publish(NIGHTS[0], folder.name, "--profile", publication.profile)
    first = time.monotonic() - began
    compressed = run(Command(["zstd", "-3", "-T2", "-q", "-c", str(publication.day)])).seconds
    rows = [("the first edition", "zstd -3 -T2 of the same disk", first, compressed, disk_bytes)]
    try:
        rows.append(("the first edition", "desync make of the same disk", first, desync_seconds(publication), disk_bytes))
    except CannotMeasure as reason:
        print(f"streaming-publish beside desync make: skipped: {reason}", flush=True)

    before, old = sizes(folder), EditionMap(folder, NIGHTS[0])
    began = time.monotonic()
    image = next(record for record in publication.publish(NIGHTS[1], folder.name) if record.get("published_before") is False)
    second = time.monotonic() - began
    uploaded = sum(count for path, count in sizes(folder).items() if path not in before or path.name == "head")
    needed = EditionMap(folder, NIGHTS[1]).bytes_beyond(old)
    differing = differing_blocks(publication.day, publication.days / "day2.raw")
    told = f"{image['read_blocks']} blocks read, {differing} differ; {uploaded / 1e6:.2f} MB uploaded, {needed / 1e6:.2f} MB are new"
    rows.append((f"the next edition: {told}", "the first edition", second, first, disk_bytes))
    remove(folder)
    return [*rows, first_read(publication)]


def first_read(publication: Publication) -> Row:
    at_data = next(start for start, length in publication.reads if length >= 4096)
    with publication.served() as line:
        began = time.monotonic()
        with publication.attached(publication.address(line.port, "without"), "none") as at:
            wait_for(at)
            with NbdClient(at, "day") as client:
                client.read(at_data, 4096)
            seconds = time.monotonic() - began
            # nginx may write its line a moment after the answer.
            time.sleep(0.1)
            requests = len(publication.web.requests.read_text().splitlines())
    told = f"attach to the first byte: {requests} requests"
    return (told, f"{FIRST_READ_ROUND_TRIPS} round trips", seconds, FIRST_READ_ROUND_TRIPS * ROUND_TRIP, line.received_bytes)


def desync_seconds(publication: Publication) -> float:
    need("desync")
    chunks, index = publication.work / "made", publication.work / "made.caibx"
    remove(chunks)
    chunks.mkdir()
    seconds = run(Command(["desync", "make", "-s", str(chunks), str(index), str(publication.day)])).seconds
    remove(chunks)
    return seconds


def sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def differing_blocks(one: Path, other: Path) -> int:
    count = 0
    with open(one, "rb") as left, open(other, "rb") as right:
        while True:
            here, there = left.read(BLOCK_BYTES), right.read(BLOCK_BYTES)
            if not here and not there:
                return count
            count += here != there


class EditionMap:
    """The names in the map of one image of a publication, with their stored bytes."""

    def __init__(self, folder: Path, snapshot: str):
        self.folder = folder
        name, _, day = snapshot.partition("@")
        lines = (folder / "head").read_text().splitlines()
        image = next(words for words in map(str.split, lines) if words[:1] == ["image"] and words[2] == name and words[3].startswith(day))
        size, block_bytes, root, root_bytes = int(image[4]), int(image[5]), image[6], int(image[7])
        page_count = -(-(-(-size // block_bytes)) // ENTRIES_PER_PAGE)
        self.head_bytes = (folder / "head").stat().st_size
        self.upper = {root: root_bytes}
        self.blocks: dict[str, int] = {}
        for page in self.entries((root, root, 0, root_bytes), page_count):
            self.upper[page[0]] = page[3]
            for entry in self.entries(page, ENTRIES_PER_PAGE):
                self.blocks[entry[0]] = entry[3]

    def entries(self, page: Entry, count: int) -> Iterator[Entry]:
        """The stored entries of a page, or of the root."""
        _, name, offset, length = page
        with open(self.folder / "objects" / name[:2] / name, "rb") as file:
            file.seek(offset)
            stored = file.read(length)
        content = stored[1:]
        if stored[0] == 1:
            content = subprocess.run(["zstd", "-d", "-q", "-c"], input=content, capture_output=True, check=True).stdout
        objects, entry_count = struct.unpack_from("<2I", content, 16)
        for at in range(24 + 32 * objects, 24 + 32 * objects + 44 * min(count, entry_count), 44):
            index, start, stored_bytes = struct.unpack_from("<3I", content, at + 32)
            digest = content[at : at + 32].hex()
            if stored_bytes:
                yield (digest, digest if index == 0xFFFFFFFF else content[24 + 32 * index : 56 + 32 * index].hex(), start, stored_bytes)

    def bytes_beyond(self, older: "EditionMap") -> int:
        """The stored bytes that an older edition lacks, and the head."""
        here, there = self.blocks | self.upper, older.blocks | older.upper
        return self.head_bytes + sum(count for name, count in here.items() if name not in there)
