"""A device pool over real device memory, and a graph that reads in place what a topology keeps there.

The engine fills pages, asks for them, registers a topology over the hit and captures a graph that copies them out. What
each replay reads is compared with the fingerprint that the handle tells. Without a GPU the copy runs uncaptured, which
shows everything but the capture.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from kvledger import Cache, Form, GroupSpec, KernelABI, Kind, Layout
from kvledger.device_view import DevicePlace
from kvledger.testing import Daemon
from kvledger_kernels.fingerprint import fingerprint

__all__ = ["GraphLine", "check_graph"]

_BLOCK = 64
_PAGE = 64 * 1024
_REPLAYS = 3


class GraphLine(NamedTuple):
    """What came of it.

    Attributes:
        objects: Objects that the graph reads in place.
        replays: How often it was replayed.
        equal: Whether each replay read the bytes of the fingerprints.
        captured: Whether it was a captured graph, which needs a GPU.
    """

    objects: int
    replays: int
    equal: bool
    captured: bool

    def __str__(self) -> str:
        how = "captured" if self.captured else "uncaptured"
        equal = "equal" if self.equal else "DIFFERS"
        return f"a graph, {how}, over {self.objects} pinned objects in a device pool: {self.replays} replays, {equal}"


def _layout() -> Layout:
    group = GroupSpec(
        name="rows",
        kind=Kind.COMPRESSED_KV,
        form=Form.ROWS,
        layers=(0, 1, 2, 3),
        rows_per_page=_BLOCK,
        row_bytes=1024,
        page_bytes=_PAGE,
        alignment=128,
    )
    abi = {"rows": KernelABI(name="kvledger.gpu", page_bytes=_PAGE, alignment=128)}
    return Layout(
        model="graph", weights_digest="none", tokenizer_digest="none", block_tokens=_BLOCK, groups=(group,), abi=abi
    )


def check_graph(daemon: Daemon, device: str, blocks: int = 16) -> GraphLine:
    """Fill a pool, pin what a look-up finds in it, and replay a graph over it.

    Args:
        daemon: A running daemon.
        device: Where the pool lies.
        blocks: Blocks of the prompt, one object each.
    """
    tokens = list(range(blocks * _BLOCK))
    memory = torch.zeros(2 * blocks * 4 * _PAGE, dtype=torch.uint8, device=device)
    with Cache.open(daemon.socket, name=f"graph on {device}") as cache:
        layout = cache.register(_layout())
        pool = cache.device_pool(device, memory.numel(), layout, address=memory.data_ptr())
        with pool.ask(tokens, boundary=len(tokens)) as unit:
            unit.filled([_fill(memory[slot.offset : slot.offset + slot.length]) for slot in unit.missing])
        with cache.acquire(layout, [*tokens, 0]) as hit:
            places = [handle.device for handle in hit if handle.device is not None]
            topology = cache.register_topology(hit)
        line = _replayed(memory, places)
        topology.check()
        topology.drop()
        pool.drop()
    return line


def _fill(page: torch.Tensor) -> int:
    page.random_(0, 256)
    return fingerprint(page)


def _replayed(memory: torch.Tensor, places: list[DevicePlace]) -> GraphLine:
    out = torch.empty(len(places), 4 * _PAGE, dtype=torch.uint8, device=memory.device)

    def read() -> None:
        for number, place in enumerate(places):
            out[number].copy_(memory[place.offset : place.offset + place.length])

    replay, equal = _captured(read, memory), True
    for _ in range(_REPLAYS):
        out.zero_()
        replay()
        equal = equal and all(fingerprint(out[n]) == place.fp64 for n, place in enumerate(places))
    return GraphLine(len(places), _REPLAYS, equal, memory.is_cuda)


def _captured(read: Callable[[], None], memory: torch.Tensor) -> Callable[[], None]:
    """Return what replays a captured graph of a call, or the call itself where there is no GPU."""
    if not memory.is_cuda:
        return read
    with torch.cuda.device(memory.device):
        read()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            read()
    return lambda: _replay(graph)


def _replay(graph: torch.cuda.CUDAGraph) -> None:
    graph.replay()
    torch.cuda.synchronize()
