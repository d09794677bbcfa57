"""``kvledger audit``: questions to the log, answered without a daemon."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kvledgerd.audit.epoch_story import epoch_story
from kvledgerd.audit.object_life import list_objects, object_life, parse_name
from kvledgerd.audit.replay import Damage
from kvledgerd.audit.topologies import topologies
from kvledgerd.audit.verdicts import VerdictRecord, verdicts
from kvledgerd.commands.damage import end_of
from kvledgerd.commands.output import moment, say, say_json, table
from kvledgerd.commands.places import add_data

if TYPE_CHECKING:
    from kvledgerd.commands.serve import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its questions."""
    parser = subparsers.add_parser("audit", help="ask the log", description=__doc__)
    questions = parser.add_subparsers(metavar="QUESTION", required=True)
    one = questions.add_parser("object", help="the life of one object, and who read it")
    one.add_argument("object", metavar="CELL.SLOT", help="its name, as `audit objects` lists them")
    one.set_defaults(run=_object)
    every = questions.add_parser("objects", help="what is stored at the end of the log")
    every.set_defaults(run=_objects)
    why = questions.add_parser("why", help="why look-ups were hits or misses")
    why.add_argument("--last", type=int, default=20, metavar="N", help="the latest N verdicts (default 20)")
    why.add_argument("--misses", action="store_true", help="only misses and those that got less than their hash hit")
    why.add_argument("--engine", type=int, default=0, metavar="NUMBER", help="only this engine's")
    why.set_defaults(run=_why)
    graphs = questions.add_parser("topologies", help="what captured graphs pin, and what became of it")
    graphs.set_defaults(run=_topologies)
    weights = questions.add_parser("epochs", help="what became of each model's weights, and who did it")
    weights.add_argument("--model", default="", metavar="MODEL", help="only this model's")
    weights.set_defaults(run=_epochs)
    for question in (one, every, why, graphs, weights):
        add_data(question)
        question.add_argument("--json", action="store_true", help="for programs: the last line is one JSON object")


def _object(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    life = object_life(Path(arguments.data), parse_name(arguments.object), damage)
    if arguments.json:
        say_json(life)
        return end_of(damage)
    say(f"object {life.name}: {life.group} ({life.kind}) of {life.model}, {life.place}")
    rows = [(e.seq, moment(e.time_ms), e.actor, e.what, e.detail) for e in life.entries]
    table("", ("seq", "time (UTC)", "actor", "what", "detail"), rows)
    return end_of(damage)


def _objects(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    found = list_objects(Path(arguments.data), damage)
    rows = [(str(name), group, place, state) for name, group, place, state in found]
    if arguments.json:
        say_json({"objects": [dict(zip(("name", "group", "place", "state"), row, strict=True)) for row in rows]})
    else:
        table("", ("object", "group", "place", "state"), rows)
    return end_of(damage)


def _epochs(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    found = [e for e in epoch_story(Path(arguments.data), damage) if arguments.model in {"", e.model}]
    if arguments.json:
        say_json({"epochs": found})
        return end_of(damage)
    columns = ("seq", "time (UTC)", "who", "model", "weights", "what", "invalid", "detail")
    rows = [
        (e.seq, moment(e.time_ms), f"{e.actor} {e.who}".strip(), e.model, e.weights, e.what, e.objects or "", e.detail)
        for e in found
    ]
    table("", columns, rows)
    return end_of(damage)


def _why(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    found = verdicts(
        Path(arguments.data), last=arguments.last, misses=arguments.misses, engine=arguments.engine, damage=damage
    )
    if arguments.json:
        say_json({"verdicts": found})
        return end_of(damage)
    table(
        "",
        ("seq", "time (UTC)", "engine", "model", "prompt", "hash", "usable", "why not more"),
        [_row(record) for record in found],
    )
    return end_of(damage)


def _topologies(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    found = topologies(Path(arguments.data), damage)
    if arguments.json:
        say_json({"topologies": found})
        return end_of(damage)
    rows = [(one.number, e.seq, moment(e.time_ms), e.what, e.detail) for one in found for e in one.entries]
    table("", ("topology", "seq", "time (UTC)", "what", "detail"), rows)
    return end_of(damage)


def _row(record: VerdictRecord) -> tuple[object, ...]:
    who = f"{record.engine} {record.engine_name}".strip()
    why = "\n".join(record.why) or "all of it is usable"
    when = moment(record.time_ms)
    return record.seq, when, who, record.model, record.tokens, record.hash_tokens, record.usable_tokens, why
