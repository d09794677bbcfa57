"""What the demo demands of its findings, and how it shows them: nothing that is wrong may look right."""

from __future__ import annotations

import math
import struct

import pytest
from msgspec.structs import replace

from kvledger.kinds import Kind
from kvledger.verdict import Code, Cut, Layer
from kvledgerd.audit.questions.lives import Entry, ObjectLife
from kvledgerd.demo.compare import max_abs_difference, same_end
from kvledgerd.demo.damage import Damage, Trial
from kvledgerd.demo.findings import ModelFindings, Refusal, problems
from kvledgerd.demo.messages import Ran
from kvledgerd.demo.prompts import Prompt, cuts_of, tokens_of
from kvledgerd.demo.report import show
from kvledgerd.demo.steps import Outcome

CODES = ("rows_missing", "window_missing", "abi_mismatch", "bytes_damaged")
GOOD = ModelFindings(
    cold_ttft_s=2.0,
    warm_ttft_s=0.1,
    prompt_tokens=2176,
    reused_tokens=2175,
    tokens_equal=True,
    state_equal=True,
    max_abs_logit_diff=1e-5,
    reused_after_kill=2175,
    tokens_equal_after_kill=True,
    reused_from_disk=2175,
    tokens_equal_from_disk=True,
    verdicts=[Refusal(code, 3, "swa", "SWA_WINDOW", 640, 0) for code in CODES],
    audit_events=25,
)
RAN = Ran(0.1, {639: "a", 640: "b"}, struct.pack("<3f", 1.0, 2.0, 3.0), [1, 2, 3])
LIFE = ObjectLife(
    "7.1", "gemma3_text", "swa", "SWA_WINDOW", "boundary at 2175", [Entry(3, 0, "engine:2", "committed", "")]
)


def _nothing(victim):
    del victim


DAMAGE = Damage("the state of swa evicted", Code.WINDOW_MISSING, _nothing)
TRIAL = Trial(DAMAGE, GOOD.verdicts[1], "no snapshot at 639", right=True, mended=True)


def test_what_is_good_has_no_problems():
    """Findings that are all as they must be are no problem."""
    assert problems({"gemma3": GOOD}) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokens_equal", False),
        ("state_equal", False),
        ("tokens_equal_after_kill", False),
        ("tokens_equal_from_disk", False),
        ("reused_tokens", 2067),
        ("reused_after_kill", 0),
        ("reused_from_disk", 2067),
        ("warm_ttft_s", 2.0),
        ("max_abs_logit_diff", 2e-4),
        ("max_abs_logit_diff", math.nan),
        ("audit_events", 0),
        ("verdicts", GOOD.verdicts[:3]),
    ],
)
def test_what_is_not_good_is_a_problem(field, value):
    """Each demand that is not met, by however little, is one problem."""
    assert len(problems({"gemma3": replace(GOOD, **{field: value})})) == 1


def test_refusals_count_over_all_models():
    """Four reasons must be seen in all, wherever they were seen."""
    models = {"one": replace(GOOD, verdicts=GOOD.verdicts[:2]), "two": replace(GOOD, verdicts=GOOD.verdicts[2:])}
    assert problems(models) == []


def test_a_model_starts_with_nothing_proven():
    """What was never found out counts as wrong, not as right."""
    assert len(problems({"gemma3": ModelFindings(prompt_tokens=2176)})) >= 8


@pytest.mark.parametrize(
    "other",
    [
        replace(RAN, tokens=[1, 2, 4]),
        replace(RAN, logits=struct.pack("<3f", 1.0, 2.0, 3.0000002)),
        replace(RAN, states={639: "a", 640: "c"}),
        replace(RAN, states={638: "a", 640: "b"}),
        replace(RAN, states={}),
    ],
)
def test_runs_differ_by_one_bit(other):
    """One other token, bit of a logit or state, or a state that cannot be compared, makes a run unequal."""
    assert same_end(RAN, RAN)
    assert not same_end(other, RAN)


def test_the_greatest_difference_counts():
    """Logits are compared one by one, and lists of two lengths not at all."""
    assert max_abs_difference(RAN.logits, struct.pack("<3f", 1.5, 2.0, 1.0)) == 2.0
    with pytest.raises(ValueError, match="zip"):
        max_abs_difference(RAN.logits, RAN.logits[:8])


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        (TRIAL._replace(refusal=None), "refused with nothing, not window_missing"),
        (TRIAL._replace(refusal=GOOD.verdicts[0]), "refused with rows_missing, not window_missing"),
        (TRIAL._replace(right=False), "the engine then answered wrong"),
        (TRIAL._replace(mended=False), "it could not be used again"),
    ],
)
def test_a_damage_that_was_not_handled_is_a_problem(trial, says):
    """A damage must be refused for the right reason, answered right and mended."""
    assert TRIAL.problems == []
    assert len(trial.problems) == 1
    assert says in trial.problems[0]


def test_a_refusal_is_made_of_its_cut():
    """Code, layer, group and kind are those of the cut; a layer that knows no group has none."""
    cut = Cut(512, 639, Layer.STATE, "csa_halo", Kind.UNCOMPRESSED_TAIL, Code.HALO_MISSING)
    assert Refusal.of(cut, 640, 0) == Refusal("halo_missing", 3, "csa_halo", "UNCOMPRESSED_TAIL", 640, 0)
    foreign = Cut(0, 640, Layer.IDENTITY, "", None, Code.ABI_MISMATCH)
    assert Refusal.of(foreign, 640, 0) == Refusal("abi_mismatch", 2, "", "", 640, 0)


def test_good_news_are_shown(capsys):
    """The tables hold times, reuse, refusals and the object's life, and the last line says that all is well."""
    show(Outcome({"gemma3": GOOD}, {"gemma3": [TRIAL]}, LIFE, {"engine:2": "A"}, []))
    out = capsys.readouterr().out
    for text in ("2.00 s", "0.100 s", "20 x", "2,175, equal", "window_missing", "object 7.1", "engine:2 (A)"):
        assert text in out
    assert "NOT" not in out
    assert "All equal." in out.splitlines()[-1]


def test_bad_news_are_shown(capsys):
    """What is not equal, not refused or wrong stands in the tables in capitals, and no line says that all is well."""
    bad = replace(GOOD, tokens_equal_after_kill=False)
    trials = [TRIAL._replace(refusal=None), TRIAL._replace(right=False), TRIAL._replace(mended=False)]
    show(Outcome({"gemma3": bad}, {"gemma3": trials}, LIFE, {}, ["gemma3: something is wrong"]))
    out = capsys.readouterr().out
    for text in ("2,175, NOT EQUAL", "NOT REFUSED", "WRONG ANSWER", "NOT MENDED", "gemma3: something is wrong"):
        assert text in out
    assert "All equal" not in out


def test_prompts_are_real_text_of_whole_blocks():
    """The main prompt has 2,000 and more tokens of readable text and ends a block; the passage does too."""
    main, passage = tokens_of(Prompt.MAIN), tokens_of(Prompt.PASSAGE)
    assert len(main) >= 2000
    assert (len(main) % 128, len(passage) % 128) == (0, 0)
    assert bytes(main).decode("ascii").startswith("The harbour office")
    assert tokens_of(Prompt.CONTINUED)[: len(main)] == main
    assert cuts_of(Prompt.MAIN) == (len(main) - 1, len(main))
    assert len(tokens_of(Prompt.WARM_UP)) == 300
