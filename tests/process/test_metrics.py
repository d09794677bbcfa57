"""Metrics: every counter of a daemon is one, they say what its log says, and dashboard and alerts use no other."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from docs.pages import table as page_table
from kvledger import Cache, Kind
from kvledger.errors import CommitRefusedError
from kvledger.testing import Daemon
from kvledger.wire.requests import Status
from kvledgerd.core.commands import Ask, Caller
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.incarnation.decide_status import status
from kvledgerd.core.state import State
from kvledgerd.keeper.listener import ListenError
from kvledgerd.metrics.exporter import serve_metrics
from kvledgerd.metrics.exposition import exposition
from kvledgerd.metrics.table import LAG, METRICS, UP, Basis
from kvledgerd.web.source import Source
from support.log_sums import SUMS, disagreeing, settled
from support.tiny import check, prompt, store, tiny_layout

ROOT = Path(__file__).parents[2]
NAMES = {UP, LAG, *(metric.name for metric in METRICS)}


@pytest.fixture(scope="module")
def daemon():
    """A daemon that has seen hits and misses, refusals, disk, damage and a warm-up."""
    with Daemon(memory="64MiB") as running:
        with Cache.open(running.socket, name="engine") as cache:
            layout = cache.register(tiny_layout())
            looked_up(cache, layout)
            refused_and_unused(cache, layout)
            from_disk(cache, layout, running.data_dir / "data")
        yield running


def looked_up(cache, layout):
    """Hit at the end of a block and inside one, and miss."""
    store(cache, layout, 1)
    check(cache, layout, 1)
    store(cache, layout, 5, tokens=48)  # the end of a block, which is what hit tokens count
    check(cache, layout, 5, tokens=48)
    for number in (1, 2):
        with cache.acquire(layout, [*prompt(number), 9]):
            pass


def refused_and_unused(cache, layout):
    """Ask for a boundary behind a hole, and drop blocks on which none ever stood."""
    with pytest.raises(CommitRefusedError), cache.reserve(layout, prompt(3), boundary=50, start=16):
        pass
    with cache.reserve(layout, prompt(3), boundary=None) as unit:
        for slot in unit.objects:
            unit.put(slot, bytes(slot.length))
    cache.evict(layout, prompt(3), boundary=48, kind=Kind.COMPRESSED_KV)


def from_disk(cache, layout, files):
    """Restore, warm up, and do both once more when the files are damaged."""
    for number in (11, 12):
        store(cache, layout, number)
        cache.offload(layout, prompt(number), boundary=50, drop_memory=True)
    check(cache, layout, 11)
    warmed(cache)
    for number in (11, 12):
        cache.offload(layout, prompt(number), boundary=50, drop_memory=True)
    for file in files.glob("*.seg"):
        os.truncate(file, 4096)
    with cache.acquire(layout, [*prompt(11), 7]) as hit:
        assert not hit
    warmed(cache)


def warmed(cache):
    """Have a warm-up made."""
    cache.warm()
    settled(cache)


def numbers(text: str) -> dict[str, float]:
    """Return what stands in a text of metrics, by name with label."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(number) for name, _, number in lines}


def test_every_counter_is_a_metric(daemon):
    """A status report counts nothing that has no metric, and each metric is reported."""
    with Cache.open(daemon.socket) as cache:
        counters = cache.status().counters
    assert {name.partition(".")[0] for name in counters} == {metric.counter for metric in METRICS}
    assert len(NAMES) == len(METRICS) + 2


def test_each_metric_says_whether_the_log_holds_it():
    """What counts has its sum, or is made by the whole log, or says why not; what the core tells the log holds."""
    by_basis = {basis: {metric.counter for metric in METRICS if metric.basis is basis} for basis in Basis}
    assert by_basis[Basis.START] == SUMS.keys()
    replies = status(State(CoreConfig()), Ask(Caller(0, 0, "", operator=True), Status()), Status()).reply
    settings = {"memory_cap_bytes", "disk_cap_bytes"}
    assert by_basis[Basis.LOG] == {name.partition(".")[0] for name in replies.counters} - settings
    for metric in METRICS:
        assert bool(metric.unlogged) == (metric.type == "counter" and metric.basis is Basis.DAEMON), metric


def test_metrics_reconcile_with_the_log(daemon):
    """After a load of every sort, each counter and each gauge of the state is what the log adds up to."""
    with Cache.open(daemon.socket) as cache:
        report = settled(cache)
    assert disagreeing(report, daemon.data_dir) == {}
    counted = {name.partition(".")[0] for name, number in report.counters.items() if number}
    # A write that fails and a file worth cleaning take longer; see test_metrics_restarts.py
    assert SUMS.keys() - counted == {"offload_failed", "cleaned_records", "cleaned_bytes"}
    assert {"stored_unusable", "material_unused"} <= counted


