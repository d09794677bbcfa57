"""The adapter on a real daemon: engines share states, states outlive the daemon, and what is not whole is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.equality import BOUNDARIES, assert_goes_on_alike, cold_tokens
from engine.models import gpt_oss, model
from kvledger import Cache, Code, Layer
from kvledger.adapters.transformers import TransformersCache
from kvledger.testing import Daemon

MODELS = ["deepseek-v4-sparse", "gpt-oss", "gemma3", "qwen3-next", "deepseek-v3.2"]
V4 = "deepseek-v4-sparse"
MISSING = {
    "csa": Code.ROWS_MISSING,
    "hca": Code.ROWS_MISSING,
    "csa_indexer": Code.INDEXER_MISSING,
    "csa_tail": Code.TAIL_MISSING,
    "hca_tail": Code.TAIL_MISSING,
    "csa_halo": Code.HALO_MISSING,
    "swa": Code.WINDOW_MISSING,
    "swa_shared": Code.WINDOW_MISSING,
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Give one daemon to all tests here; each has a salt of its own."""
    with Daemon() as running:
        yield running


@pytest.fixture
def engine(daemon, request):
    """Give a function that makes one more engine with a view of the cache."""
    opened = []

    def make(subject):
        opened.append(Cache.open(daemon.socket, name=request.node.name[:32]))
        return TransformersCache(opened[-1], subject, tokenizer_digest="bytes", extra={"salt": request.node.name})

    yield make
    for cache in opened:
        cache.close()


@pytest.mark.parametrize("name", MODELS)
def test_second_engine_resumes_what_the_first_computed(engine, prompt, name):
    """Another engine reuses all but one token and answers with the same tokens and logits."""
    first = engine(model(name)).generate(prompt, 6)
    assert all(saved.committed for saved in first.prefilled.saved), first.prefilled.saved
    second = engine(model(name)).generate(prompt, 6)
    assert second.prefilled.reused_tokens == len(prompt) - 1, second.prefilled.why
    assert second.tokens == first.tokens
    assert torch.equal(second.prefilled.logits, first.prefilled.logits)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_v4_resumes_at_any_boundary(daemon, prompt, boundary):
    """Through the real daemon, too, a run that was saved at a boundary is the one that never stopped."""
    with Cache.open(daemon.socket) as cache:
        assert_goes_on_alike(cache, V4, prompt, boundary, extra={"salt": f"boundary {boundary}"})


def test_state_outlives_the_daemon(daemon, engine, prompt):
    """After SIGKILL the next incarnation hands out the same bytes from the memory that survived."""
    shared = engine(model("gpt-oss"))
    expected = shared.generate(prompt, 6).tokens
    daemon.kill()
    daemon.wait_ready()
    again = engine(model("gpt-oss")).generate(prompt, 6)
    assert again.prefilled.reused_tokens == len(prompt) - 1, again.prefilled.why
    assert again.tokens == expected == cold_tokens(model("gpt-oss"), prompt)


def test_state_comes_back_from_disk(engine, prompt):
    """A boundary whose memory was dropped is restored, verified, and goes on as the cold run does."""
    shared = engine(model("gpt-oss"))
    expected = shared.generate(prompt, 6).tokens
    registered = shared._cache.register(shared.layout)
    options = {"boundary": len(prompt) - 1, "extra": shared._extra}
    shared._cache.offload(registered, prompt, **options, drop_memory=True)
    again = engine(model("gpt-oss")).generate(prompt, 6)
    assert again.prefilled.reused_tokens == len(prompt) - 1, again.prefilled.why
    assert again.tokens == expected


@pytest.mark.parametrize("group", MISSING)
def test_state_without_one_group_is_refused(engine, prompt, group):
    """With one group evicted nothing is resumed, and the verdict names layer, group and code."""
    shared = engine(model(V4))
    shared.prefill(prompt)
    registered = shared._cache.register(shared.layout)
    for boundary in (len(prompt) - 1, len(prompt)):
        kind = shared.layout.group(group).kind
        shared._cache.evict(registered, prompt, kind=kind, group=group, boundary=boundary, extra=shared._extra)
    resumed = engine(model(V4)).resume(prompt)
    assert resumed.tokens == 0
    assert (Layer.STATE, group, MISSING[group]) in [(cut.layer, cut.group, cut.code) for cut in resumed.verdict_cuts]


def test_other_weights_are_refused_by_name(engine, prompt):
    """A model of the same shape and other weights resumes nothing, and the verdict names the field that differs."""
    engine(model("gpt-oss")).prefill(prompt)
    other = gpt_oss()
    with torch.no_grad():
        other.model.layers[0].self_attn.k_proj.weight.mul_(1.01)
    resumed = engine(other).resume(prompt)
    assert resumed.tokens == 0
    assert Code.IDENTITY_MISMATCH in [cut.code for cut in resumed.verdict_cuts]
    assert "weights_digest" in resumed.why
