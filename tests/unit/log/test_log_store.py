"""Opening: one holder, the right version, the right boot, and a damaged log set aside whole."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from kvledger_storage.log import EventLog, LogLockedError, LogRotError, LogVersionError, RealLogIO, verify
from kvledger_storage.log.identity import decode_identity, encode_identity
from kvledger_storage.log.segment import SEGMENT_BYTES
from support.descriptors import open_files
from support.log_faults import FastLogIO
from support.log_sessions import SMALL, Session, contents, event, snapshot
from support.log_simulation import PowerCutError, SimulatedLogIO

HOME = Path("/log")


def test_a_new_log_is_empty_and_keeps_its_id(tmp_path):
    """A log is made on first opening with spares ahead, and is the same log at every later one."""
    with EventLog.open(tmp_path / "data" / "log") as log:
        assert (log.first_seq, log.last_seq, log.last_incarnation) == (1, 0, 0)
        assert (log.repaired, log.quarantined, log.predecessor) == (None, None, None)
        assert list(log.read()) == []
        log.writer(1, print, print)
        log_id = log.log_id
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "data" / "log").iterdir()}
    assert sizes["00000000000000000001.seg"] == sizes["spare-0"] == sizes["spare-1"] == SEGMENT_BYTES
    with EventLog.open(tmp_path / "data" / "log") as log:
        assert log.log_id == log_id


def test_the_real_boot_id_is_16_bytes():
    """The machine's boot id is read, and is the same at every reading."""
    assert len(RealLogIO().boot_id()) == 16
    assert RealLogIO().boot_id() == RealLogIO().boot_id()


def test_a_pipe_in_place_of_a_segment_is_an_error(tmp_path):
    """A FIFO where a segment was is told by its name, and nobody waits for its other end."""
    with EventLog.open(tmp_path) as log:
        log.writer(1, print, print)
    segment = tmp_path / "00000000000000000001.seg"
    segment.unlink()
    os.mkfifo(segment)
    with pytest.raises(OSError, match=f"no regular file: '{segment}'"):
        EventLog.open(tmp_path)


