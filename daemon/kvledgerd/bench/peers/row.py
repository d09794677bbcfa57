"""The rows about peers: storing, reading, looking up and coming back, beside each other cache that is installed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from kvledgerd.bench.contents import require
from kvledgerd.bench.figures import Goal, Measured, Pair, Sense
from kvledgerd.bench.layouts import MIB
from kvledgerd.bench.peers.lmcache_server import LMCACHE
from kvledgerd.bench.peers.mooncake_store import MOONCAKE
from kvledgerd.bench.peers.ours import ours
from kvledgerd.bench.peers.redis_server import REDIS, REDIS_WITHOUT_LOG
from kvledgerd.bench.peers.system import UNITS, LostError, Peer, System, Work, tell, work_for
from kvledgerd.bench.rounds import in_turns, median_seconds, speeds, timed
from kvledgerd.bench.scale import Scale

__all__ = ["PEERS", "peers"]

PEERS: Final = (REDIS, REDIS_WITHOUT_LOG, LMCACHE, MOONCAKE)
_GIB: Final = 1 << 30
_MICRO: Final = 1e6
# Each takes seconds; the table asks for five.
_RESTARTS: Final = 5


class _Pairing(NamedTuple):
    """The two that are measured, and what with."""

    work: Work
    ours: System
    theirs: System
    peer: Peer
    words: str


def peers(scale: Scale) -> Iterator[Measured]:
    """Each peer that is there; of the others it is told what to install."""
    work = work_for(scale)
    there = [peer for peer in PEERS if _is_there(peer)]
    if not there:
        return
    with ours(work) as cache:
        _check(cache, work)
        for peer in there:
            with ExitStack() as stack:
                try:
                    system, words = stack.enter_context(peer.run(work))
                except Exception as error:  # noqa: BLE001  whatever it raises as it starts, the others are measured
                    tell(f"{peer.name} does not start here: {error}")
                    continue
                _check(system, work)
                yield from _rows(_Pairing(work, cache, system, peer, words), scale)


def _is_there(peer: Peer) -> bool:
    lacking = peer.lacks()
    if lacking and not peer.only_put:  # the configuration with all rows has told it
        tell(f"{peer.name} is not measured: {lacking}")
    return not lacking


def _check(system: System, work: Work) -> None:
    """Make sure that what is read is what was stored, and that all that is looked up is there."""
    system.put()
    require(system.get() == work.unit, "a unit that is read is the one that was stored")
    require(system.exists() == work.blocks, f"{work.blocks} blocks are there")


def _rows(pairing: _Pairing, scale: Scale) -> Iterator[Measured]:
    work, peer = pairing.work, pairing.peer
    size, amount = f"{len(work.unit) // MIB} MiB", len(work.unit) / _GIB

    def row(what: str, unit: str, goal: Goal, pairs: list[Pair]) -> Measured:
        return Measured(f"{what} ({peer.name})", unit, pairing.words, goal, pairs)

    def turns(measured: Callable[[System], float], rounds: int = scale.rounds) -> list[Pair]:
        return in_turns(lambda: measured(pairing.ours), lambda: measured(pairing.theirs), rounds)

    faster, sooner = Goal(Sense.AT_LEAST, 1.0), Goal(Sense.AT_MOST, 1.0)
    stored = turns(lambda system: timed(system.put))
    yield row(f"put {size}", "GiB/s", faster, speeds(stored, amount))
    if peer.only_put:
        return
    read = turns(lambda system: timed(system.get))
    yield row(f"get {size}", "GiB/s", faster, speeds(read, amount))
    found = turns(lambda system: median_seconds(system.exists, scale.calls) * _MICRO)
    yield row(f"exists of {work.blocks} blocks", "us", Goal(Sense.AT_MOST, peer.exists_bound), found)
    _check(pairing.ours, work)
    _check(pairing.theirs, work)
    try:
        back = turns(lambda system: system.restart(), min(scale.rounds, _RESTARTS))
    except LostError as error:
        tell(f"{peer.name} has no row for restart: {error}")
    else:
        yield row(f"restart with {UNITS} x {size}", "s", sooner, back)
