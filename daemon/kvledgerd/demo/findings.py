"""What the demo found out, in the fields of its machine form, and what it demands of them.

The fields are a contract with programs; whoever reads them needs no other word from the demo than `ok`.
"""

import msgspec

from kvledger.verdict import Cut

__all__ = ["Findings", "ModelFindings", "Refusal", "problems"]

_REUSE_PERCENT = 95
_LOGIT_TOLERANCE = 1e-4
_REFUSALS = 4


class Refusal(msgspec.Struct, frozen=True):
    """A verdict that kept an engine from using what a plain hash cache would have handed out.

    Attributes:
        code: The reason.
        layer: The validation layer at which it fell, 1 to 4.
        group: The group that cut, empty if none did.
        kind: Its kind, empty if none did.
        hash_tokens: What a plain hash cache would have claimed.
        usable_tokens: What was usable.
    """

    code: str
    layer: int
    group: str
    kind: str
    hash_tokens: int
    usable_tokens: int

    @classmethod
    def of(cls, cut: Cut, hash_tokens: int, usable_tokens: int) -> "Refusal":
        """Return the refusal that a cut tells of."""
        kind = cut.kind.name if cut.kind is not None else ""
        return cls(cut.code.value, cut.layer.value, cut.group, kind, hash_tokens, usable_tokens)


class ModelFindings(msgspec.Struct):
    """What was found out with one model.

    Attributes:
        cold_ttft_s: Time to the first token without any cache, seconds.
        warm_ttft_s: The same of the same prompt sent again to another engine.
        prompt_tokens: Length of the prompt.
        reused_tokens: Tokens of it that needed no computing.
        tokens_equal: Generated tokens were those of a cold run, for the prompt and for its continuation.
        state_equal: Restored state, state at the end and logits were those of a cold run, bit for bit.
        max_abs_logit_diff: Greatest difference of logits to a cold run that was not cut.
        reused_after_kill: Tokens reused from memory that outlived the daemon.
        tokens_equal_after_kill: Tokens, states and logits were equal then too.
        reused_from_disk: Tokens reused from disk.
        tokens_equal_from_disk: Tokens, states and logits were equal then too.
        verdicts: What was refused after each damage.
        audit_events: What the log tells about one object of the model, number of entries.
    """

    cold_ttft_s: float = 0.0
    warm_ttft_s: float = 0.0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens_equal: bool = False
    state_equal: bool = False
    max_abs_logit_diff: float = float("inf")
    reused_after_kill: int = 0
    tokens_equal_after_kill: bool = False
    reused_from_disk: int = 0
    tokens_equal_from_disk: bool = False
    verdicts: list[Refusal] = []
    audit_events: int = 0


class Findings(msgspec.Struct):
    """The last line of ``kvledger demo --json``."""

    ok: bool
    models: dict[str, ModelFindings]


def problems(models: dict[str, ModelFindings]) -> list[str]:
    """Return what is not as it must be, one sentence each; none if the demo succeeded."""
    found = [f"{name}: {problem}" for name, model in models.items() for problem in _of_model(model)]
    codes = {refusal.code for model in models.values() for refusal in model.verdicts}
    if len(codes) < _REFUSALS:
        found.append(f"only {len(codes)} different refusals: {', '.join(sorted(codes))}")
    return found


def _of_model(model: ModelFindings) -> list[str]:
    flags = ("tokens_equal", "state_equal", "tokens_equal_after_kill", "tokens_equal_from_disk")
    found = [f"{flag} is false" for flag in flags if not getattr(model, flag)]
    for name in ("reused_tokens", "reused_after_kill", "reused_from_disk"):
        reused = getattr(model, name)
        if reused * 100 < model.prompt_tokens * _REUSE_PERCENT:
            found.append(f"{name} is {reused} of {model.prompt_tokens}, less than {_REUSE_PERCENT} %")
    if model.warm_ttft_s >= model.cold_ttft_s:
        found.append(f"the first token came after {model.warm_ttft_s:.3f} s warm, {model.cold_ttft_s:.3f} s cold")
    if not model.max_abs_logit_diff <= _LOGIT_TOLERANCE:
        found.append(f"logits differ by {model.max_abs_logit_diff:g} from an uncut cold run")
    if not model.audit_events:
        found.append("the log tells nothing about its objects")
    return found
