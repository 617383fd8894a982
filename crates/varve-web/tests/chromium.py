"""A headless Chromium, driven through a pipe by the DevTools protocol. It needs only Python's library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ANSWER_SECONDS = 60


def program() -> str | None:
    """The browser of this machine."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Chromium:
    """A running browser with one page."""

    def __init__(self) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        (to_read, self.to), (self.of, to_write) = os.pipe(), os.pipe()
        # The browser reads from descriptor 3 and writes to descriptor 4.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, program(), "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--host-resolver-rules=MAP evil.example 127.0.0.1",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.number, self.buffer, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)
        self.profile.cleanup()

    def _message(self, until: float) -> dict:
        while b"\0" not in self.buffer:
            if not select.select([self.of], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            received = os.read(self.of, 1 << 20)
            if not received:
                raise EOFError("the browser has ended")
            self.buffer += received
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method: str, **parameters) -> dict:
        """Calls a method, and returns its result. Events that come before it are kept."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            message = self._message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait(self, method: str) -> dict:
        """Waits for an event."""
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            for number, event in enumerate(self.events):
                if event.get("method") == method:
                    return self.events.pop(number)["params"]
            self.events.append(self._message(until))

    def go(self, address: str) -> float:
        """Opens an address, and returns the milliseconds from the request to the whole answer."""
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        result = self.call("Page.navigate", url=address)
        if "errorText" in result:
            raise RuntimeError(f"{address}: {result['errorText']}")
        self.wait("Page.loadEventFired")
        timing = self.evaluate("(({requestStart, responseEnd}) => responseEnd - requestStart)(performance.getEntriesByType('navigation')[0])")
        return timing

    def evaluate(self, text: str):
        """The value of an expression in the page. A page's own policy does not concern it."""
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Presses a key."""
        codes = {"Tab": 9, "Enter": 13}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text="\r" if key == "Enter" else text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def allow_the_clipboard(self, address: str) -> None:
        """Lets the site of this address write and read the clipboard."""
        origin = "/".join(address.split("/")[:3])
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        self.call("Browser.grantPermissions", origin=origin, permissions=permissions)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def click(self, selector: str) -> None:
        """Clicks the middle of an element with the mouse, and lets the page act on it."""
        place = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"((element => (element.scrollIntoView({{block: 'center'}}), element.getBoundingClientRect()))(document.querySelector('{selector}')))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        self.evaluate("new Promise(done => setTimeout(done, 200))")

    def take_downloads(self) -> None:
        """Lets downloads begin. Their bytes go to the folder of the browser."""
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.profile.name, eventsEnabled=True)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, width: int, dark: bool, zoom: float = 1, contrast: str = "") -> None:
        """Sets the width of the window, the colours, the size of the letters, and `more` or `forced` contrast."""
        self.call("Emulation.setDeviceMetricsOverride", width=int(width / zoom), height=900, deviceScaleFactor=zoom, mobile=width < 500)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-contrast", "value": {"more": "more", "forced": "custom"}.get(contrast, "no-preference")},
            {"name": "forced-colors", "value": "active" if contrast == "forced" else "none"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, is_whole: bool = True) -> None:
        """Stores a picture of the whole page, or of the part in the window."""
        result = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(result["data"]))

    def complaints(self) -> list[str]:
        """The errors that the browser has reported since the last call, among them refused scripts and styles."""
        self.evaluate("0")
        found = []
        for event in self.events:
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"])
            if event.get("method") in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
                found.append(json.dumps(event["params"])[:300])
        self.events = []
        return found
