"""The prefix tree, a level at a time: it holds what is kept, and each answer is bounded however large the tree is."""

from collections import Counter

import pytest

from kvledger.errors import NotFoundError, ServiceError
from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from kvledger_storage.audit_sql.rows import (
    CellRow,
    EventRow,
    LayoutRow,
    LookupRow,
    NodeRow,
    UnitEventRow,
    UnitRow,
    WatermarkRow,
)
from kvledger_storage.audit_sql.statements import insert_rows
from kvledgerd.audit.past import past_at
from kvledgerd.audit.questions.asking import asking
from kvledgerd.audit.questions.boundaries import boundaries_at
from kvledgerd.audit.questions.kept import objects_at
from kvledgerd.audit.questions.prefixes import list_prefixes
from kvledgerd.audit.questions.stream import verdict_stream
from kvledgerd.audit.questions.tables import CELL
from kvledgerd.audit.questions.tree import BRANCHES, RUN, level_below, place_of
from kvledgerd.audit.replay import replay_all
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.core.copies.parts import find_parts, path_to
from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO
from kvledgerd.page.told import Told
from support.audit import branches_of, history_of, open_database, write_frames

LONG = 300
WIDE = 95


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A chain of 300 blocks, a boundary at its 200th and one of blocks alone at its 250th, 95 prompts of a block."""
    path = tmp_path_factory.mktemp("audit") / "audit.db"
    database = open_database(path)
    chain = [NodeRow(number, number, number - 1, number, f"{number:064x}") for number in range(1, LONG + 1)]
    wide = [NodeRow(number, number, 0, 1, f"{number:064x}") for number in range(LONG + 1, LONG + WIDE + 1)]
    cells = [CellRow(node.node, node.seq, 1, node.node, 16 * node.depth, -1) for node in (*chain, *wide)]
    cells.append(CellRow(10_000, 200, 1, 200, 3200, 0))
    rows = {
        LayoutRow: [LayoutRow(1, 1, "default", 1, "m", "w", "d", 16)],
        NodeRow: chain + wide,
        CellRow: cells,
        # One was committed at the 250th block, one given up at the 260th, and one stored blocks up to the 270th
        UnitRow: [UnitRow(n, n, 1, 1, n, 0, 16 * n, boundary=n < 270) for n in (250, 260, 270)],
        UnitEventRow: [UnitEventRow(n, n, "aborted" if n == 260 else "committed", "") for n in (250, 260, 270)],
        WatermarkRow: [WatermarkRow(7, "", 0)],
    }
    with database.writing() as connection:
        insert_rows(connection, rows)
    with database.reading() as connection:
        yield connection
    database.close()


def test_a_level_is_bounded_and_paged(large):
    """Of 96 branches behind the root 40 are in one answer, newest first, and the rest in those that follow."""
    first = level_below(large, 0)
    assert len(first.branches) == BRANCHES
    assert first.branches[0].last == LONG + WIDE
    second = level_below(large, 0, first.next)
    third = level_below(large, 0, second.next)
    found = [branch.first for level in (first, second, third) for branch in level.branches]
    assert found == [*range(LONG + WIDE, LONG, -1), 1]
    assert third.next == 0


def test_a_branch_ends_at_a_boundary_and_after_so_many_blocks(large):
    """The long chain is cut after 128 blocks, at its boundaries, of states and of blocks alone, and at its end."""
    branches = [branch for branch in branches_of(large) if branch.depth > 1]
    assert [(branch.blocks, branch.depth, branch.goes_on) for branch in branches] == [
        (RUN, RUN, True),
        (200 - RUN, 200, True),
        (50, 250, True),
        (50, LONG, False),
    ]
    found = [[(one.cell, one.position, one.residue) for one in branch.boundaries] for branch in branches]
    assert found == [[], [(10_000, 3200, 0)], [(250, 4000, -1)], []]
    assert branches[-1].tokens == 16 * LONG


def test_a_block_knows_the_forks_before_it(large):
    """The way back from a block leads through forks alone; one that never was is refused."""
    assert (place_of(large, 250).depth, place_of(large, 250).tokens) == (250, 4000)
    assert place_of(large, 250).forks == []
    with pytest.raises(NotFoundError, match="no block 9999"):
        place_of(large, 9999)


def test_the_drill_buries_nobody(tmp_path):
    """However many blocks the daemon's own drill made since, tree and verdicts show what others stored and asked."""
    passes = range(2, BRANCHES + 20)
    layouts = [LayoutRow(1, 1, "default", 1, "m", "w", "d", 16), LayoutRow(2, 2, DRILL_TENANT, 2, "c", "n", "e", 16)]
    rows = {
        LayoutRow: layouts,
        NodeRow: [NodeRow(number, number, 0, 1, f"{number:064x}") for number in (1, *passes)],
        CellRow: [CellRow(number, number, 1 + (number > 1), number, 16, -1) for number in (1, *passes)],
        EventRow: [EventRow(number, 0, "engine:1", "LookedUp", None) for number in (1, *passes)],
        LookupRow: [
            LookupRow(number, 0, 1 + (number > 1), 1 + (number > 1), 0, 17, 16, 16, 16, 16, 16, "{}")
            for number in (1, *passes)
        ],
        WatermarkRow: [WatermarkRow(passes[-1], "", 0)],
    }
    database = open_database(tmp_path / "audit.db")
    with database.writing() as connection:
        insert_rows(connection, rows)
    with database.reading() as connection:
        assert [branch.first for branch in level_below(connection, 0).branches] == [1]
        assert [one.seq for one in verdict_stream(connection, last=10)] == [1]
        assert len(verdict_stream(connection, last=10, engine=2)) == 10
    database.close()


