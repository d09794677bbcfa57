"""Trace files: what is read, and how a mistake is told."""

import json

import pytest

from kvledgerd.cli import main
from kvledgerd.trace.requests import TraceError, read_trace

GOOD = {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}


def written(tmp_path, *lines):
    """A file with these lines."""
    path = tmp_path / "trace.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_partial_blocks_count_as_whole_ones_or_are_left_out(tmp_path):
    """700 tokens are two blocks of 512, or one if the partial one is left out."""
    path = written(tmp_path, GOOD, "", GOOD)
    assert read_trace(path, 512)[1:] == (4, 2, 2, 0)
    assert read_trace(path, 512, drop_partial=True)[1:] == (2, 1, 2, 2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "^line 2: this is no request"),
        (GOOD | {"hash_ids": ["1", "2"]}, "^line 2: this is no request"),
        (GOOD | {"input_length": -1}, "^line 2: this is no request"),
        (GOOD | {"hash_ids": [1]}, "--block-tokens"),
        (GOOD | {"hash_ids": [2, 1]}, "behind another block"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    """A line that is no request ends the reading, with its number and what to do."""
    with pytest.raises(TraceError, match=words):
        read_trace(written(tmp_path, GOOD, line), 512)


def test_an_empty_file_is_no_trace(tmp_path):
    """A file without requests is refused."""
    with pytest.raises(TraceError, match="no request"):
        read_trace(written(tmp_path), 512)


def test_the_last_line_is_one_object(tmp_path, capsys):
    """The command ends with an object for programs, and with the usual exit code over a bad file."""
    path = written(tmp_path, *[GOOD | {"hash_ids": [n, n + 1]} for n in range(0, 40, 2)] * 2)
    assert main(["trace", str(path), "--json", "--shares", "50"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["requests"], last["blocks"]) == (40, 80)
    assert {"share", "hit", "lru", "best_standard", "min"} <= set(last["shares"][0])
    assert main(["trace", str(tmp_path / "none.jsonl")]) == 74
    assert main(["trace", str(written(tmp_path, "{"))]) == 78
