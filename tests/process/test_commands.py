"""The commands that answer from the data directory: audit, log and check, beside a running daemon and after it."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledgerd import cli
from kvledgerd.commands import table, trace
from kvledgerd.exits import Exit
from support import commands
from support.tiny import prompt, store, tiny_layout

PROMPT_TOKENS = 50


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would."""
    command = [sys.executable, "-m", "kvledgerd.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def kvledger(*arguments: str, code: int = 0) -> str:
    """Run a command that has to end with `code`, and return what it prints."""
    found = run(*arguments)
    assert found.returncode == code, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def told():
    """A data directory with a history: stored, read, killed, read again, written to disk, missed."""
    with Daemon(memory="64MiB") as daemon:
        with Cache.open(daemon.socket, name="writer") as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            with cache.acquire(layout, [*prompt(1), 9]) as hit:
                assert hit.tokens == PROMPT_TOKENS
            # Verdicts ride in the next frame; a commit waits for its own, so the kill can not take this one along.
            store(cache, layout, 3)
            daemon.kill()
            daemon.wait_ready()
            with cache.acquire(layout, [*prompt(1), 9]) as hit:
                assert hit.tokens == PROMPT_TOKENS
            cache.offload(layout, prompt(1), boundary=PROMPT_TOKENS)
            with cache.acquire(layout, prompt(2)) as hit:
                assert not hit
            digest = cache.status().digest
        yield daemon.data_dir, digest


def lines(data: Path, *arguments: str) -> dict:
    """Run a command in its machine form and return the object on its last line."""
    return json.loads(kvledger(*arguments, "--data", str(data), "--json").splitlines()[-1])


def test_ctrl_c_ends_a_command_in_silence(tmp_path):
    """A command that is interrupted at work ends with 130 and tells no traceback."""
    trace = tmp_path / "trace"
    os.mkfifo(trace)
    command = [sys.executable, "-m", "kvledgerd.cli", "trace", str(trace)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with trace.open("w"):  # returns when the command reads
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 128 + signal.SIGINT
        assert process.stderr.read() == ""


def test_verify_finds_the_log_whole(told):
    """`log verify` says ok, and counts from the first event."""
    found = lines(told[0], "log", "verify")

    assert (found["ok"], found["first_seq"], found["problem"]) == (True, 1, None)
    assert " frames in 1 segment; " in commands.kvledger("log", "verify", "--data", str(told[0])).stdout


def test_check_reaches_the_digest_of_the_daemon(told):
    """`check` replays the log to the very state that the daemon had, and every invariant holds in it."""
    found = lines(told[0], "check")

    assert found["ok"]
    assert found["violations"] == []
    assert found["objects"] > 0


def test_cat_prints_every_event_once(told):
    """`log cat` prints all events in sequence, each with its name and its time."""
    events = [json.loads(line) for line in kvledger("log", "cat", "--data", str(told[0]), "--json").splitlines()]

    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert {"IncarnationStarted", "LayoutRegistered", "UnitCommitted", "LookedUp", "Offloaded"} <= {
        e["event"] for e in events
    }


@pytest.mark.parametrize("words", [("cat", "--from"), ("cat", "--to"), ("replay", "--at")])
def test_an_event_that_is_not_there_is_said_with_the_last_one(told, words):
    """Whoever asks for an event behind the end of the log reads where it ends, and gets the code for that."""
    last = json.loads(commands.kvledger("log", "verify", "--data", str(told[0]), "--json").stdout)["last_seq"]
    found = commands.kvledger("log", *words, str(last + 7), "--data", str(told[0]))

    assert found.returncode == Exit.USAGE
    assert found.stderr == f"kvledger: there is no event {last + 7}: the log ends at {last}; name an earlier one\n"


def test_an_object_tells_its_whole_life(told):
    """`audit object` tells when an object was reserved, committed, read, verified and written, and by whom."""
    objects = lines(told[0], "audit", "objects")["objects"]
    first = next(found for found in objects if found["state"] == "MIRRORED")

    life = lines(told[0], "audit", "object", first["name"])

    happened = [entry["what"] for entry in life["entries"]]
    assert happened[:2] == ["reserved", "committed"]
    assert {"handed out", "daemon started", "verified", "on disk"} <= set(happened)
    assert life["group"] == first["group"]


def test_why_names_hits_and_misses(told):
    """`audit why` tells what a hash cache would have claimed, what was usable, and what cut the rest."""
    verdicts = lines(told[0], "audit", "why")["verdicts"]

    assert [v["usable_tokens"] for v in verdicts] == [PROMPT_TOKENS, PROMPT_TOKENS, 0]
    assert "no_match" in verdicts[-1]["why"][0]
    assert [v["seq"] for v in lines(told[0], "audit", "why", "--misses")["verdicts"]] == [verdicts[-1]["seq"]]


def test_people_get_tables(told):
    """Without --json the same answers come as tables."""
    assert "why not more" in kvledger("audit", "why", "--data", str(told[0]))
    assert "MIRRORED" in kvledger("audit", "objects", "--data", str(told[0]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit", "object", "seven"], "names no object"),
        (["audit", "object", "999.0"], "knows no object"),
    ],
)
def test_a_wrong_name_is_refused_with_a_remedy(told, arguments, says):
    """A name that is none, or of nothing, ends the command with an error that says what to do."""
    found = run(*arguments, "--data", str(told[0]))

    assert found.returncode != 0
    assert says in found.stderr
    assert "audit objects" in found.stderr


def test_a_damaged_log_is_named_by_file_and_offset(told, tmp_path):
    """`log verify` on a log with a flipped byte ends with 65 and names file, offset and what to run next."""
    segment = min((told[0] / "log").glob("*.seg"))
    copy = tmp_path / "log"
    copy.mkdir()
    for file in (told[0] / "log").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    damaged = bytearray(segment.read_bytes())
    damaged[4200] ^= 1
    (copy / segment.name).write_bytes(damaged)

    found = kvledger("log", "verify", "--data", str(tmp_path), code=65)

    assert found.startswith("DAMAGED")
    assert "offset" in found
    assert "next: " in found


@pytest.mark.parametrize("command", [["check"], ["audit", "objects"], ["audit", "why"], ["explain"], ["log", "verify"]])
def test_a_directory_without_a_log_is_refused(command, tmp_path):
    """No command answers for a directory that holds no log as if it were an empty cache."""
    found = run(*command, "--data", str(tmp_path))

    assert found.returncode != 0
    assert "there is no log" in found.stderr


def test_status_counts_what_a_running_daemon_holds(told):
    """`status` prints the daemon's numbers, and `--json` gives them to programs."""
    socket = str(told[0].parent / "kvledger.sock")

    assert json.loads(kvledger("status", "--socket", socket, "--json").splitlines()[-1])["counters"]["objects"] > 0
    shown, whole = kvledger("status", "--socket", socket), kvledger("status", "--socket", socket, "--all")
    assert "incarnation 2" in shown
    assert "decision_faults" in shown
    assert "live_bytes.INDEXER_STATE" not in shown
    assert "--all shows them" in shown
    assert "live_bytes.INDEXER_STATE" in whole


def test_an_option_of_another_command_is_refused_by_name(told):
    """The refusal names the command that does not know it, so that its help is found."""
    found = run("audit", "why", "--socket", str(told[0]))

    assert found.returncode == Exit.USAGE
    assert f"kvledger audit why: unknown here: --socket {told[0]} (kvledger audit why --help" in found.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("quota", "set", "SWA_WINDOW", "1XB"), "argument BYTES: 1XB is no number of bytes such as 64MiB"),
        (("audit", "prefix", "x"), "argument PREFIX: x is no whole number"),
        (("top", "--every", "often"), "argument --every: often is no number"),
        (("log", "tail", "--lines", "-5"), "argument --lines: -5 is less than 0"),
        (("quota", "set", "SWA_WINDOW", "--", "-1KiB"), "argument BYTES: -1KiB is less than 0"),
        (("bench", "--clients", "0"), "argument --clients: 0 are too few; name at least 1"),
        (("epoch", "canary", "m", "w", "--share", "150"), "argument --share: 150 is more than 100 per cent"),
        (("page",), "the following arguments are required: --http"),
    ],
)
def test_a_wrong_command_line_is_told_in_words(words, told):
    """No name of a function is in what is said, and the exit code is the one that keeps a unit from trying again."""
    found = commands.kvledger(*words)

    assert found.returncode == Exit.USAGE
    assert found.stderr.endswith(
        f"kvledger {' '.join(words[: 2 if words[0] in ('quota', 'audit', 'log', 'epoch') else 1])}: error: {told}\n"
    )


