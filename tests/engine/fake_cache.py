"""The client's API over a dict, for adapter tests without a daemon; positions, sizes and needs are the real ones."""

from dataclasses import dataclass, field

from kvledger.errors import CommitRefusedError, LeaseLost
from kvledger.geometry import BOUNDARY, Geometry
from kvledger.kinds import Kind
from kvledger.verdict import Code, Cut, Layer


@dataclass
class Registered:
    """A layout as the daemon knows it."""

    layout: object
    geometry: Geometry
    digest: bytes


@dataclass
class Slot:
    """An object that a unit may bring."""

    index: int
    group: str
    shard: int
    first_token: int
    tokens: int
    length: int
    present: bool
    key: tuple


@dataclass
class Handle:
    """An object that a hit lends."""

    group: str
    shard: int
    first_token: int
    tokens: int
    length: int
    buffer: memoryview


@dataclass
class Hit:
    """A verdict with its lease."""

    tokens: int
    handles: list
    wanted: tuple
    hash_tokens: int
    cuts: tuple
    lost: bool = False

    @property
    def why(self):
        """Return the cuts as one line."""
        return "; ".join(map(str, self.cuts))

    def __bool__(self):
        return self.tokens > 0

    def __iter__(self):
        return iter(self.handles)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.check()

    def check(self):
        """Compare generations."""
        if self.lost:
            raise LeaseLost("the bytes were given to somebody else", field="generation", remedy="look up again")


class Unit:
    """A reservation of the objects from `first` block on; the commit wants all that a resume needs."""

    def __init__(self, store, objects, needed):
        self.store, self.objects, self.needed, self.data, self.aborted = store, objects, needed, {}, False

    def put(self, slot, data):
        """Copy an object."""
        assert len(data) == slot.length
        self.data[slot.key] = bytes(data)

    def commit(self):
        """Publish what was handed over, if nothing lacks."""
        lacking = [s.group for s in self.needed if s.key not in self.store.objects | self.data]
        if lacking:
            raise CommitRefusedError(f"{lacking} are missing", field="objects", remedy="put them all")
        self.store.objects |= self.data

    def abort(self):
        """Give the reservation up."""
        self.aborted = True


@dataclass
class FakeCache:
    """A cache of one tenant; `error` is raised by the next calls, `lost` loses every lease after it was given."""

    objects: dict = field(default_factory=dict)
    boundaries: set = field(default_factory=set)
    calls: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    error: Exception | None = None
    lost: bool = False

    def register(self, layout):
        """Register a layout."""
        self._fail()
        return Registered(layout, Geometry(layout), layout.digest)

    def acquire(self, layout, tokens, *, extra=None, leave=1, wait=30.0, replay=False, recompute=0):
        """Answer with the longest complete boundary; the longest incomplete one is a miss."""
        self._fail()
        self.calls.append(("acquire", len(tokens)))
        self.asked.append({"wait": wait, "replay": replay, "recompute": recompute})
        for end in range(len(tokens) - leave, 0, -1):
            slots = self._slots(layout, tokens, end, 0, extra)
            if (layout.digest, tuple(tokens[:end]), str(extra)) in self.boundaries:
                lacking = [slot.group for slot in slots if not slot.present]
                if not lacking:
                    return self._hit(layout, tokens, end, slots)
                return self._miss(layout, tokens, end, lacking[0])
        return self._miss(layout, tokens, 0, "")

    def reserve(self, layout, tokens, *, boundary, start=0, extra=None):
        """Name the objects that a resume at the boundary needs."""
        self._fail()
        self.calls.append(("reserve", boundary, start))
        self.boundaries.add((layout.digest, tuple(tokens[:boundary]), str(extra)))
        found = [self._slots(layout, tokens, boundary, first, extra) for first in (start, 0)]
        return Unit(self, *found)

    def drop(self, group):
        """Lose every object of a group, as an eviction would."""
        self.objects = {key: data for key, data in self.objects.items() if key[-1] != group}

    def _fail(self):
        if self.error is not None:
            raise self.error

    def _hit(self, layout, tokens, end, slots):
        view = {slot.key: memoryview(self.objects[slot.key]) for slot in slots}
        handles = [Handle(s.group, s.shard, s.first_token, s.tokens, s.length, view[s.key]) for s in slots]
        return Hit(end, handles, self._wanted(tokens, end), end, (), lost=self.lost)

    def _miss(self, layout, tokens, claimed, group):
        code = Code.WINDOW_MISSING if group else Code.NO_MATCH
        kind = layout.layout.group(group).kind if group else None
        cut = Cut(0, claimed or len(tokens), Layer.STATE if group else Layer.BLOCK, group, kind, code)
        assert kind is not Kind.DISK_PREFIX
        return Hit(0, [], self._wanted(tokens, 0), claimed, (cut,))

    def _wanted(self, tokens, chosen):
        return tuple(sorted({b for b in (len(tokens) - 1, len(tokens)) if b > chosen}))

    def _slots(self, layout, tokens, end, start, extra):
        geometry, step = layout.geometry, layout.layout.block_tokens
        found = []
        for index, item in enumerate(geometry.unit_objects(start // step, end, boundary=True)):
            last = end if item.block == BOUNDARY else (item.block + 1) * step
            group = layout.layout.groups[item.group].name
            place = "boundary" if item.block == BOUNDARY else "block"
            key = (layout.digest, tuple(tokens[:last]), str(extra), place, group)
            size = (item.first_token, item.tokens, item.length)
            found.append(Slot(index, group, item.shard, *size, key in self.objects, key))
        return found
