"""One look-up as an engine makes it, frame by frame: acquire, wait for the verdict, release without waiting."""

from collections.abc import Sequence
from typing import Final

from kvledger.layout import Layout
from kvledger.prompt import Prompt
from kvledger.wire.framing import decode_reply, encode_frame
from kvledger.wire.replies import Acquired, Done, Registered, Welcome
from kvledger.wire.requests import Acquire, Register, Release
from kvledgerd.bench.bare_server import Canned
from kvledgerd.bench.contents import require
from kvledgerd.bench.raw_client import RawClient

__all__ = ["Cycle", "canned_from", "release_of", "request_for"]

# Between the longest release and the shortest acquire, bytes of a body.
_BORDER: Final = 64


class Cycle:
    """Look-ups one after the other on one connection; the release's answer is read with the next verdict."""

    def __init__(self, client: RawClient, request: bytes) -> None:
        self._client: Final = client
        self._request: Final = request
        self._owed = 0

    def run(self) -> None:
        """Look up once."""
        client = self._client
        client.send(self._request)
        for _ in range(self._owed):
            client.receive()
        client.send(release_of(client.receive()))
        self._owed = 1

    def finish(self) -> None:
        """Read what is still to come."""
        for _ in range(self._owed):
            self._client.receive()
        self._owed = 0


def release_of(body: bytes) -> bytes:
    """Return the frame that gives back what a verdict leased."""
    _, reply = decode_reply(body)
    assert isinstance(reply, Acquired), f"a verdict, got {reply!r}"
    return encode_frame(3, Release(reply.lease))


def request_for(client: RawClient, welcome: Welcome, layout: Layout, prompt: Sequence[int]) -> bytes:
    """Register a layout and return the frame that looks a prompt up with it."""
    registered = client.ask(encode_frame(1, Register(layout)))
    assert isinstance(registered, Registered), f"a layout's number, got {registered!r}"
    hashed = Prompt(prompt, layout.block_tokens, welcome.root_key, None)
    return encode_frame(2, Acquire(registered.layout, hashed.tokens, hashed.hashes))


def canned_from(client: RawClient, request: bytes, boundary: int) -> Canned:
    """Look up once, make sure that the verdict names the boundary, and return both answers for a bare server."""
    client.send(request)
    body = client.receive()
    number, verdict = decode_reply(body)
    require(isinstance(verdict, Acquired) and verdict.usable_tokens == boundary, f"{boundary} tokens, got {verdict!r}")
    assert isinstance(verdict, Acquired), "it was just required"
    done = client.ask(release_of(body))
    require(isinstance(done, Done), f"a release is answered with done, got {done!r}")
    return Canned(encode_frame(3, done), encode_frame(number, verdict, 16 << 20), _BORDER)
