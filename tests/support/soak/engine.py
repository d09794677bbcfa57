"""One engine of a soak: it looks prompts up, verifies what it gets, stores what it misses, and never ends by itself.

Run as `python -m support.soak.engine SOCKET TALLY SEED`. Hits are kept for a while and verified once more just before
their lease is returned, so that memory which moves under a lease would be seen.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from pathlib import Path

from kvledger import Cache
from kvledger.errors import DisconnectedError, KVLedgerError, LeaseLost
from support.soak.contents import LAYOUTS, PROMPTS, Wish, content, wish
from support.soak.tally import Tally

__all__ = ["Engine"]

_HELD = 3
_RING_BYTES = 4 << 20
_RESTORE_SECONDS = 5.0
_OFFLOADED, _EVICTED = 0.1, 0.02  # shares of all prompts


class Engine:
    """An engine with its connection.

    Args:
        socket: The daemon's socket.
        tally: What it counts.
        seed: Decides what it asks for.
    """

    def __init__(self, socket: str, tally: Tally, seed: int) -> None:
        self._tally = tally
        self._chance = random.Random(seed)
        self._cache = Cache.open(socket, staging_bytes=_RING_BYTES, timeout=60)
        self._layouts = [self._cache.register(layout) for layout in LAYOUTS]
        self._held: list[tuple] = []

    def step(self) -> None:
        """Serve one prompt as an engine does: look up, read, compute the rest, store; now and then more than that."""
        layout = self._chance.choice(self._layouts)
        asked = wish(int(PROMPTS * self._chance.random() ** 3))
        hit = self._cache.acquire(layout, [*asked.tokens, 0], wait=_RESTORE_SECONDS)
        found = hit.tokens
        if hit:
            self._tally.add("reads")
            self._verify(hit, layout.layout.model, asked)
            self._held.append((hit, layout.layout.model, asked))
        else:
            self._tally.add("misses")
        for end in asked.turns:
            if end > found:
                self._store(layout, asked, end)
        self._now_and_then(layout, asked)
        while len(self._held) > self._chance.randrange(_HELD + 1):
            self._let_go()

    def _verify(self, hit, model: str, asked: Wish) -> None:
        """Compare every byte of a hit with what it must be, and ask the generations whether the comparison counts."""
        handles = list(hit)
        wrong = [handle for handle in handles if bytes(handle.buffer) != content(model, handle, asked.tokens)]
        hit.check()
        self._tally.add("verified", len(handles))
        self._tally.add("verified_bytes", sum(handle.length for handle in handles))
        for handle in wrong:
            self._tally.add("wrong_bytes")
            sys.stderr.write(f"WRONG BYTES: {model} {handle!r} of a hit of {hit.tokens} tokens\n")

    def _let_go(self) -> None:
        """Verify a hit once more and return its lease."""
        hit, model, asked = self._held.pop(self._chance.randrange(len(self._held)))
        with hit:
            self._verify(hit, model, asked)

    def _store(self, layout, asked: Wish, end: int) -> None:
        with self._cache.reserve(layout, asked.tokens, boundary=end) as unit:
            for slot in unit.objects:
                if not slot.present:
                    unit.put(slot, content(layout.layout.model, slot, asked.tokens))
                    self._tally.add("stored_bytes", slot.length)
        self._tally.add("commits")

    def _now_and_then(self, layout, asked: Wish) -> None:
        dice, end = self._chance.random(), asked.turns[-1]
        if dice < _OFFLOADED:
            self._cache.offload(layout, asked.tokens, boundary=end, drop_memory=dice < _OFFLOADED / 2)
            self._tally.add("offloads")
        elif dice < _OFFLOADED + _EVICTED:
            group = self._chance.choice(layout.layout.groups)
            self._cache.evict(layout, asked.tokens, boundary=end, kind=group.kind, group=group.name)
            self._tally.add("evictions")

    def live(self) -> None:
        """Go on for ever, whatever is refused."""
        while True:
            try:
                self.step()
            except LeaseLost:
                self._tally.add("leases_lost")
                self._forget()
            except DisconnectedError:
                self._tally.add("disconnected")
                self._forget()
                time.sleep(0.05)
            except KVLedgerError as error:
                self._tally.add("refused")
                sys.stderr.write(f"refused: {type(error).__name__}: {error}\n")

    def _forget(self) -> None:
        held, self._held = self._held, []
        for hit, _, _ in held:
            with contextlib.suppress(KVLedgerError):
                hit.release()


def main() -> None:
    """Run an engine as the command line says."""
    socket, tally, seed = sys.argv[1:]
    counts = Tally(Path(tally))
    while True:
        try:
            Engine(socket, counts, int(seed)).live()
        except KVLedgerError:
            time.sleep(0.1)  # the daemon is on its way back


if __name__ == "__main__":
    main()
