"""What a connection makes of the bytes it receives, however they are cut."""

import threading
import time

import pytest

from kvledger import Cache
from kvledger.errors import DisconnectedError, ProtocolError
from kvledger.waiting import Deadline, DeadlineError
from kvledger.wire import replies, requests
from kvledger.wire.framing import REPLY_MAX, encode_frame
from unit.client.fake import NOTHING

REPORT = replies.StatusReport(1, 7, "", {})


def raw(data):
    """Return an answer that sends bytes as they are, under the id of the second request of a connection."""
    return lambda peer, _: peer.end.sendall(data) or NOTHING


def test_reply_byte_by_byte(daemon, cache):
    """A reply that trickles in byte by byte is whole in the end."""

    def trickle(peer, _):
        for byte in encode_frame(2, REPORT):
            peer.end.sendall(bytes([byte]))
            time.sleep(0.001)
        return NOTHING

    daemon.answers[requests.Status] = trickle
    assert cache.status() == REPORT


def test_two_replies_in_one_write(daemon, cache):
    """Two replies in one write reach both who wait, whichever of them reads."""
    session = cache._link.session  # two requests in flight from one thread, which the public face never has
    deadline = Deadline(60)
    daemon.answers[requests.Status] = NOTHING
    first, second = (session.send(requests.Status(), deadline) for _ in range(2))
    while len(daemon.asked(requests.Status)) < 2:
        time.sleep(0.001)
    other = replies.StatusReport(1, 8, "", {})
    daemon.peers[0].end.sendall(encode_frame(second, other) + encode_frame(first, REPORT))
    assert session.collect(first, deadline) == REPORT
    assert session.collect(second, deadline) == other


def test_end_in_the_middle_of_a_reply(daemon):
    """A connection that ends inside a frame is an end, not half an answer; the call is asked again elsewhere."""
    cut = encode_frame(2, REPORT)[:9]
    answers = iter([cut, None])

    def half(peer, _):
        data = next(answers)
        if data is None:
            return REPORT
        peer.end.sendall(data)
        peer.end.shutdown(2)
        return NOTHING

    daemon.answers[requests.Status] = half
    with Cache.open(daemon.path, timeout=60) as cache:
        assert cache.status() == REPORT
    assert len(daemon.asked(requests.Hello)) == 2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ((3).to_bytes(4, "little"), "3 bytes is shorter"),
        ((REPLY_MAX + 1).to_bytes(4, "little"), "longer than 16777216"),
        (encode_frame(2, replies.Done())[:-1] + b"X", "'donX'"),
        ((8).to_bytes(4, "little") + b"\xc1" * 8, "malformed"),
    ],
)
def test_malformed_reply(daemon, cache, data, why):
    """A malformed reply is a ProtocolError that says what is wrong, and the next call has a fresh connection."""
    daemon.answers[requests.Status] = raw(data)
    with pytest.raises(ProtocolError, match=why):
        cache.status()
    del daemon.answers[requests.Status]
    assert cache.status().incarnation == 1
    assert len(daemon.asked(requests.Hello)) == 2


def test_daemon_that_never_reads(daemon):
    """A request that the daemon does not take off the socket costs the timeout and the connection."""
    go = threading.Event()
    daemon.answers[requests.Commit] = lambda *_: go.wait(60) and NOTHING
    with Cache.open(daemon.path) as cache:
        session = cache._link.session  # the public face waits for each reply before it fills the socket

        def flood():
            for _ in range(100):
                session.post(requests.Commit(1, bytes(900 << 10)), Deadline(0.2))

        with pytest.raises(DeadlineError):
            flood()
        assert session.closed
        with pytest.raises(DisconnectedError, match="cut off"):
            session.send(requests.Status(), Deadline(0.2))
        go.set()
