"""Paths to pages: what each asks of daemon and database. A question and its page are of one moment of the database."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sqlalchemy import select

from kvledger.errors import KVLedgerError
from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.questions.boundaries import boundaries_at
from kvledgerd.audit.questions.engines import engine_life, list_engines
from kvledgerd.audit.questions.finding import find
from kvledgerd.audit.questions.kept import objects_at
from kvledgerd.audit.questions.leases import lease_life
from kvledgerd.audit.questions.lives import life_of
from kvledgerd.audit.questions.prefixes import prefix_life
from kvledgerd.audit.questions.reads import reads_of
from kvledgerd.audit.questions.stream import one_verdict, verdict_stream
from kvledgerd.audit.questions.tables import CELL, OBJECT
from kvledgerd.audit.questions.tree import level_below, place_of
from kvledgerd.page import pages
from kvledgerd.page.frame import Frame
from kvledgerd.page.live import Now
from kvledgerd.page.told import Told

__all__ = ["Request", "view_of"]

_LATEST: Final = 12
"""Verdicts on a page that is about something else."""
_DIGITS: Final = 18
"""Digits of a number in an address: every number of the log that has so many fits into a database."""
_SEARCH: Final = 128
"""Characters of a search."""


class Request(NamedTuple):
    """What a view answers.

    Attributes:
        told: The audit database.
        now: The daemon.
        path: What was asked for.
        numbers: The numbers in it.
        query: What stands behind it.
    """

    told: Told
    now: Now
    path: str
    numbers: tuple[int, ...]
    query: Mapping[str, str]

    def frame(self, told: int | None) -> Frame:
        """Return what stands around the page, which shows the database as of an event."""
        look = self.now.look
        if look is None:
            return Frame(self.path, told, why_not=self.now.why_not)
        return Frame(self.path, told, look.report.seq, look.report.incarnation)

    def number(self, name: str) -> int:
        """Return a number of the query, 0 if there is none."""
        text = self.query.get(name, "")
        return int(text) if re.fullmatch(rf"[0-9]{{1,{_DIGITS}}}", text) else 0


View = Callable[[Request], str]


def view_of(path: str) -> tuple[View, tuple[int, ...]] | None:
    """Return who answers a path, and the numbers in it; None for one that does not exist."""
    for pattern, view in _VIEWS:
        found = pattern.fullmatch(path)
        if found is not None:
            return view, tuple(int(word) for word in found.groups())
    return None


def _now(asked: Request) -> str:
    try:
        with asked.told.reading() as source:
            stream = verdict_stream(source.connection, last=_LATEST)
            return pages.now_page(asked.frame(source.seq), asked.now, stream)
    except KVLedgerError as error:
        # What the daemon says is worth showing though nothing was told of its log yet
        return pages.now_page(asked.frame(None), asked.now, [], str(error))


def _verdicts(asked: Request) -> str:
    wish = pages.StreamWish("misses" in asked.query, asked.number("engine"), asked.number("before"))
    with asked.told.reading() as source:
        stream = verdict_stream(
            source.connection, last=pages.VERDICTS, before=wish.before, misses=wish.misses, engine=wish.engine
        )
        return pages.verdicts_page(asked.frame(source.seq), wish, stream)


def _verdict(asked: Request) -> str:
    with asked.told.reading() as source:
        return pages.verdict_page(asked.frame(source.seq), one_verdict(source.connection, asked.numbers[0]))


def _tree(asked: Request) -> str:
    node = asked.numbers[0] if asked.numbers else 0
    with asked.told.reading() as source:
        place = place_of(source.connection, node) if node else None
        level = level_below(source.connection, node, asked.number("before"))
        boundaries = boundaries_at(source.connection, [node]).get(node, [])
        objects = objects_at(source.connection, (CELL.c.node == node) & (CELL.c.residue < 0)) if node else []
        return pages.tree_page(asked.frame(source.seq), place, level, boundaries, objects)


def _level(asked: Request) -> str:
    with asked.told.reading() as source:
        return pages.level_part(asked.numbers[0], level_below(source.connection, asked.numbers[0]))


def _object(asked: Request) -> str:
    cell, slot = asked.numbers
    with asked.told.reading() as source:
        life = life_of(source.connection, ObjectName(cell, slot))
        now = objects_at(source.connection, (OBJECT.c.cell == cell) & (OBJECT.c.slot == slot))
        reads = reads_of(source.connection, cell, slot)
        return pages.object_page(asked.frame(source.seq), cell, life, now[0] if now else None, reads)


def _prefix(asked: Request) -> str:
    cell = asked.numbers[0]
    with asked.told.reading() as source:
        life = prefix_life(source.connection, cell)
        node = source.connection.execute(select(CELL.c.node).where(CELL.c.cell == cell)).scalar_one()
        return pages.prefix_page(
            asked.frame(source.seq), node, life, objects_at(source.connection, OBJECT.c.cell == cell)
        )


def _lease(asked: Request) -> str:
    with asked.told.reading() as source:
        return pages.lease_page(asked.frame(source.seq), lease_life(source.connection, asked.numbers[0]))


def _engines(asked: Request) -> str:
    with asked.told.reading() as source:
        found = list_engines(source.connection, last=pages.ENGINES, before=asked.number("before"))
        return pages.engines_page(asked.frame(source.seq), found)


def _engine(asked: Request) -> str:
    number = asked.numbers[0]
    with asked.told.reading() as source:
        life = engine_life(source.connection, number)
        stream = verdict_stream(source.connection, last=_LATEST, engine=number)
        return pages.engine_page(asked.frame(source.seq), life, stream)


def _search(asked: Request) -> str:
    text = asked.query.get("q", "")[:_SEARCH]
    with asked.told.reading() as source:
        return pages.search_page(asked.frame(source.seq), text, find(source.connection, text))


_N: Final = f"([0-9]{{1,{_DIGITS}}})"
_VIEWS: Final[tuple[tuple[re.Pattern[str], View], ...]] = (
    (re.compile("/"), _now),
    (re.compile("/verdicts"), _verdicts),
    (re.compile(f"/verdicts/{_N}"), _verdict),
    (re.compile("/tree"), _tree),
    (re.compile(f"/tree/{_N}"), _tree),
    (re.compile(f"/tree/{_N}/level"), _level),
    (re.compile(rf"/objects/{_N}\.{_N}"), _object),
    (re.compile(f"/prefixes/{_N}"), _prefix),
    (re.compile(f"/leases/{_N}"), _lease),
    (re.compile("/engines"), _engines),
    (re.compile(f"/engines/{_N}"), _engine),
    (re.compile("/search"), _search),
)
