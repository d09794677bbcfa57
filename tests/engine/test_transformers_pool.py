"""Compressed rows that the model itself made, rebuilt from its raw rows by the pooling kernel's reference.

Also shown is where Transformers keeps which of the two ABIs: plain gates wait in the buffer, folded ones in the halo.
"""

import pytest
import torch

from engine.models import model
from kvledger.adapters.transformers import compute
from kvledger_kernels.pool import TOLERANCE, Finish, RawRows, fold, pool

TOKENS = 256
NAME = "deepseek-v4"


class Seen:
    """What the projections of one compressor gave, in the order of the prompt."""

    def __init__(self, compressor):
        self.kv, self.gate = [], []
        self._hooks = [
            compressor.kv_proj.register_forward_hook(lambda *call: self.kv.append(call[2][0].detach())),
            compressor.gate_proj.register_forward_hook(lambda *call: self.gate.append(call[2][0].detach())),
        ]

    def rows(self):
        """Return the raw rows and stop listening."""
        for hook in self._hooks:
            hook.remove()
        return RawRows(torch.cat(self.kv), torch.cat(self.gate), folded=False)


def compressors():
    """Return layer number, name of the state and module of every compressor of the model."""
    found = []
    for number, layer in enumerate(model(NAME).model.layers):
        outer = getattr(layer.self_attn, "compressor", None)
        if outer is not None:
            found.append((number, "compressor", outer))
            if hasattr(outer, "indexer"):
                found.append((number, "indexer", outer.indexer))
    return found


def finish_of(compressor, windows, first=0):
    """Return norm and positions of windows as the model turns them."""
    positions = (torch.arange(first, first + windows) * compressor.compress_rate)[None]
    cos, sin = compressor.rotary_emb(torch.zeros(1), position_ids=positions, layer_type="compress")
    norm = compressor.kv_norm
    return Finish(norm.weight.detach(), norm.variance_epsilon, cos[0].contiguous(), sin[0].contiguous())


@pytest.fixture(scope="module")
def run():
    """Return the model's cache after a prompt in two parts, and the raw rows that its compressors saw."""
    seen = {(number, name): Seen(module) for number, name, module in compressors()}
    tokens = torch.arange(TOKENS).mul(37).remainder(200).tolist()
    cache, _ = compute(model(NAME), tokens, cuts=[130])
    return cache, {key: one.rows() for key, one in seen.items()}


def test_there_is_every_kind_of_compressor():
    """The model has compressors with ratio 128 and, overlapping, 4, and the indexer's own."""
    assert {(name, module.compress_rate) for _, name, module in compressors()} == {
        ("compressor", 128),
        ("compressor", 4),
        ("indexer", 4),
    }


@pytest.mark.parametrize(("number", "name", "module"), compressors(), ids=lambda part: str(part)[:12])
def test_pooled_rows_are_those_of_the_model(run, number, name, module):
    """All rows of every compressor are rebuilt from raw rows within the tolerance that the kernel states."""
    cache, raw = run
    made = cache.layers[number].compressed_kv[name][0]
    rows, bias, ratio = raw[number, name], module.position_bias.detach(), module.compress_rate
    got = pool(rows, ratio, finish_of(module, len(made)), bias=bias, overlap=ratio == 4)

    assert len(made) == TOKENS // ratio
    assert ((got - made).abs() <= TOLERANCE * made.abs().amax(dim=1, keepdim=True)).all()


def test_a_bias_added_twice_or_never_gives_other_rows(run):
    """Rows under the wrong ABI look right and are far outside the tolerance, so the two are never mixed."""
    cache, raw = run
    number, name, module = next(one for one in compressors() if one[2].compress_rate == 128)
    made, rows, bias = cache.layers[number].compressed_kv[name][0], raw[number, name], module.position_bias.detach()
    twice = RawRows(rows.kv, fold(rows, bias).gate, folded=False)
    never = RawRows(rows.kv, rows.gate, folded=True)
    finish = finish_of(module, len(made))
    right = pool(rows, 128, finish, bias=bias)
    for wrong in (pool(twice, 128, finish, bias=bias), pool(never, 128, finish)):
        assert (wrong - right).abs().max() > 1000 * TOLERANCE * right.abs().max()


def test_transformers_keeps_the_halo_folded_and_the_buffer_plain(run):
    """The halo in the cache continues a prompt as folded rows of the last window, the first half of their channels."""
    cache, raw = run
    number, name, module = next(one for one in compressors() if one[2].compress_rate == 4)
    layer, rows, dim = cache.layers[number], raw[number, name], module.head_dim
    last = fold(rows, module.position_bias.detach()).gate[-4:, :dim]

    assert torch.equal(layer.overlap_gate[name][0], last)
    before = RawRows(rows.kv[:124], rows.gate[:124], folded=False)
    after = RawRows(rows.kv[124:], rows.gate[124:], folded=False)
    halo = RawRows(
        before.kv[-4:, :dim].contiguous(),
        fold(before, module.position_bias.detach()).gate[-4:, :dim].contiguous(),
        folded=True,
    )
    bias, windows = module.position_bias.detach(), (TOKENS - 124) // 4
    got = pool(after, 4, finish_of(module, windows, 31), bias=bias, halo=halo, overlap=True)
    made = layer.compressed_kv[name][0][31:]
    assert ((got - made).abs() <= TOLERANCE * made.abs().amax(dim=1, keepdim=True)).all()
