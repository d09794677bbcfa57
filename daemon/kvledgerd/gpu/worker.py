"""The tensor worker of a daemon: one engine stores split pages, another one reads the same rows one after the other."""

from typing import NamedTuple

import numpy as np

from kvledger import Cache, Form, GroupSpec, KernelABI, Kind, Layout
from kvledger.conversions import conversion
from kvledger.testing import Daemon
from kvledger_kernels.relayout import Conversion, relayout_reference

__all__ = ["WorkerLine", "check_worker"]

_BLOCK = 256
_LAYERS = 8
_ROWS = 64


class WorkerLine(NamedTuple):
    """What came of it.

    Attributes:
        objects: Objects that were converted.
        equal: Whether each is what the reference makes of what was stored.
        on_gpu: Whether a GPU did it, which needs one.
    """

    objects: int
    equal: bool
    on_gpu: bool

    def __str__(self) -> str:
        equal, where = "equal" if self.equal else "DIFFERS", "a GPU" if self.on_gpu else "the CPU"
        return f"{self.objects} objects, converted by the daemon's tensor worker on {where}: {equal}"


def _layout(page_format: str, page_bytes: int) -> Layout:
    group = GroupSpec(
        name="csa",
        kind=Kind.COMPRESSED_KV,
        form=Form.ROWS,
        layers=tuple(range(_LAYERS)),
        tokens_per_row=4,
        rows_per_page=_ROWS,
        row_bytes=584,
        page_bytes=page_bytes,
        layout_id=page_format,
    )
    abi = {"csa": KernelABI(name="kvledger.gpu", layout=page_format, page_bytes=page_bytes)}
    return Layout(
        model="worker", weights_digest="none", tokenizer_digest="none", block_tokens=_BLOCK, groups=(group,), abi=abi
    )


def check_worker(daemon: Daemon, blocks: int = 16) -> WorkerLine:
    """Store a prompt in one page format, read it in another, and compare.

    Args:
        daemon: A running daemon, whose `tensor_device` does the work.
        blocks: Blocks of the prompt, one object each.
    """
    stored, asked = _layout("mla-v4.split", 37_440), _layout("mla-v4.rows", _ROWS * 584)
    tokens, noise = list(range(blocks * _BLOCK)), np.random.default_rng(1)
    written: dict[int, bytes] = {}
    with Cache.open(daemon.socket, name="worker") as cache:
        with cache.reserve(cache.register(stored), tokens, boundary=len(tokens)) as unit:
            for slot in unit.objects:
                written[slot.first_token] = noise.bytes(slot.length)
                unit.put(slot, written[slot.first_token])
        with cache.acquire(cache.register(asked), [*tokens, 0]) as hit:
            found = {handle.first_token: bytes(handle.buffer) for handle in hit}
        on_gpu = bool(cache.status().counters["tensor_gpu"])
    equal = found == {first: _converted(stored, asked, data) for first, data in written.items()}
    return WorkerLine(len(found), equal, on_gpu)


def _converted(stored: Layout, asked: Layout, data: bytes) -> bytes:
    formats = (conversion(stored, asked) or (None,))[0]
    assert formats is not None
    how = Conversion(*formats, layers=_LAYERS, rows=_BLOCK // 4)
    target = np.empty(how.object_bytes(formats[1]), dtype=np.uint8)
    relayout_reference(how, np.frombuffer(data, dtype=np.uint8), target)
    return target.tobytes()
