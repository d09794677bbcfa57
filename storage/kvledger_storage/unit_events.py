"""Events about units: reserved, brought by the ranks that hold a ticket, published at once or given up."""

from kvledger_storage.event_form import EventForm, Placement

__all__ = [
    "BoundaryRefused",
    "PutFinished",
    "PutStarted",
    "TicketJoined",
    "TicketsCommitted",
    "UnitAborted",
    "UnitCommitted",
    "UnitReserved",
]


class UnitReserved(EventForm, frozen=True, tag="unit_reserved.1"):
    """Slots were reserved for a unit.

    Attributes:
        unit: Its receipt, which is the generation of all its slots.
        engine: Who reserved.
        layout: Number of the layout.
        tree: Number of the index tree.
        parent: Deepest node of the path that stays whatever made room for the unit.
        fresh: Hashes of the blocks below it, 32 bytes each; nodes are made for those that have none.
        first_block: First block whose rows belong to the unit.
        boundary: Whether its end becomes a boundary.
        all_pages: Whether every window page of its blocks belongs to it.
        residue: Tokens after the last whole block.
        residue_hash: Their hash.
        placements: Slot of each object of the unit's order; (0, 0) for those that were there already.
        connection: The connection that reserved, which holds every ticket that no other has joined.
        lineage: Under strict provenance, hash of the rows before its first block on which it builds.
        sources: Cells of another layout from which the daemon itself converts the unit's bytes; empty if its engine
            brings them.
        approx: What it brings is an approximation, since it was made from one or computed over one.
    """

    unit: int
    engine: int
    layout: int
    tree: int
    parent: int
    fresh: bytes
    first_block: int
    boundary: bool
    all_pages: bool
    residue: int
    residue_hash: bytes
    placements: tuple[Placement, ...]
    connection: int
    lineage: int
    sources: tuple[int, ...] = ()
    approx: bool = False


class BoundaryRefused(EventForm, frozen=True, tag="boundary_refused.1"):
    """A unit was refused since no look-up could resume at its boundary; nothing of it was stored.

    Attributes:
        engine: Who asked.
        layout: Number of the layout.
        reason: Why, for people.
    """

    engine: int
    layout: int
    reason: str


class TicketJoined(EventForm, frozen=True, tag="ticket_joined.1"):
    """A connection took a ticket, which is the right to bring what one rank holds of a unit."""

    unit: int
    ticket: int
    connection: int


class TicketsCommitted(EventForm, frozen=True, tag="tickets_committed.1"):
    """All that these tickets bring is there; others of the unit are still to be committed."""

    unit: int
    tickets: tuple[int, ...]


class PutStarted(EventForm, frozen=True, tag="put_started.1"):
    """Ranges of a unit are being copied: (index, length) each."""

    unit: int
    job: int
    ranges: tuple[tuple[int, int], ...]


class PutFinished(EventForm, frozen=True, tag="put_finished.1"):
    """A copy ended: fingerprints of the objects that are complete now, or why it failed."""

    unit: int
    job: int
    fingerprints: tuple[tuple[int, bytes], ...]
    error: str


class UnitCommitted(EventForm, frozen=True, tag="unit_committed.1"):
    """A unit was published.

    Attributes:
        unit: The reservation.
        commit_id: Couples rows with their indexer.
        dropped: Objects, by index, that another commit had published meanwhile.
        differing: Those of `dropped` whose bytes differ from what stays (`DuplicateDiffers`).
    """

    unit: int
    commit_id: int
    dropped: tuple[int, ...]
    differing: tuple[int, ...]


class UnitAborted(EventForm, frozen=True, tag="unit_aborted.1"):
    """A unit was given up; its slots are free as soon as no copy runs into them."""

    unit: int
    reason: str
