"""Whether a prompt can resume at a boundary now, as far as that rests on blocks: all rows, and the end of each window.

A path may have thousands of blocks, and many boundaries of one answer share most of theirs. So each block is asked once
for all of them, and they are put together from the root on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Subquery, and_, func, select

from kvledger_storage.audit_sql.thing_rows import WHOLE_PATH
from kvledgerd.audit.questions.kept import is_kept, state_now
from kvledgerd.audit.questions.tables import CELL, GROUP, NODE, OBJECT, before

__all__ = ["End", "resumes_at"]

_Block = tuple[int, int]
"""Layout and block."""


class End(NamedTuple):
    """Where a prompt may resume: layout, last whole block, tokens before it, and tokens of a block."""

    layout: int
    node: int
    position: int
    block_tokens: int


class _Window(NamedTuple):
    """A group of window pages: its number, how many tokens before a boundary it has to reach, and its shards."""

    number: int
    reach: int
    shards: int


def resumes_at(connection: Connection, ends: Sequence[End]) -> dict[End, bool]:
    """Return for each boundary whether its blocks hold what it needs; those of layouts without a reach are left out."""
    layouts = sorted({end.layout for end in ends})
    rows, windows, unknown = _needs(connection, layouts)
    known = [end for end in ends if end.layout not in unknown]
    if not known:
        return {}
    path = before(select(NODE.c.node).where(NODE.c.node.in_({end.node for end in known})))
    parents = {row.node: row.parent for row in connection.execute(select(path.c.node, path.c.parent))}
    in_path = and_(CELL.c.node.in_(select(path.c.node)), CELL.c.layout.in_(layouts), CELL.c.residue < 0)
    held = _rows_held(connection, in_path)
    whole = {layout: _whole_paths(parents, layout, held, count) for layout, count in rows.items()}
    starts = [end.position - window.reach for end in known for window in windows[end.layout]]
    pages = _pages_held(connection, and_(in_path, OBJECT.c.end_token > min(starts))) if starts else {}
    return {
        end: (not end.node or end.node in whole[end.layout])
        and all(_reaches(end, window, parents, pages) for window in windows[end.layout])
        for end in known
    }


def _needs(connection: Connection, layouts: Sequence[int]) -> tuple[dict[int, int], dict[int, list[_Window]], set[int]]:
    """Return by layout the row objects of a block, and the windows; and the layouts of which that is not known."""
    rows, unknown = dict.fromkeys(layouts, 0), set[int]()
    windows: dict[int, list[_Window]] = {layout: [] for layout in layouts}
    for group in connection.execute(select(GROUP).where(GROUP.c.layout.in_(layouts))):
        if group.reach is None:
            unknown.add(group.layout)
        elif group.reach == WHOLE_PATH:
            rows[group.layout] += group.shards
        elif group.reach:
            windows[group.layout].append(_Window(group.number, group.reach, group.shards))
    return rows, windows, unknown


def _objects_held(in_path: ColumnElement[bool], *, rows: bool) -> tuple[Subquery, ColumnElement[bool]]:
    """Return the objects of a path, rows or window pages, with their states, and which of them are kept."""
    of_group = and_(GROUP.c.layout == CELL.c.layout, GROUP.c.number == OBJECT.c.number)
    objects = (
        select(CELL.c.layout, CELL.c.node, OBJECT.c.number, OBJECT.c.first_token, OBJECT.c.end_token)
        .add_columns(state_now().label("state"))
        .join(OBJECT, OBJECT.c.cell == CELL.c.cell)
        .join(GROUP, of_group)
        .where(in_path, GROUP.c.reach == WHOLE_PATH if rows else GROUP.c.reach > 0)
        .subquery()
    )
    return objects, is_kept(objects.c.state)


def _rows_held(connection: Connection, in_path: ColumnElement[bool]) -> dict[_Block, int]:
    objects, kept = _objects_held(in_path, rows=True)
    counted = select(objects.c.layout, objects.c.node, func.count().label("rows")).where(kept)
    found = connection.execute(counted.group_by(objects.c.layout, objects.c.node))
    return {(row.layout, row.node): row.rows for row in found}


def _pages_held(connection: Connection, in_path: ColumnElement[bool]) -> dict[_Block, list[tuple[int, int, int]]]:
    """Return by block the pages that are kept: number of the group, first token, and the one behind the last."""
    objects, kept = _objects_held(in_path, rows=False)
    found: dict[_Block, list[tuple[int, int, int]]] = {}
    for row in connection.execute(select(objects).where(kept)):
        found.setdefault((row.layout, row.node), []).append((row.number, row.first_token, row.end_token))
    return found


def _whole_paths(parents: dict[int, int], layout: int, held: dict[_Block, int], count: int) -> set[int]:
    """Return the blocks up to which all rows are kept; a block has a greater number than the one before it."""
    found = {0}
    for node in sorted(parents):
        if parents[node] in found and held.get((layout, node), 0) == count:
            found.add(node)
    return found


def _reaches(
    end: End, window: _Window, parents: dict[int, int], pages: dict[_Block, list[tuple[int, int, int]]]
) -> bool:
    """Tell whether a window's pages are kept from its first token to the end of the last whole block."""
    start = max(0, end.position - window.reach)
    behind = at = end.position - end.position % end.block_tokens
    node, held = end.node, 0
    while at > start:
        mine = (page for page in pages.get((end.layout, node), ()) if page[0] == window.number)
        held += sum(max(0, min(last, behind) - max(first, start)) for _, first, last in mine)
        node, at = parents[node], at - end.block_tokens
    return held == window.shards * max(0, behind - start)
