"""The audit database beside a running daemon: followed, killed, asked, rebuilt and exported by commands."""

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.errors import ServiceError
from kvledger.testing import Daemon
from kvledgerd.audit.questions.asking import named_database
from kvledgerd.cli import main
from kvledgerd.exits import Exit
from support.postgres import postgres_url
from support.tiny import prompt, store, tiny_layout

PROMPT_TOKENS = 50
DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


def run(*arguments: str) -> str:
    """Run a command, in this process to spare its start, and return what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(arguments) == 0
    return said.getvalue()


def answer(data: Path, *words: str) -> dict:
    """Ask in the machine form and return the object on the last line."""
    return json.loads(run("audit", *words, "--data", str(data), "--json").splitlines()[-1])


class Follower:
    """A follower that runs for a `with` block, and has to end as it should."""

    def __init__(self, data: Path, *words: str) -> None:
        self.data, self.words = data, words

    def __enter__(self) -> subprocess.Popen:
        """Start it, and wait until it follows."""
        command = [sys.executable, "-m", "kvledgerd.cli", "audit", "follow", "--data", str(self.data), *self.words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert "following" in self.process.stdout.readline()
        return self.process

    def __exit__(self, *_: object) -> None:
        """Stop it in the orderly way."""
        with self.process:
            self.process.terminate()
            assert self.process.wait(30) in {0, -signal.SIGKILL}


def follower_of(pid: int) -> int:
    """Return the process id of a daemon's own follower."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text().split()]
    return next(int(child) for child in children if b"follow" in Path(f"/proc/{child}/cmdline").read_bytes())


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(data: Path, seq: int) -> None:
    """Wait until the database holds an event."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        # Its tables may not be there yet
        missing, database = (
            contextlib.suppress(sqlite3.OperationalError),
            sqlite3.connect(data / "audit.db", timeout=30),
        )
        with closing(database), missing:
            if (database.execute("SELECT max(seq) FROM watermark").fetchone()[0] or 0) >= seq:
                return
        time.sleep(0.05)
    pytest.fail(f"event {seq} does not come into the database")


@pytest.fixture(scope="module")
def followed():
    """A data directory whose log was followed through a kill of the follower, and one of the daemon."""
    with Daemon(memory="64MiB", settings={"drill_seconds": 0}) as daemon:
        data = daemon.data_dir
        with Cache.open(daemon.socket, name="writer") as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            with Follower(data) as follower:
                wait_for(data, cache.status().counters["log_written_seq"])
                with cache.acquire(layout, [*prompt(1), 9]) as hit:
                    assert hit.tokens == PROMPT_TOKENS
                follower.kill()
            with Follower(data):
                store(cache, layout, 3)
                daemon.kill()
                daemon.wait_ready()
                with cache.acquire(layout, [*prompt(1), 9]) as hit:
                    assert hit.tokens == PROMPT_TOKENS
                with cache.acquire(layout, prompt(2)) as hit:
                    assert not hit
                store(cache, layout, 4)
                wait_for(data, cache.status().counters["log_written_seq"])
        yield data


def test_a_follower_keeps_up_with_a_daemon(followed):
    """After kills of both, the database answers what the log answers, up to the last event that it holds."""
    life = answer(followed, "why")
    verdicts = life["verdicts"]
    assert [v["usable_tokens"] for v in verdicts[:3]] == [PROMPT_TOKENS, PROMPT_TOKENS, 0]
    assert answer(followed, "why", "--log")["verdicts"] == verdicts
    name = answer(followed, "objects")["objects"][0]["name"]
    for words in (["object", name], ["reads", name], ["prefixes"], ["evictions"], ["verdicts"]):
        of_database, of_log = answer(followed, *words), answer(followed, *words, "--log")
        assert of_log.pop("as_of") >= of_database.pop("as_of")
        assert of_database == of_log
    for words in (["engines"], ["engine", "1"]):
        assert answer(followed, *words, "--consistent") == answer(followed, *words, "--log")


def test_a_bad_output_leads_to_its_objects_and_back(followed):
    """From a look-up one comes to what was read and to who stored it, and from an object to all its readers."""
    asked = next(v for v in answer(followed, "why")["verdicts"] if v["lease"])
    lease = answer(followed, "lease", "--seq", str(asked["seq"]))
    assert lease["engine_name"] == "writer"
    engine = answer(followed, "engine", str(lease["engine"]))
    assert (engine["engine"]["pid"], engine["engine"]["name"]) == (os.getpid(), "writer")
    assert engine["verdicts"] > engine["misses"]
    assert engine["engine"] in answer(followed, "engines", "--name", "WRIT")["engines"]
    assert {o["stored_name"] for o in lease["objects"]} == {"writer"}
    readers = answer(followed, "reads", lease["objects"][0]["name"])["reads"]
    assert asked["seq"] in [reader["seq"] for reader in readers]
    assert {reader["how"] for reader in readers} == {"read"}
    assert all(reader["pid"] for reader in readers)


@pytest.mark.slow
def test_a_daemon_starts_its_own_follower_where_it_is_told_to():
    """With `audit_follow` the database keeps up by itself, and the follower ends with the daemon."""
    with Daemon(memory="64MiB", settings={"audit_follow": True}) as daemon:
        with Cache.open(daemon.socket, name="writer") as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            seq = cache.status().counters["log_written_seq"]
        wait_for(daemon.data_dir, seq)
        daemon.stop()
        end = time.monotonic() + 30
        while True:
            try:
                with named_database(daemon.data_dir, "").lock():
                    return
            except ServiceError:
                assert time.monotonic() < end, "the follower outlives its daemon"
                time.sleep(0.05)


@pytest.mark.slow
def test_a_follower_dies_with_a_daemon_that_is_killed():
    """SIGKILL leaves a daemon no time to end its follower, which ends all the same, with no keeper to see to it."""
    with Daemon(memory="64MiB", settings={"audit_follow": True}, keeper=False) as daemon:
        wait_for(daemon.data_dir, 1)
        follower = follower_of(daemon.pid)
        daemon.kill()
        end = time.monotonic() + 20
        while is_alive(follower):
            assert time.monotonic() < end, "the follower outlives its daemon"
            time.sleep(0.02)


@pytest.mark.slow
def test_a_follower_that_hangs_does_not_keep_the_daemon_from_ending():
    """A daemon that is told to stop ends within seconds, though its follower hears nothing."""
    with Daemon(memory="64MiB", settings={"audit_follow": True}) as daemon:
        wait_for(daemon.data_dir, 1)
        follower = follower_of(daemon.pid)
        os.kill(follower, signal.SIGSTOP)
        assert daemon.stop(20) == 0
        assert not Path(f"/proc/{follower}").exists()


def test_a_number_that_no_log_has_is_a_wrong_command_line(followed, capsys):
    """A lease of 23 digits is refused by the command, which says what is wrong with it."""
    with pytest.raises(SystemExit, match="64"):
        main(["audit", "lease", "9" * 23, "--data", str(followed)])
    assert "63 bits" in capsys.readouterr().err
    assert main(["audit", "object", f"0.{'9' * 20}", "--data", str(followed)]) == Exit.CONFIG
    assert "names no object" in capsys.readouterr().err


def test_a_directory_in_place_of_the_database_is_told(followed, tmp_path, capsys):
    """Making the database anew where a directory lies ends with one line that says where."""
    (tmp_path / "audit.db").mkdir()
    arguments = ["audit", "project", "--rebuild", "--data", str(followed), "--db", str(tmp_path / "audit.db")]
    assert main(arguments) == Exit.CONFIG
    assert "audit.db failed" in capsys.readouterr().err


def test_people_get_tables(followed):
    """Without --json each question prints a table, and says as of which event."""
    for words in ("why", "prefixes", "verdicts --every day", "state", "evictions", "engines", "engine 1"):
        said = run("audit", *words.split(), "--data", str(followed))
        assert "as of event" in said.splitlines()[-1]


def test_rebuild_and_export(followed, tmp_path):
    """The database is made anew beside the old one; its tables come as CSV."""
    found = json.loads(run("audit", "project", "--rebuild", "--data", str(followed), "--json").splitlines()[-1])
    assert found["ok"]
    said = run("audit", "export", str(tmp_path), "--table", "event", "--data", str(followed))
    assert said.endswith(f"event.csv: {found['seq']} rows\nas of event {found['seq']}\n")
    lines = (tmp_path / "event.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) - 1 == found["seq"]


def test_a_second_follower_is_refused(followed, capsys):
    """While one follows, another ends at once and says what to do."""
    with named_database(followed, "").lock():
        assert main(["audit", "follow", "--data", str(followed)]) == Exit.CONFIG
    assert "stop the other one" in capsys.readouterr().err


def queries() -> list[str]:
    """Return the SQL of the page."""
    text = DOCS.read_text(encoding="utf-8")
    return [block.split("```")[0].strip().rstrip(";") for block in text.split("```sql\n")[1:]]


@pytest.mark.slow
def test_a_server_is_followed_and_asked_by_commands(followed):
    """What the page types for a file works with the URL of a server, its SQL included, and answers the same."""
    with postgres_url() as url:
        import psycopg

        with Follower(followed, "--db", url):
            assert answer(followed, "why", "--db", url)["verdicts"] == answer(followed, "why", "--log")["verdicts"]
        found = json.loads(
            run("audit", "project", "--rebuild", "--data", str(followed), "--db", url, "--json").splitlines()[-1]
        )
        assert found["ok"]
        run("audit", "project", "--data", str(followed))
        with psycopg.connect(url) as server, closing(sqlite3.connect(followed / "audit.db")) as file:
            server.execute("SET search_path TO kvledger_audit")
            for query in queries():
                assert sorted(server.execute(query)) == sorted(file.execute(query))


def test_the_sql_of_the_page_runs(followed):
    """Every query of the page gives rows on a database with a history."""
    assert len(queries()) > 3
    with closing(sqlite3.connect(followed / "audit.db")) as database:
        found = [database.execute(query).fetchall() for query in queries()]
    assert all(found[:3]), found
