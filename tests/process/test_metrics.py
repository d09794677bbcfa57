"""Metrics: every counter of a daemon is one, they say what its log says, and dashboard and alerts use no other."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from docs.pages import table as page_table
from kvledger import Cache, Kind
from kvledger.testing import Daemon
from kvledger_storage.events import BoundaryRefused, EngineEntered, LeaseEnded, LeaseSettled, LookedUp, decode
from kvledger_storage.log import RealLogIO, read_events
from kvledgerd.keeper.listener import ListenError
from kvledgerd.metrics.exporter import serve_metrics
from kvledgerd.metrics.exposition import exposition
from kvledgerd.metrics.table import LAG, METRICS, UP
from kvledgerd.web.source import Source
from support.tiny import check, prompt, store, tiny_layout

ROOT = Path(__file__).parents[2]
NAMES = {UP, LAG, *(metric.name for metric in METRICS)}


@pytest.fixture(scope="module")
def daemon():
    """A daemon that has seen hits and misses."""
    with Daemon(memory="64MiB") as running:
        with Cache.open(running.socket, name="engine") as cache:
            layout = cache.register(tiny_layout())
            store(cache, layout, 1)
            check(cache, layout, 1)
            store(cache, layout, 5, tokens=48)  # the end of a block, which is what hit tokens count
            check(cache, layout, 5, tokens=48)
            for number in (1, 2):
                with cache.acquire(layout, [*prompt(number), 9]):
                    pass
        yield running


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


def test_metrics_reconcile_with_the_log(daemon):
    """Hit tokens, leases, engines and refusals are the sums over the events of the log."""
    with Cache.open(daemon.socket) as cache:
        # What was only looked up is counted at once and written a few milliseconds later
        while (told := numbers(exposition(cache.status())))[LAG]:
            pass
        seq = int(told["kvledger_log_written_seq"])
        events = [decode(one.event).event for one in read_events(RealLogIO(), daemon.data_dir / "log", through_seq=seq)]
    found = [event for event in events if isinstance(event, LookedUp)]
    reach = [(kind, event.hash_tokens, *rest) for event in found for kind, *rest in event.reach]
    for number, name in enumerate(("hash", "recoverable", "ready"), 1):
        whole = sum(one[number] for one in reach if not one[0])
        assert told[f"kvledger_{name}_hit_tokens_total"] == whole
        assert whole > 0
        for kind in Kind:
            alone = sum(one[number] for one in reach if one[0] == kind)
            assert told.get(f'kvledger_{name}_hit_tokens_total{{kind="{kind.name}"}}', 0) == alone
    assert {Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL} & {one[0] for one in reach}
    inside = [event for event in events if isinstance(event, LeaseSettled)]
    # The state of these prompts lies at 50, and none at the end of a block
    assert told["kvledger_residue_hit_tokens_total"] == 50 * len(inside) > 0
    granted, ended = [e.lease for e in found if e.lease], [e.lease for e in events if isinstance(e, LeaseEnded)]
    assert told["kvledger_leases"] == len(granted) - len(ended)
    assert told["kvledger_stored_unusable_total"] == sum(isinstance(event, BoundaryRefused) for event in events)
    assert told["kvledger_engines"] <= sum(isinstance(event, EngineEntered) for event in events)


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
        with urllib.request.urlopen(url, timeout=10) as reply:
            assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            over_port = numbers(reply.read().decode())
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/"), timeout=10)
        process.terminate()
        assert process.wait(10) == 0
    path = tmp_socket_dir / "metrics"
    with subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            reply = b"".join(iter(lambda: client.recv(1 << 16), b""))
        process.terminate()
        assert process.wait(10) == 0
    assert numbers(reply.partition(b"\r\n\r\n")[2].decode()).keys() == over_port.keys()


def test_a_path_that_is_taken_is_left_alone(daemon, tmp_path):
    """Neither a file nor a socket at which somebody listens gives way to metrics."""
    file = tmp_path / "notes"
    file.write_text("mine")
    for taken in (file, daemon.socket):
        with pytest.raises(ListenError, match=str(taken)):
            serve_metrics(str(taken), Source(daemon.socket, "reader"), print)
    assert file.read_text() == "mine"
    daemon.wait_ready(5)


def test_a_connection_that_says_nothing_keeps_no_scrape_waiting(daemon, tmp_socket_dir):
    """A scrape is answered at once though another connection was there before it."""
    path = str(tmp_socket_dir / "metrics")
    command = [sys.executable, "-m", "kvledgerd.cli", "metrics", "--socket", str(daemon.socket), "--listen", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as client:
            silent.connect(path)
            client.settimeout(5)
            client.connect(path)
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.0 200")
        process.terminate()
        assert process.wait(10) == 0


def test_a_daemon_that_is_gone_is_down_and_no_failure(tmp_path):
    """Without a daemon the text says so in one metric."""
    assert numbers(exposition(Source(tmp_path / "none", "reader").report())) == {UP: 0}


def test_the_page_names_every_metric():
    """The page's table is that of the code."""
    told = [(row[0].strip("`"), row[1], row[2]) for row in page_table("docs/metrics.md", "## Every metric")]
    assert told[2:] == [(metric.name, metric.type, metric.help) for metric in METRICS]
    assert [row[0] for row in told[:2]] == [UP, LAG]


def test_critical_alerts_are_those_of_lost_bytes_and_no_service():
    """What wakes people is what they can not wait for; all else is a warning."""
    rules = (ROOT / "ops/alerts.yml").read_text(encoding="utf-8").split("- alert: ")[1:]
    severity = {rule.split()[0]: re.search(r"severity: (\w+)", rule)[1] for rule in rules}
    assert set(severity.values()) == {"critical", "warning"}
    assert {name.removeprefix("Kvledger") for name, level in severity.items() if level == "critical"} == {
        "Down",
        "CanaryFails",
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
