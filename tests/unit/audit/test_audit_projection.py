"""The follower: whatever interrupts it, the database ends up with the very rows of one uninterrupted run."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import func, inspect, select

from kvledger.errors import NotFoundError, ServiceError
from kvledger_storage import events
from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from kvledger_storage.audit_sql.rows import EventRow, GapRow, ObjectEventRow, WatermarkRow
from kvledger_storage.audit_sql.schema import METADATA, TABLE_OF
from kvledger_storage.audit_sql.statements import newest_mark, states_now
from kvledgerd.audit.questions.asking import asking
from kvledgerd.audit.rebuilding import rebuild
from kvledgerd.commands import audit_keeping
from kvledgerd.core.apply import apply
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.state import State
from support.audit import contents, history_of, open_database, project, retire, write_frames

FOLLOWER = """
import sys
from pathlib import Path
from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from kvledgerd.audit.projection import Projection
Projection(Path(sys.argv[1]), AuditDatabase(audit_url(sys.argv[2])).writing, batch=5).to_end()
"""


def data_of(tmp_path: Path, raws, **how) -> Path:
    """Write events as a log and return its data directory."""
    data = tmp_path / "data"
    write_frames(raws, data, **how)
    return data


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_projection_goes_on_behind_any_transaction(seed, tmp_path):
    """Begun anew behind each of many watermarks, a projection has written what one run writes in one transaction."""
    raws = history_of(seed).world.log
    data = data_of(tmp_path, raws[:60])
    parts = open_database(tmp_path / "parts.db")
    for first in range(60, len(raws), 37):
        project(data, parts, batch=10)
        write_frames(raws[first : first + 37], data, first=first)
    project(data, parts, batch=10)
    whole = open_database(tmp_path / "whole.db")
    assert project(data, whole, batch=1 << 30).seq == len(raws)
    assert contents(parts) == contents(whole)


def test_objects_end_in_the_states_of_the_cache(tmp_path):
    """Of every object the newest state that is told is the one that a replay has, and none else is there."""
    raws = history_of(5, 300).world.log
    database = open_database(tmp_path / "audit.db")
    project(data_of(tmp_path, raws), database)
    state = State(CoreConfig())
    for raw in raws:
        apply(state, events.decode(raw).event)
    there = {
        (cell.id, slot): cell.state(slot).name
        for cell in state.cells.values()
        for slot in range(len(cell.states))
        if cell.states[slot]
    }
    with database.reading() as connection:
        assert states_now(connection) == there


@pytest.mark.slow
def test_a_kill_costs_no_row(url, tmp_path):
    """A follower that is killed again and again while it writes leaves what an undisturbed one leaves."""
    raws = history_of(2, 300).world.log
    data = data_of(tmp_path, raws, frame=3)
    survivor = open_database(url)
    killed = 0
    for pause in (0.0, 0.04):
        with subprocess.Popen([sys.executable, "-c", FOLLOWER, str(data), url]) as process:
            before, end = _marks(survivor), time.monotonic() + 60
            while _marks(survivor) == before and process.poll() is None and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(pause)
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
    assert killed
    project(data, survivor)
    whole = open_database(tmp_path / "whole.db")
    project(data, whole)
    assert contents(survivor) == contents(whole)
    survivor.close()


def _marks(database: AuditDatabase) -> int:
    with database.reading() as connection:
        return connection.execute(select(func.count()).select_from(TABLE_OF[WatermarkRow])).scalar()


def test_what_the_log_lost_is_taken_back(url, tmp_path):
    """When a power cut took a tail that had been projected, its rows go, and those of what came instead are there."""
    raws = history_of(0).world.log
    longer, shorter = tmp_path / "longer", tmp_path / "shorter"
    write_frames(raws[:70], longer)
    _copy(longer, shorter)
    write_frames(raws[70:], longer, first=70)
    database = open_database(url)
    project(longer, database, batch=1)
    other = [events.encode(events.decode(raw).event, 5, "daemon") for raw in raws[70:90]]
    write_frames(other, shorter, first=70, frame=3)
    projection = project(shorter, database)
    assert projection.taken_back == len(raws) - 70
    whole = open_database(tmp_path / "whole.db")
    project(shorter, whole)
    assert contents(database) == contents(whole)
    database.close()


def _copy(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            there = target / path.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(path.read_bytes())


def test_rot_ends_a_projection_behind_the_last_whole_frame(tmp_path):
    """Behind damage nothing is told, what is before it is there, and the damaged place is named."""
    raws = history_of(1).world.log
    data = data_of(tmp_path, raws)
    segment = next((data / "log").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= 1
    segment.write_bytes(content)
    database = open_database(tmp_path / "audit.db")
    projection = project(data, database)
    problem = projection.look_for_damage()
    assert problem is not None
    assert problem.file.endswith(segment.name)
    assert 0 < projection.seq < len(raws)
    assert projection.seq == problem.seq - 1
    with database.reading() as connection:
        assert connection.execute(select(func.max(TABLE_OF[EventRow].c.seq))).scalar() == projection.seq


def test_a_checkpoint_that_disagrees_ends_a_projection_at_a_frame(tmp_path):
    """Of the frame with the checkpoint nothing is written, since a watermark stands between frames only."""
    raws = history_of(0).world.log
    wrong = events.encode(events.Checkpoint(7), 1, "daemon")
    data = data_of(tmp_path, [*raws[:33], wrong, *raws[33:]])
    database = open_database(tmp_path / "audit.db")
    projection = project(data, database)
    assert projection.problem.rule == "contradiction"
    assert projection.problem.seq == 34
    assert projection.seq == 28
    with database.reading() as connection:
        assert connection.execute(select(func.max(TABLE_OF[EventRow].c.seq))).scalar() == 28


@pytest.mark.parametrize("projected", [0, 40])
def test_what_was_retired_unread_is_a_gap(projected, tmp_path):
    """Behind events that retention took first, the database says which they were, and goes on with what then stood."""
    raws = history_of(0, 300).world.log
    data = tmp_path / "data"
    write_frames(raws[: projected or 200], data, segment_bytes=8192)
    database = open_database(tmp_path / "audit.db")
    if projected:
        project(data, database)
        write_frames(raws[projected:200], data, first=projected, segment_bytes=8192)
    first = retire(data, 190)
    assert first > 60
    write_frames(raws[200:], data, first=200, segment_bytes=8192)
    assert project(data, database).seq == len(raws)
    whole = open_database(tmp_path / "whole.db")
    write_frames(raws, tmp_path / "again")
    project(tmp_path / "again", whole)
    with database.reading() as connection, whole.reading() as other:
        gaps = connection.execute(select(TABLE_OF[GapRow])).all()
        assert [tuple(gap) for gap in gaps] == [(first - 1, projected + 1)]
        assert states_now(connection) == states_now(other)
        told = connection.execute(select(TABLE_OF[EventRow].c.seq).order_by(TABLE_OF[EventRow].c.seq)).scalars().all()
    assert told == [*range(1, projected + 1), *range(first, len(raws) + 1)]


def test_another_log_is_refused(tmp_path):
    """A database tells about one log; another one is refused with what to do."""
    raws = history_of(0).world.log
    database = open_database(tmp_path / "audit.db")
    project(data_of(tmp_path, raws), database)
    write_frames(raws, tmp_path / "other")
    with pytest.raises(ServiceError, match=r"the database tells about log .* --rebuild"):
        project(tmp_path / "other", database)


def test_one_writes_at_a_time(url):
    """Whoever would write while another does is refused, and may when the other is gone."""
    first, second = open_database(url), open_database(url)
    with first.lock(), pytest.raises(ServiceError, match="another process writes"), second.lock():
        pass
    with second.lock():
        pass
    first.close()
    second.close()


def cut_off(database: AuditDatabase) -> None:
    """End all sessions of a server but this one's, as its restart does, and see them gone."""
    others = "FROM pg_stat_activity WHERE pid != pg_backend_pid() AND backend_type = 'client backend'"
    with database.reading() as connection:
        told = connection.exec_driver_sql(f"SELECT pid, pg_terminate_backend(pid) {others}").all()
    ended, end = {pid for pid, _ in told}, time.monotonic() + 60
    while ended:
        assert time.monotonic() < end
        with database.reading() as connection:
            ended &= set(connection.exec_driver_sql(f"SELECT pid {others}").scalars())


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_lock_that_is_lost_with_its_session_writes_nothing(url):
    """After a server's restart another may have the lock, so who had it can not write before it has it again."""
    first, second = open_database(url), open_database(url)
    with first.lock():
        cut_off(second)
        with second.lock():
            for why in ("failed", "the lock went with its session"):
                with pytest.raises(ServiceError, match=why), first.writing() as connection:
                    newest_mark(connection)
    with first.lock(), first.writing() as connection:
        assert newest_mark(connection) is None  # it answers again
    first.close()
    second.close()


