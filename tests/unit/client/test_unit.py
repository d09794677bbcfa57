"""Units: what is sent, in which parts, and what happens when something goes wrong."""

import os

import pytest

from kvledger import Cache
from kvledger.errors import CallerError, CommitRefusedError, LeaseLost
from kvledger.kinds import Kind
from kvledger.waiting import DeadlineError
from kvledger.wire import replies, requests
from unit.client.fake import BLOCK, HANG_UP, NOTHING, layout

TOKENS = list(range(40))
BIG = 200 << 10


def big_layout():
    """Return a layout whose snapshot is longer than the ring of the tests."""
    spec = layout()
    swa = spec.group("swa")
    fields = {name: getattr(swa, name) for name in swa.__struct_fields__} | {"page_bytes": BIG}
    return layout(groups=(spec.groups[0], type(swa)(**fields)))


def test_objects_stand_in_the_order_of_the_wire(cache):
    """A boundary unit holds the rows block by block, then what belongs to the boundary."""
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    assert [(s.index, s.group, s.first_token, s.tokens, s.length) for s in unit.objects] == [
        (0, "full", 0, 16, 4096),
        (1, "full", 16, 16, 4096),
        (2, "swa", 32, 0, 4096),
    ]
    assert repr(unit) == "<Unit open, 3 objects, 0 present>"
    unit.abort()


def test_put_and_commit(daemon, cache):
    """What is put arrives object by object with its kind, and leaving the block commits."""
    with cache.reserve(cache.register(layout()), TOKENS, boundary=32) as unit:
        for slot in unit.objects:
            unit.put(slot, bytes([slot.index + 1]) * slot.length)
    assert [daemon.stored[1001, i][:1] for i in range(3)] == [b"\1", b"\2", b"\3"]
    kinds = [part.kind for put in daemon.asked(requests.Put) for part in put.ranges]
    assert kinds == [Kind.COMPRESSED_KV, Kind.COMPRESSED_KV, Kind.SWA_WINDOW]
    assert daemon.types()[-1] == "Commit"
    assert repr(unit) == "<Unit committed, 3 objects, 0 present>"


def test_group_as_one_stretch(daemon, cache):
    """A group's objects can be written as one stretch of the ring, and are put at commit."""
    with cache.reserve(cache.register(layout()), TOKENS, boundary=32) as unit:
        unit["full"].buffer[:] = b"a" * 4096 + b"b" * 4096
        unit["swa", 0].buffer[:] = b"c" * 4096
    assert [daemon.stored[1001, i] for i in range(3)] == [letter * 4096 for letter in (b"a", b"b", b"c")]


def test_present_objects_are_not_sent(daemon, cache):
    """What is committed already is neither put nor lost from its place in the stretch."""
    daemon.answers[requests.Reserve] = replies.Reserved(1001, b"\1")
    with cache.reserve(cache.register(layout()), TOKENS, boundary=32) as unit:
        assert [slot.present for slot in unit.objects] == [True, False, False]
        unit["full"].buffer[:] = b"a" * 4096 + b"b" * 4096
        unit.put(unit.objects[0], b"z" * 4096)
        unit.put(unit.objects[2], b"c" * 4096)
    assert sorted(daemon.stored) == [(1001, 1), (1001, 2)]
    assert daemon.stored[1001, 1] == b"b" * 4096


def test_staging_is_written_in_place(daemon, cache):
    """A slot can be lent as memory of the ring and is handed over when the block is left."""
    with cache.reserve(cache.register(layout()), TOKENS, boundary=32) as unit:
        for slot in unit.objects:
            with unit.staging(slot) as view:
                view[:] = bytes([slot.index + 1]) * slot.length
    assert daemon.stored[1001, 2] == b"\3" * 4096


