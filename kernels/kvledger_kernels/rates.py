"""How fast each kernel is beside the bytes that it has to move at least.

On a GPU the Triton kernels are timed by the clock, on a CPU the references that serve there by the time of one
processor, which others that share the machine do not change. A rate is the byte floor of the
docstring by the least time of several calls; what a call does beyond that floor (launches, tables on the host, a result
brought back) is in its time. ``python -m kvledger_kernels.rates [DEVICE]`` prints one line a kernel.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from kvledger.page_formats import PageFormat
from kvledger_kernels.compact import ZEROS, Move, compact
from kvledger_kernels.dequantise import dequantise
from kvledger_kernels.fingerprint import fingerprint
from kvledger_kernels.indexer_check import DIM, IndexerPages, index_scores
from kvledger_kernels.pack import pack
from kvledger_kernels.pages import PagedLayers
from kvledger_kernels.pool import Finish, RawRows, pool, pool_bytes
from kvledger_kernels.quantise import quantise, quantised_bytes
from kvledger_kernels.relayout import Conversion, relayout
from kvledger_kernels.unpack import unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["Rate", "Work", "measure", "works"]

_CALLS = 5
_LAYERS = 4
_PAGE = PageFormat("mla-v4.split", "mla-v4", (448, 128, 8), ((0, 1), (2,)), 64, 0, 37_440)
_ROWS = PageFormat("mla-v4.rows", "mla-v4", (448, 128, 8), ((0, 1, 2),), 64, 0, 37_376)
_NHD = PageFormat("kv.nhd:8", "kv", (128,) * 16, (tuple(range(8)), tuple(range(8, 16))), 16, 0, 32_768)
_HND = PageFormat("kv.hnd:8", "kv", (128,) * 16, tuple((head,) for head in range(16)), 16, 0, 32_768)
_KEYS = PageFormat("indexer-fp8.split", "indexer-fp8", (DIM, 4), ((0,), (1,)), 64, 0, 8_448)


class Work(NamedTuple):
    """One call to be timed.

    Attributes:
        name: The kernel, and of those with several usual shapes which one.
        floor: Bytes that it has to move.
        call: The call.
    """

    name: str
    floor: int
    call: Callable[[], object]

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.name.partition(" ")[0]


class Rate(NamedTuple):
    """What was measured of one call.

    Attributes:
        name: As in `Work`.
        floor: Bytes that it has to move.
        seconds: The least time of several calls.
    """

    name: str
    floor: int
    seconds: float

    @property
    def gigabytes(self) -> float:
        """Gigabytes of the floor in a second."""
        return self.floor / self.seconds / 1e9


def works(device: str, size: int) -> Iterator[Work]:
    """Give the calls on objects of about `size` bytes."""
    yield from _copies(device, size)
    yield from _conversions(device, size)
    yield from _values(device, size)
    yield from _compressors(device, size)


def _bytes(length: int, device: str) -> torch.Tensor:
    return torch.randint(0, 256, (length,), dtype=torch.uint8, device=device)


def _copies(device: str, size: int) -> Iterator[Work]:
    data = _bytes(size, device)
    yield Work("fingerprint", size, lambda: fingerprint(data))
    pages = max(1, size // _LAYERS // _PAGE.page_bytes)
    memory = [_bytes(2 * pages * _PAGE.page_bytes, device) for _ in range(_LAYERS)]
    views = [layer.view(2 * pages, -1)[:, : _PAGE.held_bytes] for layer in memory]
    layers = PagedLayers.of(views, page_bytes=_PAGE.page_bytes)
    ids, out = list(range(0, 2 * pages, 2)), _bytes(layers.object_bytes(pages), device)
    yield Work("pack", 2 * out.numel(), lambda: pack(layers, ids, out))
    yield Work("unpack", 2 * out.numel(), lambda: unpack(out, layers, ids))
    half = size // 2 // 4_096 * 4_096
    yield Work("compact move", 2 * half, lambda: compact(data, [Move(half, 0, half)]))
    yield Work("compact zeros", size, lambda: compact(data, [Move(ZEROS, 0, size)]))


def _conversions(device: str, size: int) -> Iterator[Work]:
    for name, one, other in (("split to rows", _PAGE, _ROWS), ("NHD to HND", _NHD, _HND)):
        how = Conversion(one, other, _LAYERS, max(1, size // _LAYERS // one.page_bytes) * one.rows)
        source = _bytes(how.object_bytes(one), device)
        target = torch.empty(how.object_bytes(other), dtype=torch.uint8, device=device)
        floor = 2 * how.layers * how.rows * sum(one.fields)
        yield Work(f"relayout {name}", floor, partial(relayout, how, source, target))


def _values(device: str, size: int) -> Iterator[Work]:
    values = torch.randn(size // 2, device=device).to(torch.bfloat16)
    data = torch.empty(quantised_bytes(values.numel()), dtype=torch.uint8, device=device)
    floor = values.nbytes + data.numel()
    yield Work("quantise", floor, lambda: quantise(values, data))
    back = torch.empty_like(values)
    yield Work("dequantise", floor, lambda: dequantise(data, back))


def _compressors(device: str, size: int) -> Iterator[Work]:
    for name, ratio, overlap in (("CSA", 4, True), ("HCA", 128, False)):
        width = 1024 if overlap else 512
        windows = max(1, size // (8 * ratio * width))
        kv, gate = (torch.randn(windows * ratio, width, device=device) for _ in range(2))
        rows = RawRows(kv, gate, folded=True)
        angle = torch.randn(windows, 32, device=device)
        finish = Finish(torch.randn(512, device=device), 1e-6, angle.cos(), angle.sin())
        floor = pool_bytes(windows, ratio, 512, overlap=overlap)
        yield Work(f"pool {name}", floor, partial(pool, rows, ratio, finish, overlap=overlap))
    pages = max(1, size // 16 // _KEYS.page_bytes)
    keys = IndexerPages.of(_bytes(pages * _KEYS.page_bytes, device), _KEYS, range(pages), pages * _KEYS.rows)
    queries, weights = torch.randn(4, 16, DIM, device=device), torch.randn(4, 16, device=device)
    limits = torch.full((4,), keys.rows, dtype=torch.int32, device=device)
    floor = keys.rows * (DIM + 4 + 4 * 4)
    yield Work("indexer_check", floor, lambda: index_scores(keys, queries, weights, limits))


def measure(device: str, size: int, *, leave_out: Collection[str] = ()) -> Iterator[Rate]:
    """Time every call and yield its rate; each is called once before, which compiles it.

    Args:
        device: Where.
        size: Bytes of the objects, about.
        leave_out: Kernels of which no time is to be told, since they are not right.
    """
    for work in works(device, size):
        if work.kernel in leave_out:
            continue
        work.call()
        yield Rate(work.name, work.floor, min(_seconds(work.call, device) for _ in range(_CALLS)))


def _seconds(call: Callable[[], object], device: str) -> float:
    """Return the time of a call: on a GPU until all of its work is done, on a CPU the time of the processor."""
    if torch.device(device).type != "cuda":
        began = time.process_time()
        call()
        return time.process_time() - began
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    call()
    torch.cuda.synchronize(device)
    return time.perf_counter() - began


def main() -> int:
    """Print a line for each call."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    torch.set_num_threads(1)
    for rate in measure(device, 256 << 20 if device != "cpu" else 64 << 20):
        sys.stdout.write(f"{rate.name:24} {rate.floor / 1e6:8.1f} MB {rate.seconds * 1e3:9.2f} ms ")
        sys.stdout.write(f"{rate.gigabytes:8.2f} GB/s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
