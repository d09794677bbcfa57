"""``kvledger demo``: small models share one cache, it is killed and damaged, and every answer stays right."""

import argparse
import signal
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

from kvledger.errors import CallerError
from kvledgerd.commands.arguments import add_json
from kvledgerd.demo.models import NAMES
from kvledgerd.exits import Exit
from kvledgerd.output import say_json

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Extra to what it brings that the demo imports.
_EXTRAS = {"daemon": ("aiofiles", "crc32c", "numpy", "rich"), "transformers": ("torch", "transformers")}


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "demo", help="see it work, with nothing installed and nothing kept", description=__doc__
    )
    parser.add_argument(
        "--models", default=",".join(NAMES), metavar="NAME[,NAME]", help=f"some of {', '.join(NAMES)} (default: all)"
    )
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    models = _models(arguments.models)
    _require_extras()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _demonstrate(models, machine=arguments.json)
    except KeyboardInterrupt:
        sys.stderr.write("\nkvledger demo was interrupted; nothing is left behind\n")
        return 128 + signal.SIGINT


def _demonstrate(models: tuple[str, ...], *, machine: bool) -> int:
    from kvledgerd.demo.findings import Findings  # noqa: PLC0415 - other commands need not pay for the demo
    from kvledgerd.demo.progress import Progress  # noqa: PLC0415 - needs an extra that was just looked for
    from kvledgerd.demo.report import show  # noqa: PLC0415 - as above
    from kvledgerd.demo.steps import DemoError, run  # noqa: PLC0415 - as above

    try:
        outcome = run(models, Progress())
    except DemoError as error:
        sys.stderr.write(f"\nkvledger demo failed at: {error}\n")
        return Exit.FAULT
    if machine:
        for problem in outcome.problems:
            sys.stderr.write(f"WRONG {problem}\n")
        say_json(Findings(not outcome.problems, outcome.models))
    else:
        show(outcome)
    return Exit.FAULT if outcome.problems else Exit.DONE


def _models(text: str) -> tuple[str, ...]:
    wanted = dict.fromkeys(text.split(","))
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise CallerError(
            f"there is no model {unknown[0]!r}", field="models", remedy=f"name some of {', '.join(NAMES)}"
        )
    return tuple(wanted)


def _require_extras() -> None:
    for extra, modules in _EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing:
            remedy = f"pip install 'kvledger[{','.join(_EXTRAS)}]'"
            raise CallerError(f"the extra [{extra}] is missing: there is no {missing[0]}", field="demo", remedy=remedy)


def _interrupt(number: int, frame: object) -> NoReturn:
    """End the demo, once: a second Ctrl-C must not interrupt the cleaning up."""
    del number, frame
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise KeyboardInterrupt
