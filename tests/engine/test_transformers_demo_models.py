"""The demo's models: random, yet fit to prove something."""

import pytest
import torch

from kvledger.adapters.transformers import compute, greedy, layout_for
from kvledgerd.demo import models

PROMPT_TOKENS = 2000


@pytest.mark.parametrize("name", models.NAMES)
def test_model_is_equal_in_every_process(name):
    """Built twice, with other random numbers drawn in between, a model has one digest."""
    first = layout_for(models.build(name), tokenizer_digest="bytes")
    torch.rand(7)
    assert layout_for(models.build(name), tokenizer_digest="bytes") == first
    assert len({layer for group in first.groups for layer in group.layers}) >= 5


@pytest.mark.parametrize("name", models.NAMES)
def test_model_answers_with_many_tokens(prompt, name):
    """Greedy decoding does not fall into one token, so equal answers mean something."""
    model = models.build(name)
    assert len(set(greedy(model, *compute(model, prompt), 24))) >= 8


def test_demo_prompt_outgrows_the_indexer_of_v4():
    """A prompt of the demo has more compressed rows than V4 reads, and 16 heads keep scores apart."""
    config = models.build("deepseek-v4").config
    assert config.compress_rates["compressed_sparse_attention"] * config.index_topk < PROMPT_TOKENS
    assert config.index_n_heads == 16
    assert len(set(config.layer_types)) == 3


def test_unknown_model_is_refused():
    """There are no models but those that are named."""
    with pytest.raises(KeyError):
        models.build("gpt-2")
