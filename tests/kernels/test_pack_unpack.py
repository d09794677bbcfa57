"""Pack and unpack, byte for byte. Runs again under the Triton interpreter, see test_interpreter.py.

What is expected is made here from the engine's tensors by indexing, not by the reference: so one text checks the
reference and, under the interpreter, the kernels. All memory starts as poison, and whole storages are compared, so
that a byte that was not written, and one that must not be, both show.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import pytest
import torch

from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.fingerprint import fingerprint
from kvledger_kernels.pack import pack
from kvledger_kernels.pages import PagedLayers
from kvledger_kernels.runtime import kernel_serves
from kvledger_kernels.unpack import unpack

POISON = 0xA5


class Case(NamedTuple):
    """Paged memory: the shape that is allocated, the part of it that engines fill, and what an object takes of it."""

    kind: str
    dtype: torch.dtype
    allocated: tuple[int, ...]
    used: tuple[slice, ...] = ()
    page_bytes: int | None = None
    page_ids: tuple[int, ...] = (3, 0, 4)
    layers: int = 2
    lead: int = 0

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.kind}-{'x'.join(map(str, self.allocated))}-{dtype}-page{self.page_bytes or 'full'}"


ALL = slice(None)
BF16, FP8, U8, F32 = torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.float32

CASES = [
    Case("v4-rows-padded", U8, (5, 64, 584), page_bytes=37_440),
    Case("v4-pages-padded", U8, (5, 37_440), (slice(0, 37_376),), page_bytes=37_440),
    Case("interleaved-rows", U8, (5, 32, 528), layers=3),
    Case("indexer-page", U8, (5, 64, 132)),
    Case("nhd", BF16, (5, 16, 2, 64)),
    Case("hnd-some-rows", BF16, (5, 2, 16, 64), (ALL, slice(3, 9))),
    Case("fp8-rows-with-gap", FP8, (5, 6, 48), (ALL, slice(16, 48))),
    Case("f32-words-with-gap", F32, (5, 7, 10), (ALL, slice(2, 8))),
    Case("every-second-row", U8, (5, 10, 24), (slice(0, None, 2),)),
    Case("one-byte", U8, (5, 1)),
    Case("rows-of-7", U8, (5, 7, 7)),
    Case("rows-of-63", U8, (5, 3, 100), (ALL, slice(1, 64)), page_bytes=192),
    Case("rows-of-100", U8, (5, 9, 100), page_bytes=1000),
    Case("rows-of-1000", U8, (5, 3, 1000)),
    Case("odd-pad", U8, (5, 3, 11), page_bytes=63),
    Case("odd-address", U8, (5, 4, 64), lead=1),
    Case("word-address", U8, (5, 4, 64), lead=8),
    Case("single-page", U8, (1, 40, 576), page_ids=(0,), layers=1),
    Case("all-pages-backwards", BF16, (5, 4, 24), page_ids=(4, 3, 2, 1, 0)),
    Case("many-chunks", U8, (2, 70_000), page_ids=(1,), layers=1),
]


def allocate(case: Case, *, filled: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return storages as u8 and the layers within them: all poison, or poison around what an engine filled."""
    size = int(np.prod(case.allocated)) * case.dtype.itemsize
    storages = [torch.full((case.lead + size + 16,), POISON, dtype=U8) for _ in range(case.layers)]
    layers = []
    for number, storage in enumerate(storages):
        whole = storage[case.lead : case.lead + size].view(case.dtype).view(case.allocated)
        layer = whole[(ALL, *case.used)]
        if filled:
            bits = np.random.default_rng(number).bytes(layer.numel() * case.dtype.itemsize)
            layer.copy_(torch.frombuffer(bytearray(bits), dtype=U8).view(case.dtype).view(layer.shape))
        layers.append(layer)
    return storages, layers


def image(layer: torch.Tensor) -> bytes:
    """Return the bytes of a tensor in C order."""
    return layer.contiguous().reshape(-1).view(U8).numpy().tobytes()


