"""Connections: made, lost, and made again by the same code (field cases L38, L40, L46, F10)."""

import threading
import time

import pytest

from kvledger import Cache
from kvledger.errors import CallerError, DisconnectedError, LayoutError, LeaseLost, NotFoundError, ProtocolError
from kvledger.waiting import Deadline, DeadlineError
from kvledger.wire import replies, requests
from kvledger.wire.framing import encode_frame
from unit.client.fake import HANG_UP, MISS, NOTHING, FakeDaemon, layout
from unit.client.test_hit import PAGE, TOKENS, acquired, fill, offer


def test_state_is_told(daemon, monkeypatch):
    """The repr of a cache tells where it is connected to, which incarnation runs, and what it holds."""
    monkeypatch.setattr("kvledger.absence._PATIENCE", 0.0)
    cache = Cache.open(daemon.path)
    assert repr(cache) == f"<Cache {daemon.path}: connected, incarnation 1, 0 in flight, 0 layouts>"
    cache.register(layout())
    assert cache.incarnation == 1
    daemon.stop()
    with pytest.raises(DisconnectedError):
        cache.status()
    assert repr(cache) == f"<Cache {daemon.path}: disconnected, 1 layout>"
    cache.close()
    cache.close()
    assert repr(cache) == f"<Cache {daemon.path}: closed, 1 layout>"
    with pytest.raises(CallerError, match="closed"):
        cache.status()


def test_l38_restart_is_seen_at_the_next_call(daemon, cache):
    """L38: after a restart between two calls the next one meets the new incarnation and registers again."""
    registered = cache.register(layout())
    assert not cache.acquire(registered, TOKENS)
    daemon.restart()
    assert not cache.acquire(registered, TOKENS)
    assert cache.incarnation == 2
    assert [request.layout for request in daemon.asked(requests.Acquire)] == [10, 20]
    assert daemon.asked(requests.Hello)[1].incarnation == 1


def test_l40_reconnect_is_the_first_connect(daemon, cache):
    """L40: a reconnect sends what the first connect sent, layouts and ring included, in the same order."""
    registered = cache.register(layout())
    cache.reserve(registered, TOKENS).abort()
    first = [name for name in daemon.types() if name in {"Hello", "Register", "Ring"}]
    daemon.restart()
    daemon.seen.clear()
    cache.status()
    assert daemon.types() == [*first, "Status"]


def test_restart_while_a_call_waits(daemon, cache):
    """A look-up whose connection ends before the answer is asked again by itself."""
    registered = cache.register(layout())
    answers = iter([HANG_UP, MISS])
    daemon.answers[requests.Acquire] = lambda *_: next(answers)
    assert not cache.acquire(registered, TOKENS)
    assert len(daemon.asked(requests.Hello)) == 2


def test_calls_wait_for_a_daemon_that_starts(daemon, cache, monkeypatch):
    """While the daemon is down a call waits for it, within its deadline."""
    monkeypatch.setattr("kvledger.absence._PATIENCE", 60.0)
    cache.status()
    daemon.stop()
    timer = threading.Timer(0.2, daemon.start)
    timer.start()
    assert cache.status().incarnation == 1
    timer.join()


def test_f10_daemon_that_never_comes_back(daemon, monkeypatch):
    """F10: without a daemon a call fails within its deadline instead of hanging."""
    monkeypatch.setattr("kvledger.absence._PATIENCE", 60.0)
    cache = Cache.open(daemon.path)
    daemon.stop()
    cache._link.timeout = 0.3
    begin = time.monotonic()
    with pytest.raises(DisconnectedError, match="kvledger serve"):
        cache.status()
    assert time.monotonic() - begin < 30
    cache.close()


def test_f10_daemon_that_does_not_answer(daemon):
    """F10: a daemon that keeps silent costs the timeout, and the connection stays good for other calls."""
    daemon.answers[requests.Status] = NOTHING
    with Cache.open(daemon.path) as cache:
        cache._link.timeout = 0.2
        with pytest.raises(DeadlineError, match=r"timeout: no answer within 0\.2 seconds"):
            cache.status()
        cache._link.timeout = 60
        cache.register(layout())
    assert len(daemon.asked(requests.Hello)) == 1


