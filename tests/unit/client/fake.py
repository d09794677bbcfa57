"""A scripted daemon in a thread: it speaks the protocol, remembers what it was asked, and answers as a test says."""

import contextlib
import os
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

from kvledger.errors import ProtocolError
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.wire import replies, requests
from kvledger.wire.descriptors import ArenaPacket, receive_packet, send_packet
from kvledger.wire.framing import REPLY_MAX, Splitter, decode_request, encode_frame
from kvledger_storage.arena import Arena
from support.shm import identity

ROOT_KEY = bytes(range(32))
BLOCK = 16
ROW_BYTES = 256
ARENA_BYTES = 1 << 20
NOTHING, HANG_UP = object(), object()
MISS = replies.Acquired(0, [], [], 0, 0, [], [], [], [])


def layout(**changes):
    """Return a layout of one group of rows, 4 KiB a block of 16 tokens, and one snapshot of 4 KiB."""
    rows = GroupSpec(
        name="full",
        kind=Kind.COMPRESSED_KV,
        form=Form.ROWS,
        layers=(0,),
        rows_per_page=BLOCK,
        row_bytes=ROW_BYTES,
        page_bytes=BLOCK * ROW_BYTES,
    )
    state = GroupSpec(name="swa", kind=Kind.SWA_WINDOW, form=Form.SNAPSHOT, layers=(1,), page_bytes=4096, window=32)
    abi = {"full": KernelABI(name="test"), "swa": KernelABI(name="test")}
    return Layout(**{"model": "tiny", "abi": abi, "block_tokens": BLOCK, "groups": (rows, state), **changes})


@dataclass(eq=False)
class Peer:
    """One connection as the daemon sees it."""

    end: socket.socket
    descriptors: socket.socket | None = None
    ring: int = -1
    sent: set = field(default_factory=set)


class FakeDaemon:
    """Listens at a path until `stop`; `answers` maps a request type to a reply, or to a function of (peer, request).

    `NOTHING` stands for no reply, `HANG_UP` for the end of the connection.
    """

    def __init__(self, path, incarnation=1):
        self.path = str(path)
        self.incarnation = incarnation
        self.version = requests.PROTOCOL_VERSION
        self.frame_max = 1 << 20
        self.answers = {}
        self.seen = []
        self.stored = {}
        self.arena = Arena.create(identity(), ARENA_BYTES)
        self.peers = []
        self._threads = []
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.arena.close()

    def start(self):
        """Listen."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Path(self.path).unlink(missing_ok=True)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._spawn(self._accept, self._listener)

    def stop(self):
        """Be gone, with all connections, as after SIGKILL."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self.peers.clear()

    def restart(self):
        """Come back as another incarnation that knows nobody."""
        self.stop()
        self.incarnation += 1
        self.start()

    def types(self):
        """Return the names of the requests seen so far, in order."""
        return [type(request).__name__ for request in self.seen]

    def asked(self, kind):
        """Return the requests of one type."""
        return [request for request in self.seen if isinstance(request, kind)]

    def place(self, offset, data, generation):
        """Put an object into the arena."""
        self.arena.set_generations([(offset // 4096, 1, generation)])
        self.arena.view(offset, len(data))[:] = data

    def _spawn(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                peer = Peer(listener.accept()[0])
                self.peers.append(peer)
                self._spawn(self._serve, peer)

    def _serve(self, peer):
        splitter = Splitter()
        with contextlib.suppress(OSError), peer.end:
            while data := peer.end.recv(65536):
                for body in splitter.feed(data):
                    number, request = decode_request(body)
                    self.seen.append(request)
                    if not self._answer(peer, number, request):
                        break
        if peer.descriptors:
            peer.descriptors.close()
        if peer.ring >= 0:
            os.close(peer.ring)

    def _answer(self, peer, number, request):
        answer = self.answers.get(type(request), getattr(self, f"_{type(request).__name__.lower()}", replies.Done()))
        reply = answer(peer, request) if callable(answer) else answer
        if reply is HANG_UP:
            peer.end.shutdown(socket.SHUT_RDWR)
            return False
        if reply is not NOTHING:
            self.say(peer, number, reply)
        return True

    def say(self, peer, number, reply):
        """Send a reply, the arena before the first one that names it."""
        if isinstance(reply, replies.Acquired) and reply.lease and self.arena.arena_id not in peer.sent:
            self.send_arena(peer)
        frame = encode_frame(number, reply, REPLY_MAX)
        if isinstance(reply, replies.Welcome):
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            peer.descriptors = here
            socket.send_fds(peer.end, [frame], [there.fileno()])
            there.close()
        else:
            peer.end.sendall(frame)

    def send_arena(self, peer):
        """Send the arena's descriptor."""
        peer.sent.add(self.arena.arena_id)
        fd = self.arena.read_only_fd()
        send_packet(peer.descriptors, ArenaPacket(self.arena.arena_id, ARENA_BYTES), fd)
        os.close(fd)

    def _hello(self, peer, request):
        low, high = request.versions
        if not low <= self.version <= high:
            wrong = f"this daemon speaks version {self.version}, the client {low} to {high}"
            return replies.Failed(ProtocolError.code, wrong, "versions", "update the older one")
        return replies.Welcome(self.version, self.incarnation, bytes(16), ROOT_KEY, "default", self.frame_max, 1 << 30)

    def _register(self, peer, request):
        return replies.Registered(10 * self.incarnation, request.layout.digest)

    def _ring(self, peer, request):
        packet, peer.ring = receive_packet(peer.descriptors)
        assert packet.size == request.size
        return replies.Done()

    def _acquire(self, peer, request):
        return MISS

    def _arenas(self, peer, request):
        self.send_arena(peer)
        return replies.ArenaList(request.arenas)

    def _reserve(self, peer, request):
        return replies.Reserved(1000 + len(self.asked(requests.Reserve)), b"")

    def _put(self, peer, request):
        for part in request.ranges:
            data = os.pread(peer.ring, part.length, part.ring_offset)
            stored = self.stored.setdefault((request.unit, part.index), b"")
            assert part.offset == len(stored)
            self.stored[request.unit, part.index] = stored + data
        return replies.Done()

    def _commit(self, peer, request):
        return replies.Committed(77, sum(unit == request.unit for unit, _ in self.stored))

    def _evict(self, peer, request):
        return replies.Evicted(3)

    def _offload(self, peer, request):
        return replies.Offloaded(2, 8192)

    def _restore(self, peer, request):
        return replies.Restored(2, 8192)

    def _describe(self, peer, request):
        return replies.Described([])

    def _status(self, peer, request):
        return replies.StatusReport(self.incarnation, 0, "", {})
