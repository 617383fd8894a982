#!/usr/bin/env python3
"""Reads every page of the web page in a headless Chromium, as a person would.

  browser.py PROGRAM [--axe FILE] [--pictures FOLDER]

PROGRAM is the built `varve`. The test makes an archive with hostile names, and then looks at each page at 360 and at
1400 pixels and at double size, in light and in dark colours, with more contrast and with the colours of the system: nothing must stick out, no script may run, and the browser
must report no error. With axe-core (the file `axe.min.js` of that npm package) every page must be without findings.
It logs in, looks into a folder, downloads and logs out with the keyboard alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chromium import Chromium, program  # noqa: E402

# The most time from a request to the whole answer. The first pages after a start are slower.
MILLISECONDS_MAX = {"Today": 50, "Calendar": 100}
PAGE_BYTES_MAX = 100 << 10
# Width in pixels, dark colours, size of the letters, contrast.
LOOKS = [
    (1400, False, 1, ""), (1400, True, 1, ""), (360, False, 1, ""), (360, True, 1, ""), (1400, False, 2, ""),
    (1400, False, 1, "more"), (1400, True, 1, "more"), (1400, True, 1, "forced"),
]

# Most of its promises are broken, because the snapshots are of a past month and there is no copy.
CONFIG = """
state = "{folder}/state"
[store.main]
at = "{folder}/store"
[defaults]
store = "main"
every = "day"
[source.home]
folder = "{folder}/home"
[source.notes]
folder = "{folder}/notes"
[replica.usb]
of = "main"
at = "{folder}/usb"
every = "day"
[promise]
snapshot-within = "30h"
replica-within = "8d"
verified-within = "60d"
room-for = "45d"
"""


def make_archive(varve: Path, folder: Path) -> dict[str, str]:
    """Makes a store with two sources over a few days, and returns the environment for it."""
    environment = os.environ | {"HOME": str(folder / "user"), "VARVE_STORE": str(folder / "store"), "TZ": "UTC"}
    home, notes = folder / "home", folder / "notes"
    (home / "deep" / "er").mkdir(parents=True)
    notes.mkdir()

    def run(*words: str | Path) -> None:
        subprocess.run([varve, "--quiet", *words], env=environment, check=True, stdout=subprocess.DEVNULL)

    run("init", "--plaintext")
    hostile = [
        "<script>alert(1)<!--", '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "page.html", "image.svg", "\u202etxt.exe",
        "a\nb", "x" * 255, "very long words in one name " * 9, "{{7*7}}", "\\..\\..", "?a=b#c", "&lt;b&gt;",
    ]
    hostile += [f"{mark}{number}{mark}" for number in range(58) for mark in ("<b onclick=alert(1)>", "\u200b", "'\"", "\x1b[31m", "`;")]
    for name in hostile:
        (home / name).write_text("<script>alert(document.domain)</script><svg onload=alert(2)>\n")
    (home / "deep" / "er" / "letter.txt").write_text("Dear archive,\n" * 40)
    for day in range(1, 13):
        (notes / "diary.txt").write_text("".join(f"day {number}\n" for number in range(day)))
        (home / f"new-{day}").write_text(str(day))
        for source in [home, *([notes] if day % 3 else [])]:
            run("snapshot", source, "--time", f"2026-11-{day:02}T01:30:00Z")
    disk = folder / "disk.img"
    disk.write_bytes(bytes(16 << 20))
    if subprocess.run(["/sbin/mkfs.ext4", "-q", "-d", notes, disk], check=False).returncode == 0:
        run("snapshot", disk, "--time", "2026-11-12T02:00:00Z")
    return environment


def write_run_log(state: Path) -> None:
    """Writes a run log with hostile names and messages, and with one cause for several jobs."""
    state.mkdir(mode=0o700)
    hostile = "<script>alert(1)</script> <img src=x onerror=alert(1)> \u202e\x1b[31m"
    jobs = [("snapshot home", "done", None), ("snapshot notes", "gaps", f"{hostile}\n{hostile}"), (hostile, hostile, hostile * 20)]
    jobs += [(f"{verb} main", "failed", "the key file /etc/varve/key is not there") for verb in ("verify", "reclaim")]
    with (state / "runs.jsonl").open("w") as log:
        for day in range(1, 13):
            for number, (job, outcome, message) in enumerate(jobs):
                line = {"time": f"2026-11-{day:02}T01:3{number}:00Z", "job": job, "outcome": outcome, "message": message}
                log.write(json.dumps(line | {"seconds": 1.5, "size": 5 << 20, "new_bytes": 1 << 20, "stored_bytes": 1 << 19}) + "\n")


class Pages:
    """The pages in a browser, and the findings about them."""

    def __init__(self, browser: Chromium, axe: str | None, pictures: Path | None) -> None:
        self.browser, self.axe, self.pictures, self.findings = browser, axe, pictures, []

    def check(self, name: str, address: str, expected_errors: tuple[str, ...] = ()) -> None:
        browser = self.browser
        browser.look(1400, dark=False)
        browser.go(address)
        milliseconds = browser.go(address)
        size = browser.evaluate("performance.getEntriesByType('navigation')[0].encodedBodySize")
        print(f"{name:12} {milliseconds:6.1f} ms {size:7} bytes", flush=True)
        if milliseconds > MILLISECONDS_MAX.get(name, 2_000):
            self.findings.append(f"{name} takes {milliseconds:.0f} ms")
        if size > PAGE_BYTES_MAX:
            self.findings.append(f"{name} has {size} bytes")
        for width, dark, zoom, contrast in LOOKS:
            marks = ("dark" if dark else "", f"× {zoom}" if zoom > 1 else "", f"{contrast} contrast" if contrast else "")
            where = " ".join([f"{name} at {width} px", *filter(None, marks)])
            browser.look(width, dark, zoom, contrast)
            sticks_out = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if sticks_out > 0:
                self.findings.append(f"{where}: {sticks_out} px stick out")
            if self.pictures and zoom == 1:
                browser.picture(self.pictures / f"{name}-{width}{'-dark' if dark else ''}{contrast and '-' + contrast}.png")
            if self.axe:
                browser.evaluate(self.axe + "; 0")
                found = browser.evaluate(
                    "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
                    ".then(({violations}) => violations.map(({id, nodes}) => id + ': ' + nodes[0].html.slice(0, 200) + ' ' + nodes[0].failureSummary))"
                )
                self.findings += [f"{where}: {text}" for text in found]
        for text in browser.complaints():
            if not any(expected in text for expected in expected_errors):
                self.findings.append(f"{name}: the browser reports {text}")

    def links(self, beginning: str) -> list[str]:
        return self.browser.evaluate(f"[...document.querySelectorAll('a')].map(a => a.href).filter(a => !a.includes('#') && new URL(a).pathname.startsWith('{beginning}'))")

    def press_until(self, test: str, times: int = 60) -> None:
        """Presses Tab until the focus is on an element for which `test` holds."""
        for _ in range(times):
            self.browser.press("Tab")
            if self.browser.evaluate(f"(element => {test})(document.activeElement)"):
                return
        self.findings.append(f"the keyboard does not reach {test}")

    def enter(self) -> None:
        self.browser.events = []
        self.browser.press("Enter")
        self.browser.wait("Page.loadEventFired")


def with_the_keyboard(pages: Pages, link: str) -> None:
    """Logs in, walks to a file and back out, with keys only."""
    browser = pages.browser
    browser.go(link)
    pages.press_until("element.textContent === 'Continue'")
    pages.enter()
    # The first stop of the keyboard leads past the navigation.
    pages.press_until("element.className === 'skip'", 1)
    pages.press_until("element.textContent.trim() === 'Look'")
    pages.enter()
    pages.press_until("element.textContent.trim() === 'notes'")
    pages.enter()
    pages.press_until("element.textContent.trim() === 'diary.txt'")
    pages.enter()
    if "day 10" not in browser.evaluate("document.querySelector('pre').textContent"):
        pages.findings.append("the preview does not have the text")
    pages.press_until("element.textContent.trim() === 'All versions'")
    pages.enter()
    pages.press_until("element.textContent.startsWith('Difference')")
    pages.enter()
    if "day 10" not in browser.evaluate("document.querySelector('.ins').textContent"):
        pages.findings.append("the difference does not have the new line")
    pages.press_until("element.textContent.trim() === 'diary.txt'")
    pages.enter()
    browser.take_downloads()
    pages.press_until("element.textContent.trim() === 'Download'")
    browser.press("Enter")
    if browser.wait("Browser.downloadWillBegin")["suggestedFilename"] != "diary.txt":
        pages.findings.append("the keyboard does not download the file")


def copy_by_a_click(pages: Pages, address: str) -> None:
    """Clicks the button behind a command, and compares the clipboard with the command."""
    browser = pages.browser
    browser.look(1400, dark=False)
    browser.go(address)
    browser.allow_the_clipboard(address)
    browser.click("button.copy")
    if browser.evaluate("document.querySelector('button.copy').textContent") != "Copied":
        pages.findings.append("the button does not report that the command is copied")
    command = browser.evaluate("document.querySelector('pre.command').textContent")
    copied = browser.evaluate("navigator.clipboard.readText()")
    if copied != command or "restore" not in copied:
        pages.findings.append(f"the clipboard has {copied!r} instead of {command!r}")
    # Only pages with a command have a script.
    browser.go(address.split("/look/")[0] + "/health")
    if browser.evaluate("document.scripts.length") != 0:
        pages.findings.append("a page without commands has a script")


def log_out_with_the_keyboard(pages: Pages, base: str) -> None:
    pages.browser.go(base)
    pages.press_until("element.textContent.trim() === 'Log out'")
    pages.enter()
    pages.browser.go(base + "calendar")
    if "/login" not in pages.browser.evaluate("location.pathname"):
        pages.findings.append("after the log-out, the page is still shown")


def other_sites(pages: Pages, base: str) -> None:
    """A page of another name on this machine (the browser resolves evil.example to it) gets no answer and sends no form."""
    browser, port = pages.browser, base.rsplit(":", 1)[1].strip("/")
    browser.go(f"http://evil.example:{port}/calendar")
    if "Source" in browser.evaluate("document.body.textContent"):
        pages.findings.append("a foreign name shows the page")
    browser.go("about:blank")
    browser.evaluate(
        f"document.body.innerHTML = '<form method=post action={base}logout><input name=token value=x></form>'; document.forms[0].submit()"
    )
    browser.wait("Page.loadEventFired")
    if "sent by another site" not in browser.evaluate("document.body.textContent"):
        pages.findings.append("a form of another site is accepted")
    reads = browser.evaluate(f"fetch('{base}calendar', {{credentials: 'include'}}).then(answer => answer.text()).catch(() => 'refused')")
    if reads != "refused":
        pages.findings.append("another site reads the page")
    browser.complaints()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    if not program():
        sys.exit("there is no Chromium: install chromium-headless-shell")
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    varve = arguments.program.resolve()
    with tempfile.TemporaryDirectory(prefix="varve-page-") as folder:
        environment = make_archive(varve, Path(folder))
        config = Path(folder) / "varve.toml"
        config.write_text(CONFIG.format(folder=folder))
        serve = [varve, "serve", "--http", "127.0.0.1:0", "--config", config]
        server = subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, text=True)
        browser = Chromium()
        try:
            base, link = (server.stdout.readline().split()[-1] for _ in range(2))
            axe = arguments.axe.read_text() if arguments.axe else None
            pages = Pages(browser, axe, arguments.pictures)
            write_run_log(Path(folder) / "state")
            pages.check("Login", base + "login")
            with_the_keyboard(pages, link)
            look_at_all(pages, base)
            other_sites(pages, base)
            # Without scripts, which the page does not have, everything works the same.
            browser.call("Emulation.setScriptExecutionDisabled", value=True)
            pages.axe = None
            pages.check("Look", base + "look")
            browser.call("Emulation.setScriptExecutionDisabled", value=False)
            log_out_with_the_keyboard(pages, base)
        finally:
            browser.close()
            server.kill()
            server.wait()
    print("\n".join(pages.findings) or "no findings")
    return 1 if pages.findings else 0


def look_at_all(pages: Pages, base: str) -> None:
    browser = pages.browser
    # The first look at the state of the archive starts its reading.
    for path in ("", "space", "health"):
        browser.go(base + path)
    time.sleep(1)
    state = [("Today", ""), ("Machines", "machines"), ("Space", "space"), ("Policy", "space?keep_last=2&keep_daily=3"), ("Health", "health"), ("Runs", "runs")]
    for name, path in state + [("Calendar", "calendar"), ("Look", "look"), ("Day", "look?day=2026-11-05"), ("Search", "search?text=new-1")]:
        pages.check(name, base + path)
    pages.check("Absent", base + "nothing", ("404",))
    browser.go(base + "calendar")
    pages.check("Source", pages.links("/source/")[0])
    browser.go(base + "look")
    roots = {browser.evaluate(f"[...document.links].find(a => a.href === '{link}').textContent.trim()"): link for link in pages.links("/look/")}
    pages.check("Folder", roots["home"])
    if "disk.img" in roots:
        pages.check("Disk", roots["disk.img"])
    files, part = [], roots["home"]
    while part:
        browser.go(part)
        files += [link for link in pages.links("/look/") if link not in files]
        part = browser.evaluate("document.querySelector('main > p > a[rel=next]')?.href")
    # Every page of a hostile name, without the slow checks.
    axe, pages.axe = pages.axe, None
    for link in files:
        for address in (link, link.replace("/look/", "/file/")):
            browser.go(address)
    print(f"{len(files)} hostile names", flush=True)
    pages.axe = axe
    pages.findings += [f"a hostile name: the browser reports {text}" for text in browser.complaints()]
    pages.check("Hostile", next(link for link in files if "script" in link))
    diary = roots["notes"] + "diary.txt"
    pages.check("File", diary)
    copy_by_a_click(pages, diary)
    pages.check("Versions", diary.replace("/look/", "/file/"))
    browser.go(diary.replace("/look/", "/file/"))
    pages.check("Difference", pages.links("/difference/")[0])


if __name__ == "__main__":
    sys.exit(main())
