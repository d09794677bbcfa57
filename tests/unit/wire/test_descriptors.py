"""The descriptor socket: packets of both directions, and what is refused without leaving a descriptor open."""

import os
import socket
import struct

import pytest

from kvledger.errors import ProtocolError
from kvledger.wire.descriptors import (
    MAX_DESCRIPTORS,
    ArenaPacket,
    RingPacket,
    decode_packet,
    encode_packet,
    receive_packet,
    receive_with_descriptors,
    send_packet,
)
from support.shm import open_descriptors


@pytest.fixture
def pair():
    """Give both ends of a descriptor socket, and see that no descriptor stays open."""
    before = open_descriptors()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.settimeout(0)
    there.settimeout(0)
    with here, there:
        yield here, there
    assert open_descriptors() == before


def test_golden_packets():
    """The packets have exactly the bytes that docs/protocol.md gives."""
    assert encode_packet(ArenaPacket(7, 1 << 20)).hex() == "0101" + "07000000" + "0000100000000000"
    assert encode_packet(RingPacket(1 << 16)).hex() == "0102" + "0000010000000000"


@pytest.mark.parametrize("packet", [ArenaPacket(7, 1 << 40), RingPacket(4096)])
def test_packet_brings_its_descriptor(pair, packet):
    """What is sent with a descriptor arrives with it, and the descriptor is closed on exec."""
    reader, writer = os.pipe()
    send_packet(pair[0], packet, writer)
    os.close(writer)
    found, descriptor = receive_packet(pair[1])
    assert found == packet
    assert not os.get_inheritable(descriptor)
    os.write(descriptor, b"x")
    assert os.read(reader, 1) == b"x"
    os.close(descriptor)
    os.close(reader)


def test_nothing_waits(pair):
    """Nothing to receive raises instead of waiting, and the end of the peer is None."""
    with pytest.raises(BlockingIOError):
        receive_packet(pair[1])
    pair[0].close()
    assert receive_packet(pair[1]) is None


@pytest.mark.parametrize("count", [0, 2, MAX_DESCRIPTORS])
def test_number_of_descriptors(pair, count):
    """A packet with none, two or as many descriptors as fit is refused, and all of them are closed."""
    null = os.open("/dev/null", os.O_RDONLY)
    socket.send_fds(pair[0], [encode_packet(RingPacket(4096))], [null] * count)
    os.close(null)
    with pytest.raises(ProtocolError, match=f"brought {count} descriptors instead of one"):
        receive_packet(pair[1])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\1", "has no head"),
        (b"\2\1" + bytes(12), "version 2"),
        (b"\1\3" + bytes(12), "type 3"),
        (struct.pack("<BBIQ", 1, 1, 7, 1) + b"\0", "type 1 and 15 bytes"),
        (struct.pack("<BBQ", 1, 2, 4096)[:-1], "type 2 and 9 bytes"),
    ],
)
def test_malformed_packet(pair, data, why):
    """A packet of another version, type or length is refused by name, and its descriptor is closed."""
    with pytest.raises(ProtocolError, match=why):
        decode_packet(data)
    null = os.open("/dev/null", os.O_RDONLY)
    socket.send_fds(pair[0], [data], [null])
    os.close(null)
    with pytest.raises(ProtocolError, match=why):
        receive_packet(pair[1])


def test_descriptor_on_the_request_socket():
    """The reply to hello is bytes and descriptors in one read, however many of them come."""
    here, there = socket.socketpair()
    with here, there:
        socket.send_fds(here, [b"welcome"], [here.fileno(), there.fileno()])
        data, descriptors = receive_with_descriptors(there, 100)
        assert data == b"welcome"
        assert len(descriptors) == 2
        for descriptor in descriptors:
            os.close(descriptor)
