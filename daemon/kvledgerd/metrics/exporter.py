"""A small HTTP server for Prometheus, on a loopback port or a Unix socket: a process of its own beside the daemon.

It asks the daemon for its status at each scrape, over one connection that it keeps. A daemon that does not answer is a
metric and no failure, since that is what one wants to be told.
"""

import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

from kvledger import Cache
from kvledger.errors import CallerError, KVLedgerError
from kvledger.wire.replies import StatusReport
from kvledgerd.keeper.listener import listen, unlink_own
from kvledgerd.metrics.exposition import CONTENT_TYPE, exposition

__all__ = ["Source", "serve_metrics"]

_SECONDS: Final = 10


class Source:
    """Asks a daemon again and again, over one connection as long as that holds; safe in any thread.

    Args:
        listening: Its socket.
        tenant: Whose numbers to ask for; empty for what the caller is told of itself.
    """

    def __init__(self, listening: Path, tenant: str = "") -> None:
        self._listening: Final = listening
        self._tenant: Final = tenant
        self._guard: Final = threading.Lock()
        self._cache: Cache | None = None

    def report(self) -> StatusReport | None:
        """Return its status, None if it does not answer."""
        with self._guard:
            try:
                if self._cache is None:
                    self._cache = Cache.open(self._listening, name="kvledger metrics", tenant=self._tenant)
                return self._cache.status()
            except (KVLedgerError, OSError):
                self.close()
                return None

    def close(self) -> None:
        """Let the connection go."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.close()


def serve_metrics(where: str, source: Source, ready: Callable[[str], object]) -> None:
    """Answer scrapes until the process is ended.

    Args:
        where: A port, of loopback, or the path of a Unix socket.
        source: Whom to ask.
        ready: Called with the address once it listens.

    Raises:
        CallerError: `where` is neither.
        ListenError: Somebody listens at the path, or it is another file.
        OSError: The port can not be listened at.
    """

    class Handler(_Handler):
        reports = source

    if where.isdecimal() and 0 <= int(where) < 1 << 16:
        with _Server(("127.0.0.1", int(where)), Handler) as server:
            ready("http://{}:{}/metrics".format(*server.server_address[:2]))
            server.serve_forever()
    elif where.startswith("/"):
        with _UnixServer(Path(where), Handler) as server:
            ready(where)
            server.serve_forever()
    else:
        raise CallerError(f"{where!r} is no port and no path", field="listen", remedy="name 9464, or /run/some.sock")


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A thread for each scrape: one that says nothing for a while keeps no other from its answer."""

    daemon_threads = True
    # A scrape that was just answered would keep the port from the next exporter for a minute.
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: a scrape that was given up half-way is no news either."""


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def __init__(self, path: Path, handler: type["_Handler"]) -> None:
        super().__init__(("unix", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listen(path)
        facts = path.lstat()
        self._own: Final = (path, (facts.st_dev, facts.st_ino))

    def server_close(self) -> None:
        """Let the socket go, and its file."""
        super().server_close()
        unlink_own(*self._own)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection; its peer gets a name, which HTTP servers want to have."""
        accepted, _ = super().get_request()
        return accepted, ("unix", 0)


class _Handler(BaseHTTPRequestHandler):
    reports: Source
    timeout = _SECONDS

    def do_GET(self) -> None:
        """Answer a scrape."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "metrics are at /metrics")
            return
        body = exposition(self.reports.report()).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: a scrape is no news."""