@pytest.mark.slow
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_follower_goes_on_behind_another_after_a_restart(url, tmp_path, monkeypatch):
    """A follower that lost its lock waits for whoever has it now, and then tells what that one did not."""
    monkeypatch.setattr(audit_keeping, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(audit_keeping.os, "nice", lambda _: 0)
    raws = history_of(0).world.log
    data = data_of(tmp_path, raws[:40])
    follower, other, stop = AuditDatabase(audit_url(url)), open_database(url), threading.Event()
    following = threading.Thread(target=audit_keeping._followed, args=(data, follower, stop))
    following.start()
    try:
        _wait_for(other, 40)
        cut_off(other)
        with other.lock():
            write_frames(raws[40:60], data, first=40)
            time.sleep(1)
            project(data, other)
            time.sleep(0.5)
        write_frames(raws[60:], data, first=60)
        _wait_for(other, len(raws))
    finally:
        stop.set()
        following.join(30)
        follower.close()
    whole = open_database(tmp_path / "whole.db")
    project(data, whole)
    assert contents(other) == contents(whole)
    other.close()


def _wait_for(database: AuditDatabase, seq: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with database.reading() as connection:
            mark = newest_mark(connection)
        if mark is not None and mark.seq >= seq:
            return
        time.sleep(0.05)
    pytest.fail(f"event {seq} does not come into the database")


def test_rebuilding_swaps_a_whole_database_in(url, tmp_path):
    """A database of another log, or with wrong rows, is replaced by one that is right; readers never see half of it."""
    raws = history_of(0).world.log
    data = data_of(tmp_path, raws)
    database = open_database(url)
    project(data, database)
    before = contents(database)
    with database.writing() as connection:
        connection.execute(TABLE_OF[ObjectEventRow].delete())
    reader = open_database(url)
    wrong = contents(reader)
    assert wrong != before
    rebuild(data, database, lambda _: (_same(contents(reader), wrong), reader.close()))
    reader.close()
    assert contents(reader) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"audit.db", "data"}
    with reader.reading() as connection:
        assert [name for name in inspect(connection).get_schema_names() if "draft" in name] == []
    reader.close()
    database.close()


def _same(one: object, other: object) -> None:
    assert one == other


def test_consistent_answers_leave_the_database_as_it_is(url, tmp_path):
    """With the rest of the log an answer is as of now, and the database holds no more than before."""
    raws = history_of(0).world.log
    data = data_of(tmp_path, raws[:70])
    database = open_database(url)
    project(data, database)
    before = contents(database)
    write_frames(raws[70:], data, first=70)
    with asking(data, url) as asked:
        assert asked.seq == 70
    with asking(data, url, consistent=True) as asked:
        assert asked.seq == len(raws)
        count = select(func.count()).select_from(TABLE_OF[EventRow])
        assert asked.connection.execute(count).scalar() == len(raws)
    assert contents(database) == before
    with database.reading() as connection:
        assert newest_mark(connection).seq == 70
    database.close()


def test_a_named_database_has_to_be_there(tmp_path):
    """A database that was named and is missing is refused, rather than answered for by the log."""
    data = data_of(tmp_path, history_of(0).world.log)
    with pytest.raises(NotFoundError, match="there is no audit database"), asking(data, str(tmp_path / "none.db")):
        pass


def test_nothing_of_an_event_is_lost_for_want_of_a_table(tmp_path, monkeypatch):
    """An event that no table was made for is kept whole, as JSON."""
    monkeypatch.setattr("kvledgerd.audit.telling.coverage.TOLD", frozenset())
    raws = history_of(0).world.log
    database = open_database(tmp_path / "audit.db")
    project(data_of(tmp_path, raws), database)
    told = TABLE_OF[EventRow].c
    with database.reading() as connection:
        fields = connection.execute(select(told.fields).where(told.name == "LookedUp")).scalars().first()
    assert '"hash_tokens"' in fields


def test_every_table_has_a_seq():
    """A tail is taken back by one condition on each table."""
    assert all("seq" in one.c for one in METADATA.sorted_tables)
    assert GapRow in TABLE_OF