def expected_object(case: Case, layers: list[torch.Tensor]) -> bytes:
    """Return the object by its definition: layers, pages, rows, zero padding."""
    pages = [image(layer[page]) for layer in layers for page in case.page_ids]
    return b"".join(page.ljust(case.page_bytes or 0, b"\0") for page in pages)


def assert_same(got: torch.Tensor, want: bytes, page_bytes: int) -> None:
    """Fail with the page and byte of the first difference."""
    differs = np.flatnonzero(got.numpy() != np.frombuffer(want, dtype=np.uint8))
    if len(differs):
        first = int(differs[0])
        page, byte = divmod(first, page_bytes)
        pytest.fail(f"{len(differs)} bytes differ, first page {page} byte {byte}: {got[first]:#x} not {want[first]:#x}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_object_holds_the_pages_in_order_with_zeroed_padding(case):
    """The object is exactly the rows asked for, padding is zero, and the fingerprint is that of the object's bytes."""
    _, layers = allocate(case, filled=True)
    paged = PagedLayers.of(layers, page_bytes=case.page_bytes)
    want = expected_object(case, layers)
    out = torch.full((paged.object_bytes(len(case.page_ids)),), POISON, dtype=U8)

    value = pack(paged, case.page_ids, out, abi=3)

    assert_same(out, want, paged.page_bytes)
    assert value == fingerprint(want, abi=3)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pages_get_their_rows_back_and_nothing_else_changes(case):
    """Unpacking writes the rows of the named pages and not one byte beside them, and returns what pack returned."""
    _, source = allocate(case, filled=True)
    paged = PagedLayers.of(source, page_bytes=case.page_bytes)
    data = torch.empty(paged.object_bytes(len(case.page_ids)), dtype=U8)
    value = pack(paged, case.page_ids, data)
    before = data.clone()
    storages, layers = allocate(case, filled=False)
    wanted_storages, wanted_layers = allocate(case, filled=False)
    for page in case.page_ids:
        for wanted, filled in zip(wanted_layers, source, strict=True):
            wanted[page].copy_(filled[page])

    assert unpack(data, PagedLayers.of(layers, page_bytes=case.page_bytes), case.page_ids) == value
    assert torch.equal(data, before)
    for got, want in zip(storages, wanted_storages, strict=True):
        assert_same(got, want.numpy().tobytes(), layers[0].stride(0) * case.dtype.itemsize)


def test_page_may_be_packed_twice():
    """Reading has no owner: a page may stand in two slots of an object."""
    case = Case("twice", U8, (5, 4, 16), page_ids=(2, 2))
    _, layers = allocate(case, filled=True)
    out = torch.full((256,), POISON, dtype=U8)
    pack(PagedLayers.of(layers), torch.tensor([2, 2]), out)

    assert_same(out, expected_object(case, layers), 64)


def test_pages_may_lie_more_than_two_gibibytes_apart(tmp_path):
    """Addresses are computed in 64 bits: a page 3 GiB behind the first is found and written back."""
    length = (3 << 30) + 64
    memory = torch.from_file(str(tmp_path / "sparse"), shared=True, size=length, dtype=U8)
    layer = memory.as_strided((4, 64), (1 << 30, 1))
    layer[0], layer[3] = 1, 3
    paged, out = PagedLayers.of([layer]), torch.full((128,), POISON, dtype=U8)
    pack(paged, (3, 0), out)
    assert out.tolist() == [3] * 64 + [1] * 64

    unpack(out, paged, (1, 3))
    assert layer.sum(dim=1).tolist() == [64, 192, 0, 64]


def test_reference_serves_the_cpu_unless_the_interpreter_is_asked_for():
    """Only TRITON_INTERPRET=1 makes a kernel run on CPU tensors."""
    assert kernel_serves(torch.empty(1)) == (os.environ.get("TRITON_INTERPRET") == "1")


PAGES = torch.zeros(4, 8, 32, dtype=U8)


@pytest.mark.parametrize(
    ("page_ids", "field", "says"),
    [
        ((0, -1), "page_ids[1]", "stands for no page"),
        (torch.tensor([0, 4]), "page_ids[1]", "have 4 pages"),
        ((), "page_ids", "empty"),
        ((1, 2, 1), "page_ids", "page 1 twice"),
        ((1.0, 2.5), "page_ids", "whole numbers"),
        (torch.tensor([[1, 2]]), "page_ids", "whole numbers"),
    ],
    ids=["absent", "beyond", "none", "twice", "fractions", "nested"],
)
def test_page_ids_are_refused_before_anything_is_written(page_ids, field, says):
    """An id that would reach outside the layers, or be written twice, is refused and no byte changes."""
    layers = PAGES.clone()
    paged = PagedLayers.of([layers])
    data = torch.full((paged.object_bytes(len(page_ids)),), POISON, dtype=U8)
    with pytest.raises(KernelArgumentError, match=says) as caught:
        unpack(data, paged, page_ids)

    assert caught.value.field == field
    assert caught.value.remedy
    assert not layers.any()


@pytest.mark.parametrize(
    "out",
    [
        torch.empty(511, dtype=U8),
        torch.empty(513, dtype=U8),
        torch.empty(128, dtype=F32),
        torch.empty(2, 256, dtype=U8),
        torch.empty(1024, dtype=U8)[::2],
        torch.empty(512, dtype=U8, device="meta"),
    ],
    ids=["short", "long", "dtype", "shape", "strided", "device"],
)
def test_object_of_the_wrong_form_is_refused(out):
    """Too small a buffer would be overrun, so size, dtype, shape and device of the object must be exact."""
    paged = PagedLayers.of([PAGES])
    with pytest.raises(KernelArgumentError) as packing:
        pack(paged, (0, 1), out)
    with pytest.raises(KernelArgumentError) as unpacking:
        unpack(out, paged, (0, 1))

    assert (packing.value.field, unpacking.value.field) == ("out", "source")


@pytest.mark.parametrize(
    ("layers", "page_bytes", "field"),
    [
        ([], None, "layers"),
        ([torch.zeros(())], None, "layers[0]"),
        ([torch.zeros(0, 8)], None, "layers[0]"),
        ([PAGES, PAGES[:3]], None, "layers[1]"),
        ([PAGES, PAGES.transpose(1, 2)], None, "layers[1]"),
        ([torch.zeros(2, 8, 8, 8)[:, ::2, ::2, ::2]], None, "layers[0]"),
        ([PAGES], 255, "page_bytes"),
    ],
    ids=["none", "scalar", "empty", "fewer pages", "other strides", "two gaps", "page too small"],
)
def test_layers_that_no_kernel_could_walk_are_refused(layers, page_bytes, field):
    """Layers must be alike and leave one gap at most, and a page must hold its rows."""
    with pytest.raises(KernelArgumentError) as caught:
        PagedLayers.of(layers, page_bytes=page_bytes)

    assert caught.value.field == field
    assert caught.value.remedy


def test_page_too_large_to_be_counted_is_refused():
    """A page of more steps than a kernel counts in 32 bits is refused instead of wrapping around."""
    paged = PagedLayers.of([torch.zeros(1, 1, dtype=U8).expand(1, 1 << 30)])
    with pytest.raises(KernelArgumentError, match="too much for one page") as caught:
        pack(paged, (0,), torch.empty(1, dtype=U8))

    assert caught.value.field == "page_bytes"


def test_overlapping_pages_are_not_written():
    """Pages that share memory can be read, and are refused as a target."""
    shared = PagedLayers.of([torch.zeros(1, 16, dtype=U8).expand(3, 16)])
    out = torch.full((48,), POISON, dtype=U8)
    pack(shared, (0, 1, 2), out)

    assert not out.any()
    with pytest.raises(KernelArgumentError, match="overlaps"):
        unpack(out, shared, (0, 1, 2))