@pytest.mark.hostile("DI08")
def test_a_second_process_is_refused(tmp_path):
    """Whoever comes second is told the directory and the pid that holds it; when the holder is killed he may come."""
    code = (
        "import sys, pathlib, time\n"
        "from kvledger_storage.log import EventLog\n"
        "log = EventLog.open(pathlib.Path(sys.argv[1]), segment_bytes=4096)\n"
        "print('open', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(LogLockedError, match=f"held by process {holder.pid}") as caught:
            EventLog.open(tmp_path)
        assert (caught.value.directory, caught.value.pid) == (tmp_path, holder.pid)
        holder.kill()
        holder.wait()
        EventLog.open(tmp_path).close()


def test_a_refused_opening_lets_go_of_the_lock(tmp_path):
    """After an opening that failed, the log can be opened as soon as the cause is gone."""
    EventLog.open(tmp_path, io=FastLogIO(), segment_bytes=SMALL).close()
    segment = tmp_path / "00000000000000000001.seg"
    segment.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(LogRotError, match="found: no such file"):
            EventLog.open(tmp_path, io=FastLogIO())
    (tmp_path / "elsewhere").rename(segment)
    EventLog.open(tmp_path, io=FastLogIO()).close()


def newer(data, at):
    """Return `data` with the format version at offset `at` raised and its checksum made right."""
    changed = data[:at] + (2).to_bytes(4, "little") + data[at + 4 : -4]
    return changed + crc32c(changed).to_bytes(4, "little")


@pytest.mark.hostile("DI09")
@pytest.mark.parametrize("on_corrupt", ["refuse", "quarantine"])
@pytest.mark.parametrize("name", ["id", "00000000000000000001.seg"])
def test_a_newer_log_is_refused_untouched(tmp_path, name, on_corrupt):
    """A data format of the future is refused with the remedy, is never called rot, and not a byte of it changes."""
    EventLog.open(tmp_path, io=FastLogIO(), segment_bytes=SMALL).close()
    path, size = tmp_path / name, 80 if name.endswith("seg") else None
    data = path.read_bytes()
    changed = newer(data[:size], 8) + data[len(data[:size]) :]
    path.write_bytes(changed)
    with pytest.raises(LogVersionError, match=r"version 2 is newer than 1.*install") as caught:
        EventLog.open(tmp_path, io=FastLogIO(), on_corrupt=on_corrupt)
    assert caught.value.file == path
    assert path.read_bytes() == changed


def test_a_frame_bears_boot_and_incarnation_that_wrote_it(tmp_path):
    """A frame names the boot that wrote it, whatever boot reads it, and the log the incarnation that wrote last."""
    session = Session(tmp_path, FastLogIO(b"a" * 16), incarnation=5)
    session.put([1])
    session.close()
    with EventLog.open(tmp_path, io=FastLogIO(b"a" * 16), boot_id=b"b" * 16) as log:
        assert log.last_incarnation == 5
        assert [one.frame.boot_id for one in log.read()] == [b"a" * 16]


def test_events_written_before_a_kill_are_there(tmp_path):
    """What was reported written survives the process without any sync, and reading may start anywhere."""
    session = Session(tmp_path / "log")
    for number in range(1, 31):
        session.put([number])
    assert contents(session.log) == {number: event(number) for number in range(1, 31)}
    left = snapshot(session, tmp_path / "left")
    with EventLog.open(left, io=FastLogIO(), segment_bytes=SMALL) as log:
        for from_seq in range(1, 32):
            assert [seq for seq, _, _ in log.read(from_seq)] == list(range(from_seq, 31))


def test_segments_keep_their_size_when_the_setting_changes(tmp_path):
    """A log may be opened with another segment size: old segments keep theirs, new ones take the new."""
    session = Session(tmp_path)
    for number in range(1, 21):
        session.put([number])
    session.close()
    session = Session(tmp_path, segment_bytes=4096)
    for number in range(21, 81):
        session.put([number])
    session.close()
    assert {path.stat().st_size for path in tmp_path.glob("*.seg")} == {SMALL, 4096}
    with EventLog.open(tmp_path, io=FastLogIO()) as log:
        assert contents(log) == {number: event(number) for number in range(1, 81)}


def test_segments_must_hold_a_frame(tmp_path):
    """A segment size that holds no useful frame is refused, and nothing is made."""
    with pytest.raises(ValueError, match="segment_bytes is 100; it must be at least 1024"):
        EventLog.open(tmp_path / "log", segment_bytes=100)
    assert not (tmp_path / "log").exists()


def rotten(io):
    """Fill a log with 20 events and damage one in the middle of it; return its first files and id."""
    session = Session(HOME, io)
    for number in range(1, 21):
        session.put([number], durable=True)
    log_id = session.log.log_id
    session.close()
    second = sorted(path for path in io.files if path.suffix == ".seg")[1]
    io.files[second].data[80 + 104] ^= 1
    for node in io.files.values():
        node.durable = bytearray(node.data)
    return log_id


def test_quarantine_names_the_old_chain_and_keeps_the_old_files():
    """A new log begins above all old seqs and names the old one's chain; the old one can still be read and verified."""
    io = SimulatedLogIO()
    old_id = rotten(io)
    before = verify(HOME, io=io)
    with EventLog.open(HOME, io=io, on_corrupt="quarantine", segment_bytes=SMALL) as log:
        assert log.quarantined.problem == before.problem
        assert log.log_id != old_id
        assert (log.first_seq, log.last_seq) == (21, 20)
        assert (log.predecessor.log_id, log.predecessor.last_seq) == (old_id, before.last_seq)
        folder = Path(log.quarantined.folder)
    after = verify(folder, io=io)
    assert (after.ok, after.last_seq, after.log_id) == (False, before.last_seq, old_id.hex())
    session = Session(HOME, io)
    assert session.log.quarantined is None
    assert session.log.predecessor.log_id == old_id
    assert session.put([1], durable=True) == 21
    session.close()
    assert verify(HOME, io=io).first_seq == 21


def test_quarantine_may_be_cut_short_anywhere():
    """Power may go at any operation of a quarantine: the next start ends it, and no file of the old log is lost."""
    base = SimulatedLogIO()
    old_id = rotten(base)
    old = sorted(bytes(node.data) for path, node in base.files.items() if path.suffix == ".seg")
    whole = base.copy()
    EventLog.open(HOME, io=whole, on_corrupt="quarantine", segment_bytes=SMALL).close()
    for cut_at in range(1, whole.operations + 1):
        for seed in (1, 2):
            io = base.copy()
            io.cut_at = cut_at
            with pytest.raises(PowerCutError):
                EventLog.open(HOME, io=io, on_corrupt="quarantine", segment_bytes=SMALL)
            io.cut(Rng(seed))
            with EventLog.open(HOME, io=io, on_corrupt="quarantine", segment_bytes=SMALL) as log:
                assert (log.predecessor.log_id, log.first_seq) == (old_id, 21)
                assert list(log.read()) == []
            kept = [
                bytes(node.data) for path, node in io.files.items() if path.suffix == ".seg" and path.parent != HOME
            ]
            assert sorted(kept) == old


class Rng:
    """A power cut that keeps all (1) or nothing (2) of what was not synced."""

    def __init__(self, seed):
        self.value = 0.0 if seed == 1 else 1.0

    def random(self):
        """Return the same answer always."""
        return self.value


@pytest.mark.parametrize("damage", ["id damaged", "id gone", "all damaged"])
def test_a_log_without_identity_can_be_set_aside(damage):
    """Quarantine works even if the id, or all that tells the id, is gone; twice in a row, too."""
    io = SimulatedLogIO()
    for round_number in (1, 2):
        old_id = rotten(io)
        if damage == "id gone":
            del io.files[HOME / "id"]
        else:
            io.files[HOME / "id"].data[20] ^= 1
        for path in [path for path in io.files if path.parent == HOME and path.suffix == ".seg"]:
            io.files[path].data[0] ^= damage == "all damaged"
        with EventLog.open(HOME, io=io, on_corrupt="quarantine", segment_bytes=SMALL) as log:
            assert log.predecessor.log_id == (bytes(16) if damage == "all damaged" else old_id)
        folders = {path.parent for path in io.files if path.suffix == ".seg"} - {HOME}
        assert len(folders) == round_number


def test_the_root_of_a_chain_binds_the_predecessor():
    """Two logs that differ only in what they follow begin with different chains, and the id file gives both back."""
    with_predecessor = None
    io = SimulatedLogIO()
    rotten(io)
    with EventLog.open(HOME, io=io, on_corrupt="quarantine", segment_bytes=SMALL) as log:
        with_predecessor = log.identity
    without = msgspec.structs.replace(with_predecessor, predecessor=None)
    assert with_predecessor.root_chain != without.root_chain
    for identity in (with_predecessor, without):
        assert decode_identity(encode_identity(identity)) == identity


def descriptors():
    """Return the files of the test's folder that this process holds open."""
    return sorted(file for _, file in open_files() if "pytest" in file)


def test_descriptors_are_given_back(tmp_path):
    """Opening, writing and closing leaves no descriptor behind, nor does a refused opening."""
    before = descriptors()
    session = Session(tmp_path / "log")
    for number in range(1, 31):
        session.put([number])
    session.close()
    (tmp_path / "log" / "00000000000000000001.seg").unlink()
    with pytest.raises(LogRotError):
        EventLog.open(tmp_path / "log", io=FastLogIO())
    assert descriptors() == before
