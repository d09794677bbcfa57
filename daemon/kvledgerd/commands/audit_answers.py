"""Answers of ``kvledger audit``, each as a value for programs and as a table for people."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledgerd.audit.names import parse_name
from kvledgerd.audit.questions.engines import engine_life, list_engines
from kvledgerd.audit.questions.evictions import displaced_by, evictions
from kvledgerd.audit.questions.judged import latest_verdicts, reasons
from kvledgerd.audit.questions.leases import lease_life, lease_of
from kvledgerd.audit.questions.lives import Entry, life_of
from kvledgerd.audit.questions.moments import state_at
from kvledgerd.audit.questions.prefixes import list_prefixes, prefix_life
from kvledgerd.audit.questions.reads import reads_of
from kvledgerd.audit.verdicts import VerdictRecord
from kvledgerd.output import moment
from kvledgerd.sizes import short_bytes

__all__ = ["ANSWERS", "Answer"]

_MILLISECONDS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


class Answer(NamedTuple):
    """What a question found.

    Attributes:
        value: For programs: an object.
        head: For people: lines above the table.
        columns: Heads of the table.
        rows: Its rows.
    """

    value: Any
    head: Sequence[str]
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]


def _entries(entries: list[Entry]) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    rows: list[tuple[object, ...]] = [(e.seq, moment(e.time_ms), e.actor, e.what, e.detail) for e in entries]
    return ("seq", "time (UTC)", "actor", "what", "detail"), rows


def _object(connection: Connection, arguments: argparse.Namespace) -> Answer:
    life = life_of(connection, parse_name(arguments.object))
    head = f"object {life.name}: {life.group} ({life.kind}) of {life.model}, {life.place}"
    return Answer(life, [head], *_entries(life.entries))


def _reads(connection: Connection, arguments: argparse.Namespace) -> Answer:
    name = parse_name(arguments.object)
    life_of(connection, name)  # refuses what is no object
    found = reads_of(connection, name.cell, name.slot)
    rows = [
        (r.seq, moment(r.time_ms), f"{r.engine} {r.engine_name}".strip(), r.uid, r.pid, r.lease, r.position, r.how)
        for r in found
    ]
    columns = ("seq", "time (UTC)", "engine", "uid", "pid", "lease", "resume at", "how")
    return Answer({"object": str(name), "reads": found}, [], columns, rows)


def _lease(connection: Connection, arguments: argparse.Namespace) -> Answer:
    if (arguments.lease is None) == (arguments.seq is None):
        raise CallerError("name a lease, or a look-up with --seq", field="lease", remedy="name one of the two")
    life = lease_life(connection, arguments.lease or lease_of(connection, arguments.seq))
    who = f"engine {life.engine} {life.engine_name}".strip()
    head = [
        f"lease {life.lease} of {who} (uid {life.uid}, pid {life.pid}): {counted(life.tokens, 'token')} of {life.model}"
    ]
    head += [f"{e.seq} {moment(e.time_ms)} {e.what}: {e.detail}" for e in life.entries]
    columns = ("object", "group", "shard", "place", "bytes", "stored by", "commit at seq", "fingerprint")
    rows = [
        (o.name, o.group, o.shard, o.place, o.bytes, f"{o.stored_by} {o.stored_name}", o.stored_seq, o.fingerprint)
        for o in life.objects
    ]
    return Answer(life, head, columns, rows)


def _prefixes(connection: Connection, arguments: argparse.Namespace) -> Answer:
    found = list_prefixes(connection, arguments.hash)
    rows = [(p.cell, p.model, p.layout, p.position, "block" if p.residue < 0 else p.residue, p.hash) for p in found]
    columns = ("prefix", "model", "layout", "tokens", "residue", "hash of its last block")
    return Answer({"prefixes": found}, [], columns, rows)


def _prefix(connection: Connection, arguments: argparse.Namespace) -> Answer:
    life = prefix_life(connection, arguments.prefix)
    one = life.prefix
    what = "block that ends" if one.residue < 0 else "boundary"
    head = f"prefix {one.cell}: {what} at {one.position} of {one.model}, layout {one.layout}"
    return Answer(life, [head], *_entries(life.entries))


def _engines(connection: Connection, arguments: argparse.Namespace) -> Answer:
    found = list_engines(connection, last=arguments.last, named=arguments.name)
    rows = [
        (e.engine, e.name, e.tenant, e.uid, e.pid, moment(e.time_ms), moment(e.ended_ms) if e.ended else "", e.reason)
        for e in found
    ]
    columns = ("engine", "name", "tenant", "uid", "pid", "entered (UTC)", "ended (UTC)", "why")
    return Answer({"engines": found}, [], columns, rows)


def _engine(connection: Connection, arguments: argparse.Namespace) -> Answer:
    life = engine_life(connection, arguments.engine)
    one = life.engine
    head = [f"engine {one.engine} {one.name} of {one.tenant} (uid {one.uid}, pid {one.pid})"]
    head += [f"{one.entered} {moment(one.time_ms)} entered"]
    head += [f"{one.ended} {moment(one.ended_ms)} ended: {one.reason}"] if one.ended else []
    columns = ("verdicts", "misses", "prompt", "hash", "offered", "units")
    units = ", ".join(f"{count} {end}" for end, count in sorted(life.units.items()))
    row = (life.verdicts, life.misses, life.tokens, life.hash_tokens, life.offered_tokens, units)
    return Answer(life, head, columns, [row])


def _evictions(connection: Connection, arguments: argparse.Namespace) -> Answer:
    if arguments.seq is not None:
        gone = displaced_by(connection, arguments.seq)
        columns = ("object", "model", "group", "kind", "place", "bytes")
        return Answer(
            {"seq": arguments.seq, "displaced": gone}, [], columns, [msgspec.structs.astuple(o) for o in gone]
        )
    found = evictions(connection, arguments.last)
    rows = [
        (
            e.seq,
            moment(e.time_ms),
            e.actor,
            e.place,
            e.reason,
            "\n".join(f"{k.objects} {k.kind}, {short_bytes(k.bytes)}" for k in e.kinds),
            f"{e.made_for} {e.made_for_name}" if e.made_for else "",
        )
        for e in found
    ]
    heads = ("seq", "time (UTC)", "actor", "from", "reason", "displaced", "made room for")
    return Answer({"evictions": found}, [], heads, rows)


def _why(connection: Connection, arguments: argparse.Namespace) -> Answer:
    found = latest_verdicts(connection, last=arguments.last, misses=arguments.misses, engine=arguments.engine)
    columns = ("seq", "time (UTC)", "engine", "model", "prompt", "hash", "usable", "why not more")
    return Answer({"verdicts": found}, [], columns, [_verdict(record) for record in found])


def _verdict(record: VerdictRecord) -> tuple[object, ...]:
    who = f"{record.engine} {record.engine_name}".strip()
    why = "\n".join(record.why) or "all of it is usable"
    when = moment(record.time_ms)
    return record.seq, when, who, record.model, record.tokens, record.hash_tokens, record.usable_tokens, why


def _verdicts(connection: Connection, arguments: argparse.Namespace) -> Answer:
    found = reasons(connection, _MILLISECONDS[arguments.every])
    columns = ("from (UTC)", "reason", "layer", "verdicts", "misses", "prompt", "hash", "offered", "cut")
    rows = [
        (
            moment(r.time_ms),
            r.code or "nothing was cut",
            r.layer or "",
            r.verdicts,
            r.misses,
            r.tokens,
            r.hash_tokens,
            r.offered_tokens,
            r.cut_tokens,
        )
        for r in found
    ]
    return Answer({"every": arguments.every, "reasons": found}, ["numbers of tokens from `prompt` on"], columns, rows)


def _state(connection: Connection, arguments: argparse.Namespace) -> Answer:
    found = state_at(connection, arguments.at)
    held = ", ".join(f"{count} {name}" for name, count in found.held.items())
    rows = [(kind, state, count) for kind, states in found.objects.items() for state, count in states.items()]
    head = [f"after event {found.seq}, {moment(found.time_ms)} UTC: {held}"]
    return Answer(found, head, ("kind", "state", "objects"), rows)


ANSWERS: Final[dict[str, Callable[[Connection, argparse.Namespace], Answer]]] = {
    "object": _object,
    "reads": _reads,
    "lease": _lease,
    "prefixes": _prefixes,
    "prefix": _prefix,
    "engines": _engines,
    "engine": _engine,
    "evictions": _evictions,
    "why": _why,
    "verdicts": _verdicts,
    "state": _state,
}
"""Name of each question to how it is answered."""
