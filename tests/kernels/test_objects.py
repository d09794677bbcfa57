"""Objects out of plain tensors. Runs again under the Triton interpreter, see test_interpreter.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.fingerprint import fingerprint
from kvledger_kernels.objects import TensorSpec, object_bytes, pack_tensors, unpack_tensors

POISON = 0xA5
DTYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def noise(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return a tensor of random bits, so NaNs with payloads, infinities and denormals among them."""
    bits = np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize)
    return torch.frombuffer(bytearray(bits), dtype=torch.uint8).clone().view(dtype).view(shape)


def image(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor in C order."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def round_trip(tensors: list[torch.Tensor]) -> None:
    """Pack into poison, unpack again, and compare all bytes and fingerprints with their definition."""
    want = b"".join(map(image, tensors))
    out = bytearray([POISON]) * object_bytes(tensors)
    value = pack_tensors(tensors, out, abi=2)
    assert bytes(out) == want
    assert value == fingerprint(want, abi=2)

    restored, seen = unpack_tensors(memoryview(want), [TensorSpec.of(tensor) for tensor in tensors], abi=2)
    assert seen == value
    for got, tensor in zip(restored, tensors, strict=True):
        assert (got.shape, got.dtype) == (tensor.shape, tensor.dtype)
        assert image(got) == image(tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slices_of_a_cache_round_trip_bit_for_bit(dtype):
    """Rows [5, 12) of keys and values [1, heads, rows, dim] come back as they were, in every dtype."""
    caches = [noise((1, 3, 20, 16), dtype, seed) for seed in range(4)]
    round_trip([cache[:, :, 5:12] for cache in caches])


@pytest.mark.parametrize("size", [1, 7, 63, 100, 1000])
def test_odd_sizes_round_trip(size):
    """Tensors whose bytes do not fill whole words leave neither gap nor overlap between them."""
    round_trip([noise((size,), torch.uint8), noise((1, 2, size), torch.bfloat16), noise((size, 3), torch.uint8, 1)])


def test_tensors_of_all_shapes_keep_their_order():
    """Equal and different shapes, dtypes and strides may alternate; the object follows the list."""
    rows = [noise((1, 2, 9, 8), torch.bfloat16, seed)[:, :, 1:6] for seed in range(2)]
    state = noise((1, 4, 6, 10), torch.float32)
    tensors = [
        rows[0],
        state,
        rows[1],
        state.transpose(1, 3),
        state.permute(3, 1, 2, 0)[1:7:2],
        noise((8, 8, 8, 8), torch.uint8)[::2, ::2, ::2, ::2],
        torch.tensor(1.5),
        torch.zeros(0, 3),
        torch.zeros(1, 1).expand(2, 5),
        noise((3, 5), torch.float32) > 0,
        torch.nn.Parameter(torch.ones(2, 3)),
    ]
    round_trip([tensor.detach() for tensor in tensors])
    assert pack_tensors(tensors, bytearray(object_bytes(tensors))) == fingerprint(
        b"".join(image(t.detach()) for t in tensors)
    )


def test_object_of_no_tensors_is_empty():
    """A group that keeps nothing at a boundary has an object of no bytes."""
    assert pack_tensors([], bytearray()) == fingerprint(b"")
    assert unpack_tensors(b"", []) == ([], fingerprint(b""))


@pytest.mark.parametrize("as_source", [memoryview, lambda memory: torch.frombuffer(memory, dtype=torch.uint8)])
def test_restored_tensors_do_not_alias_their_source(as_source):
    """Tensors made from a handle's memory stay as they are when that memory is given to somebody else."""
    memory = bytearray(noise((64,), torch.uint8).numpy().tobytes())
    (tensor,), _ = unpack_tensors(as_source(memory), [TensorSpec((8, 2), torch.float32)])
    before = image(tensor)
    memory[:] = bytes(64)

    assert image(tensor) == before


def test_read_only_source_gives_writable_tensors():
    """An engine goes on writing into what was restored, though the handle's memory is read-only."""
    (tensor,), _ = unpack_tensors(memoryview(bytes(64)), [TensorSpec((8, 2), torch.float32)])
    tensor.fill_(1)

    assert tensor.sum() == 16


def test_object_may_be_a_tensor():
    """An object may lie in a u8 tensor instead of a buffer, to be packed and unpacked."""
    tensors = [noise((2, 24), torch.bfloat16)]
    out = torch.full((96,), POISON, dtype=torch.uint8)
    value = pack_tensors(tensors, out)

    assert out.numpy().tobytes() == image(tensors[0])
    assert unpack_tensors(out, [TensorSpec((2, 24), torch.bfloat16)])[1] == value


ONE = torch.ones(4)


@pytest.mark.parametrize(
    ("tensors", "out", "field"),
    [
        ([ONE], bytearray(15), "out"),
        ([ONE], bytearray(17), "out"),
        ([ONE], bytes(16), "out"),
        ([ONE], torch.empty(4), "out"),
        ([ONE, ONE.to("meta")], bytearray(32), "tensors[1]"),
        ([ONE.to_sparse()], bytearray(16), "tensors[0]"),
    ],
    ids=["short", "long", "read-only", "dtype", "devices", "sparse"],
)
def test_packing_refuses_what_has_no_image(tensors, out, field):
    """A buffer of the wrong form, or a tensor without plain bytes, is refused by name and nothing is written."""
    with pytest.raises(KernelArgumentError) as caught:
        pack_tensors(tensors, out)

    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize("source", [bytes(15), bytes(17), memoryview(bytes(32))[::2], torch.zeros(4)])
def test_unpacking_refuses_an_object_of_another_size(source):
    """An object that is not exactly what the specs say is refused."""
    with pytest.raises(KernelArgumentError) as caught:
        unpack_tensors(source, [TensorSpec((4,), torch.float32)])

    assert caught.value.field == "source"
