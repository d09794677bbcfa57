"""What "equal" means: cut at the same boundary, two runs hold and make the same bits."""

import torch

from engine.models import model
from kvledger.adapters.transformers import TransformersCache, compute, greedy, state_digest

END = 300
BOUNDARIES = [1, 3, 4, 5, 31, 32, 33, 127, 128, 129, 255, 256, 257, END - 1, END]
REST = 12
TOKENS = 6


def tensors_of(cache):
    """Return every tensor, number and flag that the layers of a cache hold, by name."""
    found = {}
    for number, layer in enumerate(cache.layers):
        for name, held in vars(layer).items():
            entries = held.items() if isinstance(held, dict) else [("", held)]
            found |= {f"{number}.{name}.{key}": entry for key, entry in entries}
    return found


def assert_same(cold, resumed):
    """Two caches hold the same: names, types, shapes, bits, and which tensors are one object."""
    left, right = tensors_of(cold), tensors_of(resumed)
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == right[name].dtype, name
            assert value.device == right[name].device, name
            assert torch.equal(value, right[name]), name
        else:
            assert value == right[name], name
    for a, b in zip(cold.layers, resumed.layers, strict=True):
        shared = [getattr(layer, "keys", 0) is getattr(layer, "values", 1) for layer in (a, b)]
        assert shared[0] == shared[1]


def save_and_resume(store, name, tokens, boundary, **options):
    """Cut a cold run at a boundary, save it there, and resume another view of the cache from the bytes."""
    shared = TransformersCache(store, model(name), tokenizer_digest="bytes", **options)
    cold, _ = compute(shared.model, tokens[:boundary])
    saved = shared.save(tokens, cold, boundary)
    assert saved.committed, saved.why
    resumed = TransformersCache(store, model(name), tokenizer_digest="bytes", **options).resume(tokens)
    assert resumed.tokens == boundary, resumed.why
    return shared, cold, resumed.cache


def assert_goes_on_alike(store, name, prompt, boundary, **options):
    """State at the boundary, state after the rest, logits and greedy tokens are equal bit for bit."""
    tokens = prompt + prompt[:REST]
    shared, cold, resumed = save_and_resume(store, name, tokens, boundary, **options)

    assert_same(cold, resumed)
    assert state_digest(shared.plan, cold, boundary) == state_digest(shared.plan, resumed, boundary)

    _, cold_logits = compute(shared.model, tokens, cache=cold, start=boundary)
    _, resumed_logits = compute(shared.model, tokens, cache=resumed, start=boundary)
    assert torch.equal(cold_logits, resumed_logits)
    assert_same(cold, resumed)

    made = greedy(shared.model, cold, cold_logits, TOKENS)
    assert made == greedy(shared.model, resumed, resumed_logits, TOKENS)
    assert len(set(made)) > 1, "a model that repeats one token proves nothing"
    assert_same(cold, resumed)


def cold_tokens(subject, prompt, count=6):
    """Decode a prompt greedily with no cache around, cut before its last token as a resumed run is."""
    cache, logits = compute(subject, prompt, cuts=[len(prompt) - 1])
    return greedy(subject, cache, logits, count)
