"""The rows of the audit database, one class a table: the one source of schema, page and migrations' check.

What rows mean stands here and is printed in docs/audit.md. Numbers are those of the log. Hashes and fingerprints are
text in hexadecimal digits, so that a prefix of one finds it. A row is added with the event whose ``seq`` it bears and
is never changed.
"""

from typing import Final, NamedTuple

from kvledger_storage.audit_sql.story_rows import (
    CutRow,
    DeliveryRow,
    EngineEndRow,
    EvictionRow,
    LeaseEventRow,
    LookupRow,
    ObjectEventRow,
    OfferRow,
    PrefixEventRow,
    UnitEventRow,
)
from kvledger_storage.audit_sql.thing_rows import (
    CellRow,
    EngineRow,
    EventRow,
    GapRow,
    LayoutGroupRow,
    LayoutRow,
    NodeRow,
    ObjectRow,
    SourceRow,
    UnitRow,
    WatermarkRow,
)

__all__ = [
    "TABLES",
    "AnyRow",
    "CellRow",
    "CutRow",
    "DeliveryRow",
    "EngineEndRow",
    "EngineRow",
    "EventRow",
    "EvictionRow",
    "GapRow",
    "LayoutGroupRow",
    "LayoutRow",
    "LeaseEventRow",
    "LookupRow",
    "NodeRow",
    "ObjectEventRow",
    "ObjectRow",
    "OfferRow",
    "PrefixEventRow",
    "SourceRow",
    "TableForm",
    "UnitEventRow",
    "UnitRow",
    "WatermarkRow",
]

AnyRow = (
    SourceRow
    | WatermarkRow
    | GapRow
    | EventRow
    | EngineRow
    | EngineEndRow
    | LayoutRow
    | LayoutGroupRow
    | NodeRow
    | CellRow
    | ObjectRow
    | ObjectEventRow
    | UnitRow
    | UnitEventRow
    | LookupRow
    | OfferRow
    | CutRow
    | DeliveryRow
    | LeaseEventRow
    | EvictionRow
    | PrefixEventRow
)
"""A row of any table."""


class TableForm(NamedTuple):
    """How rows of one class are kept.

    Attributes:
        name: Name of the table.
        row: Class of its rows.
        key: Columns of its primary key.
        indexes: Columns of each further index.
    """

    name: str
    row: type[AnyRow]
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()


TABLES: Final = (
    TableForm("source", SourceRow, ("log_id",)),
    TableForm("watermark", WatermarkRow, ("seq",)),
    TableForm("gap", GapRow, ("seq",)),
    TableForm("event", EventRow, ("seq",), (("name",), ("time_ms",))),
    TableForm("engine", EngineRow, ("engine",), (("seq",),)),
    TableForm("engine_end", EngineEndRow, ("engine",), (("seq",),)),
    TableForm("layout", LayoutRow, ("layout",), (("seq",),)),
    TableForm("layout_group", LayoutGroupRow, ("layout", "number"), (("seq",),)),
    TableForm("node", NodeRow, ("node",), (("seq",), ("parent",), ("hash",))),
    TableForm("cell", CellRow, ("cell",), (("seq",), ("node",))),
    TableForm("object", ObjectRow, ("cell", "slot"), (("seq",),)),
    TableForm("object_event", ObjectEventRow, ("seq", "number"), (("cell", "slot"),)),
    TableForm("unit", UnitRow, ("unit",), (("seq",), ("node",))),
    TableForm("unit_event", UnitEventRow, ("unit",), (("seq",),)),
    TableForm("lookup", LookupRow, ("seq",), (("lease",),)),
    TableForm("offer", OfferRow, ("seq", "number"), (("node",), ("cell",))),
    TableForm("cut", CutRow, ("seq", "number")),
    TableForm("delivery", DeliveryRow, ("seq", "offer", "number", "shard", "first_token")),
    TableForm("lease_event", LeaseEventRow, ("seq", "lease"), (("lease",),)),
    TableForm("eviction", EvictionRow, ("seq",)),
    TableForm("prefix_event", PrefixEventRow, ("seq", "number"), (("cell",),)),
)
"""All tables, in the order of the page."""
