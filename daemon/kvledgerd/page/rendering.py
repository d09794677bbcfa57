"""Templates to HTML. Whatever engines said (names, models, reasons) is escaped: no template marks anything as safe."""

from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from kvledgerd.output import moment
from kvledgerd.page.linking import linked
from kvledgerd.page.words import KINDS, LAYERS, count_words, kind_words, reason, state_words
from kvledgerd.sizes import short_bytes

__all__ = ["ENTRIES", "render"]

ENTRIES: Final = 400
"""Rows of one table of a page; what is beyond is counted, and a command lists it."""


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: File among the templates.
        values: What it shows.
    """
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("kvledgerd.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bytes": short_bytes,
        "number": lambda number: f"{number:,}",
        "moment": lambda time_ms: moment(time_ms) if time_ms else "",
        "clock": _clock,
        "count": count_words,
        "kind": kind_words,
        "reason": reason,
        "state": state_words,
        "share": _share,
        "linked": linked,
    }
    made.globals |= {"KINDS": KINDS, "LAYERS": LAYERS, "ENTRIES": ENTRIES}
    return made


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S") if time_ms else ""


def _share(part: int, of: int) -> str:
    """Return a part in percent of a whole, for the width of a bar."""
    return f"{min(max(part / of, 0), 1) * 100:.2f}" if of > 0 else "0"
