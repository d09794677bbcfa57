"""What an engine sees of the adapter: reuse, saves, and misses with a reason instead of exceptions."""

import pytest
import torch

from engine.equality import cold_tokens
from engine.models import gpt_oss, model
from kvledger import AsyncCache
from kvledger.adapters.transformers import TransformersCache, compute
from kvledger.errors import CallerError, CapacityError, CommitRefusedError, DisconnectedError, LayoutError

NAME = "gpt-oss"
GONE = DisconnectedError("no daemon answers", field="socket", remedy="start kvledger serve")


@pytest.fixture
def shared(store):
    """Give one engine's view of the cache."""
    return TransformersCache(store, model(NAME), tokenizer_digest="bytes")


def test_same_prompt_again_leaves_one_token_to_compute(store, shared, prompt):
    """The second prefill reuses all but the last token and ends with the same state and logits."""
    first = shared.prefill(prompt)
    second = TransformersCache(store, model(NAME), tokenizer_digest="bytes").prefill(prompt)
    assert (first.reused_tokens, second.reused_tokens) == (0, len(prompt) - 1)
    assert first.cuts == second.cuts == (len(prompt) - 1, len(prompt))
    assert torch.equal(first.logits, second.logits)


def test_a_prefill_is_cut_at_every_boundary_that_is_wanted(store, shared, prompt, monkeypatch):
    """Junctions and checkpoints that a verdict wants cut the prefill, and other prompts resume at the last of them."""
    wanted = (128, 256, len(prompt))
    monkeypatch.setattr(store, "_wanted", lambda tokens, chosen: [at for at in wanted if chosen < at <= len(tokens)])
    assert shared.prefill(prompt).cuts == wanted
    assert shared.prefill(prompt[:256] + prompt[:9]).reused_tokens == 256


def test_replayed_rows_never_overwrite_cached_ones(store, prompt):
    """No replay is asked for, since a forward writes all rows; how fast the model computes is told as it was given."""
    shared = TransformersCache(store, model(NAME), tokenizer_digest="bytes", wait=2.5, recompute=4000)
    shared.prefill(prompt)
    assert store.asked == [{"wait": 2.5, "replay": False, "recompute": 4000}]


def test_generated_tokens_do_not_depend_on_reuse(shared, prompt):
    """Greedy tokens are the same without a cache, at the first request and at the second."""
    expected = cold_tokens(model(NAME), prompt)
    assert shared.generate(prompt, 6).tokens == expected
    again = shared.generate(prompt, 6)
    assert again.tokens == expected
    assert again.prefilled.reused_tokens == len(prompt) - 1


def test_conversation_goes_on_from_its_end(shared, prompt):
    """A prompt that continues an earlier one resumes at the earlier one's end, which was saved too."""
    answer = shared.generate(prompt, 6).tokens
    assert shared.prefill(prompt + answer).reused_tokens == len(prompt)


def test_tensors_and_lists_are_one_prompt(shared, prompt):
    """Token ids may come as a list, as [tokens] and as [1, tokens]."""
    shared.prefill(prompt)
    for form in (torch.tensor(prompt), torch.tensor([prompt])):
        assert shared.resume(form).tokens == len(prompt) - 1


def test_rows_below_the_last_saved_boundary_are_not_named_again(store, shared, prompt):
    """Saves bring rows from the block that the boundary before them lies in, not from the beginning."""
    shared.prefill(prompt[:200])
    store.calls.clear()
    shared.prefill(prompt)
    assert store.calls == [("acquire", 300), ("reserve", 299, 128), ("reserve", 300, 256)]


def test_rows_that_were_evicted_meanwhile_are_brought_again(store, shared, prompt):
    """If the rows below a resumed boundary are gone by the time of the save, the live cache still has them."""
    shared.prefill(prompt[:200])
    resumed = shared.resume(prompt)
    store.drop("full")
    cache, _ = compute(shared.model, prompt, cache=resumed.cache, start=resumed.tokens)
    assert shared.save(prompt, cache, 300, start=resumed.tokens).committed
    assert store.calls[-2:] == [("reserve", 300, 128), ("reserve", 300, 0)]


def test_extra_keys_keep_prompts_apart(store, shared, prompt):
    """A prompt under a salt finds nothing that was saved without one."""
    shared.prefill(prompt)
    salted = TransformersCache(store, model(NAME), tokenizer_digest="bytes", extra={"salt": "a"})
    assert salted.resume(prompt).tokens == 0


def test_other_tokenizer_finds_nothing(store, shared, prompt):
    """Equal ids of another tokenizer are other text."""
    shared.prefill(prompt)
    assert TransformersCache(store, model(NAME), tokenizer_digest="other").resume(prompt).tokens == 0


def test_weights_that_change_under_way_find_nothing_of_before(store, prompt):
    """After a step of training, or another attention, the same adapter asks and saves under another layout."""
    shared = TransformersCache(store, gpt_oss(), tokenizer_digest="bytes")
    shared.prefill(prompt)
    with torch.no_grad():
        shared.model.lm_head.weight.mul_(0.5)
    assert shared.prefill(prompt).reused_tokens == 0
    assert shared.prefill(prompt).reused_tokens == len(prompt) - 1
    shared.model.config.sliding_window = 16
    assert shared.resume(prompt).tokens == 0


def test_absent_daemon_is_a_miss(store, shared, prompt):
    """With no daemon the engine computes, says why, saves nothing, and goes on when the daemon is back."""
    store.error = GONE
    answer = shared.generate(prompt, 6)
    assert answer.tokens == cold_tokens(model(NAME), prompt)
    assert "start kvledger serve" in answer.prefilled.why
    assert shared.counters.reasons["disconnected"] == 1
    store.error = None
    assert [saved.committed for saved in shared.prefill(prompt).saved] == [True, True]


