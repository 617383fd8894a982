"""A slow line of this program's own, for loopback has no delay here: a port that leads to a server with a bit
rate and a round trip. It also breaks: connections are cut, the rate drops, the line ends."""

import contextlib
import queue
import random
import socket
import threading
import time

BITS_PER_SECOND = 50_000_000
ROUND_TRIP = 0.040
# The round trips that a start needs beside those of its blocks: connection, head, root, page, profile, pack.
FIRST_ROUND_TRIPS = 6
PIECE_BYTES = 8 << 10
PIECES_MAX = 128
# A connection that is cut is cut after fewer bytes than this.
CUT_BYTES_MAX = 2 << 20

Pieces = queue.Queue[tuple[float, bytes]]


class Line:
    """All connections share its rate, and a new connection costs one round trip more, for its handshake. It
    cuts this share of the connections, each after a random number of received bytes."""

    def __init__(self, server_port: int, cut_share: float = 0.0, bits_per_second: int = BITS_PER_SECOND, round_trip: float = ROUND_TRIP):
        self.server_port, self.cut_share = server_port, cut_share
        self.whole_rate = self.bits_per_second = bits_per_second
        self.round_trip = round_trip
        self.received_bytes, self.connections, self.cut_count = 0, 0, 0
        self.random = random.Random(1)
        self.lock = threading.Lock()
        self.is_free = {"up": 0.0, "down": 0.0}
        self.open: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def end(self) -> None:
        """Cuts all connections, and refuses new ones."""
        with self.lock:
            streams = [self.listener, *self.open]
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.connect(client)

    def connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.server_port))
        except OSError:
            client.close()
            return
        with self.lock:
            self.open += [client, server]
            self.connections += 1
        is_cut = self.random.random() < self.cut_share
        left = self.random.randrange(CUT_BYTES_MAX) if is_cut else None
        opened = time.monotonic() + self.round_trip
        for one, other, direction in ((client, server, "up"), (server, client, "down")):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pieces: queue.Queue[tuple[float, bytes]] = queue.Queue(PIECES_MAX)
            limit = left if direction == "down" else None
            threading.Thread(target=self.take, args=(one, pieces, direction, opened, limit), daemon=True).start()
            threading.Thread(target=deliver, args=(other, pieces), daemon=True).start()

    def take(self, stream: socket.socket, pieces: Pieces, direction: str, opened: float, left: int | None) -> None:
        piece = b"more"
        while piece:
            try:
                piece = stream.recv(PIECE_BYTES)
            except OSError:
                piece = b""
            if left is not None and piece:
                piece = piece[:left]
                left -= len(piece)
                self.cut_count += not piece
            with self.lock:
                free = max(self.is_free[direction], opened, time.monotonic()) + len(piece) * 8 / self.bits_per_second
                self.is_free[direction] = free
                self.received_bytes += len(piece) if direction == "down" else 0
            pieces.put((free + self.round_trip / 2, piece))
        if left == 0:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def seconds_alone(self, received_bytes: int | None = None) -> float:
        """The time that the line needs for the received bytes and the first round trips."""
        count = self.received_bytes if received_bytes is None else received_bytes
        return count * 8 / self.whole_rate + FIRST_ROUND_TRIPS * self.round_trip


def deliver(stream: socket.socket, pieces: Pieces) -> None:
    with contextlib.suppress(OSError):
        while True:
            due, piece = pieces.get()
            time.sleep(max(due - time.monotonic(), 0))
            if not piece:
                stream.shutdown(socket.SHUT_WR)
                return
            stream.sendall(piece)
    # Nobody reads any more, and the other thread must not wait for room.
    while pieces.get()[1]:
        pass
