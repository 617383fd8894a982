#!/usr/bin/env python3
"""Takes the pictures of the web page for the guide, from the store that demo_store.py makes.

  guide_pictures.py PROGRAM STORE_FOLDER PICTURES

PROGRAM is the built `varve`, STORE_FOLDER the folder that demo_store.py has filled, and PICTURES is docs/pictures.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chromium import Chromium  # noqa: E402

WIDTH = 1100
BYTES_MAX = 150 << 10


def main() -> int:
    varve, folder, pictures = (Path(word).resolve() for word in sys.argv[1:4])
    pictures.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HOME": str(folder / "user"), "TZ": "UTC"}
    serve = [varve, "-s", folder / "store", "serve", "--http", "127.0.0.1:0", "--config", folder / "varve.toml"]
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
        pages = [("today", base), ("source", source), ("file", home + "pictures/hills.png"), ("space", base + "space"), ("health", base + "health")]
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
