"""One daemon for all hostile clients, and a neighbour who sees after each of them that nothing was harmed."""

from __future__ import annotations

import pytest

from kvledger.testing import Daemon
from support.neighbour import Neighbour


@pytest.fixture(scope="session")
def shared():
    """Give the daemon that all tests of this folder share, with its neighbour."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "1MiB"}) as daemon, Neighbour(daemon) as neighbour:
        yield neighbour


@pytest.fixture
def neighbour(shared):
    """Give somebody else who is a client of the same daemon, and who must be left unharmed."""
    with shared.unharmed():
        yield shared


@pytest.fixture
def daemon(neighbour):
    """Give a daemon that must serve its neighbour afterwards as if nothing had happened."""
    return neighbour.daemon
