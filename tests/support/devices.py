"""Device pools in a world without devices: what an engine does with pages that it set aside.

Bytes lie in the world's memory under the pool's number, as those of arenas do under theirs; a lease reads both alike.
"""

from collections.abc import Sequence

from kvledger.wire.replies import Committed, Evicted, PagesGiven, Reply
from kvledger.wire.requests import AskPages, FreePages, RegisterPool, ReportFilled
from kvledgerd.core.device_pools.device import DevicePool
from support.world import User, content, mark64

__all__ = ["Pages", "set_aside", "wish"]


def wish(user: User, number: int, pages: dict[str, int] | int, **fields) -> RegisterPool:
    """A registration: `pages` for each group of a layout, or by group name."""
    groups = user.world.state.layouts[number].layout.groups
    counts = [pages if isinstance(pages, int) else pages.get(spec.name, 0) for spec in groups]
    fields.setdefault("device", "gpu:0")
    fields.setdefault("memory", b"memory %d" % user.caller.engine)
    fields.setdefault("address", 0x7F00_0000_0000)
    fields.setdefault("size", 1 << 38)
    return RegisterPool(number, pages=counts, **fields)


def set_aside(user: User, number: int, pages: dict[str, int] | int, **fields) -> "Pages":
    """Set device memory aside for objects of a layout."""
    return Pages(user, user.ok(wish(user, number, pages, **fields)).pool)


class Pages:
    """A device pool as its engine uses it."""

    def __init__(self, user: User, number: int) -> None:
        self.user = user
        self.number = number

    @property
    def pool(self) -> DevicePool:
        """The pool in the core's state."""
        return self.user.world.state.device_pools[self.number]

    def ask(self, tokens: Sequence[int], end: int | None = None, **fields) -> Reply:
        """Ask for pages, or be refused."""
        return self.user.ask(AskPages(self.number, self.user.boundary(self.pool.known.number, tokens, end), **fields))

    def fill(self, given: PagesGiven, *, seed: int = 0, settled: int | None = None) -> Reply:
        """Write recognisable bytes into asked pages and report them filled, or be refused."""
        world, prints = self.user.world, b""
        asked = world.state.asked[given.unit]
        known = world.state.layouts[asked.layout]
        for index in asked.missing():
            item, place = asked.objects[index], (self.number, asked.offsets[index])
            world.memory[place] = data = content(known.layout.groups[item.group].name, item, seed)
            world.generations[place] = given.unit
            prints += mark64(data)
        end = len(asked.path) * known.layout.block_tokens + asked.residue
        return self.user.ask(ReportFilled(given.unit, prints, end if settled is None else settled))

    def put(self, tokens: Sequence[int], end: int | None = None, *, seed: int = 0, **fields) -> Committed:
        """Ask for pages, fill them and report it."""
        given = self.ask(tokens, end, **fields)
        assert isinstance(given, PagesGiven), given
        reply = self.fill(given, seed=seed)
        assert isinstance(reply, Committed), reply
        return reply

    def free(self, tokens: Sequence[int], end: int | None, name: str, *, whole: bool = False) -> Evicted:
        """Free copies of one group along a settled prefix."""
        known = self.pool.known
        at = self.user.boundary(known.number, tokens, end)
        return self.user.ok(FreePages(known.layout.group(name).kind, self.number, at, name, whole))

    def resident(self) -> dict[str, int]:
        """Return how many copies of each group there are."""
        found: dict[str, int] = {}
        for _, slot in self.pool.copies:
            name = self.pool.known.layout.groups[self.pool.known.slot_groups[slot]].name
            found[name] = found.get(name, 0) + 1
        return found
