"""Fixtures for every kind of test."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.blocking import BlockingCallError, watch

# sun_path holds 108 bytes with its final zero. Half is left to the names that a test puts below the folder.
SOCKET_DIR_BYTES = 54

# The same examples in every run and on every machine, however slow; `make test-all` goes on searching.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `-k` find tests by the rows of docs/hostile-inputs.md that they are marked with."""
    for item in items:
        for mark in item.iter_markers("hostile"):
            item.extra_keyword_matches.update(mark.args)


@pytest.fixture(autouse=True)
def blocking_calls() -> Iterator[list[BlockingCallError]]:
    """Fail any test in which code of the packages blocks an event loop; who does it on purpose clears the list."""
    with watch() as seen:
        yield seen
    if seen:
        pytest.fail("\n".join(map(str, seen)), pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def settled_heap() -> None:
    """Take what collecting tests and importing torch left behind out of every later search for garbage.

    That are half a million objects. A test that counts descriptors collects garbage before it counts, and a hundred of
    them took minutes.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def tmp_socket_dir() -> Iterator[Path]:
    """Give an empty folder whose path is short enough for unix sockets, which `tmp_path` often is not."""
    base = tempfile.gettempdir()
    if len(base.encode()) > SOCKET_DIR_BYTES - len("/kvl-12345678"):
        base = "/tmp"
    with tempfile.TemporaryDirectory(prefix="kvl-", dir=base) as folder:
        yield Path(folder)
