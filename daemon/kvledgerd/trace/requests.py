"""Request traces: JSON lines as published with Mooncake (FAST 2025), one request each, an id for each of its blocks.

Equal ids are the same block behind the same prefix. That is checked: an id behind another block than before is a
mistake of the trace, and every figure made from it would be wrong.
"""

import os
from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from kvledger.counts import counted
from kvledger.errors import CallerError

__all__ = ["Trace", "TraceError", "TraceRequest", "read_trace", "trace_of"]


class TraceError(CallerError):
    """A trace can not be read; the message names the line and what is wrong with it."""

    code = "trace"


class TraceRequest(msgspec.Struct, frozen=True):
    """One line of a trace.

    Attributes:
        timestamp: When it came, milliseconds.
        input_length: Tokens of its prompt.
        output_length: Tokens that were generated.
        hash_ids: One id for each block of the prompt, the last one maybe partial.
    """

    timestamp: Annotated[float, Meta(ge=0)]
    input_length: Annotated[int, Meta(ge=0)]
    output_length: Annotated[int, Meta(ge=0)]
    hash_ids: list[Annotated[int, Meta(ge=0, le=2**62 - 1)]]


class Trace(NamedTuple):
    """The blocks of all requests.

    Attributes:
        requests: Of each request the ids of its blocks, first block first.
        blocks: Their number.
        unique: How many different ones there are.
        partial: Requests whose last block is partial.
        dropped: Partial blocks that were left out.
    """

    requests: list[list[int]]
    blocks: int
    unique: int
    partial: int
    dropped: int


def read_trace(
    path: str | os.PathLike[str],
    block_tokens: int,
    *,
    drop_partial: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Read a trace.

    Args:
        path: The file.
        block_tokens: Tokens of a block.
        drop_partial: Leave partial last blocks out instead of counting them as whole ones.
        progress: Is called with the bytes read so far, now and then.

    Raises:
        TraceError: The file holds no request, or a line is none.
        OSError: The file can not be read.
    """
    decoder, requests, done, parents, partial = msgspec.json.Decoder(TraceRequest), [], 0, _Parents(), 0
    with open(path, "rb") as file:  # noqa: PTH123  a Path would have to be made of it first
        for number, line in enumerate(file, 1):
            done += len(line)
            if not line.strip():
                continue
            request = _request(decoder, line, number, block_tokens)
            parents.check(request.hash_ids, number)
            cut = request.input_length % block_tokens != 0
            partial += cut
            requests.append(request.hash_ids[:-1] if cut and drop_partial else request.hash_ids)
            if progress is not None and not number % 1000:
                progress(done)
    if not any(requests):
        raise TraceError("it holds no request", field="file", remedy="name a file with one JSON object a line")
    return trace_of(requests, partial, partial if drop_partial else 0)


def trace_of(requests: Iterable[list[int]], partial: int = 0, dropped: int = 0) -> Trace:
    """Return a trace of given requests."""
    listed = list(requests)
    unique = len({block for request in listed for block in request})
    return Trace(listed, sum(map(len, listed)), unique, partial, dropped)


def _request(decoder: msgspec.json.Decoder[TraceRequest], line: bytes, number: int, block_tokens: int) -> TraceRequest:
    try:
        request = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(
            f"this is no request: {error}",
            field=f"line {number}",
            remedy='write {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [ids]}',
        ) from None
    wanted = -(-request.input_length // block_tokens)
    if len(request.hash_ids) != wanted:
        raise TraceError(
            f"line {number} has {counted(len(request.hash_ids), 'id')}; "
            f"{counted(request.input_length, 'token')} are {counted(wanted, 'block')}",
            field="hash_ids",
            remedy=f"say with --block-tokens how many tokens a block of this trace has (now {block_tokens})",
        )
    return request


class _Parents:
    """The block before each id."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}

    def check(self, ids: list[int], number: int) -> None:
        before = -1
        for block in ids:
            if self._of.setdefault(block, before) != before:
                raise TraceError(
                    f"line {number} has id {block} behind another block than a line before",
                    field="hash_ids",
                    remedy="give a block behind another prefix another id",
                )
            before = block
