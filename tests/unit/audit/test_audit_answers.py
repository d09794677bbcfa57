"""Answers: the same from a file, a server and the log; and what they say is what engines saw and a replay makes."""

import re

import msgspec
import pytest
import xxhash
from msgspec.structs import replace
from sqlalchemy import select

from kvledger.errors import CallerError
from kvledger.wire.requests import Register, Release
from kvledgerd.audit.export import export_tables
from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.past import past_at
from kvledgerd.audit.questions.asking import asking
from kvledgerd.audit.questions.engines import engine_life, list_engines
from kvledgerd.audit.questions.evictions import displaced_by, evictions
from kvledgerd.audit.questions.finding import find
from kvledgerd.audit.questions.judged import latest_verdicts, reasons
from kvledgerd.audit.questions.kept import objects_at
from kvledgerd.audit.questions.leases import lease_life, lease_of
from kvledgerd.audit.questions.lives import life_of
from kvledgerd.audit.questions.moments import state_at
from kvledgerd.audit.questions.prefixes import list_prefixes, prefix_life
from kvledgerd.audit.questions.reads import reads_of
from kvledgerd.audit.questions.stream import one_verdict, verdict_stream
from kvledgerd.audit.questions.tables import CELL, GROUP, LOOKUP, OBJECT
from kvledgerd.audit.questions.tree import place_of
from kvledgerd.audit.verdicts import verdicts
from kvledgerd.core.config import PAGE, CoreConfig
from property.test_core_histories import History
from support.audit import branches_of, contents, history_of, open_database, project, write_frames
from support.layouts import pick
from support.refused import PROMPT
from support.world import World

ODD_NAMES = ("Anne", "a\0b", "\0", "'\\%_", "\u202e\u0430", "n" * 128)
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 4)))
CORNERED = CoreConfig(memory_bytes=24 * PAGE, arena_bytes=4 * PAGE, disk_bytes=1 << 20)


class Reading(History):
    """A history that keeps what each look-up handed out: lease to offer to (group, shard, first token) to bytes."""

    def __init__(self, seed: int) -> None:
        self.seen: dict[int, dict[int, dict[tuple[int, int, int], bytes]]] = {}
        self.kept: dict[int, int] = {}
        super().__init__(seed)

    def acquire(self) -> None:
        """Look a prompt up, and read every offer."""
        super().acquire()
        if self.leases and self.leases[-1][1].lease not in self.seen:
            index, answer, *_ = self.leases[-1]
            ready = [number for number, offer in enumerate(answer.offers) if offer.ready]
            self.seen[answer.lease] = {number: self.users[index].read(answer, number) for number in ready}

    def settle(self) -> None:
        """Keep one offer of a lease only."""
        before = len(self.settled)
        super().settle()
        for _, answer, mine, _ in self.settled[before:]:
            self.kept[answer.lease] = mine


def everything(connection) -> list:
    """Return all answers to all questions, as plain values."""
    by_key = select(OBJECT.c.cell, OBJECT.c.slot).order_by(OBJECT.c.cell, OBJECT.c.slot)
    names = [ObjectName(*row) for row in connection.execute(by_key)]
    leases = connection.execute(select(LOOKUP.c.lease).where(LOOKUP.c.lease > 0).order_by(LOOKUP.c.seq)).scalars().all()
    prefixes = list_prefixes(connection)
    gone = evictions(connection, 100)
    answers = [
        [life_of(connection, name) for name in names],
        [reads_of(connection, *name) for name in names],
        [lease_life(connection, lease) for lease in leases],
        prefixes,
        [prefix_life(connection, prefix.cell) for prefix in prefixes],
        gone,
        [displaced_by(connection, one.seq) for one in gone],
        latest_verdicts(connection, last=1000),
        latest_verdicts(connection, last=5, misses=True, engine=1),
        reasons(connection, 3_600_000),
        [state_at(connection, seq) for seq in (1, 50, 100)],
        state_at(connection),
        list(branches_of(connection)),
        [place_of(connection, number) for number in range(1, 4)],
        [objects_at(connection, CELL.c.cell == prefix.cell) for prefix in prefixes],
        verdict_stream(connection, last=1000),
        verdict_stream(connection, last=5, misses=True, engine=1),
        [one_verdict(connection, one.seq) for one in verdict_stream(connection, last=40)],
        [engine_life(connection, one.engine) for one in list_engines(connection, last=1000)],
        [find(connection, text) for text in ("1", "2.0", prefixes[0].hash[:6], "e", "%", "_")],
    ]
    return msgspec.to_builtins(answers)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_server_answers_what_a_file_and_the_log_answer(url, tmp_path):
    """SQLite, PostgreSQL and the log hold the same rows of one history, and answer every question alike."""
    data = tmp_path / "data"
    write_frames(history_of(1, 160).world.log, data)
    file, server = open_database(tmp_path / "audit.db"), open_database(url)
    project(data, file)
    project(data, server)
    assert contents(server) == contents(file)
    with asking(data, str(tmp_path / "audit.db")) as one, asking(data, url) as two, asking(data) as three:
        assert one.seq == two.seq == three.seq
        answers = everything(one.connection)
        assert everything(two.connection) == answers
        assert everything(three.connection) == answers
    for database in (file, server):
        database.close()