def test_lost_lease_is_a_miss(store, shared, prompt):
    """State copied under a lease that was lost meanwhile is thrown away, not used."""
    shared.prefill(prompt)
    store.lost = True
    resumed = shared.resume(prompt)
    assert resumed.tokens == 0
    assert all(layer.keys is None for layer in resumed.cache.layers)
    assert shared.counters.reasons["lease_lost"] == 1
    assert shared.generate(prompt, 6).tokens == cold_tokens(model(NAME), prompt)


def test_answer_that_lacks_an_object_is_a_miss(store, shared, prompt, monkeypatch):
    """A hit whose handles do not make a whole state is refused before anything is computed on it."""
    shared.prefill(prompt)
    whole = type(store).acquire
    for group in ("full", "swa"):

        def lacking(*args, group=group, **kwargs):
            hit = whole(*args, **kwargs)
            hit.handles = [handle for handle in hit.handles if handle.group != group]
            return hit

        monkeypatch.setattr(type(store), "acquire", lacking)
        resumed = shared.resume(prompt)
        assert resumed.tokens == 0
        assert f"the objects of {group} do not reach 299" in resumed.why


def test_evicted_group_is_a_miss_with_its_name(store, shared, prompt):
    """When the windows are gone the prompt is computed again, and the reason names layer, group and code."""
    shared.prefill(prompt)
    store.drop("swa")
    prefilled = shared.prefill(prompt)
    assert prefilled.reused_tokens == 0
    assert "layer 3 STATE swa (SWA_WINDOW) window_missing" in prefilled.why
    assert prefilled.resumed.hash_tokens == 299
    assert shared.counters.reasons["window_missing"] == 1


@pytest.mark.parametrize("error", [CapacityError("full"), CommitRefusedError("rows are missing"), OSError("ring")])
def test_refused_save_costs_nothing_but_the_save(shared, prompt, monkeypatch, error):
    """An error while a unit is filled or committed aborts it, is told, and leaves the answer as it was."""
    units = []

    def refuse(unit):
        units.append(unit)
        raise error

    monkeypatch.setattr("engine.fake_cache.Unit.commit", refuse)
    answer = shared.generate(prompt, 6)
    assert answer.tokens == cold_tokens(model(NAME), prompt)
    assert [saved.committed for saved in answer.prefilled.saved] == [False, False]
    assert str(error) in answer.prefilled.saved[0].why
    assert all(unit.aborted for unit in units)
    assert shared.counters.unsaved == 2


def test_several_sequences_are_told_apart_from_a_miss(shared, prompt):
    """A batch of two is refused where the engine can hear it and is a miss where it can not."""
    batch = torch.tensor([prompt, prompt])
    assert "one sequence" in shared.resume(batch).why
    with pytest.raises(CallerError, match="one sequence"):
        shared.prefill(batch)


def test_counters_reconcile_with_what_happened(shared, prompt):
    """Hits, misses, reused tokens and saves add up over requests."""
    for _ in range(3):
        shared.prefill(prompt)
    counters = shared.counters
    assert (counters.hits, counters.misses) == (2, 1)
    assert counters.reused_tokens == 2 * (len(prompt) - 1)
    assert (counters.saved, counters.unsaved) == (4, 0)
    assert counters.reasons == {"no_match": 1}


def test_duplicates_are_not_written_again(shared, prompt):
    """Saving a boundary that is stored already writes no object."""
    cache = shared.prefill(prompt).cache
    saved = shared.save(prompt, cache, len(prompt))
    assert saved.committed
    assert (saved.objects, saved.size) == (0, 0)


@pytest.mark.parametrize("cache", ["/run/kvledger/kvledger.sock", None, AsyncCache])
def test_wrong_cache_is_refused_when_it_is_given(cache):
    """A path, nothing or an asynchronous cache is refused at once, not as a miss of every request."""
    with pytest.raises(CallerError, match=r"cache: .*pass .*kvledger\.Cache"):
        TransformersCache(cache, model(NAME), tokenizer_digest="bytes")


@pytest.mark.parametrize("digest", ["", None])
def test_tokenizer_without_digest_is_refused(store, digest):
    """Without a digest of the tokenizer equal ids could mean other text."""
    with pytest.raises(CallerError, match="tokenizer_digest: it is empty"):
        TransformersCache(store, model(NAME), tokenizer_digest=digest)


def test_tokenizer_digest_that_is_none_is_refused(store):
    """A digest with a space could never be registered, which is told when it is given."""
    with pytest.raises(LayoutError, match="tokenizer_digest: expected `str` matching"):
        TransformersCache(store, model(NAME), tokenizer_digest="my tokenizer")


@pytest.mark.parametrize("block_tokens", [-128, "128"])
def test_wrong_block_is_named(store, block_tokens):
    """A block of another type or below one token is refused by its name."""
    with pytest.raises(LayoutError, match=r"^block_tokens: expected `int`"):
        TransformersCache(store, model(NAME), tokenizer_digest="bytes", block_tokens=block_tokens)


def test_what_a_tokenizer_returns_holds_the_ids(shared, prompt):
    """The dict that a tokenizer returns is refused with the name of its part that is wanted, and text as text."""
    with pytest.raises(CallerError, match=r"input_ids: a dict is no token ids .*encoded\['input_ids'\]"):
        shared.generate({"input_ids": torch.tensor([prompt])}, 1)
    with pytest.raises(CallerError, match="input_ids: not token ids"):
        shared.generate("text", 1)
