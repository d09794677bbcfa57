"""Request sockets: connections on which descriptors are no part of the protocol, and may come all the same."""

import socket
from typing import Any, Final

from kvledgerd.foreign import ROOM, close_elsewhere, descriptors_in

__all__ = ["RequestListener", "RequestSocket"]

_FLAGS: Final = socket.MSG_CMSG_CLOEXEC


class RequestSocket(socket.socket):
    """A connection of a client, which reads as any other and takes out what descriptors come along."""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Read into all of a buffer; see `socket.socket.recv_into`."""
        assert not nbytes, "nobody reads less than a buffer"
        count, control, _, _ = self.recvmsg_into([buffer], ROOM, flags | _FLAGS)
        if control:
            close_elsewhere(descriptors_in(control))
        return count


class RequestListener(socket.socket):
    """The listening socket, whose connections are request sockets."""

    def accept(self) -> tuple[RequestSocket, Any]:
        """Accept a connection; see `socket.socket.accept`."""
        accepted, address = super().accept()
        return RequestSocket(fileno=accepted.detach()), address
