"""`kvledger` lines that can not run with their page: they serve until stopped, send signals, or stand in a sentence.

Places are those of a daemon of this test, and ports are chosen by the system.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from docs.pages import PAGES, shell_line, spans
from docs.terminal import Terminal
from docs.test_pages import DATA, SOCKET, TRACE, real, run, served
from kvledger import Cache
from kvledger.testing import Daemon
from support.page import Site, free_port
from support.postgres import postgres_url
from support.tiny import check, prompt, store, tiny_layout

pytestmark = pytest.mark.slow
AUDIT, METRICS, PAGE, SECURITY = "docs/audit.md", "docs/metrics.md", "docs/page.md", "docs/security.md"
RULES = """
sockets = [{{name = "team-a", path = "{}/team-a.sock"}}]
access = [
  {{tenant = "ops", right = "operator", socket = "kvledger.socket"}},
  {{tenant = "team-a", right = "writer", socket = "team-a"}},
]
tenants = 2
"""
ELSEWHERE = {
    "kvledger bench": "docs/test_checkout_lines.py::test_a_line_does_what_the_page_says",
    "kvledger disk rebuild": "process/test_disk_care.py::test_a_lost_log_is_rebuilt_from_the_data_files",
}
"""Beginnings of lines within sentences that other tests run: `make` types them, or the log has to be lost first."""


@pytest.fixture(scope="module")
def daemon():
    """A daemon with a tenant of the page, and something that happened."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as folder:
        file = Path(folder) / "kvledger.toml"
        file.write_text(RULES.format(folder), encoding="utf-8")
        with Daemon(memory="64MiB", config=file) as running:
            with Cache.open(running.socket, name="reader") as cache:
                layout = cache.register(tiny_layout())
                cache.register(tiny_layout(weights="w2"))
                store(cache, layout, 1)
                check(cache, layout, 1)
                cache.offload(layout, prompt(1), boundary=50)
            run("kvledger", "audit", "project", "--data", str(running.data_dir))
            yield running


@pytest.fixture
def known(daemon, tmp_socket_dir):
    """What stands here in the place of what the pages name."""
    places = {DATA: daemon.data_dir, SOCKET: daemon.socket, "FILE": TRACE}
    places |= {f"/run/kvledger/{name}": tmp_socket_dir / name for name in ("metrics.sock", "page.sock")}
    return {said: str(path) for said, path in places.items()} | {"9464": "0", "127.0.0.1:9465": "127.0.0.1:0"}


@contextmanager
def running(line, known):
    """Run a line for a `with` block, give the first it says, and stop it in the orderly way."""
    words = real(shlex.split(line), known)
    with subprocess.Popen([sys.executable, "-m", "kvledgerd.cli", *words[1:]], stdout=subprocess.PIPE, text=True) as it:
        try:
            yield it.stdout.readline()
        finally:
            it.terminate()
            assert it.wait(60) == 0


def fetched(said: str, path: str) -> str:
    """Return what is served where a command has said."""
    where = said.rsplit(maxsplit=1)[-1]
    if where.startswith("http://"):
        with urllib.request.urlopen(where, timeout=60) as reply:
            return reply.read().decode()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(where)
        client.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


@pytest.mark.parametrize("place", ["9464", "/run/kvledger/metrics.sock"])
def test_metrics_are_scraped(known, place):
    """At a port and at a Unix socket Prometheus is told that the daemon is up."""
    with running(shell_line(METRICS, f"kvledger metrics --listen {place}"), known) as said:
        assert "kvledger_up 1" in fetched(said, "/metrics")


@pytest.mark.parametrize("place", ["127.0.0.1:9465", "/run/kvledger/page.sock"])
def test_a_page_beside_a_daemon_is_served(known, place):
    """At a port and at a Unix socket there is a page that knows the daemon."""
    with running(shell_line(PAGE, f"kvledger page --http {place}"), known) as said:
        assert "incarnation 1" in fetched(said, "/")


def test_a_daemon_serves_a_page():
    """With `--http` the daemon itself starts the page."""
    port = free_port()
    line = shell_line(PAGE, f"kvledger serve --data {DATA}").replace("9465", str(port))
    with served(shlex.split(line)):
        Site(port).when("/", "incarnation 1")


