"""nginx with a folder of static files, on a port of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.machines import running
from bench.measure import CannotMeasure

# The protocol of an address, and the words after `listen` for it.
PLAIN, TLS, HTTP2 = "", " ssl", " ssl http2"


class WebServer:
    """Serves a folder with each of the protocols. Keeps its own files in another folder."""

    def __init__(self, www: Path, work: Path):
        self.www, self.work = www, work
        self.authority, self.requests = work / "authority.pem", work / "requests"

    @contextlib.contextmanager
    def running(self, protocol: str = PLAIN) -> Iterator[int]:
        """Yields the port."""
        more = ""
        if protocol != PLAIN:
            self.make_certificate()
            more = f"ssl_certificate {self.authority}; ssl_certificate_key {self.work}/tls.key;"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        temporary = " ".join(f"{name}_temp_path {self.work}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        conf = self.work / "nginx.conf"
        conf.write_text(
            f"{'user root;' if os.geteuid() == 0 else ''} daemon off; master_process off; pid {self.work}/pid; error_log stderr;\n"
            f"events {{ worker_connections 256; }}\nhttp {{ {temporary} log_format timed '$msec $server_protocol $status $body_bytes_sent $uri'; access_log {self.requests} timed;\n"
            f"server {{ listen 127.0.0.1:{port}{protocol}; {more} root {self.www}; }} }}\n"
        )
        self.requests.unlink(missing_ok=True)
        with running(["nginx", "-p", str(self.work), "-e", "stderr", "-c", str(conf)]):
            for _ in range(500):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    yield port
                    return
                time.sleep(0.01)
        raise CannotMeasure("nginx does not start")

    def make_certificate(self) -> None:
        if self.authority.is_file():
            return
        if shutil.which("openssl") is None:
            raise CannotMeasure("openssl is not installed")
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=bench -days 2"
        words += f" -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout {self.work}/tls.key"
        subprocess.run(["openssl", *words.split(), "-out", str(self.authority)], check=True, capture_output=True)
