"""A PostgreSQL server of one test run's own: in a private folder, as a user without rights, behind a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["postgres_url"]

USER = "kvledger"
START_SECONDS = 60


@contextmanager
def postgres_url() -> Iterator[str]:
    """Start a server and give the URL of a database in it; skips with the reason where none can be had."""
    pytest.importorskip("psycopg", reason="the extra [audit] is not installed")
    programs = {name: _program(name) for name in ("initdb", "postgres")}
    if not all(programs.values()):
        pytest.skip(f"no PostgreSQL server on this machine: {', '.join(n for n, p in programs.items() if not p)}")
    with tempfile.TemporaryDirectory(prefix="kvl-pg-", ignore_cleanup_errors=True) as folder:
        as_user = _without_rights(folder)
        data = Path(folder) / "data"
        made = [programs["initdb"], "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, timeout=60, **as_user)
        quick = {"fsync": "off", "listen_addresses": "", "unix_socket_directories": folder, "shared_buffers": "16MB"}
        options = [word for name, value in quick.items() for word in ("-c", f"{name}={value}")]
        command = [programs["postgres"], "-D", data, *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user) as server:
            try:
                yield _answering(f"postgresql://{USER}@/postgres?host={folder}", server)
            finally:
                server.send_signal(signal.SIGINT)
                server.wait(60)


def _program(name: str) -> str | None:
    """Return where a program of the server is; distributions keep some of them off the path."""
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name, path=os.pathsep.join(places))


def _without_rights(folder: str) -> dict:
    """Return how to start a process in this folder as somebody who may run a server, which root may not."""
    if os.geteuid() != 0:
        return {"cwd": folder}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"cwd": folder, "user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _answering(url: str, server: subprocess.Popen) -> str:
    import psycopg

    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return url
    pytest.skip("the PostgreSQL server does not start on this machine")