@pytest.mark.parametrize("words", [("trace",), ("trace", "--live", "none")])
def test_a_file_that_is_not_there_is_named(tmp_path, words):
    """Whoever names a file that is not there reads its name, why, and what to do, and no number of an error."""
    found = commands.kvledger(*words, str(tmp_path / "none"))

    assert found.returncode == Exit.IO
    assert found.stderr == (
        f"kvledger: {tmp_path / 'none'}: No such file or directory (name one that is there and that you may use)\n"
    )


def test_a_file_for_which_there_is_no_room_has_no_wrong_name(monkeypatch, capsys):
    """Whoever names a file on a full disk is told of that, and not to name one that is there."""

    def full(_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.csv")

    monkeypatch.setattr(trace, "_run", full)
    assert table.run(["trace", "in.jsonl"]) == Exit.IO
    assert capsys.readouterr().err == "kvledger: out.csv: No space left on device\n"


def test_serve_tells_what_it_does_without_options():
    """Where the cache lies, where it listens and how much memory it takes is in its help."""
    said = commands.kvledger("serve", "--help").stdout
    for default in ("/var/lib/kvledger)", "/run/kvledger/kvledger.sock)", "1 GiB)"):
        assert default in " ".join(said.split())


def test_help_quotes_as_a_terminal_does():
    """Descriptions are docstrings; their doubled quotes are none of a reader's business."""
    assert "`kvledger status`: ask a running daemon" in kvledger("status", "--help")
    assert "``" not in kvledger("audit", "why", "--help")


def test_a_pipe_gets_columns_without_a_frame(told):
    """What is read by `grep` and `awk` has one row a line, its head first, and nothing drawn around it."""
    head, *rows = commands.kvledger("audit", "objects", "--data", str(told[0])).stdout.splitlines()

    assert head.split() == ["object", "group", "place", "state"]
    assert rows
    assert not set("".join((head, *rows))) & set("│┃─━┏└")


def test_a_pipe_gets_one_line_for_a_look_up_with_several_reasons(told):
    """A look-up that was cut more than once is still one row of what `grep` reads."""
    said = commands.kvledger("audit", "why", "--log", "--data", str(told[0])).stdout.splitlines()

    assert all(row.split()[0].isdigit() for row in said[1:-1])
    assert any("no_match" in row and "; [" in row for row in said)


def test_a_terminal_gets_a_frame(told, monkeypatch, capsys):
    """A person sees the same words drawn as a table."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(["audit", "objects", "--data", str(told[0])]) == 0
    assert "│ COMMITTED │" in capsys.readouterr().out


def test_an_answer_without_rows_says_so(told):
    """Where nothing was evicted that is what is printed, and no empty frame."""
    assert kvledger("audit", "evictions", "--data", str(told[0])).startswith("none\nas of event ")


def test_top_tells_what_moved_between_two_looks(told):
    """The first look has no rates, the second has those of the time between; `--count` ends it."""
    socket = str(told[0].parent / "kvledger.sock")

    first, second = map(json.loads, kvledger("top", "--socket", socket, "--every", "0.1", "--count", "2").splitlines())

    assert (first["seconds"], first["rates"]) == (0, {"decisions": 0, "events": 0})
    assert second["rates"]["decisions"] > 0
    assert second["memory"][0] <= second["memory"][1]
    assert sum(kind["held"] for kind in map(_occupancy, second["kinds"])) == second["memory"][0] > 0


def _occupancy(row):
    return dict(zip(("kind", "live", "held", "sure"), row, strict=True))


def test_a_reader_that_leaves_early_is_no_error(told):
    """Output into a pipe that is closed after one line ends the command without a complaint."""
    command = f"{sys.executable} -m kvledgerd.cli log cat --data {told[0]} --json | head -n 1"
    found = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stderr) == (0, "")
