"""Watching processes by pid and start time: whose end is told, and that nobody is taken for somebody else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Self

import pytest

from kvledgerd.core.commands import TopologyOrphaned
from kvledgerd.core.topology.topologies import Topology
from kvledgerd.life.topology_watch import TopologyWatch
from kvledgerd.server.processes import identified, open_process, start_time

NOBODY = 2**22 + 1  # above the greatest pid that Linux gives


class Child:
    """A process that does nothing until it is told to end."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.named = (self.process.pid, start_time(self.process.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Scene:
    """A watch over topologies that a test names, and what it told."""

    def __init__(self) -> None:
        self.topologies: dict[int, Topology] = {}
        self.told: list[TopologyOrphaned] = []
        self.news = asyncio.Event()
        self.watch = TopologyWatch(self.topologies.values, self.tell)

    def tell(self, command: TopologyOrphaned) -> None:
        """Take a command to the core."""
        self.told.append(command)
        self.news.set()

    def add(self, number: int, *processes: tuple[int, int]) -> None:
        """Name the processes of a topology and look."""
        self.topologies[number] = Topology(number, bytes(16), "default", 1000, processes)
        self.watch.look()


async def until(scene: Scene, number: int) -> None:
    """Wait until the end of a topology's processes was told."""
    async with asyncio.timeout(60):
        while TopologyOrphaned(number) not in scene.told:
            scene.news.clear()
            await scene.news.wait()


@pytest.mark.asyncio
async def test_the_end_of_the_last_process_is_told():
    """A topology of two processes is orphaned by the end of both, not of one."""
    scene = Scene()
    with Child() as one, Child() as other:
        scene.add(1, one.named)
        scene.add(2, one.named, other.named)
        assert len(scene.watch) == 2
        one.process.kill()
        await until(scene, 1)
        assert TopologyOrphaned(2) not in scene.told
        other.process.kill()
        await until(scene, 2)
    scene.watch.close()


@pytest.mark.asyncio
async def test_a_process_that_ended_before_is_told_at_once():
    """After a restart of the daemon a process may be gone before anybody watches it."""
    scene = Scene()
    scene.add(1, (NOBODY, 5))
    assert scene.told == [TopologyOrphaned(1)]


@pytest.mark.asyncio
async def test_a_pid_that_was_given_to_another_process_is_not_the_process():
    """With another start time it is another process, however alive."""
    scene = Scene()
    scene.add(1, (os.getpid(), start_time(os.getpid()) - 1))
    assert scene.told == [TopologyOrphaned(1)]


@pytest.mark.asyncio
async def test_processes_that_no_topology_names_are_forgotten():
    """When a topology is dropped its processes are watched no more, and their descriptors are closed."""
    scene = Scene()
    scene.add(1, (os.getpid(), start_time(os.getpid())))
    assert len(scene.watch) == 1
    scene.topologies.clear()
    scene.watch.look()
    assert (len(scene.watch), scene.told) == (0, [])


@pytest.mark.asyncio
async def test_without_descriptors_a_process_is_looked_at(monkeypatch):
    """A process that can not be watched is told of at the first look after its end."""

    def none_left(pid):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    scene = Scene()
    with Child() as one:
        scene.add(1, one.named)
        assert (len(scene.watch), scene.told) == (0, [])
        one.process.kill()
        one.process.wait()
    scene.watch.look()
    assert scene.told == [TopologyOrphaned(1)]


def test_a_process_is_known_by_its_descriptor():
    """Pid and start time name it while it lives; after its end, or without a pid, nothing does."""
    with Child() as one:
        pid = one.process.pid
        pidfd = os.pidfd_open(pid)
        try:
            assert identified(pid, pidfd) == one.named
            assert identified(0, pidfd) is None
            assert identified(pid, None) is None
            one.process.kill()
            one.process.wait()
            assert identified(pid, pidfd) is None
        finally:
            os.close(pidfd)
    assert open_process(one.named) is None


def test_a_process_that_nobody_has_waited_for_has_ended():
    """A zombie replays no graph."""
    with Child() as one:
        one.process.kill()
        os.waitid(os.P_PID, one.process.pid, os.WEXITED | os.WNOWAIT)
        assert start_time(one.process.pid) is None
