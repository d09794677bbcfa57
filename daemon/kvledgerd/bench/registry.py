"""All rows, under the names by which they are asked for."""

from collections.abc import Callable, Iterator
from typing import Final

from kvledgerd.bench.commits import commit, commits
from kvledgerd.bench.crowd import crowd
from kvledgerd.bench.durable import durable
from kvledgerd.bench.figures import Measured
from kvledgerd.bench.lookups import acquire, prompts
from kvledgerd.bench.peers.row import peers
from kvledgerd.bench.reads import read
from kvledgerd.bench.recovery import recover
from kvledgerd.bench.restores import restore
from kvledgerd.bench.scale import Scale
from kvledgerd.bench.traces import traces

__all__ = ["BENCHES", "Bench"]

Bench = Callable[[Scale], Iterator[Measured]]
"""Measures one or several rows; yields each when it is done."""

BENCHES: Final[dict[str, Bench]] = {
    "acquire": acquire,
    "prompts": prompts,
    "read": read,
    "commit": commit,
    "commits": commits,
    "durable": durable,
    "crowd": crowd,
    "recover": recover,
    "restore": restore,
    "peers": peers,
    "trace": traces,
}
"""Name to benchmark, in the order of the table."""
