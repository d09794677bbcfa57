"""``kvledger explain`` and docs/verdict.md: each reason is produced, documented, and shown where it cut."""

from __future__ import annotations

import re
import sys

import msgspec
import pytest

from kvledger.verdict import Code, Layer
from kvledger.wire.requests import Settle
from kvledgerd.cli import main
from support.layouts import pick, recurrent
from support.refused import EXPLAINED, REFUSED, cut_of, write_log
from support.verdict_page import PAGE, page
from support.world import World, layout

LONG = list(range(20 * 256 + 10))


def asked(capsys, data, *options):
    """Run the command; return its exit code and what it printed."""
    code = main(["explain", "--data", str(data), *options])
    return code, capsys.readouterr()


def explained(capsys, world, tmp_path):
    """Explain the last look-up of a world as JSON."""
    seq = write_log(world, tmp_path)
    code, said = asked(capsys, tmp_path, "--seq", str(seq), "--json")
    assert code == 0
    return msgspec.json.decode(said.out)["explanations"][0]


def outcomes(one):
    """Return what became of each boundary."""
    return {b["position"]: b["layer"] or b["outcome"] for b in one["boundaries"]}


def long_prompt(*ends):
    """A world in which a long prompt is stored up to some boundaries, and asked for."""
    world = World()
    user = world.engine()
    number = user.register(pick("CS"))
    for end in ends:
        user.store(number, LONG, end)
    user.acquire(number, LONG)
    return world


def test_every_code_has_a_look_up_that_it_refuses():
    """No word of the vocabulary is there that no look-up could be answered with."""
    assert set(REFUSED) == set(Code)


@pytest.mark.parametrize("code", Code)
def test_code_is_documented_at_its_layer(code):
    """The page has a section for the code, and names it in the row of the layer that cut."""
    text, cut = PAGE.read_text(), cut_of(REFUSED[code](), code)
    assert f"### `{code.value}`\n" in text
    row = next(line for line in text.splitlines() if line.startswith(f"| {cut.layer.value} {cut.layer.name} |"))
    assert f"`{code.value}`" in row


def test_page_says_what_the_program_says():
    """Each example on the page is what the program prints now; `python -m support.verdict_page` rewrites them."""
    text = PAGE.read_text()
    marks = re.findall(r"<!-- (code|explain) (\w+) -->\n```text\n", text)
    assert sorted(marks) == sorted([("code", c.value) for c in Code] + [("explain", name) for name in EXPLAINED])
    assert page(text) == text


@pytest.mark.parametrize("code", Code)
def test_table_shows_the_layer_that_cut(code, capsys, tmp_path):
    """At the end of the cut's run, the table names its layer, its code and its group."""
    world = REFUSED[code]()
    cut = cut_of(world, code)
    one = explained(capsys, world, tmp_path)
    at = [b for b in one["boundaries"] if b["position"] == cut.end]
    if code in {Code.BELOW_BLOCK, Code.UNEVEN}:
        assert at == []
        assert msgspec.to_builtins(cut) in one["cuts"]
    else:
        assert [(b["layer"], b["code"], b["group"]) for b in at] == [(cut.layer.value, code.value, cut.group)]


def test_group_that_lacks_is_the_only_one_missing(capsys, tmp_path):
    """Where one page is gone, its group alone is missing, at the one boundary that needs it."""
    one = explained(capsys, REFUSED[Code.TAIL_MISSING](), tmp_path)
    missing = [(g["name"], place) for g in one["groups"] for place in g["places"] if place != "memory"]
    assert missing == [("t4", "missing")]
    assert outcomes(one) == {256: "chosen", 512: Layer.STATE}


def test_disk_is_told_from_memory(capsys, tmp_path):
    """What lies on disk is shown there, and refused for that reason only if no restore was asked for."""
    one = explained(capsys, REFUSED[Code.ON_DISK](), tmp_path)
    assert {g["places"][1] for g in one["groups"]} == {"disk"}
    assert one["boundaries"][1]["code"] == "on_disk"


