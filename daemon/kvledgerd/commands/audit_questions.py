"""Questions of ``kvledger audit`` that are put to the audit database, or to the log where there is none."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kvledgerd.commands.arguments import add_data, add_json, number
from kvledgerd.commands.damage import end_of
from kvledgerd.output import say, say_json, table

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["QUESTIONS", "add_questions"]


class Question(NamedTuple):
    """A question: its name, one line of help, and what declares its options."""

    name: str
    help: str
    declare: Callable[[argparse.ArgumentParser], object]


def add_questions(subparsers: "Subparsers") -> None:
    """Declare the questions."""
    for question in QUESTIONS:
        parser = subparsers.add_parser(question.name, help=question.help)
        question.declare(parser)
        add_data(parser)
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            "--db", default="", metavar="URL", help="audit database (default: audit.db in the data directory, if there)"
        )
        where.add_argument("--log", action="store_true", help="ask the log, even if there is a database")
        parser.add_argument("--consistent", action="store_true", help="read the rest of the log behind the database")
        add_json(parser)
        parser.set_defaults(run=_run, question=question.name)


def _run(arguments: argparse.Namespace) -> int:
    from kvledgerd.audit.questions.asking import asking  # noqa: PLC0415  SQL costs 200 ms that others need not pay
    from kvledgerd.commands.audit_answers import ANSWERS  # noqa: PLC0415  as above

    data = Path(arguments.data)
    with asking(data, arguments.db, consistent=arguments.consistent, log_only=arguments.log) as asked:
        answer = ANSWERS[arguments.question](asked.connection, arguments)
        if arguments.json:
            say_json({"as_of": asked.seq, **msgspec.to_builtins(answer.value)})
        else:
            for line in answer.head:
                say(line)
            table("", answer.columns, answer.rows)
            say(f"as of event {asked.seq}")
    return end_of([] if asked.problem is None else [asked.problem])


def _names_object(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("object", metavar="CELL.SLOT", help="its name, as `audit objects` lists them")


def _names_lease(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lease", type=number, nargs="?", metavar="LEASE", help="its receipt")
    parser.add_argument("--seq", type=number, metavar="N", help="the lease of this look-up; `audit why` lists them")


def _names_hash(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hash", default="", metavar="HEX", help="those whose last block's hash begins so")


def _names_prefix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", type=number, metavar="PREFIX", help="its number, as `audit prefixes` lists them")


def _names_evictions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--last", type=number, default=20, metavar="N", help="the latest N (default 20)")
    parser.add_argument("--seq", type=number, metavar="N", help="the objects that this one displaced")


def _names_engines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--last", type=number, default=20, metavar="N", help="the latest N (default 20)")
    parser.add_argument("--name", default="", metavar="TEXT", help="those whose name holds this text")


def _names_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("engine", type=number, metavar="ENGINE", help="its number, as `audit engines` lists them")


def _names_verdicts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--last", type=number, default=20, metavar="N", help="the latest N verdicts (default 20)")
    parser.add_argument("--misses", action="store_true", help="only misses and those that got less than their hash hit")
    parser.add_argument("--engine", type=number, default=0, metavar="NUMBER", help="only this engine's")


def _names_span(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every", choices=("minute", "hour", "day"), default="hour", help="how long a stretch is (default hour)"
    )


def _names_moment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--at", type=number, metavar="SEQ", help="after this event (default: the last one)")


QUESTIONS: Final = (
    Question("object", "the life of one object, and who read it", _names_object),
    Question("reads", "who read one object, when, and from which process", _names_object),
    Question("lease", "the life of a lease, what was read under it, and who stored that", _names_lease),
    Question("prefixes", "every boundary that was ever stored", _names_hash),
    Question("prefix", "the life of a boundary with all that it stands on", _names_prefix),
    Question("engines", "who was there, from which process, and how it ended", _names_engines),
    Question("engine", "how the look-ups and units of one engine fared", _names_engine),
    Question("evictions", "what evictions displaced, and what for", _names_evictions),
    Question("why", "why look-ups were hits or misses", _names_verdicts),
    Question("verdicts", "verdicts counted by reason over time", _names_span),
    Question("state", "what there was after an event of the past", _names_moment),
)
"""All questions, in the order of the help."""
