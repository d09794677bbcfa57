"""``kvledger page``: a page to look at the cache with a browser; it only reads, and only this machine can open it."""

import argparse
import contextlib
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger.errors import CallerError
from kvledgerd.commands.arguments import add_data, add_socket
from kvledgerd.exits import Exit
from kvledgerd.output import say
from kvledgerd.web.address import HttpAddress

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add", "require_page"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("page", help="look at it with a browser", description=__doc__)
    parser.add_argument(
        "--http",
        required=True,
        metavar="ADDRESS:PORT|PATH",
        help="where to serve it: a port of loopback, or the path of a Unix socket",
    )
    add_socket(parser)
    add_data(parser)
    parser.add_argument("--db", default="", metavar="URL", help="audit database (default: the one in --data)")
    parser.set_defaults(run=_run)


def require_page() -> None:
    """See that what the page needs beyond the daemon is installed.

    Raises:
        CallerError: It is not; names the extra.
    """
    if find_spec("jinja2") is None:
        remedy = "pip install 'kvledger[daemon,page]'"
        raise CallerError("the extra [page] is missing: there is no jinja2", field="http", remedy=remedy)


def _run(arguments: argparse.Namespace) -> int:
    require_page()
    try:
        address = HttpAddress.parse(arguments.http)
    except ValueError as error:
        raise CallerError(str(error), field="http", remedy="a tunnel (ssh -L) brings it to another machine") from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.DONE))
    with contextlib.suppress(KeyboardInterrupt):
        _serve(address, arguments)
    return Exit.DONE


def _serve(address: HttpAddress, arguments: argparse.Namespace) -> None:
    from kvledgerd.page.handler import PageHandler  # noqa: PLC0415  SQL and templates cost 300 ms others need not pay
    from kvledgerd.page.live import LiveDaemon  # noqa: PLC0415  as above
    from kvledgerd.page.site import Site  # noqa: PLC0415  as above
    from kvledgerd.page.told import Told  # noqa: PLC0415  as above
    from kvledgerd.web.server import serve_http  # noqa: PLC0415  as above
    from kvledgerd.web.source import Source  # noqa: PLC0415  as above

    source = Source(Path(arguments.socket), "kvledger page")

    class Handler(PageHandler):
        site = Site(LiveDaemon(source), Told(Path(arguments.data), arguments.db))

    with contextlib.closing(source):
        serve_http(address, Handler, _ready)


def _ready(where: str) -> None:
    say(f"page at {where}")
    sys.stdout.flush()
