"""Watching the processes of topologies: their end is the only thing by which an engine lets go without saying so.

The core names the processes, by pid and start time. After a start most of them have no connection yet and may never
have one again, so they are watched by themselves and not through connections. A process that can not be watched by
descriptor, since none is left, is looked at now and then.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kvledger_storage.events import Process
from kvledgerd.core.commands import TopologyOrphaned
from kvledgerd.core.topology.topologies import Topology
from kvledgerd.server.processes import open_process, start_time

__all__ = ["TopologyWatch"]


class TopologyWatch:
    """All processes that topologies name; to be made and used on the loop.

    Args:
        topologies: Returns the topologies of now.
        post: Tells the core of one whose processes have all ended.
    """

    def __init__(self, topologies: Callable[[], Iterable[Topology]], post: Callable[[TopologyOrphaned], None]) -> None:
        self._topologies: Final = topologies
        self._post: Final = post
        self._loop: Final = asyncio.get_running_loop()
        self._watched: Final[dict[Process, int]] = {}
        self._ended: Final[dict[Process, None]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def look(self) -> None:
        """Watch what has come, forget what has gone, and report what has ended."""
        named = {process: None for topology in self._topologies() for process in topology.processes}
        for process in [one for one in self._watched if one not in named]:
            self._unwatch(process)
        for process in [one for one in self._ended if one not in named]:
            del self._ended[process]
        for process in named:
            if process not in self._watched and process not in self._ended:
                self._begin(process)
        self._report()

    def close(self) -> None:
        """Watch nothing more."""
        for process in list(self._watched):
            self._unwatch(process)

    def _begin(self, process: Process) -> None:
        try:
            pidfd = open_process(process)
        except OSError:
            # No descriptor is left: it is looked at again the next time.
            if start_time(process[0]) != process[1]:
                self._ended[process] = None
            return
        if pidfd is None:
            self._ended[process] = None
            return
        self._watched[process] = pidfd
        self._loop.add_reader(pidfd, partial(self._has_ended, process))

    def _has_ended(self, process: Process) -> None:
        self._unwatch(process)
        self._ended[process] = None
        self._report()

    def _unwatch(self, process: Process) -> None:
        pidfd = self._watched.pop(process)
        self._loop.remove_reader(pidfd)
        os.close(pidfd)

    def _report(self) -> None:
        for topology in self._topologies():
            if all(process in self._ended for process in topology.processes):
                self._post(TopologyOrphaned(topology.id))