@pytest.mark.hostile("FR16")
def test_a_name_of_any_characters_is_told_and_found(url, tmp_path):
    """No name of an engine or a model stops a projection, NUL included; a search finds each, in capitals or not."""
    world = World()
    for name in ODD_NAMES:
        user = world.engine(name)
        user.ok(Register(replace(pick("CXST"), model=f"model {name}")))
    write_frames(world.log, tmp_path / "data")
    database = open_database(url)
    project(tmp_path / "data", database)
    with database.reading() as connection:
        told = {one.name for one in list_engines(connection, last=100)}
        assert told == {name.replace("\0", "\u2400") for name in ODD_NAMES}
        for asked, sorts in (("ANNE", ["engine", "model"]), ("a\0b", ["engine", "model"]), ("%_", ["engine", "model"])):
            assert [found.sort for found in find(connection, asked)] == sorts
    database.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_lease_is_said_to_have_read_is_what_its_engine_read(seed, tmp_path):
    """From each lease one comes to just the objects that were read under it, with their fingerprints, and back."""
    history = Reading(seed)
    history.run(250)
    write_frames(history.world.log, tmp_path)
    checked = 0
    with asking(tmp_path) as asked:
        for lease, offers in history.seen.items():
            life = lease_life(asked.connection, lease)
            groups = groups_under(asked.connection, lease)
            kept = history.kept.get(lease)
            read: dict = {}
            for number, found in offers.items():
                read |= found if kept in {None, number} else {}
            told = {(groups[o.group], o.shard, int(re.search(r"\d+", o.place)[0])): o for o in life.objects}
            assert told.keys() == read.keys()
            for place, data in read.items():
                assert told[place].fingerprint == xxhash.xxh3_128_hexdigest(data)
                readers = reads_of(asked.connection, *map(int, told[place].name.split(".")))
                assert next(r.how for r in readers if r.lease == lease) in {"read", "offered"}
                checked += 1
    assert checked > 40


