"""A model of a rotating disk, by which reading ahead is measured where no such disk is. It is a program of its
own, for the Python that has Debian's python3-pyfuse3:

  /usr/bin/python3 bench/turning_disk.py IMAGE FOLDER     until FOLDER is unmounted

FOLDER/disk has the bytes of IMAGE. A loop device over it (`losetup --direct-io=on`) behaves as a disk with one
head. The disk has up to 32 requests at a time, as the kernel sends them, and takes the nearest of them first.
A request costs the way of the head and half a turn, unless it begins where the last one ended; a short gap is
read over. The full way of the head is the whole image, so files are as far apart as on a full disk.
"""

import errno
import math
import os
import stat
import sys
from dataclasses import dataclass, field

try:
    import pyfuse3
    import trio
except ImportError:
    sys.exit("this needs pyfuse3: apt-get install python3-pyfuse3, and its Python")

BYTES_A_SECOND = 150e6
HALF_TURN = 60 / 7200 / 2
SHORTEST_WAY, LONGEST_WAY = 0.001, 0.012  # seconds for the head to the next track, and over all of them
GAP_BYTES = 512 << 10
DISK = pyfuse3.ROOT_INODE + 1


@dataclass(eq=False)
class Request:
    offset: int
    length: int
    done: trio.Event = field(default_factory=trio.Event)


class Head:
    def __init__(self, disk_bytes: int):
        self.disk_bytes, self.at, self.waiting, self.arrived = disk_bytes, 0, [], trio.Event()

    def seconds(self, request: Request) -> float:
        ahead = request.offset - self.at
        transfer = request.length / BYTES_A_SECOND
        if 0 <= ahead <= GAP_BYTES:
            return ahead / BYTES_A_SECOND + transfer
        way = SHORTEST_WAY + (LONGEST_WAY - SHORTEST_WAY) * math.sqrt(abs(ahead) / self.disk_bytes)
        return way + HALF_TURN + transfer

    async def pass_over(self, offset: int, length: int) -> None:
        """Returns when the head has passed over these bytes."""
        request = Request(offset, length)
        self.waiting.append(request)
        self.arrived.set()
        await request.done.wait()

    async def move(self) -> None:
        # Sleeps are a little too long, so the time of the disk is counted, and not that of the sleeps.
        free_at = trio.current_time()
        while True:
            while not self.waiting:
                self.arrived = trio.Event()
                await self.arrived.wait()
            request = min(self.waiting, key=self.seconds)
            self.waiting.remove(request)
            free_at = max(free_at, trio.current_time() - 0.001) + self.seconds(request)
            self.at = request.offset + request.length
            await trio.sleep_until(free_at)
            request.done.set()


class TurningDisk(pyfuse3.Operations):
    def __init__(self, image: int, head: Head):
        super().__init__()
        self.image, self.head = image, head

    async def getattr(self, inode, ctx=None):
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = stat.S_IFDIR | 0o700 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o600
        entry.st_size = 0 if inode == pyfuse3.ROOT_INODE else self.head.disk_bytes
        return entry

    async def lookup(self, parent, name, ctx=None):
        if name != b"disk":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(DISK)

    async def open(self, inode, flags, ctx):
        return pyfuse3.FileInfo(fh=DISK, direct_io=True)

    async def read(self, fh, offset, length):
        await self.head.pass_over(offset, length)
        return os.pread(self.image, length, offset)


async def serve(image: int) -> None:
    head = Head(os.fstat(image).st_size)
    pyfuse3.init(TurningDisk(image, head), sys.argv[2], {"fsname=varve-turning-disk", *pyfuse3.default_options})
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(head.move)
            await pyfuse3.main(max_tasks=32)
            nursery.cancel_scope.cancel()
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    trio.run(serve, os.open(sys.argv[1], os.O_RDONLY))
