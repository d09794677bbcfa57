"""An arena of a few pages, closed after the test."""

import contextlib

import pytest

from kvledger_storage.arena import Arena
from support.shm import KIB, identity


@pytest.fixture
def arena():
    """Give an arena of 16 pages."""
    made = Arena.create(identity(), 64 * KIB)
    yield made
    with contextlib.suppress(OSError, ValueError):
        made.close()
