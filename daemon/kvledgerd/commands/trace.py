"""``kvledger trace FILE``: replay a request trace against the real core, beside standard policies and Belady's MIN."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledgerd.commands.arguments import add_json, count, decimal
from kvledgerd.exits import Exit
from kvledgerd.output import progress, say, say_json, table
from kvledgerd.sizes import short_bytes

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers
    from kvledgerd.trace.comparison import Share
    from kvledgerd.trace.requests import Trace

__all__ = ["add"]

_SHARES = "1,2,5,10,25"


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "trace", help="replay a request trace, beside standard policies", description=__doc__
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="JSON lines: timestamp, input_length, hash_ids ...")
    parser.add_argument("--layout", default="plain", metavar="PRESET", help="a preset, or plain rows (default: plain)")
    parser.add_argument("--block-tokens", type=count, default=512, metavar="N", help="tokens of a block (default: 512)")
    parser.add_argument("--shares", type=_shares, metavar="LIST", help=f"capacities, percent (default: {_SHARES})")
    parser.add_argument("--bytes", type=count, metavar="N", help="one capacity in bytes of memory instead of shares")
    parser.add_argument("--drop-partial", action="store_true", help="leave out last blocks that are partial")
    parser.add_argument("--limit", type=count, metavar="N", help="the first N requests only")
    parser.add_argument("--live", metavar="SOCKET", help="drive the daemon that listens there, with real bytes")
    parser.add_argument("--block-bytes", type=count, default=4096, metavar="N", help="--live: bytes of a block")
    add_json(parser)
    parser.set_defaults(run=_run)


def _shares(text: str) -> list[float]:
    found = [decimal(part) for part in text.split(",")]
    if not all(0 < share <= 100 for share in found):
        raise argparse.ArgumentTypeError(f"{text}: a capacity is more than 0 and at most 100 percent of the blocks")
    return found


def _run(arguments: argparse.Namespace) -> int:
    from kvledgerd.trace.requests import read_trace, trace_of  # noqa: PLC0415  other commands need not pay for it

    path: Path = arguments.file
    size = path.stat().st_size
    trace = read_trace(
        path,
        arguments.block_tokens,
        drop_partial=arguments.drop_partial,
        progress=_progress("reading", size),
    )
    if arguments.limit is not None:
        trace = trace_of(trace.requests[: arguments.limit], trace.partial, trace.dropped)
    return _live(trace, arguments) if arguments.live is not None else _compare(trace, arguments)


def _compare(trace: "Trace", arguments: argparse.Namespace) -> int:
    from kvledgerd.trace.comparison import block_bytes, compare  # noqa: PLC0415  as above
    from kvledgerd.trace.layouts import trace_layout  # noqa: PLC0415  as above

    layout = trace_layout(arguments.layout, arguments.block_tokens)
    capacities = [(share, int(trace.unique * share) // 100) for share in arguments.shares or _shares(_SHARES)]
    if arguments.bytes is not None:
        blocks = arguments.bytes // block_bytes(layout)
        capacities = [(round(100 * blocks / trace.unique, 3), blocks)]
    if not all(blocks for _, blocks in capacities):
        remedy = "name a larger share, or more bytes"
        raise CallerError("a capacity holds not one block of this trace", field="shares", remedy=remedy)
    shares: list[Share] = []
    for share, blocks in capacities:
        tick = _ticker(f"{share:g} %", 5 * len(trace.requests))
        shares.append(compare(trace, layout, share, blocks, tick))
    _show(trace, shares, arguments)
    if arguments.json:
        say_json({"requests": len(trace.requests), "blocks": trace.blocks, "unique": trace.unique, "shares": shares})
    return Exit.DONE


def _show(trace: "Trace", shares: list["Share"], arguments: argparse.Namespace) -> None:
    size = arguments.block_tokens
    requests, blocks = counted(len(trace.requests), "request"), counted(trace.blocks, "block")
    say(f"{requests}, {blocks} of {counted(size, 'token')}, {trace.unique:,} unique")
    say(_partial(trace))
    columns = ("capacity", "blocks", "bytes", "kvledger", "LRU", "S3-FIFO", "ARC", "GDSF", "MIN", "/ LRU", "/ best")
    rows = [
        (
            f"{one.share:g} %",
            one.capacity_blocks,
            one.bytes,
            *(f"{rate:.4f}" for rate in (one.hit, *one.standard.values(), one.min)),
            _ratio(one.hit, one.lru),
            _ratio(one.hit, one.best_standard),
        )
        for one in shares
    ]
    table("hits in leading runs over all blocks", columns, rows)
    heads = ("capacity", "events", "evicted copies", "units refused", "decisions a second")
    work = [(f"{one.share:g} %", one.events, one.evicted, one.refused, one.decisions_per_second) for one in shares]
    table("work of the core", heads, work)


def _partial(trace: "Trace") -> str:
    if trace.dropped:
        return f"The partial last block of {counted(trace.dropped, 'request')} is left out, in all columns."
    return f"The partial last block of {counted(trace.partial, 'request')} counts as a whole one, in all columns."


def _ratio(value: float, beside: float) -> str:
    return f"{value / beside:.3f}" if beside else "-"


def _live(trace: "Trace", arguments: argparse.Namespace) -> int:
    from kvledgerd.trace.live import drive  # noqa: PLC0415  as above

    tick = _ticker("live", len(trace.requests))
    result = drive(trace, arguments.live, arguments.block_tokens, arguments.block_bytes, tick)
    say(_partial(trace))
    say(
        f"{result.hits:,} of {counted(trace.blocks, 'block')} hit ({result.hits / trace.blocks:.4f}); "
        f"{short_bytes(result.verified)} were read and compared, {short_bytes(result.stored)} stored, "
        f"{counted(result.wrong, 'block')} wrong; "
        f"{len(trace.requests) / result.seconds:.0f} requests a second"
    )
    if arguments.json:
        say_json({"requests": len(trace.requests), "blocks": trace.blocks, "live": result})
    return Exit.FAULT if result.wrong else Exit.DONE


def _ticker(what: str, whole: int) -> Callable[[], None] | None:
    show = _progress(what, whole)
    if show is None:
        return None
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if not done % 200 or done == whole:
            show(done)

    return tick


def _progress(what: str, whole: int) -> Callable[[int], None] | None:
    """Return what shows how far it is, on a terminal; nothing is shown to a pipe."""
    if not sys.stderr.isatty():
        return None

    def show(done: int) -> None:
        progress("" if done >= whole else f"{what}: {100 * done // whole:3} %")

    return show
