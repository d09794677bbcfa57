"""Compressor pooling. Runs again under the Triton interpreter, see test_interpreter.py.

What is expected is made here in double precision, window by window from the formula, not by the reference.
"""

from __future__ import annotations

import pytest
import torch

from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.pool import TOLERANCE, Finish, RawRows, fold, pool

WINDOWS = 3
# Ratio, channels, turned pairs, overlap, halo: HCA and CSA of DeepSeek-V4 narrowed, an indexer's, and odd sizes.
SHAPES = [
    (128, 64, 16, False, False),
    (4, 128, 32, True, True),
    (4, 128, 32, True, False),
    (3, 22, 5, True, True),
    (2, 2, 1, False, False),
]


def raw(rows: int, width: int, *, folded: bool = False) -> RawRows:
    """Return random raw rows."""
    return RawRows(torch.randn(rows, width), 3 * torch.randn(rows, width), folded)


def finish_of(dim: int, pairs: int) -> Finish:
    """Return a norm and positions."""
    angle = torch.randn(WINDOWS, pairs)
    return Finish(torch.randn(dim), 1e-6, angle.cos(), angle.sin())


def expected(rows: RawRows, bias: torch.Tensor, ratio: int, finish: Finish, halo: RawRows | None, *, overlap: bool):
    """Return the rows by the formula, f64."""
    dim, found = len(finish.weight), []
    kv, gate = rows.kv.double(), rows.gate.double() + bias.double().repeat(WINDOWS, 1)
    for window in range(WINDOWS):
        here = slice(window * ratio, (window + 1) * ratio)
        parts = [(kv[here, -dim:], gate[here, -dim:])]
        if overlap and window:
            before = slice((window - 1) * ratio, window * ratio)
            parts.append((kv[before, :dim], gate[before, :dim]))
        elif overlap and halo is not None:
            parts.append((halo.kv.double(), halo.gate.double()))
        values, gates = (torch.cat(part) for part in zip(*parts, strict=True))
        pooled = (values * gates.softmax(dim=0)).sum(dim=0)
        row = pooled / (pooled.square().mean() + finish.eps).sqrt() * finish.weight.double()
        for pair, (cos, sin) in enumerate(zip(finish.cos[window].double(), finish.sin[window].double(), strict=True)):
            at = dim - 2 * finish.cos.shape[1] + 2 * pair
            even, odd = row[at].clone(), row[at + 1].clone()
            row[at], row[at + 1] = even * cos - odd * sin, odd * cos + even * sin
        found.append(row)
    return torch.stack(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_those_of_the_formula(shape, dtype):
    """Pooled, normed and turned rows agree with double precision within the tolerance, plain and folded alike."""
    torch.manual_seed(3)
    ratio, dim, pairs, overlap, has_halo = shape
    width = 2 * dim if overlap else dim
    rows, bias, finish = raw(WINDOWS * ratio, width), torch.randn(ratio, width), finish_of(dim, pairs)
    halo = raw(ratio, dim, folded=True) if has_halo else None
    options = {"halo": halo, "overlap": overlap, "dtype": dtype}
    want = expected(rows, bias, ratio, finish, halo, overlap=overlap)
    bound = (TOLERANCE + (2**-8 if dtype == torch.bfloat16 else 0)) * want.abs().amax(dim=1, keepdim=True)

    for got in (pool(rows, ratio, finish, bias=bias, **options), pool(fold(rows, bias), ratio, finish, **options)):
        assert got.dtype == dtype
        assert ((got.double() - want).abs() <= bound).all()


def test_rows_that_a_gate_shuts_out_take_no_part():
    """A gate of minus infinity gives its row no weight, also where it is the first one met."""
    torch.manual_seed(3)
    rows = raw(3 * 4, 16)
    rows.gate[0:3] = float("-inf")
    rows.kv[0:3] = 1e30
    finish = Finish(torch.ones(16), 0.0, torch.ones(3, 1), torch.zeros(3, 1))
    got = pool(rows, 4, finish, bias=torch.zeros(4, 16))
    alone = rows.kv[3] / rows.kv[3].square().mean().sqrt()

    assert torch.allclose(got[0], alone, rtol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("part", ["kv", "gate"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_damage_shows_in_its_own_window_only(part, bad):
    """A raw value that is not finite spoils the row that it belongs to, or none, and never a neighbour."""
    torch.manual_seed(3)
    rows = raw(3 * 4, 16)
    getattr(rows, part)[5, 7] = bad
    finish = Finish(torch.ones(16), 1e-6, torch.ones(3, 1), torch.zeros(3, 1))
    got = pool(rows, 4, finish, bias=torch.zeros(4, 16)).isfinite().all(dim=1).tolist()

    assert got == [True, part == "gate" and bad == float("-inf"), True]


PLAIN, FOLDED = raw(8, 16), raw(8, 16, folded=True)
HALO, BIAS = raw(4, 8, folded=True), torch.zeros(4, 16)


@pytest.mark.parametrize(
    ("rows", "bias", "halo", "field", "says"),
    [
        (FOLDED, BIAS, None, "bias", "hold it already"),
        (PLAIN, None, None, "bias", "lacks"),
        (PLAIN, BIAS, raw(4, 8), "halo", "is plain"),
    ],
    ids=["twice", "never", "plain halo"],
)
def test_the_two_abis_are_never_mixed(rows, bias, halo, field, says):
    """A bias that would be added twice or never is refused, also by way of the halo."""
    finish = Finish(torch.ones(8), 1e-6, torch.ones(2, 1), torch.zeros(2, 1))
    with pytest.raises(KernelArgumentError, match=says) as caught:
        pool(rows, 4, finish, bias=bias, halo=halo, overlap=True)

    assert caught.value.field == field
    with pytest.raises(KernelArgumentError, match="folded already"):
        fold(FOLDED, BIAS)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rows": raw(7, 16)}, "rows"),
        ({"rows": raw(8, 8)}, "rows.kv"),
        ({"rows": RawRows(torch.zeros(8, 16), torch.zeros(8, 32)[:, ::2], folded=False)}, "rows.gate"),
        ({"rows": RawRows(torch.zeros(8, 16).double(), torch.zeros(8, 16), folded=False)}, "rows.kv"),
        ({"halo": raw(3, 8, folded=True)}, "halo"),
        ({"bias": torch.zeros(4, 8)}, "bias"),
        ({"dtype": torch.float16}, "dtype"),
        ({"finish": Finish(torch.ones(8), 1e-6, torch.ones(3, 1), torch.zeros(3, 1))}, "finish.cos"),
        ({"finish": Finish(torch.ones(8), 1e-6, torch.ones(2, 5), torch.zeros(2, 5))}, "finish.cos"),
    ],
    ids=["cut window", "width", "strided", "f64", "short halo", "bias", "dtype", "windows", "pairs"],
)
def test_shapes_that_no_kernel_could_walk_are_refused(change, field):
    """Rows, halo, bias and finish must fit each other; what does not is refused by name."""
    finish = Finish(torch.ones(8), 1e-6, torch.ones(2, 1), torch.zeros(2, 1))
    given = {"rows": PLAIN, "ratio": 4, "finish": finish, "bias": BIAS, "halo": HALO, "overlap": True} | change
    with pytest.raises(KernelArgumentError) as caught:
        pool(**given)

    assert caught.value.field == field
    assert caught.value.remedy
