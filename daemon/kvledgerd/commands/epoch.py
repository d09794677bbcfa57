"""``kvledger epoch``: which weights of a model serve, which are on trial, and which are not used any more."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.counts import counted
from kvledger.epochs import EpochState
from kvledger.errors import CallerError
from kvledger.wire.replies import EpochInfo, EpochSet
from kvledgerd.commands.arguments import add_json, add_socket, add_tenant, count
from kvledgerd.exits import Exit
from kvledgerd.output import say, say_json, table

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_DEEDS = {
    "canary": (EpochState.CANARY, "put weights on trial beside the active ones; may be said before they come"),
    "activate": (EpochState.ACTIVE, "let weights serve; the ones that were active drain"),
    "drain": (EpochState.DRAINING, "store nothing new: look-ups still hit, and it makes room first"),
    "retire": (EpochState.RETIRED, "make all that is stored invalid, at once and for good"),
}
_NAME = "kvledger epoch"


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its deeds."""
    parser = subparsers.add_parser("epoch", help="weights of a model: canary, active, retired", description=__doc__)
    deeds = parser.add_subparsers(metavar="DEED", required=True)
    listing = deeds.add_parser("list", help="all models with their weights")
    listing.set_defaults(run=_list)
    _common(listing)
    for name, (state, what) in _DEEDS.items():
        deed = deeds.add_parser(name, help=what)
        deed.add_argument("model", metavar="MODEL", help="name of the model, as `epoch list` shows it")
        deed.add_argument("weights", metavar="WEIGHTS", help="digest of its weights")
        if state in {EpochState.CANARY, EpochState.ACTIVE}:
            why = "per cent of memory and disk that it may take (default: as it is)"
            deed.add_argument("--share", type=_share, default=0, metavar="N", help=why)
        if state is EpochState.RETIRED:
            why = "retire only what this kernel ABI made, for example flashmla.fp8_584:1"
            deed.add_argument("--kernel", default="", metavar="NAME:NUMBER", help=why)
        deed.set_defaults(run=_change, state=state)
        _common(deed)


def _share(text: str) -> int:
    found = count(text)
    if found > 100:
        raise argparse.ArgumentTypeError(f"{text} is more than 100 per cent")
    return found


def _common(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    add_tenant(parser)
    add_json(parser)


def _list(arguments: argparse.Namespace) -> int:
    with Cache.open(Path(arguments.socket), name=_NAME, tenant=arguments.tenant) as cache:
        found = cache.epochs()
    if arguments.json:
        say_json({"epochs": [msgspec.structs.asdict(epoch) for epoch in found]})
    elif not found:
        say("none of this tenant; --tenant NAME lists another's, and `kvledger tenants` names them")
    else:
        columns = ("model", "weights", "state", "share", "layouts", "in memory", "on disk", "retired kernels")
        table("", columns, [_row(epoch) for epoch in found])
    return Exit.DONE


def _row(epoch: EpochInfo) -> tuple[object, ...]:
    weights = epoch.weights or f"unnamed, of engine {epoch.engine}"
    sizes = f"{epoch.memory_bytes:,}", f"{epoch.disk_bytes:,}"
    return epoch.model, weights, epoch.state, f"{epoch.share} %", epoch.layouts, *sizes, ", ".join(epoch.kernels)


def _change(arguments: argparse.Namespace) -> int:
    share, kernel = getattr(arguments, "share", 0), _kernel(getattr(arguments, "kernel", ""))
    with Cache.open(Path(arguments.socket), name=_NAME, tenant=arguments.tenant) as cache:
        done = cache.set_epoch(arguments.model, arguments.weights, arguments.state, share=share, kernel=kernel)
    if arguments.json:
        say_json(msgspec.structs.asdict(done))
    else:
        say(_told(arguments, done))
    return Exit.DONE


def _kernel(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    name, _, number = text.rpartition(":")
    if not (name and number.isdecimal()):
        remedy = "name it as the layout's abi does, for example flashmla.fp8_584:1"
        raise CallerError(f"{text!r} is no kernel ABI", field="kernel", remedy=remedy)
    return name, int(number)


def _told(arguments: argparse.Namespace, done: EpochSet) -> str:
    who = f"{arguments.model} with weights {arguments.weights}"
    if getattr(arguments, "kernel", ""):
        return f"{who}: kernel ABI {arguments.kernel} is retired; {counted(done.invalid, 'object')} invalid"
    text = f"{who} is {arguments.state}" + (f", was {done.before}" if done.before else ", announced")
    if done.drained:
        text += f"; weights {done.drained} drain"
    return text + (f"; {counted(done.invalid, 'object')} invalid" if arguments.state is EpochState.RETIRED else "")