def test_the_text_is_well_formed(daemon):
    """Each metric has its help and type before its numbers, once; units are bytes, seconds and ratios."""
    source = Source(daemon.socket, "reader")
    text = exposition(source.report())
    source.close()
    heads = re.findall(r"^# (HELP|TYPE) (\S+)", text, re.MULTILINE)
    assert len(heads) == len(set(heads)) == 2 * len({name for _, name in heads})
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) kvledger_\w+ .+|kvledger_\w+(\{kind="[A-Z_]+"\})? [\d.e+-]+', line), line
    assert all(number <= 1 for name, number in numbers(text).items() if "_ratio" in name)


def test_scrapes_over_loopback_and_unix_sockets(daemon, tmp_socket_dir):
    """Both ways give the same metrics; anything else is not found."""
    command = [sys.executable, "-m", "kvledgerd.cli", "metrics", "--socket", str(daemon.socket), "--listen"]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(url, timeout=60) as reply:
            assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            over_port = numbers(reply.read().decode())
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/"), timeout=60)
        process.terminate()
        assert process.wait(60) == 0
    path = tmp_socket_dir / "metrics"
    with subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            reply = b"".join(iter(lambda: client.recv(1 << 16), b""))
        process.terminate()
        assert process.wait(60) == 0
    assert numbers(reply.partition(b"\r\n\r\n")[2].decode()).keys() == over_port.keys()


def test_a_path_that_is_taken_is_left_alone(daemon, tmp_path):
    """Neither a file nor a socket at which somebody listens gives way to metrics."""
    file = tmp_path / "notes"
    file.write_text("mine")
    for taken in (file, daemon.socket):
        with pytest.raises(ListenError, match=str(taken)):
            serve_metrics(str(taken), Source(daemon.socket, "reader"), print)
    assert file.read_text() == "mine"
    daemon.wait_ready()


def test_a_connection_that_says_nothing_keeps_no_scrape_waiting(daemon, tmp_socket_dir):
    """A scrape is answered at once though another connection was there before it."""
    path = str(tmp_socket_dir / "metrics")
    command = [sys.executable, "-m", "kvledgerd.cli", "metrics", "--socket", str(daemon.socket), "--listen", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as client:
            silent.connect(path)
            client.settimeout(8)  # less than the ten seconds after which the silent one is dropped
            client.connect(path)
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.0 200")
        process.terminate()
        assert process.wait(60) == 0


def test_a_daemon_that_is_gone_is_down_and_no_failure(tmp_path):
    """Without a daemon the text says so in one metric."""
    assert numbers(exposition(Source(tmp_path / "none", "reader").report())) == {UP: 0}


def test_the_page_names_every_metric():
    """The page's tables are those of the code: every metric, and why the log can not tell some that count."""
    told = [(row[0].strip("`"), *row[1:]) for row in page_table("docs/metrics.md", "## Every metric")]
    assert told[2:] == [(metric.name, metric.type, metric.basis, metric.help) for metric in METRICS]
    assert [row[0] for row in told[:2]] == [UP, LAG]
    reasons = [
        (name, why)
        for names, why in page_table("docs/metrics.md", "## What reconciles")
        for name in re.findall(r"`(.+?)`", names)
    ]
    assert reasons == [(metric.name, metric.unlogged) for metric in METRICS if metric.unlogged]


def test_critical_alerts_are_those_of_lost_bytes_and_no_service():
    """What wakes people is what they can not wait for; all else is a warning."""
    rules = (ROOT / "ops/alerts.yml").read_text(encoding="utf-8").split("- alert: ")[1:]
    severity = {rule.split()[0]: re.search(r"severity: (\w+)", rule)[1] for rule in rules}
    assert set(severity.values()) == {"critical", "warning"}
    assert {name.removeprefix("Kvledger") for name, level in severity.items() if level == "critical"} == {
        "Down",
        "DrillFails",
        "LogFull",
        "RecordsDamaged",
        "TopologyBroken",
    }


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yml"])
def test_dashboard_and_alerts_use_metrics_that_exist(name):
    """No panel and no rule asks for a number that nobody tells."""
    text = (ROOT / "ops" / name).read_text(encoding="utf-8")
    expressions = (
        [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
        if name.endswith("json")
        else re.findall(r"^\s+expr: (.+)$", text, re.MULTILINE)
    )
    used = {metric for expression in expressions for metric in re.findall(r"kvledger_\w+", expression)}
    assert len(used) > 8
    assert used <= NAMES
