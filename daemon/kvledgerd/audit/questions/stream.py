"""Verdicts as a stream that can be paged through, and one verdict with all that the tables hold of it.

Other than `latest_verdicts`, which answers in sentences, this keeps what was cut in fields: who shows it decides how.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, exists, func, or_, select

from kvledger.errors import NotFoundError
from kvledger.verdict import Code
from kvledgerd.audit.questions.tables import (
    CUT,
    ENGINE,
    ENGINE_END,
    GROUP,
    LEASE_EVENT,
    LOOKUP,
    OFFER,
    USED,
    lookups,
)

__all__ = ["CutView", "Offered", "StreamedVerdict", "VerdictPage", "one_verdict", "verdict_stream"]


class CutView(msgspec.Struct, frozen=True):
    """A run of tokens that was not usable; `kind` is empty where no group cut it.

    `detail` is what stands behind the reason, such as the field that differs.
    """

    start: int
    end: int
    layer: int
    code: str
    group: str
    kind: str
    detail: str


class StreamedVerdict(msgspec.Struct, frozen=True):
    """A verdict as a line: who asked, how much, what was got, and the longest cut.

    Attributes:
        seq: Its event.
        time_ms: When, ms since 1970.
        engine: Who asked.
        engine_name: What people call it.
        layout: Number of the layout.
        model: Its model.
        tokens: Length of the prompt.
        hash_tokens: What a plain hash cache would have claimed.
        offered_tokens: Deepest boundary that was offered.
        lease: Its lease, 0 on a miss.
        cuts: The cuts that the log keeps, longest first.
    """

    seq: int
    time_ms: int
    engine: int
    engine_name: str
    layout: int
    model: str
    tokens: int
    hash_tokens: int
    offered_tokens: int
    lease: int
    cuts: list[CutView]

    @property
    def shown(self) -> CutView | None:
        """The cut that a line has room for.

        Within the hash hit the deepest, which is why the best of what was claimed is not usable; where nothing of it
        was refused, the longest behind it; and what the engine itself leaves last of all.
        """
        behind = [cut for cut in self.cuts if cut.end > self.offered_tokens]
        return min(behind, key=self._rank, default=None)

    def _rank(self, cut: CutView) -> tuple[bool, int]:
        claimed = cut.start < self.hash_tokens
        return cut.code == Code.LEAVE, -cut.end if claimed else 0


class Offered(msgspec.Struct, frozen=True):
    """A boundary that was offered: its cell (0 if it has none), whether it lay in memory, was kept, is approximate."""

    number: int
    cell: int
    node: int
    position: int
    residue: int
    replay: int
    ready: bool
    kept: bool
    approx: bool


class VerdictPage(msgspec.Struct, frozen=True):
    """One verdict with its offers, best first, how the lease ended, and what the caller had wanted, as JSON."""

    verdict: StreamedVerdict
    node: int
    recoverable_tokens: int
    ready_tokens: int
    offers: list[Offered]
    ended: str
    wish: str


def verdict_stream(
    connection: Connection, *, last: int, before: int = 0, misses: bool = False, engine: int = 0
) -> list[StreamedVerdict]:
    """Return verdicts, newest first.

    Args:
        connection: Where to ask.
        last: At most so many.
        before: Only those before this event; 0 for the newest.
        misses: Only misses, and those that were offered less than a plain hash cache would have claimed, for another
            reason than that the engine leaves tokens to compute.
        engine: Only this engine's, 0 for those of all but the daemon's own drill.
    """
    wanted = lookups().order_by(LOOKUP.c.seq.desc()).limit(last)
    if before:
        wanted = wanted.where(LOOKUP.c.seq < before)
    if misses:
        wanted = wanted.where(or_(LOOKUP.c.lease == 0, _is_cut_short()))
    # Verdicts have no index by engine; between its entry and its end they are found by their events
    whose = (LOOKUP.c.engine == engine, *_in_its_life(engine)) if engine else (USED,)
    wanted = wanted.where(*whose)
    rows = connection.execute(wanted).all()
    cuts = _cuts(connection, [row.seq for row in rows])
    return [_streamed(row, cuts.get(row.seq, [])) for row in rows]


def one_verdict(connection: Connection, seq: int) -> VerdictPage:
    """Return one verdict.

    Raises:
        NotFoundError: The event is no verdict that is known.
    """
    row = connection.execute(lookups().where(LOOKUP.c.seq == seq)).first()
    if row is None:
        remedy = "name one that `kvledger audit why` lists"
        raise NotFoundError(f"event {seq} is no verdict that is known", field="seq", remedy=remedy)
    notes = select(LEASE_EVENT).where(LEASE_EVENT.c.lease == row.lease).order_by(LEASE_EVENT.c.seq)
    told = connection.execute(notes).all() if row.lease else []
    kept = next((note.offer for note in told if note.what == "settled"), None)
    ended = next((note.reason for note in told if note.what == "ended"), "")
    offers = connection.execute(select(OFFER).where(OFFER.c.seq == seq).order_by(OFFER.c.number)).all()
    views = [
        Offered(
            o.number, o.cell, o.node, o.position, o.residue, o.replay, bool(o.ready), o.number == kept, bool(o.approx)
        )
        for o in offers
    ]
    streamed = _streamed(row, _cuts(connection, [seq]).get(seq, []))
    return VerdictPage(streamed, row.node, row.recoverable_tokens, row.ready_tokens, views, ended, row.wish)


def _is_cut_short() -> ColumnElement[bool]:
    cut = (CUT.c.seq == LOOKUP.c.seq, CUT.c.code != Code.LEAVE.value)
    within = (CUT.c.end_token > LOOKUP.c.offered_tokens, CUT.c.start_token < LOOKUP.c.hash_tokens)
    return and_(LOOKUP.c.offered_tokens < LOOKUP.c.hash_tokens, exists().where(*cut, *within))


def _in_its_life(engine: int) -> Sequence[Any]:
    entered = select(ENGINE.c.seq).where(ENGINE.c.engine == engine).scalar_subquery()
    ended = select(ENGINE_END.c.seq).where(ENGINE_END.c.engine == engine).scalar_subquery()
    return LOOKUP.c.seq >= func.coalesce(entered, 0), LOOKUP.c.seq <= func.coalesce(ended, LOOKUP.c.seq)


def _cuts(connection: Connection, seqs: Sequence[int]) -> dict[int, list[CutView]]:
    """Return the cuts of verdicts, longest first, each with the kind of the group that cut."""
    found: dict[int, list[CutView]] = {}
    if not seqs:
        return found
    kinds = (GROUP.c.layout == LOOKUP.c.layout) & (GROUP.c.name == CUT.c.group_name)
    wanted = (
        select(CUT, GROUP.c.kind)
        .join(LOOKUP, LOOKUP.c.seq == CUT.c.seq)
        .outerjoin(GROUP, kinds)
        .where(CUT.c.seq.in_(seqs))
        .order_by(CUT.c.seq, CUT.c.number)
    )
    for row in connection.execute(wanted):
        # The sentence is made of all fields, and ends with the one that the others do not hold
        _, behind, detail = row.detail.partition(f" {row.code}: ")
        view = CutView(
            row.start_token,
            row.end_token,
            row.layer,
            row.code,
            row.group_name,
            row.kind or "",
            detail if behind else "",
        )
        found.setdefault(row.seq, []).append(view)
    return found


def _streamed(row: Row[Any], cuts: list[CutView]) -> StreamedVerdict:
    return StreamedVerdict(
        row.seq,
        row.time_ms,
        row.engine,
        row.name or "",
        row.layout,
        row.model,
        row.tokens,
        row.hash_tokens,
        row.offered_tokens,
        row.lease,
        cuts,
    )