def test_f10_old_hit_is_lost(daemon, cache):
    """F10: a lease of an older incarnation raises, though the old map stays readable."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    hit = cache.acquire(cache.register(layout()), TOKENS)
    handle = hit["full"][0]
    kept = handle.buffer
    daemon.restart()
    cache.status()
    assert len(bytes(kept)) == PAGE
    with pytest.raises(LeaseLost, match="incarnation"):
        handle.buffer  # noqa: B018 - looking is what fails
    with pytest.raises(LeaseLost, match="incarnation"):
        hit.check()
    assert repr(hit) == "<Hit lost, 32 of 40 tokens, exact>"
    hit.release()
    assert not daemon.asked(requests.Release)


def test_late_lease_is_given_back(daemon):
    """If an answer comes after its caller gave up, its lease goes back instead of staying for ever."""
    fill(daemon)
    go = threading.Event()

    def late(*_):
        go.wait(60)
        return acquired(offer(32))

    daemon.answers[requests.Acquire] = late
    with Cache.open(daemon.path) as cache:
        registered = cache.register(layout())
        cache._link.timeout = 0.2
        with pytest.raises(DeadlineError):
            cache.acquire(registered, TOKENS)
        cache._link.timeout = 60
        go.set()
        cache.status()
        cache.status()
    assert daemon.asked(requests.Release) == [requests.Release(9)]


def test_late_lease_is_given_back_without_another_call(daemon, monkeypatch):
    """If nobody calls again after a caller gave up, the lease of the late answer still goes back."""
    monkeypatch.setattr(Deadline, "again", lambda _: Deadline(60))  # as long as the answer takes on any machine
    fill(daemon)
    go, released = threading.Event(), threading.Event()
    daemon.answers[requests.Acquire] = lambda *_: go.wait(60) and acquired(offer(32))
    daemon.answers[requests.Release] = lambda *_: released.set() or replies.Done()
    with Cache.open(daemon.path) as cache:
        registered = cache.register(layout())
        cache._link.timeout = 0.2
        with pytest.raises(DeadlineError):
            cache.acquire(registered, TOKENS)
        go.set()
        assert released.wait(60)


def test_l46_versions_are_named(daemon):
    """L46: a client and a daemon that share no version say so at hello, and name both."""
    daemon.version = 7
    with pytest.raises(ProtocolError, match="version 7, the client 1 to 1"):
        Cache.open(daemon.path)


def test_l46_daemon_that_ignores_the_versions(daemon):
    """L46: a daemon that answers hello in a version nobody asked for is refused by the client."""
    daemon.answers[requests.Hello] = replies.Welcome(9, 1, b"", bytes(32), "default", 1 << 20, 1 << 20)
    with pytest.raises(ProtocolError, match="speaks version 9, this client 1 to 1"):
        Cache.open(daemon.path)


def test_nobody_listens(tmp_socket_dir, monkeypatch):
    """Opening a cache where nobody listens fails though the deadline is far, and says how to start the daemon."""
    monkeypatch.setattr("kvledger.absence._PATIENCE", 0.02)
    with pytest.raises(DisconnectedError, match=r"start one with kvledger serve, or name"):
        Cache.open(tmp_socket_dir / "none.sock", timeout=60)


def test_long_path(tmp_socket_dir):
    """A path that no socket can have is named with its length."""
    with pytest.raises(CallerError, match=r"socket_path: a socket path of .* at most 107"):
        Cache.open(tmp_socket_dir / ("x" * 120))


def test_engine_id_has_its_length(daemon):
    """An engine id of another length than 16 bytes is refused before anything is sent."""
    with pytest.raises(CallerError, match="engine id of 3 bytes"):
        Cache.open(daemon.path, engine=b"abc")


def test_refusals_are_typed(daemon, cache):
    """A refusal raises the error that it names, with field and remedy."""
    daemon.answers[requests.Offload] = replies.Failed("not_found", "no such boundary", "at", "commit it first")
    registered = cache.register(layout())
    with pytest.raises(NotFoundError, match=r"at: no such boundary \(commit it first\)"):
        cache.offload(registered, TOKENS, boundary=32)


def test_layout_of_another_cache(daemon, cache):
    """A layout that was registered with another cache is refused with the remedy."""
    with Cache.open(daemon.path) as other, pytest.raises(CallerError, match="is not registered here"):
        other.acquire(cache.register(layout()), TOKENS)


def test_wrong_layout_never_leaves(daemon, cache):
    """A layout that contradicts itself is refused before it is sent."""
    with pytest.raises(LayoutError):
        cache.register(layout(abi={}))
    assert not daemon.asked(requests.Register)


def test_reply_to_nothing(daemon, cache):
    """A reply under an id that awaits none ends the connection with an error that names it."""

    def twice(peer, _):
        daemon.say(peer, 4242, replies.Done())
        return replies.Done()

    daemon.answers[requests.Status] = twice
    with pytest.raises(ProtocolError, match="4242"):
        cache.status()


def test_refusal_without_id(daemon, cache):
    """A refusal under id 0 means that the daemon could not read a frame; it reaches the caller as it is."""
    daemon.answers[requests.Status] = lambda peer, _: (
        daemon.say(peer, 0, replies.Failed("protocol", "length 3", "length")) or NOTHING
    )
    with pytest.raises(ProtocolError, match="length: length 3"):
        cache.status()


def test_wrong_reply_type(daemon, cache):
    """A reply of another type than the request has ends the connection with both names."""
    daemon.answers[requests.Status] = replies.Evicted(1)
    with pytest.raises(ProtocolError, match="answered Evicted where StatusReport"):
        cache.status()


def test_prompt_too_long_for_a_frame(daemon):
    """A prompt whose hashes do not fit a frame is refused here, with the remedy, and the connection stays good."""
    daemon.frame_max = 1 << 10
    with Cache.open(daemon.path) as cache:
        registered = cache.register(layout(abi=layout().abi))
        with pytest.raises(ProtocolError, match="larger block_tokens"):
            cache.acquire(registered, list(range(16 * 64)))
        cache.status()
    assert len(daemon.asked(requests.Hello)) == 1


def test_threads_share_one_connection(daemon, cache):
    """A call that waits does not keep other threads from theirs."""
    registered = cache.register(layout())
    waits, go = threading.Event(), threading.Event()

    def slow(*_):
        waits.set()
        return NOTHING

    daemon.answers[requests.Describe] = slow
    found = []
    thread = threading.Thread(target=lambda: found.append(_error(lambda: cache.describe(registered, TOKENS))))
    thread.start()
    assert waits.wait(60)
    for _ in range(20):
        cache.status()
    assert "1 in flight" in repr(cache)
    go.set()
    cache.close()
    thread.join(60)
    assert isinstance(found[0], DisconnectedError)


def test_many_threads_get_their_own_replies(daemon, cache):
    """Each of many threads gets the answer to its own question."""
    registered = cache.register(layout())
    daemon.answers[requests.Evict] = lambda _, request: replies.Evicted(request.page)
    wrong = []

    def ask(number):
        for _ in range(30):
            answer = cache.evict(registered, TOKENS, kind=1, page=number)
            if answer.dropped != number:
                wrong.append((number, answer))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert len(daemon.asked(requests.Evict)) == 240


def test_hello_without_descriptor(tmp_socket_dir):
    """A peer that answers hello without a descriptor is no kvledgerd, and the client says so."""
    with FakeDaemon(tmp_socket_dir / "k.sock") as daemon:
        daemon.say = lambda peer, number, reply: peer.end.sendall(encode_frame(number, reply))
        with pytest.raises(ProtocolError, match="0 descriptors instead of one"):
            Cache.open(daemon.path)


def _error(call):
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the error is what the test looks at
        return error
