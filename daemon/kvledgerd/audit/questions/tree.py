"""The prefix tree, a level at a time: what branches where, and what is kept along each branch now.

A prompt of a million tokens is a path of thousands of blocks, most with one child. So a branch is a run of blocks that
ends where the tree parts, where a boundary lies, or after `RUN` blocks; and a level has at most `BRANCHES`. However
large a tree is, a level costs a bounded number of rows. The daemon's own blocks are left out: its drill makes a new
one each minute, which would bury what everybody else stored.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import CTE, ColumnElement, Connection, exists, func, literal, select

from kvledger.errors import NotFoundError
from kvledgerd.audit.questions.boundaries import Boundary, boundaries_at, has_boundary
from kvledgerd.audit.questions.kept import Kept, state_now, tally
from kvledgerd.audit.questions.tables import CELL, LAYOUT, NODE, OBJECT, USED, before

__all__ = ["BRANCHES", "RUN", "Branch", "Level", "Place", "level_below", "place_of"]

BRANCHES: Final = 40
"""Branches of one answer."""
RUN: Final = 128
"""Blocks of one branch."""
_ANCESTORS: Final = 8


class Branch(msgspec.Struct, frozen=True):
    """A run of blocks without a fork.

    Attributes:
        first: Its first block.
        last: Its last block, at which boundaries may lie and behind which the tree goes on.
        depth: Blocks from the root to its end.
        blocks: How many blocks it has.
        tokens: Tokens from the root to its end, 0 if nothing was ever stored there.
        hash: Chain hash of its last block.
        goes_on: Whether there are blocks behind it.
        kept: What is kept along it now, by kind.
        boundaries: Boundaries at its end, newest first, at most `boundaries.BOUNDARIES`.
    """

    first: int
    last: int
    depth: int
    blocks: int
    tokens: int
    hash: str
    goes_on: bool
    kept: list[Kept]
    boundaries: list[Boundary]


class Level(msgspec.Struct, frozen=True):
    """Branches behind one block, newest first; `next` is the block before which more follow, 0 if none do."""

    branches: list[Branch]
    next: int


class Place(msgspec.Struct, frozen=True):
    """A block and where it lies: its hash, tokens before its end, and the nearest forks before it, from the root on."""

    node: int
    depth: int
    tokens: int
    hash: str
    forks: list[tuple[int, int]]


def level_below(connection: Connection, node: int, earlier: int = 0) -> Level:
    """Return the branches behind a block.

    Args:
        connection: Where to ask.
        node: The block, 0 for the root.
        earlier: Only branches whose first block is older than this one, 0 for the newest.
    """
    wanted = select(NODE.c.node).where(NODE.c.parent == node).order_by(NODE.c.node.desc()).limit(BRANCHES + 1)
    if earlier:
        wanted = wanted.where(NODE.c.node < earlier)
    if not node:
        wanted = wanted.where(~_is_drills(NODE.c.node))
    firsts = list(connection.execute(wanted).scalars())
    shown = firsts[:BRANCHES]
    return Level(list(_branches(connection, shown)), shown[-1] if len(firsts) > BRANCHES else 0)


def place_of(connection: Connection, node: int) -> Place:
    """Return where a block lies.

    Raises:
        NotFoundError: There was never such a block.
    """
    row = connection.execute(select(NODE).where(NODE.c.node == node)).first()
    if row is None:
        raise NotFoundError(f"no block {node} is known", field="node", remedy="begin at the root of the tree")
    path = before(select(NODE.c.node).where(NODE.c.node == row.parent))
    first, other = NODE.alias("first"), NODE.alias("other")
    forks = (
        select(first.c.node, first.c.depth)
        .join(path, path.c.node == first.c.node)
        .where(select(other.c.node).where(other.c.parent == first.c.node).limit(1).offset(1).exists())
        .order_by(first.c.depth.desc())
        .limit(_ANCESTORS)
    )
    found = [(one.node, one.depth) for one in connection.execute(forks)][::-1]
    return Place(node, row.depth, _tokens(connection, [node]).get(node, 0), row.hash, found)


def _branches(connection: Connection, firsts: Sequence[int]) -> Iterator[Branch]:
    if not firsts:
        return
    run = _runs(firsts)
    ends: dict[int, Any] = {}
    for row in connection.execute(select(run, NODE.c.depth, NODE.c.hash).join(NODE, NODE.c.node == run.c.node)):
        if row.first not in ends or row.length > ends[row.first].length:
            ends[row.first] = row
    lasts = [ends[first].node for first in firsts]
    kept, tokens = _kept(connection, run), _tokens(connection, lasts)
    boundaries = boundaries_at(connection, lasts)
    goes_on = set(connection.execute(select(NODE.c.parent).where(NODE.c.parent.in_(lasts)).distinct()).scalars())
    for first in firsts:
        end = ends[first]
        yield Branch(
            first,
            end.node,
            end.depth,
            end.length,
            tokens.get(end.node, 0),
            end.hash,
            end.node in goes_on,
            kept.get(first, []),
            boundaries.get(end.node, []),
        )


def _runs(firsts: Sequence[int]) -> CTE:
    """Return the blocks of each run, in the columns `first`, `node` and `length` up to there."""
    begin = select(NODE.c.node.label("first"), NODE.c.node, literal(1).label("length")).where(NODE.c.node.in_(firsts))
    run = begin.cte("run", recursive=True)
    child = NODE.alias("child")
    further = select(run.c.first, child.c.node, run.c.length + 1).join(child, child.c.parent == run.c.node)
    return run.union_all(further.where(run.c.length < RUN, ~has_boundary(run.c.node), ~_has_sibling(child)))


def _is_drills(node: ColumnElement[int]) -> ColumnElement[bool]:
    layouts = select(LAYOUT.c.layout).where(~USED)
    return exists().where(CELL.c.node == node, CELL.c.layout.in_(layouts))


def _has_sibling(child: Any) -> ColumnElement[bool]:
    other = NODE.alias("sibling")
    return exists().where(other.c.parent == child.c.parent, other.c.node != child.c.node)


def _tokens(connection: Connection, nodes: Sequence[int]) -> dict[int, int]:
    wanted = (
        select(NODE.c.node, func.max(NODE.c.depth * LAYOUT.c.block_tokens))
        .join(CELL, CELL.c.node == NODE.c.node)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .where(NODE.c.node.in_(nodes))
        .group_by(NODE.c.node)
    )
    return {node: int(tokens) for node, tokens in connection.execute(wanted)}


def _kept(connection: Connection, run: CTE) -> dict[int, list[Kept]]:
    objects = (
        select(run.c.first, OBJECT.c.kind, OBJECT.c.bytes, state_now().label("state"))
        .join(CELL, CELL.c.node == run.c.node)
        .join(OBJECT, OBJECT.c.cell == CELL.c.cell)
        .subquery()
    )
    counted = select(objects.c.first, objects.c.kind, objects.c.state, func.count(), func.sum(objects.c.bytes))
    found: dict[int, list[tuple[str, str, int, int]]] = {}
    for first, kind, state, count, size in connection.execute(
        counted.group_by(objects.c.first, objects.c.kind, objects.c.state)
    ):
        found.setdefault(first, []).append((kind, state, count, int(size)))
    return {first: tally(rows) for first, rows in found.items()}
