"""Forwards of a model, cut where states are to be kept.

A cold run and a resumed one are equal bit for bit only if their matrices have equal shapes, so both are cut at the same
boundaries, by this one function.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from kvledger.errors import CallerError

__all__ = ["as_batch", "compute", "forward", "greedy"]

_REMEDY = "pass one sequence of whole numbers, [tokens] or [1, tokens]"


def as_batch(input_ids: Any, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return token ids as an int64 tensor [1, tokens].

    Args:
        input_ids: A list of ints, or an integer tensor [tokens] or [1, tokens].
        device: Where the tensor is made.

    Raises:
        CallerError: they are no numbers, or the batch holds several sequences, or none.
    """
    if isinstance(input_ids, Mapping):
        remedy = "pass the ids that it holds: encoded['input_ids']"
        raise CallerError(f"a {type(input_ids).__name__} is no token ids", field="input_ids", remedy=remedy)
    try:
        ids = torch.as_tensor(input_ids, dtype=torch.long, device=device)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise CallerError(f"not token ids: {error}", field="input_ids", remedy=_REMEDY) from error
    if ids.ndim == 1:
        ids = ids.unsqueeze(0)
    if ids.ndim != 2 or ids.shape[0] != 1 or ids.shape[1] == 0:
        raise CallerError(f"token ids of shape {tuple(ids.shape)}", field="input_ids", remedy=_REMEDY)
    return ids


def compute(
    model: PreTrainedModel,
    input_ids: Any,
    *,
    cache: DynamicCache | None = None,
    start: int = 0,
    cuts: Iterable[int] = (),
    at_cut: Callable[[DynamicCache, int], None] | None = None,
) -> tuple[DynamicCache, torch.Tensor]:
    """Compute a prompt in pieces that end at `cuts` and at its end.

    Args:
        model: A decoder of Transformers 5.
        input_ids: The whole prompt, one sequence.
        cache: State of the first `start` tokens; empty if None.
        start: Tokens of the prompt that `cache` holds already.
        cuts: Boundaries, tokens; those outside (start, end of the prompt] are left out.
        at_cut: Called with the cache and the boundary as soon as the cache stands there.

    Returns:
        The cache at the end of the prompt, and the logits of its last token, float[1, vocabulary].
    """
    ids = as_batch(input_ids, model.device)
    cache = DynamicCache(config=model.config) if cache is None else cache
    end, logits = ids.shape[1], torch.empty(0)
    wanted = {cut for cut in cuts if start < cut <= end}
    for stop in sorted(wanted | {end}):
        logits = forward(model, cache, ids[:, start:stop])
        start = stop
        if stop in wanted and at_cut is not None:
            at_cut(cache, stop)
    return cache, logits


def greedy(model: PreTrainedModel, cache: DynamicCache, logits: torch.Tensor, tokens: int) -> list[int]:
    """Return the next tokens, each the most likely one; the cache moves on with all but the last.

    Args:
        model: A decoder of Transformers 5.
        cache: State of all tokens so far.
        logits: Logits of the last token so far, float[1, vocabulary].
        tokens: How many to make; no token ends the run early.
    """
    made: list[int] = []
    while len(made) < tokens:
        if made:
            logits = forward(model, cache, torch.tensor([[made[-1]]], device=model.device))
        made.append(int(logits.argmax(dim=-1)))
    return made


def forward(model: PreTrainedModel, cache: DynamicCache, ids: torch.Tensor) -> torch.Tensor:
    """Compute tokens behind a cache, which moves on with them, and return the logits of the last one.

    Args:
        model: A decoder of Transformers 5.
        cache: State of the tokens before.
        ids: Token ids, int64[1, tokens].

    Returns:
        float[1, vocabulary].
    """
    # Transformers renamed the argument with 5.24; it warns of the old name, and older versions do not know the new one
    named = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    with torch.no_grad():
        logits: torch.Tensor = model(ids, use_cache=True, logits_to_keep=1, **{named: cache}).logits
    return logits[:, -1]