def test_object_longer_than_the_ring(daemon, cache):
    """An object that is longer than the whole ring goes over in parts that come in order."""
    data = os.urandom(BIG)
    with cache.reserve(cache.register(big_layout()), TOKENS, boundary=32) as unit:
        unit.put(unit.objects[2], data)
    assert daemon.stored[1001, 2] == data
    assert len(daemon.asked(requests.Put)) == -(-BIG // (16 << 10))


def test_unit_longer_than_the_ring(daemon, cache):
    """A unit may be longer than the ring, since parts of it come free while others are written."""
    tokens = list(range(64 * BLOCK))
    with cache.reserve(cache.register(layout()), tokens) as unit:
        for slot in unit.objects:
            unit.put(slot, slot.index.to_bytes(2, "little") * 2048)
    assert len(unit.objects) == 64
    assert all(daemon.stored[1001, i] == i.to_bytes(2, "little") * 2048 for i in range(64))


def test_blocks_without_boundary(daemon, cache):
    """Without a boundary a unit ends at the last whole block and brings rows only, from `start` on."""
    unit = cache.reserve(cache.register(layout()), TOKENS, start=16)
    assert [slot.first_token for slot in unit.objects] == [16]
    request = daemon.asked(requests.Reserve)[0]
    assert (request.first_block, request.boundary, len(request.end.hashes)) == (1, False, 64)
    unit.abort()


def test_start_inside_a_block(cache):
    """A unit can not start inside a block."""
    registered = cache.register(layout())
    with pytest.raises(CallerError, match="start: 17"):
        cache.reserve(registered, TOKENS, start=17)


def test_boundary_outside_the_prompt(cache):
    """A boundary beyond the prompt's tokens names itself and their number."""
    registered = cache.register(layout())
    with pytest.raises(CallerError, match="boundary: 41 lies outside a prompt of 40"):
        cache.reserve(registered, TOKENS, boundary=41)


def test_wrong_length_is_named(cache):
    """Bytes of another length than the object are refused before anything is sent."""
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    with pytest.raises(CallerError, match=r"objects\[1\]: 4095 bytes for an object of 4096"):
        unit.put(unit.objects[1], b"x" * 4095)
    unit.abort()


def test_exception_aborts(daemon, cache):
    """An exception inside the block aborts the unit, and nothing is committed."""
    with pytest.raises(ZeroDivisionError), cache.reserve(cache.register(layout()), TOKENS, boundary=32) as unit:
        unit["full"].buffer[0] = 1 // 0
    cache.status()
    assert daemon.asked(requests.Abort) == [requests.Abort(1001)]
    assert not daemon.asked(requests.Commit)
    assert repr(unit) == "<Unit aborted, 3 objects, 0 present>"


def test_refused_commit_frees_the_ring(daemon, cache):
    """A refused commit raises the daemon's reason, aborts, and leaves the whole ring to the next unit."""
    refusal = replies.Failed("commit_refused", "swa is missing at 32", "groups", "put all groups")
    daemon.answers[requests.Commit] = refusal
    registered = cache.register(layout())
    unit = cache.reserve(registered, TOKENS, boundary=32)
    assert unit["full"].buffer.nbytes == 8192
    with pytest.raises(CommitRefusedError, match="groups: swa is missing at 32"):
        unit.commit()
    del daemon.answers[requests.Commit]
    with cache.reserve(registered, list(range(16 * BLOCK))) as whole:
        assert whole["full"].buffer.nbytes == 64 << 10


def test_refused_put_breaks_the_unit(daemon, cache):
    """After a put was refused the unit can not be committed, because a part of it is missing."""
    daemon.answers[requests.Put] = replies.Failed("routing", "object 0 is COMPRESSED_KV", "kind")
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    unit.put(unit.objects[0], b"x" * 4096)
    with pytest.raises(CallerError, match="COMPRESSED_KV"):
        unit.commit()
    with pytest.raises(CallerError, match="aborted"):
        unit.put(unit.objects[1], b"x" * 4096)


def test_closed_unit_is_closed(cache):
    """After commit nothing can be put, written, committed or aborted any more."""
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    stage = unit["full"]
    unit.commit()
    unit.abort()
    with pytest.raises(CallerError, match="write before commit"):
        stage.buffer  # noqa: B018 - looking is what fails
    for use in (unit.commit, lambda: unit["full"], lambda: unit.put(unit.objects[0], b"x" * 4096)):
        with pytest.raises(CallerError, match="this unit is committed"):
            use()


def test_reservation_ends_with_its_connection(daemon, cache):
    """After a restart of the daemon a unit says that it is lost, and the next one works."""
    registered = cache.register(layout())
    unit = cache.reserve(registered, TOKENS, boundary=32)
    daemon.restart()
    cache.status()
    assert repr(unit) == "<Unit lost, 3 objects, 0 present>"
    with pytest.raises(LeaseLost, match="reserve again"):
        unit.put(unit.objects[0], b"x" * 4096)
    unit.abort()
    with cache.reserve(registered, TOKENS, boundary=32) as again:
        again["full"].buffer[:] = b"n" * 8192
    assert daemon.stored[1002, 0] == b"n" * 4096


def test_commit_without_answer(daemon, cache):
    """A commit whose connection ends before the answer says so; it is never sent a second time."""
    daemon.answers[requests.Commit] = HANG_UP
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    with pytest.raises(Exception, match="connection ended"):
        unit.commit()
    assert len(daemon.asked(requests.Commit)) == 1


def test_put_without_answer(daemon):
    """A daemon that does not answer a put costs the timeout, not more, and the unit is aborted."""
    daemon.answers[requests.Put] = NOTHING
    with Cache.open(daemon.path, staging_bytes=64 << 10) as cache:
        unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
        unit._transfer._timeout = 0.2
        unit.put(unit.objects[0], b"x" * 4096)
        with pytest.raises(DeadlineError, match=r"0\.2 seconds"):
            unit.commit()
    assert repr(unit) == "<Unit aborted, 3 objects, 0 present>"


def test_a_commit_goes_out_behind_the_last_bytes(daemon, cache):
    """A commit does not wait for the answers to its puts, whose order of asking it keeps."""
    late = []
    daemon.answers[requests.Put] = lambda peer, _: late.append(peer) or NOTHING

    def answer_all(peer, _):
        number = len(daemon.seen)  # ids count from the hello on, so the last request has the greatest
        for back in range(len(late), 0, -1):
            daemon.say(peer, number - back, replies.Done())
        return replies.Committed(77, 3)

    daemon.answers[requests.Commit] = answer_all
    with cache.reserve(cache.register(layout()), TOKENS, boundary=32) as unit:
        for slot in unit.objects:
            unit.put(slot, b"x" * 4096)
    assert daemon.types()[-2:] == ["Put", "Commit"]


def test_the_ring_stays_while_a_commit_may_publish_it(daemon):
    """If a put is not answered behind a commit, its range is free again only after the abort was answered."""
    free_at_abort = []
    daemon.answers[requests.Put] = NOTHING
    daemon.answers[requests.Commit] = NOTHING
    with Cache.open(daemon.path, staging_bytes=64 << 10) as cache:
        unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
        ring, unit._transfer._timeout = unit._transfer.ring, 0.2
        daemon.answers[requests.Abort] = lambda *_: free_at_abort.append(ring._free.total) or replies.Done()
        unit.put(unit.objects[0], b"x" * 4096)
        with pytest.raises(DeadlineError):
            unit.commit()
        assert free_at_abort == [(64 << 10) - 4096]
        assert ring._free.total == 64 << 10


def test_small_objects_share_a_put(daemon):
    """Small objects are gathered, so that a thousand of them are a few messages and not a thousand."""
    with Cache.open(daemon.path, staging_bytes=8 << 20) as cache:
        with cache.reserve(cache.register(layout()), list(range(1000 * BLOCK))) as unit:
            for slot in unit.objects:
                unit.put(slot, slot.index.to_bytes(2, "little") * 2048)
        assert len(daemon.asked(requests.Put)) < 10
    assert all(daemon.stored[1001, i] == i.to_bytes(2, "little") * 2048 for i in range(1000))


def test_long_group_is_put_in_several_messages(daemon):
    """A group of more objects than one put may name goes over in several."""
    tokens = list(range(5000))
    small = layout()
    full = small.group("full")
    fields = {name: getattr(full, name) for name in full.__struct_fields__}
    rows = type(full)(**(fields | {"rows_per_page": 1, "row_bytes": 16, "page_bytes": 16}))
    with Cache.open(daemon.path, staging_bytes=1 << 20) as cache:
        registered = cache.register(layout(block_tokens=1, groups=(rows, small.groups[1])))
        with cache.reserve(registered, tokens) as unit:
            unit["full"].buffer[:] = b"".join(i.to_bytes(4, "little") * 4 for i in range(5000))
    assert [len(put.ranges) for put in daemon.asked(requests.Put)] == [4096, 904]
    assert daemon.stored[1001, 4999] == (4999).to_bytes(4, "little") * 4
