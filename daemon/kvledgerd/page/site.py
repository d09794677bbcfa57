"""Answers to paths: a page, a file of the page, or what is said in their place."""

from http import HTTPStatus
from importlib.resources import files
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from kvledger.errors import CallerError, KVLedgerError
from kvledgerd.page.live import LiveDaemon
from kvledgerd.page.pages import problem_page
from kvledgerd.page.told import Told
from kvledgerd.page.views import Request, view_of

__all__ = ["Answer", "Site"]

_STATIC: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_FIELDS: Final = 16
"""Fields of a query; no form of the page has more."""


class Answer(NamedTuple):
    """What is sent for a path."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Site:
    """Answers paths; safe in any thread.

    Args:
        live: The daemon.
        told: The audit database.
    """

    def __init__(self, live: LiveDaemon, told: Told) -> None:
        self._live: Final = live
        self._told: Final = told

    def answer(self, target: str) -> Answer:
        """Return what is at a path, which may have a query."""
        try:
            split = urlsplit(target)
            query = dict(parse_qsl(split.query, max_num_fields=_FIELDS, errors="replace"))
        except ValueError:
            return Answer(HTTPStatus.BAD_REQUEST, "text/plain", b"This is no address of a page.\n")
        path = unquote(split.path, errors="replace")
        directory, _, name = path.rpartition("/")
        if directory == "/static" and name in _STATIC:
            body = files("kvledgerd.page").joinpath("static", name).read_bytes()
            return Answer(HTTPStatus.OK, f"{_STATIC[name]}; charset=utf-8", body)
        return self._viewed(path, query)

    def _viewed(self, path: str, query: dict[str, str]) -> Answer:
        found = view_of(path)
        view, numbers = found if found is not None else (None, ())
        asked = Request(self._told, self._live.now(), path, numbers, query)
        if view is None:
            return _problem(asked, HTTPStatus.NOT_FOUND, f"There is no page {path}", "begin at the first one")
        try:
            return _html(HTTPStatus.OK, view(asked))
        except CallerError as error:
            return _problem(asked, HTTPStatus.NOT_FOUND, error.message, error.remedy)
        except KVLedgerError as error:
            return _problem(asked, HTTPStatus.SERVICE_UNAVAILABLE, error.message, error.remedy)


def _problem(asked: Request, status: HTTPStatus, why: str, remedy: str) -> Answer:
    says = "Not found" if status is HTTPStatus.NOT_FOUND else "Not now"
    return _html(status, problem_page(asked.frame(None), says, why, remedy))


def _html(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, "text/html; charset=utf-8", text.encode())
