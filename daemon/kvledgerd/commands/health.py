"""``kvledger health``: whether the daemon serves, as its drill found: it stores, looks up, reads and verifies.

Ends with 0 if it does, and with 1 if it does not or nobody answers, which is what container probes expect. Of a drill
that is turned off (``drill_seconds``) no more is asked than that somebody answers.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.wire.replies import StatusReport
from kvledgerd.commands.arguments import add_json, add_socket
from kvledgerd.exits import Exit
from kvledgerd.output import say, say_json

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_SICK = 1


class _Health(NamedTuple):
    ok: bool
    why: str
    age_ms: int = 0
    latency_micros: int = 0


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("health", help="whether the cache works, for people and probes", description=__doc__)
    add_socket(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        with Cache.open(Path(arguments.socket), name="kvledger health") as cache:
            found = _judged(cache.status())
    except KVLedgerError as error:
        found = _Health(ok=False, why=str(error))
    if arguments.json:
        say_json(found._asdict())
    else:
        say(f"{'ok' if found.ok else 'FAILING'}: {found.why}")
    return Exit.DONE if found.ok else _SICK


def _judged(report: StatusReport) -> _Health:
    numbers = report.counters
    age_ms, latency_micros = numbers["drill_age_ms"], numbers["drill_micros"]
    ago = f"the last good pass was {age_ms / 1000:.0f} s ago"
    ok, why = True, f"{ago} and took {latency_micros / 1000:.1f} ms"
    if not numbers["drill_seconds"]:
        why = "the daemon answers; its drill is turned off"
    elif numbers["drill_failing"]:
        ok, why = False, f"{report.notes.get('drill', 'no pass has ended')}; {ago}"
    elif not numbers["drill_passes"]:
        ok, why = False, "the first pass has not ended yet"
    return _Health(ok, why, age_ms, latency_micros)
