"""A trace drives a real daemon."""

from pathlib import Path

from kvledger.testing import Daemon
from kvledgerd.trace.live import drive
from kvledgerd.trace.requests import read_trace, trace_of

SAMPLE = Path(__file__).parents[1] / "golden" / "trace.jsonl"


def test_a_trace_reads_back_what_it_stored():
    """Over the client library, with real bytes: blocks hit, and every byte of them is the one that was stored."""
    trace = trace_of(read_trace(SAMPLE, 512).requests[:30])
    with Daemon(memory="8MiB") as daemon:
        result = drive(trace, str(daemon.socket), 512, 4096)
    assert result.hits > 20
    assert (result.verified, result.wrong, result.refused) == (result.hits * 4096, 0, 0)
