"""What ``make gpu`` does, as far as a CPU shows it: each part by itself, and what it says where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from kvledger.testing import Daemon
from kvledger_kernels import rates
from kvledger_kernels.equality import Outcome
from kvledger_kernels.errors import KernelArgumentError
from kvledgerd.gpu.__main__ import main
from kvledgerd.gpu.graphs import check_graph
from kvledgerd.gpu.kernels import KernelLine, check_kernels, lines
from kvledgerd.gpu.resume import check_resume
from kvledgerd.gpu.worker import check_worker


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_claimed(capsys):
    """The script says that it found none, prints no number, and ends with 75."""
    code = main()
    said = capsys.readouterr()

    assert code == 75
    assert "no GPU to check on" in said.err
    assert json.loads(said.out)["gpu"] is None
    assert "GB/s" not in said.out


def test_a_kernel_that_differs_is_not_timed():
    """A line of a kernel that was not equal in the same run bears no rate, however fast it may be."""
    outcomes = {
        "fingerprint": Outcome(10, equal=True),
        "pack": Outcome(10, equal=False),
        "compact": Outcome(10, equal=False),
    }
    found = {line.name: line for line in lines(outcomes, "cpu", 1 << 16)}

    assert found["pack"] == KernelLine("pack", equal=False)
    assert "GB/s" not in str(found["pack"])
    assert not [name for name in found if name.startswith("compact ")]
    assert found["fingerprint"].milliseconds > 0
    assert "GB/s" in str(found["fingerprint"])


def test_l52_a_rate_ends_when_the_device_has(monkeypatch):
    """L52: a call that comes back before its work is done is timed until the device says that nothing is left to do."""
    work: list[float] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: time.sleep(work.pop() if work else 0))
    monkeypatch.setattr(rates, "works", lambda *_: iter([rates.Work("copy", 10**9, lambda: work.append(0.02))]))
    (rate,) = rates.measure("cuda", 1)

    assert rate.seconds >= 0.02
    assert rate.gigabytes <= 50


def test_references_are_not_taken_for_kernels():
    """On a CPU no kernel serves, so nothing is compared and nothing timed."""
    with pytest.raises(KernelArgumentError, match="no kernel serves cpu"):
        next(check_kernels("cpu"))


@pytest.fixture(scope="module")
def daemon():
    """Give a daemon that survives being killed."""
    with Daemon(memory="128MiB") as running:
        yield running


def test_a_graph_reads_what_the_pool_was_filled_with(daemon):
    """Objects in a pool over a tensor's own memory are found, pinned, and read in place, three times over."""
    line = check_graph(daemon, "cpu", blocks=4)

    assert (line.objects, line.replays, line.equal, line.captured) == (4, 3, True, False)


def test_the_worker_makes_what_the_reference_makes(daemon):
    """What the daemon's tensor worker converts is found by another engine, byte for byte what the reference makes."""
    line = check_worker(daemon, blocks=2)

    assert (line.objects, line.equal, line.on_gpu) == (2, True, False)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute of one processor, which others may share
def test_the_whole_script_runs_where_kernels_are_interpreted():
    """Under the interpreter every step runs on the CPU, and all is well but what takes a GPU: captured, on a GPU."""
    program = "import json; from kvledgerd.gpu.__main__ import _checked; print(json.dumps(_checked('cpu', 1 << 14)))"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])

    assert report["kernels"]
    assert all(line["equal"] for line in report["kernels"].values())
    assert report["resume"]["tokens_equal"]
    assert report["graph"]["equal"]
    assert report["worker"]["equal"]
    assert (report["ok"], report["graph"]["captured"], report["worker"]["on_gpu"]) == (False, False, False)


@pytest.mark.slow
def test_a_model_resumes_after_the_daemon_was_killed(daemon):
    """The demo's model goes on from its saved state, with the answer that it gave before."""
    line = check_resume(daemon, "cpu")

    assert line.good
    assert line.reused_after_kill > line.prompt_tokens // 2
