"""Being somebody else towards a daemon, for tests of access; only root can."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as several uids")


@contextmanager
def as_user(uid: int, gid: int = 0, groups: tuple[int, ...] = ()) -> Iterator[None]:
    """Connect as this user within the block: a daemon is told who connected, whatever becomes of the process."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def in_child(uid: int, work: Callable[[], object]) -> int:
    """Do work in a child process of another user, for good; return its exit code, 1 after an exception."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
