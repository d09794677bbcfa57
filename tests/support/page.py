"""A page beside a daemon, asked as a browser would ask it."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kvledger.testing import Daemon
from support.html import Page


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def page(self) -> Page:
        """The body, parsed."""
        return Page(self.body)


class Site(NamedTuple):
    """Where a page is served."""

    port: int
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where a browser goes."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Reply:
        """Ask once; a header is named as an argument, its dashes as underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read().decode())
        finally:
            connection.close()

    def when(self, path: str, text: str, seconds: float = 60) -> Page:
        """Ask until a page says something: its tables follow the log a moment later, and itself the daemon."""
        end, said = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            with suppress(ConnectionError):
                page = self.get(path).page
                if text in page.text:
                    return page
                said = page.text
            time.sleep(0.1)
        raise AssertionError(f"{path} does not say {text!r} but: {said}")


@contextmanager
def page_of(daemon: Daemon, *words: str) -> Iterator[Site]:
    """Serve the page of a daemon by the command for a `with` block, on a port that the system chooses."""
    paths = ["--socket", str(daemon.socket), "--data", str(daemon.data_dir)]
    command = [sys.executable, "-m", "kvledgerd.cli", "page", "--http", "127.0.0.1:0", *paths, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip().rpartition(":")[2]
            yield Site(int(port) if port.isdecimal() else 0, process)
        finally:
            process.terminate()
            assert process.wait(30) == 0


def free_port() -> int:
    """Return a port at which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