def test_long_prompt_is_shown_around_the_cut(capsys, tmp_path):
    """Of many boundaries those around the best are printed, the rest are counted, and JSON holds all."""
    world = long_prompt(256 * 9)
    seq = write_log(world, tmp_path)
    _, said = asked(capsys, tmp_path, "--seq", str(seq))
    columns = next(line for line in said.out.splitlines() if line.startswith("group")).split()
    assert columns == ["group", "kind", "2048", "2304", "2560", "2816", "3072", "3328", "3584"]
    assert "7 boundaries before and 6 behind these are not shown" in said.out
    _, said = asked(capsys, tmp_path, "--seq", str(seq), "--json")
    one = msgspec.json.decode(said.out)["explanations"][0]
    assert [b["position"] for b in one["boundaries"]] == list(range(256, 256 * 21, 256))


def test_residue_that_was_offered_is_marked(capsys, tmp_path):
    """A boundary inside a block is shown with a star, since only its tokens make it fit."""
    world = World()
    user = world.engine()
    number = user.register(layout(recurrent(), block_tokens=256))
    user.store(number, LONG, 300)
    user.acquire(number, LONG[:600])
    seq = write_log(world, tmp_path)
    _, said = asked(capsys, tmp_path, "--seq", str(seq))
    assert re.search(r"verdict +layer 3 +offered +layer \d", said.out), said.out
    assert "300*" in said.out
    assert "300 are usable" in said.out
    assert "* lies inside a block" in said.out


def test_offer_that_the_client_kept_is_marked(capsys, tmp_path):
    """The log tells later which offer fitted the prompt's tokens; the table says so."""
    world = World()
    user = world.engine()
    number = user.register(layout(recurrent(), block_tokens=256))
    user.store(number, LONG, 256)
    user.store(number, LONG, 300)
    acquired = user.acquire(number, LONG[:600])
    seq = len(world.log)
    at = [offer.position for offer in acquired.offers].index(300)
    user.ok(Settle(acquired.lease, at))
    write_log(world, tmp_path)
    _, said = asked(capsys, tmp_path, "--seq", str(seq), "--json")
    one = msgspec.json.decode(said.out)["explanations"][0]
    assert outcomes(one) == {256: "chosen", 300: "kept", 512: 1}
    assert one["usable_tokens"] == 300


def test_latest_misses_are_found_without_a_number(capsys, tmp_path):
    """Without a number the latest miss is explained, with `--last` so many, oldest first."""
    world = REFUSED[Code.TAIL_MISSING]()
    seqs = [len(world.log)]
    user = world.engine("late")
    user.acquire(1, LONG[:512])
    user.acquire(1, LONG[:300])
    seqs.append(len(world.log) - 1)
    write_log(world, tmp_path)
    _, said = asked(capsys, tmp_path, "--json")
    assert [e["seq"] for e in msgspec.json.decode(said.out)["explanations"]] == seqs[1:]
    _, said = asked(capsys, tmp_path, "--last", "2")
    assert re.findall(r"^event (\d+)", said.out, re.MULTILINE) == list(map(str, seqs))


@pytest.mark.parametrize(("seq", "why"), [("1", "IncarnationStarted, no look-up"), ("999", "no such event")])
def test_event_that_is_no_look_up_is_refused(seq, why, capsys, tmp_path):
    """Naming another event fails, says why, and names the command that lists look-ups."""
    write_log(REFUSED[Code.LEAVE](), tmp_path)
    code, said = asked(capsys, tmp_path, "--seq", seq)
    assert code != 0
    assert said.out == ""
    assert why in said.err
    assert "kvledger audit why" in said.err


def test_log_without_a_miss_says_so(capsys, tmp_path):
    """If every look-up gave what a hash cache would have claimed, there is nothing to explain."""
    write_log(long_prompt(256, 512), tmp_path)
    code, said = asked(capsys, tmp_path)
    assert code != 0
    assert "the log holds no miss" in said.err


def test_terminal_gets_a_drawn_table(capsys, monkeypatch, tmp_path):
    """A person sees a table with the same words."""
    seq = write_log(REFUSED[Code.INDEXER_MISSING](), tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, said = asked(capsys, tmp_path, "--seq", str(seq))
    assert "INDEXER_STATE" in said.out
    assert "missing" in said.out
    assert "indexer_missing" in said.out
    assert "│" in said.out
