"""A soak of some seconds, as a test; `make soak` runs it for an hour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_engines_and_daemon_are_killed_and_no_byte_is_wrong():
    """Under random kills every read is right, no cap is passed, nothing is left behind, and the log explains it all."""
    command = [sys.executable, "-m", "support.soak", "--seconds", "8", "--engines", "3", "--memory", "48"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"], (report, done.stderr[-4000:])
    assert report["wrong_bytes"] == report["caps_passed"] == 0
    assert report["verified"] > 0
    assert report["daemon_kills"] > 0
    assert report["engine_kills"] > 0
