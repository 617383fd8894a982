"""A client of an NBD server that reads an export, one request at a time."""

import socket
import struct
from pathlib import Path

from bench.machines import PATIENCE
from bench.measure import CannotMeasure


class NbdClient:
    def __init__(self, at: Path, export: str):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(at))
        if self.exactly(18)[:16] != b"NBDMAGICIHAVEOPT":
            raise CannotMeasure(f"no NBD server listens at {at}")
        name = export.encode()
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
        self.exactly(10)

    def __enter__(self) -> "NbdClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise CannotMeasure("the NBD server has closed the connection")
            found += more
        return bytes(found)

    def read(self, offset: int, length: int) -> bytes:
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, offset, length))
        magic, error, _ = struct.unpack(">IIQ", self.exactly(16))
        if magic != 0x67446698 or error != 0:
            raise CannotMeasure(f"the read at {offset} has failed: {error}")
        return self.exactly(length)
