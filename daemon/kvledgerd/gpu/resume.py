"""A model of the demo on a device: its state is saved, the daemon killed, and the prompt resumed from what survived."""

from typing import NamedTuple

import torch

from kvledger import Cache
from kvledger.adapters.transformers import TransformersCache, greedy
from kvledger.testing import Daemon
from kvledgerd.demo.models import build
from kvledgerd.demo.prompts import TOKENIZER_DIGEST, Prompt, answer_tokens, tokens_of

__all__ = ["ResumeLine", "check_resume"]


class ResumeLine(NamedTuple):
    """What came of it.

    Attributes:
        model: Name of the model.
        prompt_tokens: Length of the prompt.
        reused_after_kill: Tokens that needed no computing after the daemon was killed.
        tokens_equal: Whether the answer was the one that was given before.
    """

    model: str
    prompt_tokens: int
    reused_after_kill: int
    tokens_equal: bool

    @property
    def good(self) -> bool:
        """Whether something was reused, and nothing differed."""
        return self.reused_after_kill > 0 and self.tokens_equal

    def __str__(self) -> str:
        equal = "equal" if self.tokens_equal else "DIFFERS"
        used = f"{self.reused_after_kill} of {self.prompt_tokens} tokens reused after the daemon was killed"
        return f"{self.model}: {used}, answer {equal}"


def check_resume(daemon: Daemon, device: str, name: str = "deepseek-v4") -> ResumeLine:
    """Save a prompt's state, kill the daemon, and answer the prompt again.

    Args:
        daemon: A daemon with its keeper; killed once.
        device: Where the model computes.
        name: One of the demo's models.
    """
    model, ids = build(name), tokens_of(Prompt.PASSAGE)
    torch.nn.Module.to(model, device)
    answers, reused = [], 0
    for kill in (False, True):
        if kill:
            daemon.kill()
            daemon.wait_ready()
        with Cache.open(daemon.socket, name=f"engine on {device}") as cache:
            view = TransformersCache(cache, model, tokenizer_digest=TOKENIZER_DIGEST)
            done = view.prefill(ids)
            reused = done.reused_tokens
            answers.append(greedy(model, done.cache, done.logits, answer_tokens(Prompt.PASSAGE)))
    return ResumeLine(name, len(ids), reused, answers[0] == answers[1])
