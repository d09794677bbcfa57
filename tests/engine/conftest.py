"""Fixtures for tests on real engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.fake_cache import FakeCache

# Its assertions shall say what differed, as those of tests do
pytest.register_assert_rewrite("engine.equality")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Compute on one thread, since the order of sums, and so the last bit, depends on how work is split."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def store() -> FakeCache:
    """Give an empty cache that behaves like an open client."""
    return FakeCache()


@pytest.fixture
def prompt() -> list[int]:
    """Give 300 byte tokens, longer than every window, block and top-k of the test models."""
    return torch.randint(0, 256, (300,), generator=torch.Generator().manual_seed(11)).tolist()
