"""Resuming at any boundary is the same run, bit for bit, as never having stopped there."""

import pytest
import torch

from engine.equality import BOUNDARIES, END, assert_goes_on_alike, assert_same, save_and_resume
from engine.models import BUILDERS, model
from kvledger.adapters.transformers import compute

FEW = [1, 4, 32, 129, END - 1, END]
EVERYWHERE = ["deepseek-v4", "deepseek-v4-sparse", "gpt-oss", "gemma3", "qwen3-next", "deepseek-v3.2"]
CASES = [(name, at) for name in BUILDERS for at in (BOUNDARIES if name in EVERYWHERE else FEW)]


@pytest.mark.parametrize(("name", "boundary"), CASES)
def test_resumed_run_is_the_cold_run(store, prompt, name, boundary):
    """Saved at a boundary, restored from the bytes and gone on, a run is the one that never stopped."""
    assert_goes_on_alike(store, name, prompt, boundary)


@pytest.mark.parametrize("name", ["deepseek-v4", "gpt-oss", "gemma3", "gemma3n"])
@pytest.mark.parametrize("boundary", [1, 4, 129, END - 1])
def test_resumed_run_is_close_to_an_uncut_one(store, prompt, name, boundary):
    """Against a run that was never cut logits agree within 1e-4, since only the order of sums differs."""
    shared, _, resumed = save_and_resume(store, name, prompt, boundary)
    _, uncut = compute(shared.model, prompt)
    _, cut = compute(shared.model, prompt, cache=resumed, start=boundary)
    torch.testing.assert_close(cut, uncut, rtol=0, atol=1e-4)


def test_prompts_of_the_sparse_model_outgrow_its_indexer(prompt):
    """The sparse model reads fewer rows than there are, so that a wrong indexer would show."""
    config = model("deepseek-v4-sparse").config
    assert len(prompt) > config.compress_rates["compressed_sparse_attention"] * config.index_topk
    assert config.index_n_heads == 16


def test_boundary_can_be_saved_from_a_resumed_run(store, prompt):
    """A state saved by a run that was itself resumed equals the one that a cold run saves there."""
    name = "deepseek-v4"
    shared, cold, resumed = save_and_resume(store, name, prompt, 131)
    compute(shared.model, prompt[:262], cache=cold, start=131)
    compute(shared.model, prompt[:262], cache=resumed, start=131)
    assert shared.save(prompt, resumed, 262, start=131).committed
    again = shared.resume(prompt)
    assert again.tokens == 262
    assert_same(cold, again.cache)


@pytest.mark.parametrize(
    "group", ["csa_halo", "csa_tail", "hca_tail", "swa", "swa_shared", "csa", "hca", "csa_indexer"]
)
def test_every_group_is_needed(store, prompt, group):
    """With the bytes of one group zeroed the resumed run makes other logits: no group is carried for nothing."""
    boundary, name = 131, "deepseek-v4-sparse"
    shared, cold, _ = save_and_resume(store, name, prompt, boundary)
    for key in [key for key in store.objects if key[-1] == group]:
        store.objects[key] = bytes(len(store.objects[key]))
    damaged = shared.resume(prompt).cache
    _, expected = compute(shared.model, prompt, cache=cold, start=boundary)
    _, wrong = compute(shared.model, prompt, cache=damaged, start=boundary)
    assert not torch.equal(expected, wrong)


def test_without_halo_a_run_is_right_for_three_tokens_and_then_wrong(prompt):
    """At a multiple of 128 the tail is empty, yet the fourth token needs the halo: it is an object of its own."""
    shared_model = model("deepseek-v4")
    with_halo, _ = compute(shared_model, prompt[:128])
    without, _ = compute(shared_model, prompt[:128])
    for layer in without.layers:
        if hasattr(layer, "overlap_kv"):
            layer.overlap_kv = dict.fromkeys(layer.overlap_kv)
            layer.overlap_gate = dict.fromkeys(layer.overlap_gate)
    equal = []
    for end in range(129, 135):
        _, right = compute(shared_model, prompt[:end], cache=with_halo, start=end - 1)
        _, other = compute(shared_model, prompt[:end], cache=without, start=end - 1)
        equal.append(torch.equal(right, other))
    assert equal == [True, True, True, False, False, False]
