"""A small HTTP server for a handful of local readers: a thread for each, a bound on their number and on their patience.

Whoever reads or writes nothing for a while is dropped, and beyond the bound a connection is closed unread, so that slow
or many readers cost this process a known amount and the daemon nothing at all.
"""

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from kvledgerd.keeper.listener import ListenError, listen, unlink_own
from kvledgerd.web.address import HttpAddress

__all__ = ["CONNECTIONS", "LocalHandler", "serve_http"]

CONNECTIONS: Final = 64
"""Connections that are served at the same time; one more is closed."""
_SECONDS: Final = 10


class LocalHandler(BaseHTTPRequestHandler):
    """Answers one connection; one that says or takes nothing for ten seconds is given up."""

    timeout = _SECONDS

    def log_message(self, *_: object) -> None:
        """Say nothing: a request is no news."""


def serve_http(address: HttpAddress, handler: type[LocalHandler], ready: Callable[[str], object]) -> None:
    """Answer requests until the process is ended.

    Args:
        address: Where; port 0 lets the system choose one.
        handler: Who answers.
        ready: Called with the URL, or the path of the socket, once it listens.

    Raises:
        ListenError: The port can not be listened at, somebody listens at the path, or it is another file.
    """
    if address.path:
        with _UnixServer(Path(address.path), handler) as server:
            ready(address.path)
            server.serve_forever()
        return
    host, _ = address.host_and_port
    with _at_port(address, handler) as server:
        bound = server.server_address[1]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        server.serve_forever()


def _at_port(address: HttpAddress, handler: type[LocalHandler]) -> "_Server":
    host, port = address.host_and_port
    family = _Server if ":" not in host else _Server6
    try:
        return family((host, port), handler)
    except OSError as error:
        raise ListenError(
            f"can not listen at {address}: {error.strerror}",
            field="http",
            remedy="choose another port, or stop what has this one",
        ) from error


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    # A request that was just answered would keep the port from the next server for a minute.
    allow_reuse_address = True
    # With the usual five, a browser that opens more at once would wait for its system to knock again.
    request_queue_size = CONNECTIONS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._free: Final = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(*arguments, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except Exception:
            # No thread began. A signal may also end this process when one has, which gives its place back itself.
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing: a reader that went away half-way is no news either."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def __init__(self, path: Path, handler: type[LocalHandler]) -> None:
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