def groups_under(connection, lease: int) -> dict[str, int]:
    """Return name to number of the groups of the layout that a lease is on."""
    mine = select(GROUP.c.name, GROUP.c.number).join(LOOKUP, LOOKUP.c.layout == GROUP.c.layout)
    return dict(tuple(row) for row in connection.execute(mine.where(LOOKUP.c.lease == lease)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_of_the_past_is_that_of_a_replay(seed, tmp_path):
    """Objects by kind and state, engines, leases and units at any event are those that a replay through it makes."""
    raws = history_of(seed, 200).world.log
    write_frames(raws, tmp_path)
    with asking(tmp_path) as asked:
        for seq in range(1, len(raws), 23):
            told, past = state_at(asked.connection, seq), past_at(tmp_path, seq, lambda _: None)
            assert told.objects == past.objects
            assert told.time_ms == past.time_ms
            for name in ("engines", "leases"):
                assert told.held[name] == past.held[name], (seq, name)


def test_verdicts_are_those_of_a_replay(tmp_path):
    """The database tells of each look-up what a replay of the log tells."""
    write_frames(history_of(2, 200).world.log, tmp_path)
    with asking(tmp_path) as asked:
        for how in ({}, {"misses": True}, {"engine": 2}):
            assert latest_verdicts(asked.connection, last=30, **how) == verdicts(tmp_path, last=30, **how)


def test_reasons_add_up_to_all_verdicts(tmp_path):
    """Each verdict is counted once, under the reason of its longest cut and in the stretch in which it fell."""
    write_frames(history_of(2, 200).world.log, tmp_path)
    with asking(tmp_path) as asked:
        counted, all_of_them = reasons(asked.connection, 3_600_000), latest_verdicts(asked.connection, last=10_000)
    assert sum(one.verdicts for one in counted) == len(all_of_them)
    assert sum(one.misses for one in counted) == sum(not one.lease for one in all_of_them)
    assert sum(one.hash_tokens for one in counted) == sum(one.hash_tokens for one in all_of_them)
    for one in counted:
        mine = [v for v in all_of_them if v.time_ms // 3_600_000 == one.time_ms // 3_600_000]
        first = [v.why[0] if v.why else "" for v in mine]
        assert one.verdicts == sum(f" {one.code}" in why if one.code else not why for why in first)


def test_an_eviction_tells_what_went_and_for_whom(tmp_path):
    """Room is made for a reservation: the eviction names the objects by kind and tokens, and that reservation."""
    world = World(CORNERED)
    user = world.engine("one")
    number = user.register(pick("CXST"))
    for prompt in range(8):
        user.store(number, [prompt, *PROMPT], 512)
    write_frames(world.log, tmp_path)
    with asking(tmp_path) as asked:
        found = [one for one in evictions(asked.connection, 100) if one.reason == "room"]
        assert found
        for one in found:
            assert one.made_for_name == "UnitReserved"
            gone = displaced_by(asked.connection, one.seq)
            assert len(gone) == one.objects == sum(kind.objects for kind in one.kinds)
            assert sum(item.bytes for item in gone) == sum(kind.bytes for kind in one.kinds)
        life = life_of(asked.connection, ObjectName(*map(int, gone[0].name.split("."))))
    assert life.entries[-1].what == "dropped"
    assert "room" in life.entries[-1].detail


@pytest.mark.parametrize("letters", ["CXST", "CM", "C"])
def test_a_prefix_tells_what_became_of_it(url, letters, tmp_path):
    """A boundary is listed and has its life, also where its states lie in blocks or where there are none."""
    world = World()
    one, two = world.engine("one"), world.engine("two")
    number = one.register(pick(letters))
    for end in (256, 512):
        one.store(number, PROMPT, end)
    found = two.acquire(two.register(pick(letters)), PROMPT)
    two.ok(Release(found.lease))
    one.evict(number, PROMPT, 512, "C")
    write_frames(world.log, tmp_path / "data")
    database = open_database(url)
    project(tmp_path / "data", database)
    with database.reading() as connection:
        prefixes = list_prefixes(connection)
        assert [prefix.position for prefix in prefixes] == [256, 512]
        entries = prefix_life(connection, prefixes[-1].cell).entries
        assert [entry.what for entry in entries] == ["committed", "committed", "offered", "dropped"]
        assert entries[2].detail == f"to engine 2 under lease {found.lease}, as offer 0"
        digits = prefixes[-1].hash[:8]
        for asked in (digits, digits.upper()):
            assert prefixes[-1] in list_prefixes(connection, asked)
        assert list_prefixes(connection, "%") == []
    database.close()


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda c: life_of(c, ObjectName(99, 0)), "knows no object 99.0"),
        (lambda c: lease_life(c, 0), "no lease 0 is known"),
        (lambda c: lease_life(c, 10**15), "no lease 1000000000000000 is known"),
        (lambda c: lease_of(c, 1), "it is no look-up"),
        (lambda c: prefix_life(c, 99), "no cell 99 is known"),
        (lambda c: displaced_by(c, 1), "event 1 is no eviction"),
        (lambda c: state_at(c, 10**9), "event 1000000000 is not known"),
    ],
)
def test_a_name_of_nothing_is_refused_with_a_remedy(ask, says, tmp_path):
    """A question about what never was is refused, and the refusal says what lists the right names."""
    write_frames(World().log, tmp_path)
    with asking(tmp_path) as asked, pytest.raises(CallerError, match=says) as refused:
        ask(asked.connection)
    assert refused.value.remedy


def test_tables_are_exported_as_they_are(tmp_path):
    """Each table is one file of CSV with a head line, and a wrong name of a table is refused with all of them."""
    raws = history_of(0).world.log
    write_frames(raws, tmp_path)
    with asking(tmp_path) as asked:
        counts = export_tables(asked.connection, tmp_path / "csv")
        with pytest.raises(CallerError, match="there is no table nodes"):
            export_tables(asked.connection, tmp_path / "csv", ["nodes"])
    lines = (tmp_path / "csv" / "event.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "seq,time_ms,actor,name,fields"
    assert len(lines) - 1 == counts["event"] == len(raws)
