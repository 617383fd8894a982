#!/usr/bin/env python3
"""Takes the pictures of the web page for the guide, from the store that demo_store.py makes.

  guide_pictures.py PROGRAM PICTURES

PROGRAM is the built `varve`, and PICTURES is docs/pictures. So that no path of this machine is in a picture, it runs
in name spaces of its own, in which a temporary folder is mounted at /mnt, and the machine is called `desk`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chromium import Chromium  # noqa: E402

WIDTH = 1100
BYTES_MAX = 160 << 10
# The folder of the demo, as the pictures show it.
SHOWN = Path("/mnt")


def main() -> int:
    if len(sys.argv) == 3:
        with tempfile.TemporaryDirectory(prefix="varve-pictures-") as folder:
            alone = ["unshare", "--user", "--map-root-user", "--mount", "--uts", sys.executable, __file__]
            return subprocess.run([*alone, *sys.argv[1:], folder], check=False).returncode
    varve, pictures, folder = (Path(word).resolve() for word in sys.argv[1:4])
    subprocess.run(["mount", "--bind", folder, SHOWN], check=True)
    subprocess.run(["hostname", "desk"], check=True)
    subprocess.run([sys.executable, Path(__file__).with_name("demo_store.py"), varve, SHOWN], check=True)
    return take_pictures(varve, SHOWN, pictures)


def take_pictures(varve: Path, folder: Path, pictures: Path) -> int:
    pictures.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HOME": str(folder / "user"), "TZ": "UTC"}
    serve = [varve, "-s", folder / "backup", "serve", "--http", "127.0.0.1:0", "--config", folder / "varve.toml"]
    server = subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, text=True)
    browser = Chromium()
    try:
        base, link = (server.stdout.readline().split()[-1] for _ in range(2))
        browser.look(WIDTH, dark=False)
        browser.go(link)
        browser.evaluate("document.querySelector('main form').submit()")
        browser.wait("Page.loadEventFired")
        # The first look at the state of the archive starts its reading.
        for path in ("", "space", "health"):
            browser.go(base + path)
        time.sleep(3)
        browser.go(base + "look")
        home = browser.evaluate("[...document.links].find(a => a.textContent.trim() === 'home').href")
        source = browser.evaluate("[...document.links].find(a => a.href.includes('/source/')).href")
        pages = [("today", base), ("runs", base + "runs"), ("source", source), ("file", home + "pictures/hills.png"), ("space", base + "space"), ("health", base + "health")]
        for name, address in pages:
            browser.go(address)
            picture = pictures / f"page-{name}.png"
            browser.picture(picture, is_whole=False)
            print(f"{picture.name}: {picture.stat().st_size} bytes")
            if picture.stat().st_size > BYTES_MAX:
                sys.exit(f"{picture} is larger than {BYTES_MAX} bytes")
    finally:
        browser.close()
        server.kill()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