def test_a_file_is_followed(known):
    """A follower without `--db` keeps the file in the data directory up."""
    with running(shell_line(AUDIT, "kvledger audit follow"), known) as said:
        assert f"following {known[DATA]}" in said


def test_a_server_is_followed(known):
    """With the URL of a server the tables are there, and questions are answered by it."""
    line = shell_line(AUDIT, f"kvledger audit follow --data {DATA} --db ")
    with postgres_url() as url:
        with running(line, known | {shlex.split(line)[-1]: url}) as said:
            assert "following" in said
        assert "as of event" in run("kvledger", "audit", "why", "--data", known[DATA], "--db", url)


def test_a_tenants_quota_is_shown(known):
    """An operator sees the quotas of a tenant that the rules name."""
    assert "SWA_WINDOW" in run(*real(shlex.split(shell_line(SECURITY, "kvledger quota show --tenant")), known))


def test_a_hangup_reads_the_rules_again(daemon, known, tmp_path):
    """The line finds the daemon by its lock, and the daemon says that it has read its settings."""
    before = daemon.output.read_text(encoding="utf-8").count("read again")
    with Terminal(tmp_path) as terminal:
        terminal.type(shell_line(SECURITY, "kill -HUP").replace(DATA, known[DATA]))
    end = time.monotonic() + 60
    while daemon.output.read_text(encoding="utf-8").count("read again") == before:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_upgrade_kills_the_daemon_and_not_its_keeper(tmp_path):
    """The line ends one incarnation, the keeper starts the next, and what was stored is hit."""
    with Daemon(memory="64MiB") as running, Cache.open(running.socket) as cache, Terminal(tmp_path) as terminal:
        layout = cache.register(tiny_layout())
        store(cache, layout, 1)
        terminal.type(shell_line("docs/operations.md", "kill -KILL").replace(DATA, str(running.data_dir)))
        end = time.monotonic() + 60
        while running.wait_ready().incarnation == 1:
            assert time.monotonic() < end
        assert check(cache, layout, 1) == 50


def sentences(page: str) -> list[str]:
    """Return the `kvledger` lines within the sentences of a page that are more than the name of a command."""
    lines = [line for line in spans(page) if line.startswith("kvledger ") and not re.fullmatch(r"[a-z ]+", line)]
    return [line for line in lines if not line.startswith(tuple(ELSEWHERE))]


def pages_with_sentences() -> list[str]:
    """Return the pages that have such lines; decisions are left out, which tell what was thought of."""
    return [page for page in PAGES if "/decisions/" not in page and sentences(page)]


@pytest.fixture(scope="module")
def examples(daemon) -> dict[str, str]:
    """What stands here in the place of the words that a sentence has for any of a kind."""

    def told(*words: str) -> dict:
        said = run("kvledger", "audit", *words, "--data", str(daemon.data_dir), "--json")
        return json.loads(said.splitlines()[-1])

    name, verdict = told("objects")["objects"][0]["name"], told("why")["verdicts"][0]
    numbers = {"LEASE": verdict["lease"], "ENGINE": verdict["engine"], "SEQ": verdict["seq"]}
    numbers["PREFIX"] = told("prefixes")["prefixes"][0]["cell"]
    objects = dict.fromkeys(("OBJECT", "CELL.SLOT", "8.1"), name)
    names = {"COMMAND": "status", "MODEL": "tiny", "WEIGHTS": "w2", "NAME": "team-a"}
    return objects | names | {word: str(number) for word, number in numbers.items()}


@pytest.mark.parametrize("page", pages_with_sentences())
def test_lines_of_sentences_run(page, daemon, known, examples, tmp_path):
    """With something in the place of its words in capitals each ends with 0, or serves."""
    (tmp_path / "kvledger.toml").write_text('memory_bytes = "64MiB"\n', encoding="utf-8")
    for line in sentences(page):
        folder = tmp_path / "new" if line.startswith("kvledger export") else daemon.data_dir
        words = real(shlex.split(line.removesuffix(" | tail -1")), known | examples | {"DIR": str(folder)})
        if words[1:3] == ["disk", "scrub"]:
            words += ["--socket", known[SOCKET]]
        if words[1] != "serve":
            run(*words)
            continue
        there = {known["FILE"]: str(tmp_path / "kvledger.toml"), "127.0.0.1:0": f"127.0.0.1:{free_port()}"}
        with served([there.get(word, word) for word in words]):
            pass
