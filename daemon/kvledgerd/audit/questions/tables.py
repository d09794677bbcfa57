"""The tables under short names, look-ups with who asked, and the paths of blocks: shared by all questions."""

from typing import Any, Final

from sqlalchemy import CTE, Select, select

from kvledger_storage.audit_sql import rows
from kvledger_storage.audit_sql.schema import table
from kvledgerd.core.config import DRILL_TENANT

__all__ = [
    "CELL",
    "CUT",
    "DELIVERY",
    "ENGINE",
    "ENGINE_END",
    "EVENT",
    "EVICTION",
    "GROUP",
    "LAYOUT",
    "LEASE_EVENT",
    "LOOKUP",
    "NODE",
    "OBJECT",
    "OBJECT_EVENT",
    "OFFER",
    "PREFIX_EVENT",
    "UNIT",
    "UNIT_EVENT",
    "USED",
    "before",
    "behind",
    "lookups",
    "place_text",
]

EVENT: Final = table(rows.EventRow)
ENGINE: Final = table(rows.EngineRow)
ENGINE_END: Final = table(rows.EngineEndRow)
LAYOUT: Final = table(rows.LayoutRow)
GROUP: Final = table(rows.LayoutGroupRow)
NODE: Final = table(rows.NodeRow)
CELL: Final = table(rows.CellRow)
OBJECT: Final = table(rows.ObjectRow)
OBJECT_EVENT: Final = table(rows.ObjectEventRow)
UNIT: Final = table(rows.UnitRow)
UNIT_EVENT: Final = table(rows.UnitEventRow)
LOOKUP: Final = table(rows.LookupRow)
OFFER: Final = table(rows.OfferRow)
CUT: Final = table(rows.CutRow)
DELIVERY: Final = table(rows.DeliveryRow)
LEASE_EVENT: Final = table(rows.LeaseEventRow)
EVICTION: Final = table(rows.EvictionRow)
PREFIX_EVENT: Final = table(rows.PrefixEventRow)

USED: Final = LAYOUT.c.tenant != DRILL_TENANT
"""That a layout is one that somebody uses, and not the daemon's own, by which its drill tries whether it works."""


def lookups() -> Select[Any]:
    """Return all look-ups, each with its time, the name of its engine, and its model; joined with their layouts."""
    return (
        select(LOOKUP, EVENT.c.time_ms, ENGINE.c.name, LAYOUT.c.model)
        .join(EVENT, EVENT.c.seq == LOOKUP.c.seq)
        .join(LAYOUT, LAYOUT.c.layout == LOOKUP.c.layout)
        .outerjoin(ENGINE, ENGINE.c.engine == LOOKUP.c.engine)
    )


def behind(node: int) -> CTE:
    """Return a block and all blocks behind it, in its column `node`."""
    found = select(NODE.c.node).where(NODE.c.node == node).cte("behind", recursive=True)
    return found.union(select(NODE.c.node).where(NODE.c.parent == found.c.node))


def before(start: Select[Any]) -> CTE:
    """Return the blocks that `start` selects by number and all blocks before them, in its columns `node`, `parent`."""
    mine = select(NODE.c.node, NODE.c.parent).where(NODE.c.node.in_(start))
    found = mine.cte("before", recursive=True)
    return found.union(select(NODE.c.node, NODE.c.parent).where(NODE.c.node == found.c.parent))


def place_text(first: int, end: int) -> str:
    """Return the tokens that an object stands for, for people."""
    return f"tokens [{first}, {end})" if end > first else f"boundary at {first}"
