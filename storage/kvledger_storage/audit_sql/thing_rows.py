"""Rows about what there is: the log itself, engines, layouts, blocks, cells, objects, units."""

from typing import Final, NamedTuple

__all__ = [
    "WHOLE_PATH",
    "CellRow",
    "EngineRow",
    "EventRow",
    "GapRow",
    "LayoutGroupRow",
    "LayoutRow",
    "NodeRow",
    "ObjectRow",
    "SourceRow",
    "UnitRow",
    "WatermarkRow",
]

WHOLE_PATH: Final = -1
"""The reach of a group of which a resume needs all blocks before it."""


class SourceRow(NamedTuple):
    """The log that the database tells about: one row.

    Attributes:
        log_id: Id of the log.
        seq: Event before the first one that was projected.
    """

    log_id: str
    seq: int


class WatermarkRow(NamedTuple):
    """How far the log was projected: one row a transaction, the newest counts.

    Attributes:
        seq: Last event whose rows are here.
        chain: What the frame behind it names as its previous one.
        time_ms: When that event was recorded, ms since 1970.
    """

    seq: int
    chain: str
    time_ms: int


class GapRow(NamedTuple):
    """Events that were retired from the log before they were projected: nothing is known of them.

    Attributes:
        seq: The last of them.
        first_seq: The first of them.
    """

    seq: int
    first_seq: int


class EventRow(NamedTuple):
    """Every event of the log.

    Attributes:
        seq: Its number.
        time_ms: When, ms since 1970.
        actor: Who caused it: ``engine:<number>``, ``daemon``, ``operator``.
        name: What happened.
        fields: The event as JSON, where no other table holds what it says.
    """

    seq: int
    time_ms: int
    actor: str
    name: str
    fields: str | None


class EngineRow(NamedTuple):
    """An engine entered.

    Attributes:
        engine: Its number.
        seq: The event.
        engine_id: What it shows in hello.
        tenant: Its tenant.
        uid: Its user.
        pid: Process of its first connection.
        name: What people call it.
    """

    engine: int
    seq: int
    engine_id: str
    tenant: str
    uid: int
    pid: int
    name: str


class LayoutRow(NamedTuple):
    """A layout became known.

    Attributes:
        layout: Its number.
        seq: The event.
        tenant: Whose it is.
        epoch: Number of its epoch.
        model: Name of the model.
        weights: Digest of the weights.
        digest: Digest of the layout.
        block_tokens: Tokens of a block.
    """

    layout: int
    seq: int
    tenant: str
    epoch: int
    model: str
    weights: str
    digest: str
    block_tokens: int


class LayoutGroupRow(NamedTuple):
    """A group of a layout.

    Attributes:
        layout: Number of the layout.
        number: Its place in the layout, from 0 on.
        seq: The event.
        name: Its name.
        kind: Its kind.
        form: How its bytes are cut.
        shards: Number of shards.
        reach: Tokens right before a boundary of which a resume there needs its blocks or pages: -1 for all, as of rows;
            0 for none, as of a state that lies at the boundary itself. Unknown where an older version told of it.
    """

    layout: int
    number: int
    seq: int
    name: str
    kind: str
    form: str
    shards: int
    reach: int | None


class NodeRow(NamedTuple):
    """A block of the index; it stays here when the cache forgets it, so that a path can be told for ever.

    Attributes:
        node: Its number.
        seq: The event that made it.
        parent: The block before it, 0 for none.
        depth: Blocks from the root to its end.
        hash: Its chain hash.
    """

    node: int
    seq: int
    parent: int
    depth: int
    hash: str


class CellRow(NamedTuple):
    """What one layout keeps at one place: a block, or a boundary.

    Attributes:
        cell: Its number.
        seq: The event that made it.
        layout: Number of the layout.
        node: Its block; of a boundary the last whole one, 0 for none.
        position: Tokens before its end.
        residue: Tokens after the last whole block; -1 for a block.
    """

    cell: int
    seq: int
    layout: int
    node: int
    position: int
    residue: int


class ObjectRow(NamedTuple):
    """An object, from its first commit on.

    Attributes:
        cell: Its cell.
        slot: Its slot there; the object is named ``cell.slot``.
        seq: The event of its first commit.
        number: Its group in the layout.
        shard: Its shard.
        kind: Its kind.
        first_token: First token that it stands for.
        end_token: Token behind the last; equal to `first_token` for a snapshot.
        bytes: Its size.
    """

    cell: int
    slot: int
    seq: int
    number: int
    shard: int
    kind: str
    first_token: int
    end_token: int
    bytes: int


class UnitRow(NamedTuple):
    """A unit was reserved, or pages on a device were asked for.

    Attributes:
        unit: Its receipt.
        seq: The event.
        engine: Who reserved.
        layout: Number of the layout.
        node: Its last whole block, 0 for none.
        first_block: First block whose rows it brings.
        position: Token behind its last.
        boundary: Whether its end becomes a boundary.
    """

    unit: int
    seq: int
    engine: int
    layout: int
    node: int
    first_block: int
    position: int
    boundary: bool
