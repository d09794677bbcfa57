"""What engines hold: leases on what is there, units of what will be, and the jobs that the daemon runs for them."""

from kvledger.geometry import BOUNDARY, UnitObject
from kvledger_storage.events import OfferRecord
from kvledgerd.core.index import Cell, Copy, Node

__all__ = [
    "ArenaJob",
    "Engine",
    "Job",
    "Lease",
    "OffloadJob",
    "RelocationJob",
    "RestoreJob",
    "Unit",
    "VerifyJob",
]


class Engine:
    """One serving process with its workers."""

    __slots__ = ("key", "leases", "name", "number", "pid", "pools", "silent", "tenant", "uid", "units")

    def __init__(self, number: int, key: bytes, tenant: str, uid: int, pid: int, name: str) -> None:
        self.number = number
        self.key = key
        self.tenant = tenant
        self.uid = uid
        self.pid = pid
        self.name = name
        self.silent = False
        self.leases: dict[int, None] = {}
        self.units: dict[int, None] = {}
        self.pools: dict[int, None] = {}


class Lease:
    """A receipt that keeps what a verdict names where it is.

    Attributes:
        id: The receipt.
        engine: Its owner.
        layout: Number of the layout.
        node: Deepest node whose block it keeps.
        blocks: Cells of the blocks from the root on.
        offers: The offers, best first.
        boundaries: The boundary cell of each offer, None where it needs none.
        pools: Device pools of its engine whose copies it keeps as well.
    """

    __slots__ = ("blocks", "boundaries", "engine", "id", "layout", "node", "offers", "pools")

    def __init__(self, number: int, engine: int, layout: int, node: Node) -> None:
        self.id = number
        self.engine = engine
        self.layout = layout
        self.node = node
        self.blocks: list[Cell] = []
        self.offers: list[OfferRecord] = []
        self.boundaries: list[Cell | None] = []
        self.pools: tuple[int, ...] = ()

    def cells(self) -> list[Cell]:
        """Return every cell that it pins, one entry a pin."""
        return [*self.blocks, *(c for c in self.boundaries if c is not None)]


class Unit:
    """A reservation: slots that become objects together, or not at all.

    Attributes:
        id: The receipt, and the generation of its slots.
        path: Nodes of its whole blocks from the root on.
        node: Node of its end.
        objects: Its objects in the order of `Geometry.unit_objects`.
        places: (arena, offset) of each object, None for those that were there already.
        filled: Bytes that were handed over of each object.
        prints: Fingerprint of each complete object, empty before.
        pinned: Cells pinned for what was there already.
        jobs: Copies that run into its slots.
        aborted: It was given up; its slots are freed when the last copy ended.
        holder: The connection that reserved it; it holds every ticket that no other has joined.
        joined: Ticket to the connection that joined it.
        done: Tickets that were committed.
        lineage: Under strict provenance, hash of the rows before its first block on which it builds.
        converts: Whether the daemon brings its bytes, out of cells of another layout that are pinned with it.
        approx: Whether its bytes were made from, or computed over, approximations.
    """

    __slots__ = (
        "aborted",
        "approx",
        "boundary",
        "converts",
        "done",
        "engine",
        "filled",
        "first_block",
        "holder",
        "id",
        "jobs",
        "joined",
        "layout",
        "lineage",
        "node",
        "objects",
        "path",
        "pinned",
        "places",
        "prints",
        "residue",
        "residue_hash",
    )

    def __init__(self, number: int, engine: int, layout: int, path: list[Node], node: Node) -> None:
        self.id = number
        self.engine = engine
        self.layout = layout
        self.path = path
        self.node = node
        self.first_block = 0
        self.boundary = False
        self.residue = 0
        self.residue_hash = b""
        self.objects: list[UnitObject] = []
        self.places: list[tuple[int, int] | None] = []
        self.filled: list[int] = []
        self.prints: list[bytes] = []
        self.pinned: list[Cell] = []
        self.jobs: dict[int, None] = {}
        self.aborted = False
        self.holder = 0
        self.joined: dict[int, int] = {}
        self.done: dict[int, None] = {}
        self.lineage = 0
        self.converts = False
        self.approx = False

    def end(self, block_tokens: int) -> int:
        """Return the token after its last."""
        return len(self.path) * block_tokens + self.residue

    def node_of(self, item: UnitObject) -> Node:
        """Return the node under which one of its objects lies."""
        return self.node if item.block == BOUNDARY else self.path[item.block]

    def missing(self) -> list[int]:
        """Return the indices of the objects that it brings."""
        return [i for i, place in enumerate(self.places) if place is not None]


class ArenaJob:
    """An arena is being made."""

    __slots__ = ("arena", "id")

    def __init__(self, number: int, arena: int) -> None:
        self.id = number
        self.arena = arena


class VerifyJob:
    """Memory copies are being hashed."""

    __slots__ = ("id", "objects")

    def __init__(self, number: int, objects: list[Copy]) -> None:
        self.id = number
        self.objects = objects


class OffloadJob:
    """A boundary is being written to disk; the boundary's cell will hold the manifest.

    It is `asked` for by an engine, or written by the daemon itself. `precisions` are those of its objects in the order
    of these; empty if it writes what was committed.
    It is `void` once its objects became invalid: its answer frees what it holds and changes nothing else.
    """

    __slots__ = ("asked", "boundary", "id", "objects", "precisions", "void")

    def __init__(self, number: int, boundary: Cell, objects: list[Copy]) -> None:
        self.id = number
        self.boundary = boundary
        self.objects = objects
        self.asked = True
        self.precisions: tuple[int, ...] = ()
        self.void = False

    @property
    def layout(self) -> int:
        """Number of the layout of all that it writes."""
        return self.boundary.layout


class RestoreJob:
    """Objects are being read back; `places` are their slots, private until verified. A `promotion` is no use of them.

    It is `void` once its objects became invalid: its answer frees what it holds and changes nothing else.
    """

    __slots__ = ("generation", "id", "objects", "places", "promotion", "void")

    def __init__(self, number: int, generation: int, objects: list[Copy], places: list[tuple[int, int]]) -> None:
        self.id = number
        self.generation = generation
        self.objects = objects
        self.places = places
        self.promotion = False
        self.void = False

    @property
    def layout(self) -> int:
        """Number of the layout of all that it reads."""
        return self.objects[0][0].layout


class RelocationJob:
    """Objects are being copied to other places; `places` are their slots, private until it is decided anew.

    `sources` are arena, offset and generation of each when the copy began: an object that lies elsewhere when the copy
    ends is another one, and stays.
    """

    __slots__ = ("generation", "id", "objects", "places", "sources")

    def __init__(
        self,
        number: int,
        generation: int,
        objects: list[Copy],
        places: list[tuple[int, int]],
        sources: list[tuple[int, int, int]],
    ) -> None:
        self.id = number
        self.generation = generation
        self.objects = objects
        self.places = places
        self.sources = sources


Job = ArenaJob | VerifyJob | OffloadJob | RestoreJob | RelocationJob
