"""``kvledger audit``: questions to the log or the audit database, answered without a daemon."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kvledgerd.audit.epoch_story import epoch_story
from kvledgerd.audit.prefix_states import prefix_states
from kvledgerd.audit.replay import Damage
from kvledgerd.audit.stored import list_objects
from kvledgerd.audit.topologies import topologies
from kvledgerd.commands.arguments import add_data, add_json, number
from kvledgerd.commands.audit_database import add_database
from kvledgerd.commands.audit_questions import add_questions
from kvledgerd.commands.damage import end_of
from kvledgerd.output import moment, say_json, table

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its questions."""
    parser = subparsers.add_parser("audit", help="ask the log", description=__doc__)
    questions = parser.add_subparsers(metavar="QUESTION", required=True)
    add_questions(questions)
    every = questions.add_parser("objects", help="what is stored at the end of the log")
    every.set_defaults(run=_objects)
    graphs = questions.add_parser("topologies", help="what captured graphs pin, and what became of it")
    graphs.set_defaults(run=_topologies)
    weights = questions.add_parser("epochs", help="what became of each model's weights, and who did it")
    weights.add_argument("--model", default="", metavar="MODEL", help="only this model's")
    weights.set_defaults(run=_epochs)
    states = questions.add_parser("states", help="where a prefix was kept, with version and time of each change")
    states.add_argument("prefix", type=number, metavar="PREFIX", help="its number, as `audit prefixes` lists them")
    states.set_defaults(run=_states)
    for question in (every, graphs, weights, states):
        add_data(question)
        add_json(question)
    add_database(questions)


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


def _states(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    found = prefix_states(Path(arguments.data), arguments.prefix, damage)
    if arguments.json:
        say_json({"states": found})
        return end_of(damage)
    rows = [
        (one.version, one.seq, moment(one.time_ms), one.actor, one.state.value, one.exactness.value, one.event)
        for one in found
    ]
    table("", ("version", "seq", "time (UTC)", "actor", "state", "exactness", "brought about by"), rows)
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
