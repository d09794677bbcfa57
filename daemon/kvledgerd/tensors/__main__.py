"""``python -m kvledgerd.tensors SOCKET PARENT``: the tensor process, which only the daemon starts.

It maps arenas writable, so it holds the lock of the data directory (a descriptor that it inherited and never looks at)
and is killed by the kernel when the daemon ends. It does one job after the other and keeps nothing between them.
"""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import msgspec

from kvledger.errors import KVLedgerError
from kvledger_storage.arena import Arena
from kvledgerd.keeper.child import die_with
from kvledgerd.tensor_device import DeviceRefusedError
from kvledgerd.tensors.devices import Device, open_device
from kvledgerd.tensors.jobs import SORTS
from kvledgerd.tensors.messages import Begin, Done, Failed, Give, Job, Link, Ready, Refused

__all__ = ["main"]


class _Desk:
    """What the process has: a device, and the arenas that it was given."""

    def __init__(self, link: Link, begin: Begin, device: Device) -> None:
        self._link: Final = link
        self._begin: Final = begin
        self._device: Final = device
        self._arenas: Final[dict[int, Arena]] = {}

    def serve(self) -> None:
        """Do jobs until the daemon is gone."""
        while True:
            message, descriptor = self._link.receive_job()
            if isinstance(message, Give):
                assert descriptor is not None
                self._arenas[message.arena] = Arena.adopt(descriptor, self._begin.log_id, self._begin.boot_id)
            elif isinstance(message, Job):
                self._link.send(self._done(message))

    def _done(self, job: Job) -> Done | Failed:
        sort = SORTS[job.sort]
        effect: object = msgspec.msgpack.decode(job.effect, type=sort.effect)
        try:
            return Done(msgspec.Raw(msgspec.msgpack.encode(sort.load()(effect, self._arenas, self._device))))
        except KVLedgerError as error:
            return Failed(str(error))


def main() -> int:
    """Serve the daemon; anything that is no typed error ends the process, and the daemon starts a new one."""
    die_with(int(sys.argv[2]))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")  # goes before the authority does
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # whoever stops the daemon may signal its whole group
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    try:
        begin, _ = link.receive_job()
        assert isinstance(begin, Begin)
        try:
            device = open_device(begin.device)
        except DeviceRefusedError as error:
            link.send(Refused(error.message, error.remedy))
            return os.EX_UNAVAILABLE
        link.send(Ready(device.name))
        _Desk(link, begin, device).serve()
    except (EOFError, ConnectionError):
        return os.EX_OK
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
