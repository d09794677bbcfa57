# Generated from kvledger/_async/dialling.py by scripts/unasync.py; change it there.
"""From a path to a connection that has been greeted: socket, welcome, and the descriptor socket that came with it.

It is a file of its own because nothing of it happens twice: one request, one reply, and the only read of a connection's
life that may bring descriptors. Whatever goes wrong, none of them stays open.
"""

import contextlib
import errno
import os
import socket
from typing import NamedTuple

from kvledger.absence import AbsentError
from kvledger.errors import CallerError, DisconnectedError, ProtocolError, error_from_wire
from kvledger.waiting import Deadline, readable, sleep, writable
from kvledger.wire.descriptors import close_all, receive_with_descriptors
from kvledger.wire.framing import Splitter, decode_reply, encode_frame
from kvledger.wire.replies import Failed, Reply, Welcome
from kvledger.wire.requests import Hello

__all__ = ["HELLO_NUMBER", "Greeted", "dial"]

HELLO_NUMBER = 1
"""Request id of a connection's hello."""

_PIECE = 1 << 16
_PATH_MAX = 107  # sun_path holds 108 bytes with its final zero
_BACKLOG_PAUSE = 0.005


class Greeted(NamedTuple):
    """A connection that has been greeted.

    Attributes:
        end: The request socket, non-blocking.
        welcome: What the daemon said.
        descriptors: The client's end of the descriptor socket, non-blocking.
    """

    end: socket.socket
    welcome: Welcome
    descriptors: socket.socket


def dial(path: str, hello: Hello, deadline: Deadline) -> Greeted:
    """Connect and greet.

    Raises:
        CallerError: The path is too long for a socket.
        AbsentError: Nobody listens there.
        DisconnectedError: The daemon hung up.
        ProtocolError: It speaks no version that this client does, or none of this protocol.
        DeadlineError: It did not answer in time.
    """
    end = _connect(path, deadline)
    descriptors: list[int] = []
    try:
        welcome = _greet(end, hello, descriptors, deadline)
        beside = _only_socket(descriptors)
    except OSError as error:
        end.close()
        raise _hung_up(error.strerror) from error
    except BaseException:
        end.close()
        raise
    finally:
        close_all(descriptors)
    return Greeted(end, welcome, beside)


def _connect(path: str, deadline: Deadline) -> socket.socket:
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        remedy = "use the path that the daemon was started with"
        raise CallerError(f"{path!r} is no path: {error}", field="socket_path", remedy=remedy) from error
    if size > _PATH_MAX:
        remedy = f"use a path of at most {_PATH_MAX} bytes"
        raise CallerError(f"a socket path of {size} bytes", field="socket_path", remedy=remedy)
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.settimeout(0)
    try:
        while (number := end.connect_ex(path)) == errno.EAGAIN:  # the backlog is full; such a socket can not be polled
            sleep(min(_BACKLOG_PAUSE, deadline.left()))
    except BaseException:
        end.close()
        raise
    if number:
        end.close()
        raise _absent(path, number)
    return end


def _absent(path: str, number: int) -> AbsentError:
    if number in {errno.EACCES, errno.EPERM}:
        wrong = f"this user may not connect at {path}"
        remedy = "join the group of the socket and of its directory, or use the socket that was made for this user"
    else:
        wrong = f"nobody answers at {path}"
        remedy = "start one with kvledger serve, or name the socket of one that runs"
    return AbsentError(f"{wrong}: {os.strerror(number)}", field="socket_path", remedy=remedy)


def _greet(end: socket.socket, hello: Hello, descriptors: list[int], deadline: Deadline) -> Welcome:
    writable(end, deadline)
    with contextlib.suppress(BrokenPipeError):  # who is turned away is told so, and not listened to
        end.send(encode_frame(HELLO_NUMBER, hello), socket.MSG_NOSIGNAL)  # a fresh socket's buffer takes it whole
    splitter = Splitter()
    bodies: list[bytes] = []
    while not bodies:
        readable(end, deadline)
        data, found = receive_with_descriptors(end, _PIECE)
        descriptors += found
        if not data:
            raise _hung_up("end of stream")
        bodies = splitter.feed(data)
    if len(bodies) > 1 or splitter.pending:
        remedy = "is this the socket of kvledgerd?"
        raise ProtocolError("more than the reply to hello came", field="hello", remedy=remedy)
    return _welcome(decode_reply(bodies[0])[1], hello)


def _welcome(reply: Reply, hello: Hello) -> Welcome:
    if isinstance(reply, Failed):
        raise error_from_wire(reply.code, reply.message, reply.field, reply.remedy)
    if not isinstance(reply, Welcome):
        wrong = f"the daemon answered hello with {type(reply).__name__}"
        raise ProtocolError(wrong, field="reply", remedy="is this the socket of kvledgerd?")
    low, high = hello.versions
    if not low <= reply.version <= high:
        raise ProtocolError(
            f"the daemon speaks version {reply.version}, this client {low} to {high}",
            field="versions",
            remedy="run a daemon and a client of the same version",
        )
    return reply


def _only_socket(descriptors: list[int]) -> socket.socket:
    if len(descriptors) != 1:
        wrong = f"hello brought {len(descriptors)} descriptors instead of one"
        raise ProtocolError(wrong, field="descriptors", remedy="is this the socket of kvledgerd?")
    beside = socket.socket(fileno=os.dup(descriptors[0]))
    beside.settimeout(0)
    return beside


def _hung_up(why: str | None) -> DisconnectedError:
    remedy = "see that the daemon runs (kvledger status) and ask again"
    return DisconnectedError(f"the daemon hung up before it said hello: {why}", field="hello", remedy=remedy)
