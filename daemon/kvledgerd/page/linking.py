"""Where things are on the page, and links in what is told: `under lease 17` leads to lease 17.

Of a text only digits come into an address.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["PLACES", "Piece", "linked"]

PLACES: Final = {
    "engine": "/engines/",
    "object": "/objects/",
    "lease": "/leases/",
    "verdict": "/verdicts/",
    "prefix": "/prefixes/",
    "block": "/tree/",
}
"""Sort of a thing to where things of that sort are."""
_NAMED: Final = re.compile(r"\b(lease|engine|prefix) ([0-9]{1,18})\b")


class Piece(NamedTuple):
    """A piece of a text; `to` is where it leads, empty if nowhere."""

    text: str
    to: str = ""


def linked(text: str) -> Iterator[Piece]:
    """Yield a text in pieces, those that name a lease, an engine or a prefix with their address."""
    end = 0
    for found in _NAMED.finditer(text):
        if found.start() > end:
            yield Piece(text[end : found.start()])
        yield Piece(found[0], f"{PLACES[found[1]]}{found[2]}")
        end = found.end()
    if end < len(text):
        yield Piece(text[end:])
