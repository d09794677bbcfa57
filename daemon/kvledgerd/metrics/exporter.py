"""A small HTTP server for Prometheus, on a loopback port or a Unix socket: a process of its own beside the daemon.

It asks the daemon for its status at each scrape, over one connection that it keeps. A daemon that does not answer is a
metric and no failure, since that is what one wants to be told.
"""

from collections.abc import Callable
from http import HTTPStatus

from kvledger.errors import CallerError
from kvledgerd.metrics.exposition import CONTENT_TYPE, exposition
from kvledgerd.web.address import HttpAddress
from kvledgerd.web.server import LocalHandler, serve_http
from kvledgerd.web.source import Source

__all__ = ["serve_metrics"]


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

    try:
        address = HttpAddress.parse(where)
    except ValueError as error:
        remedy = "name 9464, or /run/some.sock"
        raise CallerError(f"{where!r} is no port and no path: {error}", field="listen", remedy=remedy) from error
    if not address:
        raise CallerError("it is empty", field="listen", remedy="name 9464, or /run/some.sock")
    serve_http(address, Handler, lambda at: ready(at if address.path else f"{at}/metrics"))


class _Handler(LocalHandler):
    reports: Source

    def do_GET(self) -> None:  # noqa: N802  the server looks for this name
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
