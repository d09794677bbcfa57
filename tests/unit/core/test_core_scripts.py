"""The scripts in `tests/scripts/`: each command of a story with the events, effects, reply and change it leads to.

They double as the specification that a newcomer reads. ``REWRITE_SCRIPTS=1 pytest`` on this file writes what the core
says now; commit that diff only when its cause is understood and wanted.
"""

import os
from pathlib import Path

import pytest

from support.scripts import run, scripts, strip

SCRIPTS = scripts(Path(__file__).resolve().parents[2] / "scripts")


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_a_story_goes_as_it_is_told(path):
    """Every command of the script has the outcome written beneath it."""
    told = path.read_text()
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(run(told))
        return
    assert run(told).splitlines() == told.splitlines()


def test_every_story_is_told_to_its_end():
    """There are stories, each begins with what it is about, and every command in it has an outcome or says nothing."""
    assert len(SCRIPTS) >= 10
    for path in SCRIPTS:
        told = path.read_text()
        assert told.startswith("# ")
        assert strip(told) != told
