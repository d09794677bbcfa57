"""Bytes of objects: whole, reproducible, and never taken from a cache that is not what it seems."""

from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache, StaticCache

from engine.models import BUILDERS, model
from kvledger.adapters._compute import forward
from kvledger.adapters.transformers import TransformersCache, compute, encode, plan_for
from kvledger.geometry import Geometry
from kvledger.unit_view import unit_slots

END = 200


def saved_why(store, name, tokens, cache, boundary):
    """Try to save and return why it was refused."""
    saved = TransformersCache(store, model(name), tokenizer_digest="bytes").save(tokens, cache, boundary)
    assert not saved.committed
    return saved.why


@pytest.mark.parametrize("name", BUILDERS)
def test_every_byte_of_an_object_is_written(prompt, name):
    """What was in the buffer before does not shine through, padding included; so equal states have equal bytes."""
    plan = plan_for(model(name), tokenizer_digest="bytes")
    cache, _ = compute(model(name), prompt[:END])
    for slot in unit_slots(Geometry(plan.layout).unit_objects(0, END, boundary=True), plan.layout, b""):
        images = [bytearray(byte * slot.length) for byte in (b"\x00", b"\xa5")]
        for image in images:
            encode(plan, cache, slot, memoryview(image))
        assert images[0] == images[1], slot
        assert any(images[0]), slot


@pytest.mark.parametrize("name", BUILDERS)
def test_rows_of_a_block_are_those_of_any_later_cache(prompt, name):
    """The first block's rows are the same bytes, whether they are taken at its end or a hundred tokens later."""
    plan = plan_for(model(name), tokenizer_digest="bytes")
    early, _ = compute(model(name), prompt[:128])
    late, _ = compute(model(name), prompt[:END], cuts=[128])
    block = [item for item in Geometry(plan.layout).unit_objects(0, 128, boundary=True) if item.tokens]
    assert block
    for slot in unit_slots(block, plan.layout, b""):
        images = [bytearray(slot.length) for _ in range(2)]
        for image, cache in zip(images, (early, late), strict=True):
            encode(plan, cache, slot, memoryview(image))
        assert images[0] == images[1], slot


def test_boundary_that_the_cache_has_passed_can_not_be_saved(store, prompt):
    """Rows could still be cut there, but a snapshot is true of one position only; the answer says what to do."""
    cache, _ = compute(model("deepseek-v4"), prompt)
    assert "cut the prefill at the boundary" in saved_why(store, "deepseek-v4", prompt, cache, END)


@pytest.mark.parametrize("removed", [1, 3, 4])
def test_cropped_v4_cache_is_not_saved(store, prompt, removed):
    """Transformers' own crop of a short V4 cache leaves the compressor's state behind and raises nothing."""
    cache, _ = compute(model("deepseek-v4"), prompt[:24])
    cache.crop(-removed)
    assert "crop leaves compressed layers inconsistent" in saved_why(store, "deepseek-v4", prompt, cache, 24 - removed)


def test_cache_that_records_its_past_is_not_saved(store, prompt):
    """Caches of assisted decoding keep longer windows than they say; saving one is refused with the remedy."""
    cache = DynamicCache(config=model("gpt-oss").config)
    cache.activate_past_recording()
    compute(model("gpt-oss"), prompt, cache=cache)
    assert "activate_past_recording" in saved_why(store, "gpt-oss", prompt, cache, len(prompt))


def test_cache_of_another_class_is_not_saved(store, prompt):
    """A static cache holds a window's rows elsewhere, so its bytes would be taken for others."""
    cache = StaticCache(config=model("gpt-oss").config, max_cache_len=512)
    compute(model("gpt-oss"), prompt, cache=cache)
    assert "layers of other classes" in saved_why(store, "gpt-oss", prompt, cache, len(prompt))


def test_batch_of_two_is_not_saved(store, prompt):
    """A cache of several sequences has no single state and is refused."""
    cache = DynamicCache(config=model("gpt-oss").config)
    forward(model("gpt-oss"), cache, torch.tensor([prompt, prompt]))
    assert "save one sequence" in saved_why(store, "gpt-oss", prompt, cache, len(prompt))


class Before524(torch.nn.Module):
    """A decoder that gives back as logits what it was passed as cache."""

    def forward(self, ids, past_key_values=None, use_cache=None, logits_to_keep=0):
        """Take the cache under its older name."""
        return SimpleNamespace(logits=past_key_values)


class Since524(torch.nn.Module):
    """The same with the newer name."""

    def forward(self, ids, cache=None, use_cache=None, logits_to_keep=0):
        """Take the cache under its newer name."""
        return SimpleNamespace(logits=cache)


@pytest.mark.parametrize("decoder", [Before524, Since524])
def test_cache_is_passed_under_the_name_of_the_version(decoder):
    """Transformers before 5.24 calls the argument past_key_values, later ones warn of that name."""
    passed = torch.ones(1, 1, 4)
    assert torch.equal(forward(decoder(), passed, torch.zeros(1, 1, dtype=torch.long)), passed[:, -1])
