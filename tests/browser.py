"""A headless Chromium, driven over its DevTools pipe: no driver and no further package is needed.

`apt-get install -y chromium` gets one on Debian and Ubuntu; MEMUP_BROWSER names another Chromium or Chrome.
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, filter(None, [os.environ.get("MEMUP_BROWSER"), *NAMES]))), None)


needs_browser = pytest.mark.skipif(
    find_browser() is None,
    reason="no Chromium or Chrome: `apt-get install -y chromium`, or name one with MEMUP_BROWSER",
)


class Browser:
    """One page of a headless browser; `errors` has every uncaught exception and console error so far."""

    def __init__(self, width: int = 1100, height: int = 800) -> None:
        self.errors: list[str] = []
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        ours, theirs_out = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
        ]
        command = [find_browser() or "chromium", *flags, f"--user-data-dir={self._home.name}", "about:blank"]
        self._process = subprocess.Popen(  # DevTools reads descriptor 3 and writes 4
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._from = os.fdopen(ours, "rb", buffering=0)
        self._rest, self._number, self._session = b"", itertools.count(1), ""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)  # the browser ends with its pipe
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._from.close()
        self._home.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._number)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._from.read(1 << 16)
            assert more, "the browser is gone"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        method, found = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(found["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(found["args"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.errors.append(found["entry"]["text"])
        return message

    def open(self, path: Path) -> None:
        """Load a page from disk and wait until it has drawn itself."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        ready = "document.readyState === 'complete' && location.protocol === 'file:'"
        while not self.run(ready):
            pass
        self.frame()

    def frame(self) -> None:
        """Wait until two frames are drawn: layout, then what observers of sizes drew."""
        self.run("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go(true))))")

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def hover(self, selector: str, across: float, down: float = 0.5) -> None:
        """Move the mouse to a place in an element, given as shares of its size."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.left, b.top, b.width, b.height]; })()"
        )
        place = {"x": box[0] + across * box[2], "y": box[1] + down * box[3]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        self.frame()

    def screenshot(self, path: Path, full: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(found["data"]))
