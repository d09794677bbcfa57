"""What the Transformers adapter answers: each with its reason, since none of them is an exception."""

from collections import Counter
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache

from kvledger.verdict import Cut

__all__ = ["Counters", "Generated", "Prefilled", "Resumed", "Saved"]


@dataclass
class Counters:
    """What an adapter did so far.

    Attributes:
        hits: Lookups that gave a state.
        misses: Lookups that gave none, for whatever reason.
        reused_tokens: Tokens that needed no computing.
        saved: Boundaries committed.
        unsaved: Boundaries that could not be committed.
        reasons: How often each reason led to a miss or kept a boundary from being saved: the code of a cut or error.
    """

    hits: int = 0
    misses: int = 0
    reused_tokens: int = 0
    saved: int = 0
    unsaved: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Resumed:
    """The answer to a lookup.

    Attributes:
        cache: State of the first `tokens` tokens; an empty cache on a miss.
        tokens: Tokens that need no computing, 0 on a miss.
        why: The verdict for people, or the error that made it a miss.
        wanted: Boundaries after `tokens` at which a state is worth saving.
        hash_tokens: Tokens that a plain hash cache would have claimed.
        verdict_cuts: The reasons in full.
    """

    cache: DynamicCache
    tokens: int
    why: str = ""
    wanted: tuple[int, ...] = ()
    hash_tokens: int = 0
    verdict_cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Saved:
    """The answer to a save.

    Attributes:
        boundary: Where the state is true, tokens.
        committed: Whether a request may resume there now.
        objects: Objects that were written.
        size: Their bytes.
        why: Why it was not committed; empty if it was.
    """

    boundary: int
    committed: bool
    objects: int = 0
    size: int = 0
    why: str = ""


@dataclass(frozen=True)
class Prefilled:
    """A computed prompt.

    Attributes:
        cache: State of the whole prompt.
        logits: Logits of its last token, float[1, vocabulary].
        tokens: Length of the prompt.
        resumed: What was reused and why not more.
        saved: The boundaries at which the computation was cut to save a state.
    """

    cache: DynamicCache
    logits: torch.Tensor
    tokens: int
    resumed: Resumed
    saved: tuple[Saved, ...]

    @property
    def reused_tokens(self) -> int:
        """Tokens that needed no computing."""
        return self.resumed.tokens

    @property
    def why(self) -> str:
        """The verdict for people, or the error that made it a miss."""
        return self.resumed.why

    @property
    def cuts(self) -> tuple[int, ...]:
        """Where the prefill was cut, tokens: the resumed boundary first."""
        first = (self.resumed.tokens,) if self.resumed.tokens else ()
        return (*first, *(saved.boundary for saved in self.saved))


@dataclass(frozen=True)
class Generated:
    """Tokens after a prompt, with the prefill that led to them; `prefilled.cache` has moved on with them."""

    tokens: list[int]
    prefilled: Prefilled
