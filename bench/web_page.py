"""Measures the web page of an archive of many files and days, as a browser would ask for it.

  web-page  pages of a store with 20 sources of 30 days, and one folder of 1,000,000 files, of which one in a
            hundred is renamed each day, 100 days. The pages are asked for a hundred times, beside as many
            requests for the style sheet, which costs the server nothing. The first search makes the index of
            names, and later ones use it: until the answer begins, and until its end, beside `varve find`. 500
            viewers keep a connection each, and ask for the first page at the same time, beside one viewer who
            asks as often

Each round begins with a new server. It also prints the memory of the server after its start, after the
searches and with 500 viewers, the bytes that the index of names occupies, and the largest page.
"""

import contextlib
import datetime
import http.client
import os
import re
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import Command, remove, run
from bench.upkeep import Pair

NAMES = ["web-page"]
FOLDERS, FILES_IN_A_FOLDER = 1000, 1000
CHANGED_FOLDERS, DAYS, SMALL_SOURCES, SMALL_DAYS = 10, 100, 20, 30
REQUESTS, VIEWERS = 100, 500
FIRST_DAY = datetime.date(2026, 1, 1)


class WebPage:
    def __init__(self, program: str, work: Path, quick: bool):
        self.program, self.work = program, work
        self.store, self.key, self.tree = work / "store", work / "key", work / "tree"
        self.shrink = 20 if quick else 1

    def varve(self, *words: object) -> Command:
        argv = [self.program, "--quiet", "-s", str(self.store), "--key-file", str(self.key), *map(str, words)]
        return Command(argv, environment={"HOME": str(self.work / "home")})

    def prepare(self) -> None:
        remove(self.work)
        (self.work / "home").mkdir(parents=True)
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        run(self.varve("init"))
        small = self.work / "small"
        small.mkdir()
        for day in range(SMALL_DAYS // self.shrink + 1):
            (small / "diary").write_text(f"day {day}\n")
            for number in range(SMALL_SOURCES):
                self.snapshot(small, f"source-{number:02}", day)
        folders = [self.tree / f"project-{number:03}" for number in range(FOLDERS // self.shrink)]
        for folder in folders:
            folder.mkdir(parents=True)
            for number in range(FILES_IN_A_FOLDER):
                (folder / f"{folder.name}-report-{number:04}.text").touch()
        for day in range(DAYS // self.shrink):
            for at in range(CHANGED_FOLDERS):
                folder = folders[(day * CHANGED_FOLDERS + at) % len(folders)]
                for number, file in enumerate(sorted(folder.iterdir())):
                    file.rename(folder / f"{folder.name}-edition-{day:03}-{number:04}.text")
            self.snapshot(self.tree, "tree", day)

    def snapshot(self, folder: Path, name: str, day: int) -> None:
        run(self.varve("snapshot", folder, "--name", name, "--time", f"{FIRST_DAY + datetime.timedelta(days=day)}T02:00"))

    def take(self, name: str, round_number: int) -> list[Pair]:
        index = self.store / "index" / "names"
        index.unlink(missing_ok=True)
        pairs: list[Pair] = []

        def row(text: str, seconds: float, limit: str, limit_seconds: float) -> None:
            pairs.append(Pair(name, text, limit, round_number, seconds, limit_seconds, 1))

        with serving(self.varve("serve", "--http", "127.0.0.1:0")) as server:
            browser = Browser(server)
            memory = {"after its start": server.memory()}
            style = browser.hundred("/style.css")
            for text, path in {"Today": "/", "Calendar": f"/calendar?year={FIRST_DAY.year}", "Look": "/look"}.items():
                row(f"{text}, {REQUESTS} times", browser.hundred(path), f"the style sheet, {REQUESTS} times", style)
            query = "/search?text="
            begun = time.monotonic()
            browser.get(query + "report-0500")
            while not index.exists():
                time.sleep(0.05)
            made = time.monotonic() - begun
            begun = time.monotonic()
            run(self.varve("find", "*edition-0*-0500*"))
            walk = time.monotonic() - begun
            row("the first search, which makes the index", made, "varve find", walk)
            # The server has closed the connection after 20 seconds without a request.
            browser.connection.close()
            for text, words in {"a search with one hit a folder": "report-0500", "a search without a hit": "no such name"}.items():
                first, whole = browser.first_and_whole(query + urllib.parse.quote(words))
                row(f"{text}, the first byte", first, "varve find", walk)
                row(f"{text}, whole", whole, "varve find", walk)
            memory["after the searches"] = server.memory()
            alone = browser.times("/", VIEWERS)
            begun = time.monotonic()
            with ThreadPoolExecutor(VIEWERS) as pool:
                viewers = [Browser(server, browser.cookie) for _ in range(VIEWERS)]
                begun = time.monotonic()
                list(pool.map(lambda viewer: viewer.get("/"), viewers))
                together = time.monotonic() - begun
                memory[f"with {VIEWERS} viewers"] = server.memory()
            row(f"{VIEWERS} viewers of Today at once", together, f"one viewer, {VIEWERS} times", alone)
            largest = max((len(page), path) for path, page in browser.pages.items())
        told = ", ".join(f"{size >> 20} MiB {when}" for when, size in memory.items())
        print(f"  web-page, round {round_number}: memory of the server: {told}; index of names: {index.stat().st_size >> 10} KiB; "
              f"largest page: {largest[1]} with {largest[0] >> 10} KiB")
        return pairs


@dataclass
class Server:
    port: int
    key: str
    process: subprocess.Popen

    def memory(self) -> int:
        """The bytes in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) << 10


@contextlib.contextmanager
def serving(command: Command) -> Iterator[Server]:
    process = subprocess.Popen(
        command.argv, env=command.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    assert process.stdout
    try:
        said = ""
        while not (link := re.search(r":(\d+)/login\?key=(\S+)", said)):
            line = process.stdout.readline()
            assert line, f"the server ended: {said}"
            said += line
        yield Server(int(link[1]), link[2], process)
    finally:
        process.terminate()
        process.wait()


@dataclass
class Browser:
    """A browser with one connection, logged in with the link of the server or with the session of another one."""

    server: Server
    cookie: str = ""
    pages: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=600)
        if not self.cookie:
            self.log_in()

    def log_in(self) -> None:
        form, cookie = self.ask("GET", f"/login?key={self.server.key}")
        token = re.search(rb'name="token" value="([0-9a-f]*)"', form)
        assert token, form
        self.cookie = cookie
        body = urllib.parse.urlencode({"token": token[1].decode(), "to": "/", "key": self.server.key})
        _, self.cookie = self.ask("POST", "/login", body)

    def ask(self, method: str, path: str, body: str = "") -> tuple[bytes, str]:
        """Returns the page, and the cookie that the server sets."""
        headers = {"Cookie": self.cookie, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        self.connection.request(method, path, body or None, headers)
        answer = self.connection.getresponse()
        page = answer.read()
        assert answer.status in (200, 302, 303), (path, answer.status, page)
        cookies = [text.split(";")[0] for text in answer.headers.get_all("Set-Cookie", []) if not re.search(r"=;", text)]
        return page, "; ".join(cookies)

    def get(self, path: str) -> bytes:
        page, _ = self.ask("GET", path)
        assert b'action="/login"' not in page, path
        self.pages[path] = page
        return page

    def times(self, path: str, count: int) -> float:
        begun = time.monotonic()
        for _ in range(count):
            self.get(path)
        return time.monotonic() - begun

    def hundred(self, path: str) -> float:
        self.get(path)
        return self.times(path, REQUESTS)

    def first_and_whole(self, path: str) -> tuple[float, float]:
        """The seconds until the first byte of the page, and until its end."""
        begun = time.monotonic()
        self.connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = self.connection.getresponse()
        answer.read(1)
        first = time.monotonic() - begun
        answer.read()
        assert answer.status == 200, (path, answer.status)
        return first, time.monotonic() - begun
