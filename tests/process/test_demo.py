"""`kvledger demo` as a user runs it: it proves what it says, shows what it does, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from kvledgerd.cli import main
from kvledgerd.commands import demo as command

COMMAND = [sys.executable, "-m", "kvledgerd.cli", "demo"]
FIELDS = {
    "cold_ttft_s": float,
    "warm_ttft_s": float,
    "prompt_tokens": int,
    "reused_tokens": int,
    "tokens_equal": bool,
    "state_equal": bool,
    "max_abs_logit_diff": float,
    "reused_after_kill": int,
    "tokens_equal_after_kill": bool,
    "reused_from_disk": int,
    "tokens_equal_from_disk": bool,
    "verdicts": list,
    "audit_events": int,
}


class Run(NamedTuple):
    """A demo that has ended."""

    code: int
    out: list[str]
    err: list[str]
    left: list[str]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Let the demo keep what is temporary in a folder of its own, so that one can look at it."""
    return os.environ | {"TMPDIR": str(folder)} | more


def left_in(folder: Path) -> list[str]:
    """List files in a folder and processes whose command line names it."""
    found = [str(path) for path in folder.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def run(*arguments: str, seconds: float = 110) -> Run:
    """Run a demo to its end."""
    with tempfile.TemporaryDirectory(prefix="kvl-demo-") as name:
        folder = Path(name)
        done = subprocess.run(
            [*COMMAND, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment(folder),
        )
        return Run(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), left_in(folder))


def prove(models: dict[str, dict[str, object]]) -> None:
    """Hold what was found out with each model against what a release demands."""
    for model in models.values():
        assert {name: type(value) for name, value in model.items()} == FIELDS
        assert model["tokens_equal"]
        assert model["state_equal"]
        assert model["tokens_equal_after_kill"]
        assert model["tokens_equal_from_disk"]
        assert model["prompt_tokens"] >= 2000
        for name in ("reused_tokens", "reused_after_kill", "reused_from_disk"):
            assert 0.95 * model["prompt_tokens"] <= model[name] < model["prompt_tokens"]
        assert 0 < model["warm_ttft_s"] < model["cold_ttft_s"]
        assert model["max_abs_logit_diff"] <= 1e-4
        assert model["audit_events"] >= 10
        for verdict in model["verdicts"]:
            assert verdict["hash_tokens"] > verdict["usable_tokens"] == 0


@pytest.fixture(scope="module")
def small() -> Run:
    """Run the demo once, with its smallest model."""
    return run("--models", "gemma3", "--json")


def test_one_model_is_proven(small):
    """The last line of the machine form is one object with the fields of the contract, and all that it says is good."""
    assert small.code == 0, "\n".join(small.err)
    (line,) = small.out
    found = json.loads(line)
    assert found["ok"] is True
    assert list(found) == ["ok", "models"]
    assert list(found["models"]) == ["gemma3"]
    prove(found["models"])


def test_each_damage_is_refused_with_its_own_reason(small):
    """Evicted rows and window, a flipped byte, another ABI and other weights each fall at their layer and group."""
    verdicts = json.loads(small.out[-1])["models"]["gemma3"]["verdicts"]
    assert [(v["code"], v["layer"], v["group"], v["kind"]) for v in verdicts] == [
        ("rows_missing", 3, "full", "COMPRESSED_KV"),
        ("window_missing", 3, "swa", "SWA_WINDOW"),
        ("bytes_damaged", 4, "swa", "SWA_WINDOW"),
        ("abi_mismatch", 2, "", ""),
        ("identity_mismatch", 2, "", ""),
    ]


def test_steps_are_told_while_they_run(small):
    """Each step is one line on stderr that says what was done and how long it took."""
    for step in ("SIGKILL for the daemon ... back as incarnation 2", "a byte of swa flipped on disk ... refused"):
        assert any(step in line and line.endswith(" s)") for line in small.err), small.err


def test_nothing_is_left_behind(small):
    """After the demo there is no file and no process of it."""
    assert small.left == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(number):
    """Ctrl-C to the whole process group, or a termination, ends everything that the demo started."""
    with tempfile.TemporaryDirectory(prefix="kvl-demo-") as name:
        process = subprocess.Popen(
            [*COMMAND, "--models", "gemma3"],
            stderr=subprocess.PIPE,
            env=environment(Path(name)),
            start_new_session=True,
        )
        began = process.stderr.read(len("Start the daemon"))
        os.killpg(process.pid, number)
        told = process.communicate(timeout=60)[1].decode()
        assert began == b"Start the daemon"
        assert (process.returncode, "interrupted" in told) == (130, True), told
        assert left_in(Path(name)) == []


@pytest.mark.slow
def test_a_step_that_fails_is_named(tmp_path):
    """An engine that can not start ends the demo with the step, the engine's own words and the daemon's log."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch is broken on purpose')\n")
    with tempfile.TemporaryDirectory(prefix="kvl-demo-") as name:
        done = subprocess.run(
            [*COMMAND, "--models", "gemma3", "--json"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(Path(name), PYTHONPATH=str(tmp_path)),
        )
        assert (done.returncode, done.stdout) == (70, "")
        assert "failed at: Start the daemon and engines A and B" in done.stderr
        assert "torch is broken on purpose" in done.stderr
        assert '"event": "ready"' in done.stderr
        assert left_in(Path(name)) == []


def test_unknown_models_are_refused_by_name(capsys):
    """A model that the demo does not have is refused with the names of those it has."""
    assert main(["demo", "--models", "gemma3,gpt-2"]) == 78
    assert capsys.readouterr().err == (
        "kvledger: models: there is no model 'gpt-2' (name some of deepseek-v4, gpt-oss, gemma3)\n"
    )


@pytest.mark.parametrize(("module", "extra"), [("rich", "daemon"), ("torch", "transformers")])
def test_a_missing_extra_is_named(monkeypatch, capsys, module, extra):
    """Where an extra is not installed, the demo says which and how to get it."""
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == module else object())
    assert main(["demo"]) == 78
    told = capsys.readouterr().err
    assert f"the extra [{extra}] is missing" in told
    assert "pip install 'kvledger[daemon,transformers]'" in told


def test_the_command_line_without_its_extra_names_it():
    """Where only the client is installed, any command says which extra it needs."""
    code = "import sys; sys.modules['crc32c'] = None; from kvledgerd.cli import main; sys.exit(main(['status']))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 78
    assert done.stderr == (
        "kvledger: the extra [daemon] is missing: there is no crc32c (pip install 'kvledger[daemon]')\n"
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_all_models_are_proven():
    """All three models are proven in under three minutes, and DeepSeek-V4 falls for each of its parts alone."""
    done = run("--json", seconds=180)
    assert (done.code, done.left) == (0, []), "\n".join(done.err)
    models = json.loads(done.out[-1])["models"]
    assert list(models) == ["deepseek-v4", "gpt-oss", "gemma3"]
    prove(models)
    assert [(v["code"], v["group"]) for v in models["deepseek-v4"]["verdicts"][:5]] == [
        ("rows_missing", "hca"),
        ("window_missing", "swa"),
        ("tail_missing", "hca_tail"),
        ("halo_missing", "csa_halo"),
        ("indexer_missing", "csa_indexer"),
    ]
