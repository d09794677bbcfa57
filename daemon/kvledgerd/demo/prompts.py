"""The prompts of the demo: passages of one text that ships with it, one token a byte.

The main prompt is a whole number of blocks, so that what is sent again can use all of it but its last token, and is
longer than what DeepSeek-V4's indexer selects, so that the indexer decides about the answer. The passage that is
damaged is short, because after each damage it is computed anew.
"""

import enum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["TOKENIZER_DIGEST", "Prompt", "answer_tokens", "cuts_of", "tokens_of"]

TOKENIZER_DIGEST = "bytes"


class Prompt(enum.StrEnum):
    """What the engines are asked."""

    WARM_UP = "warm-up"
    MAIN = "prompt"
    CONTINUED = "continuation"
    PASSAGE = "passage"


class _Place(NamedTuple):
    start: int
    end: int
    cuts: tuple[int, ...]
    answer: int


# A prompt is cut where it can be resumed when it is sent again, one token before its end, and at its end.
_PLACES = {
    Prompt.WARM_UP: _Place(3000, 3300, (299, 300), 0),
    Prompt.MAIN: _Place(0, 2176, (2175, 2176), 16),
    Prompt.CONTINUED: _Place(0, 2240, (2175, 2176, 2239, 2240), 16),
    Prompt.PASSAGE: _Place(2300, 2940, (639, 640), 8),
}


@cache
def tokens_of(prompt: Prompt) -> list[int]:
    """Return the tokens of a prompt, each a byte."""
    place = _PLACES[prompt]
    return list(files("kvledgerd.demo").joinpath("prompt.txt").read_bytes()[place.start : place.end])


def cuts_of(prompt: Prompt) -> tuple[int, ...]:
    """Return the boundaries at which a prompt that nothing is known of is cut; a cold run is cut at the same."""
    return _PLACES[prompt].cuts


def answer_tokens(prompt: Prompt) -> int:
    """Return how many tokens are generated after a prompt."""
    return _PLACES[prompt].answer
