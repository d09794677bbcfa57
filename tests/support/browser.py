"""Chromium without a window, driven over its own protocol through a pipe: no library, no port, nothing left behind.

Which one: `KVLEDGER_CHROMIUM`, or what is found under its usual names.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60
_FIRST = 10
"""Lowest number of a descriptor that the pipe has here: those that Chromium wants must be free for it."""


def chromium() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    return os.environ.get("KVLEDGER_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One tab.

    Attributes:
        said: What the console said: errors of scripts, and what the policy of the page refused.
    """

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers, self._number, self._rest = orders, answers, 0, b""
        self._session: str | None = None
        self.said: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something, and return its answer."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._note(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)

    def _note(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            self.said.append(told["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(told["exceptionDetails"]))

    def run(self, script: str) -> Any:
        """Run JavaScript in the page and return its value."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str, seconds: float = SECONDS) -> Any:
        """Run JavaScript until its value is true, and return that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"{script} does not become true; the console says {self.said}")

    def go(self, url: str) -> None:
        """Open an address, and wait until it is there."""
        self.run("window.left = true")
        self.ask("Page.navigate", url=url)
        self.until("!window.left && document.readyState === 'complete'")

    def picture(self, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Write what is seen to a PNG file."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(program: str) -> Iterator[Tab]:
    """Run a Chromium with one tab for a `with` block."""
    with tempfile.TemporaryDirectory(prefix="kvl-browser-", ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"]
        flags += ["--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb"]
        command = [program, *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        ours, theirs = _pipe(), _pipe()
        silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, ours[0], 3), (os.POSIX_SPAWN_DUP2, theirs[1], 4)]
        pid = os.posix_spawn(program, command, os.environ, file_actions=[*silent, *ends], setpgroup=0)
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield Tab(ours[1], theirs[0])
        finally:
            os.close(ours[1])
            os.close(theirs[0])
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _pipe() -> tuple[int, int]:
    made = os.pipe()
    kept = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST) for fd in made]
    for fd in made:
        os.close(fd)
    return kept[0], kept[1]
