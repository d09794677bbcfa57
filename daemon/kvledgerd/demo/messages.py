"""What the demo says to its engine processes and what they answer: one JSON object a line.

Logits travel as their raw bytes and states as digests, so that equal means equal in every bit.
"""

import enum

import msgspec

from kvledger.layout import Layout
from kvledger.verdict import Cut
from kvledgerd.demo.prompts import Prompt

__all__ = ["Answer", "Compute", "Failed", "Order", "Ran", "Ready", "Serve", "Variant"]


class Variant(enum.StrEnum):
    """Which engine is played: the usual one, or one that must not use what the usual one stored."""

    USUAL = "usual"
    OTHER_ABI = "other kernel ABI"
    OTHER_WEIGHTS = "other weights"


class Compute(msgspec.Struct, frozen=True, tag="compute"):
    """Answer a prompt without any cache: a cold run.

    Attributes:
        model: Name of the model.
        prompt: What is asked.
        cuts: Boundaries at which the prefill is cut; none for one forward over all of it.
        variant: Which engine computes.
    """

    model: str
    prompt: Prompt
    cuts: tuple[int, ...] = ()
    variant: Variant = Variant.USUAL


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """Answer a prompt as an engine with kvledger does: look up, restore, compute the rest, save.

    Attributes:
        model: Name of the model.
        prompt: What is asked.
        variant: Which engine serves.
        save: Whether what is computed is stored; if not, the next engine finds what this one found.
    """

    model: str
    prompt: Prompt
    variant: Variant = Variant.USUAL
    save: bool = True


Order = Compute | Serve


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The first line of an engine: its models are built and warm.

    Attributes:
        layouts: Layout of each model, by name.
    """

    layouts: dict[str, Layout]


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    """An answered prompt.

    Attributes:
        ttft_s: Time to the first token, seconds.
        states: Digest of the state at each boundary at which the run was cut or resumed, and at the prompt's end.
        logits: Logits of the prompt's last token, float32 little-endian.
        tokens: What was generated.
        reused: Tokens that needed no computing.
        saved: Boundaries that were committed.
        hash_tokens: Tokens that a plain hash cache would have claimed.
        cuts: Why not more was usable.
        why: The verdict for people, or the error that made it a miss.
    """

    ttft_s: float
    states: dict[int, str]
    logits: bytes
    tokens: list[int]
    reused: int = 0
    saved: tuple[int, ...] = ()
    hash_tokens: int = 0
    cuts: tuple[Cut, ...] = ()
    why: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """An order could not be carried out: the traceback."""

    error: str


Answer = Ready | Ran | Failed
