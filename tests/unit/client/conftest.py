"""A fake daemon and a cache that talks to it."""

import anyio
import pytest

from kvledger import Cache
from unit.client.fake import FakeDaemon


@pytest.fixture(scope="session", autouse=True)
def anyio_back_end():
    """Have anyio load its back end, which it does once, at its first use, by an import that would count as blocking."""
    anyio.run(anyio.sleep, 0)


@pytest.fixture
def daemon(tmp_socket_dir):
    """Give a scripted daemon."""
    with FakeDaemon(tmp_socket_dir / "k.sock") as fake:
        yield fake


@pytest.fixture
def cache(daemon):
    """Give a cache with a small ring that talks to it."""
    with Cache.open(daemon.path, staging_bytes=64 << 10, timeout=60) as opened:
        yield opened
