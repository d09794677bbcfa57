"""What a look-up costs in the core, part by part, without sockets: for work on the hot path, not for judging it.

Each part is timed by the least of many calls, which is what remains when nobody else uses the machine. Run it as
``python benchmarks/lookup_parts.py [BLOCKS] [--profile]``.
"""

import argparse
import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from kvledger.hashing import ChainHasher, token_bytes
from kvledger.wire.framing import decode_request, encode_frame
from kvledger.wire.replies import Acquired
from kvledger.wire.requests import Acquire, Release
from kvledger_storage.events import encode
from kvledgerd.bench.layouts import five_groups
from kvledgerd.bench.offline_core import OfflineCore
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import Ask, Caller
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Decision

T = TypeVar("T")

_BLOCK_TOKENS = 128
_CALLS = 3000
_MICRO = 1e6


class _LookUp:
    """One prompt in the core, looked up again and again."""

    def __init__(self, blocks: int) -> None:
        self.core = OfflineCore(five_groups(_BLOCK_TOKENS))
        tokens = range(blocks * _BLOCK_TOKENS)
        self.core.commit(tokens)
        self.request = Acquire(1, len(tokens) + 1, ChainHasher(bytes(32), _BLOCK_TOKENS).blocks(token_bytes(tokens)))
        self.caller = Caller(1, max(self.core.state.engines), "default")
        self.ask = Ask(self.caller, self.request)
        self.frame = encode_frame(1, self.request)[4:]
        self.spent: dict[str, list[float]] = {}

    def run(self) -> None:
        """Look up and release once, keeping what each part took."""
        state = self.core.state
        self._timed("decode the request", lambda: decode_request(self.frame))
        decision = self._timed("decide the look-up", lambda: decide(state, self.ask))
        assert isinstance(decision.reply, Acquired), f"a verdict, got {decision.reply!r}"
        self._timed("encode its events", lambda: [encode(event, 1, "engine:1") for event in decision.events])
        self._timed("apply them", lambda: self._apply(decision))
        self._timed("encode the verdict", lambda: encode_frame(1, decision.reply))
        release = Ask(self.caller, Release(decision.reply.lease))
        ended = self._timed("decide the release", lambda: decide(state, release))
        self._timed("apply it", lambda: self._apply(ended))

    def _apply(self, decision: Decision) -> None:
        for event in decision.events:
            apply(self.core.state, event)

    def _timed(self, part: str, work: Callable[[], T]) -> T:
        begin = time.perf_counter()
        result = work()
        self.spent.setdefault(part, []).append(time.perf_counter() - begin)
        return result


def main() -> None:
    """Print the parts, and with ``--profile`` the functions in which the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("blocks", type=int, nargs="?", default=128)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    look_up, profile = _LookUp(arguments.blocks), cProfile.Profile()
    for _ in range(_CALLS):
        look_up.run()
    for part, seconds in look_up.spent.items():
        sys.stdout.write(f"{min(seconds) * _MICRO:8.1f} us  {part}\n")
    sys.stdout.write(f"{sum(map(min, look_up.spent.values())) * _MICRO:8.1f} us  together\n")
    if arguments.profile:
        profile.runcall(lambda: [look_up.run() for _ in range(_CALLS)])
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
