"""A network link to servers on this machine with a limited bit rate: loopback in a network namespace of its
own."""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator

from bench.measure import CannotMeasure

CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def slow_line(bits_per_second: int) -> Iterator[None]:
    """Limits the network of every process that this process starts until the block ends, servers included.
    Such processes reach only 127.0.0.1, at this rate. The bytes of both directions count together."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        raise CannotMeasure("network links cannot be slowed down here (this needs root, ip and tc)")
    system = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if system.unshare(CLONE_NEWNET) != 0:
            raise CannotMeasure(f"network namespaces cannot be made here: {os.strerror(ctypes.get_errno())}")
        try:
            shape = ["tbf", "rate", f"{bits_per_second}bit", "burst", "1mb", "latency", "100ms"]
            for command in (["ip", "link", "set", "lo", "up"], ["tc", "qdisc", "add", "dev", "lo", "root", *shape]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise CannotMeasure(f"{' '.join(command)}: {done.stderr.strip()}")
            yield
        finally:
            if system.setns(before, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot return to the original network")
    finally:
        os.close(before)
