"""One request to the page: who may ask, how, and what the browser may do with the answer.

The page is read by whoever can connect, and by nobody else. A site that a user visits can make the user's browser
connect to loopback, so it must learn nothing: it can not read across origins, and under a name of its own that it has
pointed here (DNS rebinding) the Host header gives it away. What engines said is shown, so the policy lets no script run
that is not a file of the page, in case an escape were ever missed.
"""

import ipaddress
import re
from http import HTTPStatus
from typing import Final

from xxhash import xxh3_128_hexdigest

from kvledgerd.page.site import Answer, Site
from kvledgerd.web.server import LocalHandler

__all__ = ["POLICY", "PageHandler", "is_local_host"]

POLICY: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache, private",
}
"""Headers of every answer."""
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\[\]:@/?#\s]+)(?::[0-9]{1,5})?")


def is_local_host(header: str) -> bool:
    """Tell whether a Host header names this machine's loopback, with any port: a tunnel may have another one.

    Args:
        header: As it was sent; empty if it was not.
    """
    found = _HOST.fullmatch(header)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class PageHandler(LocalHandler):
    """Answers GET and HEAD; the attribute `site` says what with."""

    site: Site
    server_version = "kvledger"
    sys_version = ""

    def do_GET(self) -> None:  # noqa: N802  the server looks for this name
        """Answer with the page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:  # noqa: N802  the server looks for this name
        """Answer with its headers."""
        self._answer(with_body=False)

    def do_POST(self) -> None:  # noqa: N802  the server looks for this name
        """Refuse, as every method but the two that read."""
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815  names that the server looks for

    def _answer(self, *, with_body: bool) -> None:
        answer = self._found()
        etag = f'"{xxh3_128_hexdigest(answer.body)}"'
        unchanged = answer.status is HTTPStatus.OK and self.headers.get("If-None-Match") == etag
        self.send_response(HTTPStatus.NOT_MODIFIED if unchanged else answer.status)
        self.send_header("ETag", etag)
        if not unchanged:
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if with_body and not unchanged:
            self.wfile.write(answer.body)

    def _found(self) -> Answer:
        if is_local_host(self.headers.get("Host", "")):
            return self.site.answer(self.path)
        why = b"This page answers to localhost and loopback addresses alone.\n"
        return Answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain; charset=utf-8", why)

    def end_headers(self) -> None:
        """Send the policy with whatever is sent, errors of the protocol included."""
        for name, value in POLICY.items():
            self.send_header(name, value)
        super().end_headers()
