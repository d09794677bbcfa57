"""Every benchmark in its tiny form: it runs, checks its answers and fills its rows. No number is judged."""

import json
import logging
import math

import pytest

from kvledgerd import cli, logs
from kvledgerd.bench import scale
from kvledgerd.bench.committer import Committer
from kvledgerd.bench.contents import WrongAnswerError
from kvledgerd.bench.figures import figure_of, spread_of
from kvledgerd.bench.registry import BENCHES
from kvledgerd.bench.scale import TINY
from kvledgerd.exits import Exit

ROWS = {
    "acquire": ["acquire 4 blocks", "acquire 4 blocks, hashing included"],
    "prompts": ["acquire 1k tokens"],
    "read": ["hand out 0.0078125 MiB", "read 0.00390625 MiB", "read 0.0078125 MiB"],
    "commit": ["commit 1 MiB"],
    "commits": ["commits of 1 MiB without pause"],
    "durable": ["durable events, 16 in flight"],
    "crowd": ["3 clients"],
    "recover": ["recover 604 objects", "replay the log of 604 objects", "memory for 604 objects"],
    "restore": ["restore 1 MiB from disk"],
    "peers": [],  # test_bench_peers.py has them: which there are depends on what is installed
    "trace": [],  # none was named
}
FIELDS = {"name", "value", "unit", "beside", "ratio", "goal", "met"}


@pytest.fixture(autouse=True)
def _quiet():
    logs.configure(json=True, level=logging.WARNING)


def test_every_benchmark_is_known_here():
    """No benchmark joins the registry without saying here which rows it fills."""
    assert list(BENCHES) == list(ROWS)


@pytest.mark.parametrize("name", [name for name in BENCHES if name != "peers"])
def test_benchmark_fills_its_rows(name):
    """A benchmark yields its rows in order, each with as many positive numbers for the cache as for what is beside."""
    measured = list(BENCHES[name](TINY))
    assert [row.name for row in measured] == ROWS[name]
    for row in measured:
        spread = spread_of(row)
        assert len(spread.ours) == len(spread.beside) == 1
        assert all(math.isfinite(number) and number > 0 for number in (*spread.ours, *spread.beside))
        assert figure_of(row).unit
        assert row.peer


def test_command_ends_with_its_rows_as_json(monkeypatch, capsys, tmp_path):
    """The last line of the command is one JSON object with the fields of each row, and the file holds them too."""
    monkeypatch.setattr(scale, "FULL", TINY)
    kept = tmp_path / "bench.json"
    assert cli.main(["bench", "durable", "--json", "--out", str(kept)]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [set(row) for row in rows] == [FIELDS]
    assert json.loads(kept.read_bytes())["rows"] == rows


def test_command_measures_nothing_that_it_could_not_write(monkeypatch, capsys, tmp_path):
    """A file that can not be written is told by its name before the first row, as any wrong name of a file is."""
    monkeypatch.setattr(scale, "FULL", TINY)
    kept = tmp_path / "none" / "bench.json"
    assert cli.main(["bench", "durable", "--out", str(kept)]) == Exit.IO
    why = "No such file or directory (name one that is there and that you may use)"
    assert capsys.readouterr().err == f"kvledger: {kept}: {why}\n"


@pytest.mark.parametrize("option", ["--clients", "--objects"])
@pytest.mark.parametrize("number", ["0", "-3", "many"])
def test_command_refuses_sizes_that_measure_nothing(capsys, option, number):
    """A size that is no positive number ends the command before anything is measured."""
    with pytest.raises(SystemExit):
        cli.main(["bench", "crowd", option, number])
    assert option in capsys.readouterr().err


def test_command_names_the_rows_there_are(capsys):
    """Asking for a row that does not exist is refused with the names of those that do."""
    assert cli.main(["bench", "no-such-row"]) != 0
    said = capsys.readouterr().err
    assert all(name in said for name in BENCHES)


def test_wrong_answers_have_no_speed(monkeypatch, capsys):
    """A benchmark whose answers are wrong prints why, and no number."""

    def wrong(_scale):
        raise WrongAnswerError("not so: the bytes are those that were put")

    monkeypatch.setitem(BENCHES, "commit", wrong)
    assert cli.main(["bench", "commit", "--json"]) != 0
    output = capsys.readouterr()
    assert "the bytes are those that were put" in output.err
    assert output.out == ""


def test_commits_are_compared_byte_by_byte(monkeypatch):
    """A single wrong byte in what the cache returns is noticed before anything is timed."""
    real = Committer.commit

    def altered(committer):
        real(committer)
        source = bytearray(committer.source)
        source[-1] ^= 1
        committer.source = memoryview(source)

    monkeypatch.setattr(Committer, "commit", altered)
    with pytest.raises(WrongAnswerError):
        list(BENCHES["commit"](TINY))