def kept_at(data, seq: int) -> tuple[Counter, Counter]:
    """Return kind to number of objects in memory, and on disk, after an event, by a replay."""
    memory, disk = Counter(), Counter()
    for kind, states in past_at(data, seq, lambda _: None).objects.items():
        memory[kind] = sum(states.get(state.name, 0) for state in IN_MEMORY)
        disk[kind] = sum(states.get(state.name, 0) for state in ON_DISK_TOO)
    return +memory, +disk


@pytest.mark.parametrize("seed", [0, 2])
def test_the_tree_holds_what_a_replay_holds(seed, tmp_path):
    """Over all branches, and the boundaries before the first block, objects by kind are those of the state itself."""
    raws = history_of(seed, 200).world.log
    write_frames(raws, tmp_path / "whole")
    fullest = max(range(1, len(raws), 20), key=lambda seq: sum(map(Counter.total, kept_at(tmp_path / "whole", seq))))
    write_frames(raws[:fullest], tmp_path / "part")
    memory, disk = kept_at(tmp_path / "part", fullest)
    with asking(tmp_path / "part") as asked:
        found_memory, found_disk = Counter(), Counter()
        for branch in branches_of(asked.connection):
            found_memory.update({kept.kind: kept.memory for kept in branch.kept})
            found_disk.update({kept.kind: kept.disk for kept in branch.kept})
        for one in objects_at(asked.connection, CELL.c.node == 0):
            found_memory[one.kind] += one.state in {state.name for state in IN_MEMORY}
            found_disk[one.kind] += one.state in {state.name for state in ON_DISK_TOO}
        assert boundaries_at(asked.connection, [0]).keys() <= {0}
    assert +found_memory == memory
    assert +found_disk == disk
    assert memory.total() + disk.total() > 10


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 3, 5, 6, 7, 8))])
def test_the_tree_marks_every_boundary_and_whether_a_prompt_can_resume_there(seed, tmp_path):
    """Boundaries are those that were ever stored; one resumes if the state itself lacks nothing of what it needs."""
    raws = history_of(seed, 200).world.log
    resuming = Counter()
    for part in (1, 2, 3):
        write_frames(raws[: part * len(raws) // 3], tmp_path / f"{part}")
        state, _ = replay_all(tmp_path / f"{part}")
        with asking(tmp_path / f"{part}") as asked:
            found = [(branch.hash, one) for branch in branches_of(asked.connection) for one in branch.boundaries]
            found += [("", one) for one in boundaries_at(asked.connection, [0]).get(0, [])]
            listed = list_prefixes(asked.connection)
        assert {(hash_, one.layout, one.position) for hash_, one in found} == {
            (one.hash, one.layout, one.position) for one in listed
        }
        assert {one.cell for _, one in found if one.residue >= 0} == {one.cell for one in listed if one.residue >= 0}
        for _, one in found:
            assert one.resumes == resumes_in(state, one), one
            resuming[one.residue < 0, one.resumes] += 1
    assert len(resuming) == 4, "of both sorts some have to resume, and some not"


def resumes_in(state, boundary) -> bool:
    """Tell whether a state has all that a resume at a boundary needs."""
    cell, known = state.cells.get(boundary.cell), state.layouts.get(boundary.layout)
    if cell is None or known is None:
        return False
    at = path_to(known, cell.node, max(cell.residue, 0), None if cell.is_block else cell)
    return not find_parts(known, at).lacking


def test_the_page_gives_up_what_takes_too_long(large, tmp_path, monkeypatch):
    """A question that is not answered in time ends with an error that says so, and the next one is answered."""
    monkeypatch.setattr("kvledgerd.page.told._SECONDS", 0.05)
    database = open_database(tmp_path / "audit.db")
    database.close()
    told = Told(tmp_path)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(ServiceError, match="interrupted"), told.reading() as source:
        source.connection.exec_driver_sql(endless)
    monkeypatch.setattr("kvledgerd.page.told._SECONDS", 60.0)
    with told.reading() as source:
        assert source.seq == 0


def test_the_page_has_few_readers(tmp_path, monkeypatch):
    """While as many questions are open as there are readers, one more is told to come back."""
    monkeypatch.setattr("kvledgerd.page.told._READERS", 1)
    open_database(tmp_path / "audit.db").close()
    told = Told(tmp_path)
    with told.reading():
        monkeypatch.setattr("kvledgerd.page.told._SECONDS", 0.05)
        with pytest.raises(ServiceError, match="other questions take all readers"), told.reading():
            pass


def test_a_page_without_tables_says_what_makes_them(tmp_path):
    """Where no audit database is there yet, the answer names the follower."""
    with pytest.raises(ServiceError, match="audit_follow"), Told(tmp_path).reading():
        pass


def test_a_server_gives_up_as_well(postgres):
    """On PostgreSQL a question that takes too long is given up, too."""
    database = AuditDatabase(audit_url(postgres))
    with pytest.raises(ServiceError, match="statement timeout"), database.reading(0.05) as connection:
        connection.exec_driver_sql("SELECT pg_sleep(5)")
    database.close()
