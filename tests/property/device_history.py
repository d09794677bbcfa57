"""A random history in which engines also have device pools: small ones, in which something always has to go."""

from typing import ClassVar

from kvledger.wire.replies import Committed, Failed, PagesGiven, PoolRegistered
from kvledger.wire.requests import AskPages, DropPool, FreePages, GivePagesUp
from property.test_core_histories import PROMPTS, History
from support.devices import Pages, wish

__all__ = ["DeviceHistory"]


class DeviceHistory(History):
    """See `History`; engines set pages aside for each layout, and again when they have dropped them."""

    deeds: ClassVar = History.deeds | {
        "ask": 6, "filled": 6, "give_up": 1, "free": 4, "drop_pool": 1, "set_aside": 3, "capture": 6, "restart": 2,
    }  # fmt: skip

    def join(self) -> None:
        """Let two engines in, the first of which has pools already."""
        super().join()
        self.asked: list[tuple[Pages, PagesGiven, int, int]] = []
        self.filled_ones: list[tuple[Pages, int, int]] = []  # pool, prompt and end of what was filled
        self.pools: list[Pages] = []
        self.set_aside(0)

    def set_aside(self, index: int | None = None) -> None:
        """Register what an engine has not: one pool for each layout, with fewer pages than its prompts need."""
        index = self.random.randrange(2) if index is None else index
        user = self.users[index]
        self.pools = [pages for pages in self.pools if pages.number in self.world.state.device_pools]
        there = [pages.pool.known.number for pages in self.pools if pages.user is user]
        for number in self.numbers[index]:
            known = self.world.state.layouts[number]
            if number not in there and known.epoch.takes_commits(known.layout):
                at = 0x1000_0000_0000 * number
                memory = {"address": at, "memory": b"%d" % at, "device": f"gpu:{index}"}
                reply = user.ask(wish(user, number, 7, **memory, pool=self.kept(memory)))
                if isinstance(reply, PoolRegistered):
                    self.pools.append(Pages(user, reply.pool))
                    self.count("found again" if reply.kept else "set aside")

    def kept(self, memory: dict) -> int:
        """Return the pool that a topology keeps in this memory, 0 if there is none."""
        pools = self.world.state.device_pools.values()
        found = (p.id for p in pools if not p.engine and (p.added.memory, p.added.device) == tuple(memory.values())[1:])
        return next(found, 0)

    def pick(self):
        """Pick now and then what an engine has filled lately, so that look-ups and frees meet it."""
        there = self.there()
        if there and self.random.random() < 0.3:
            pages, prompt, end = self.random.choice(there)
            return self.users.index(pages.user), pages.pool.known.number, PROMPTS[prompt], end
        return super().pick()

    def there(self) -> list[tuple[Pages, int, int]]:
        """Return what was filled last in pools that are still there."""
        pools = self.world.state.device_pools
        return [one for one in self.filled_ones if one[0].number in pools and one[0].user in self.users][-4:]

    def living(self) -> list[Pages]:
        """Return one of the pools that are still there, as a list; empty if there is none."""
        return self.some([pages for pages in self.pools if pages.number in self.world.state.device_pools])

    def ask(self) -> None:
        """Ask for pages; there may not be enough."""
        for pages in self.living():
            _, _, prompt, end = self.pick()
            at = pages.user.boundary(pages.pool.known.number, prompt, end)
            reply = pages.user.ask(AskPages(pages.number, at))
            if isinstance(reply, PagesGiven):
                self.asked.append((pages, reply, PROMPTS.index(prompt), end))
                self.count("victims named" if reply.victims else "pages given")
            else:
                self.count("pages refused")

    def filled(self) -> None:
        """Fill what was asked for, if it is still wanted."""
        for one in self.some(self.asked):
            pages, given, prompt, end = one
            self.asked.remove(one)
            if given.unit in self.world.state.asked:
                reply = pages.fill(given, seed=self.seed(prompt))
                self.count("resident" if isinstance(reply, Committed) else "not filled")
                self.filled_ones.append((pages, prompt, end))

    def give_up(self) -> None:
        """Give asked pages back."""
        for one in self.some(self.asked):
            self.asked.remove(one)
            one[0].user.ask(GivePagesUp(one[1].unit))

    def free(self) -> None:
        """Free copies of one group along a prefix, all of them or those that are passed."""
        for pages, index, end in self.some(self.there()):
            known, whole = pages.pool.known, self.random.random() < 0.5
            spec = self.random.choice(known.layout.groups)
            at = pages.user.boundary(known.number, PROMPTS[index], end)
            reply = pages.user.ask(FreePages(spec.kind, pages.number, at, spec.name, whole))
            if not isinstance(reply, Failed):
                self.count("freed" if reply.dropped else "kept" if reply.kept else "nothing to free")

    def drop_pool(self) -> None:
        """Take a pool back, unless it is in use."""
        for pages in self.living():
            self.count("in use" if isinstance(pages.user.ask(DropPool(pages.number)), Failed) else "dropped")
