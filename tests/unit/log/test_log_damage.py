"""No damage to a small log goes unnoticed: each bit, each cut, each segment missing, moved or foreign."""

from pathlib import Path

import pytest

from kvledger_storage.log import EventLog, LogRotError, verify
from support.log_sessions import SMALL, Session, contents, event
from support.log_simulation import SimulatedLogIO
from support.promises import assert_judged, assert_kept

HOME = Path("/log")
FRAMES = 10
SYNCED = 8
OTHER_BOOT = 9
MISSING = {
    0: "segment: the one that begins with seq 1",
    1: "frame: seq 9, synced through 10",
    "both": "first segment: a segment",
}


def small_log(synced):
    """Return the files of a killed daemon: ten frames in two segments, of which the first `synced` were synced."""
    io = SimulatedLogIO()
    session = Session(HOME, io)
    for number in range(1, FRAMES + 1):
        session.put([number], durable=number <= synced)
    files = io.copy()
    session.close()
    return files


def segments(io):
    """Return the paths of the segments in order."""
    return sorted(path for path in io.files if path.suffix == ".seg")


def check(io, synced, boot):
    """Open a damaged log: it is refused, or what it shows is a true beginning with all that was synced.

    Returns the open log's repair, or the error.
    """
    io.boot = boot
    before = {path: bytes(node.data) for path, node in io.files.items() if path.suffix == ".seg"}
    try:
        log = EventLog.open(HOME, io=io, segment_bytes=SMALL)
    except LogRotError as error:
        after = {path: bytes(node.data) for path, node in io.files.items() if path.suffix == ".seg"}
        assert_judged(after == before, "a refused log is left as it was found")
        return error
    found = contents(log)
    log.close()
    assert_judged(found == {number: event(number) for number in range(1, len(found) + 1)}, "another past is shown")
    assert_kept(range(1, synced + 1), found)
    return log.repaired


def bits(length, every):
    """Return the bits of so many bytes that are flipped: all, or one of each byte, another one from byte to byte."""
    return range(length * 8) if every else [byte * 8 + byte % 8 for byte in range(length)]


def flip_bits(files, path, synced, boot, every):
    """Flip bits of one file in turn; return the bytes in which a flip was refused, and those that were repaired."""
    refused, repaired = set(), set()
    for bit in bits(SMALL, every):
        io = files.copy()
        io.files[path].data[bit // 8] ^= 1 << bit % 8
        outcome = check(io, synced, boot)
        assert_judged(outcome is not None, f"bit {bit} of {path} went unnoticed")
        (refused if isinstance(outcome, LogRotError) else repaired).add(bit // 8)
    return refused, repaired


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


@EVERY
def test_every_flipped_bit_of_a_sealed_segment_is_refused(every):
    """Whichever bit of a segment with a successor flips, the log is refused, zeros behind the last frame included."""
    files = small_log(FRAMES)
    refused, repaired = flip_bits(files, segments(files)[0], FRAMES, 1, every)
    assert (len(refused), repaired) == (SMALL, set())


@EVERY
@pytest.mark.parametrize(("synced", "boot", "exposed"), [(FRAMES, 1, 0), (SYNCED, 1, 1), (SYNCED, OTHER_BOOT, 2)])
def test_every_flipped_bit_of_the_last_segment_is_found(synced, boot, exposed, every):
    """Each flipped bit is refused, but in the zeros and in `exposed` last frames, where it is repaired and reported."""
    # Of two unsynced frames the first is exposed only after a power cut: within one boot the one behind vouches for it.
    files = small_log(synced)
    path = segments(files)[-1]
    data = bytes(files.files[path].data)
    frames = [at for at in range(80, SMALL) if data.startswith(b"KVLFRAME", at)]
    protected = [*frames, len(data.rstrip(b"\0"))][len(frames) - exposed]
    refused, repaired = flip_bits(files, path, synced, boot, every)
    assert refused == set(range(protected))
    assert repaired == set(range(protected, SMALL))


@pytest.mark.parametrize("name", ["id", "mark"])
def test_flipped_bits_beside_the_segments_change_no_event(name):
    """A flipped bit of the id is refused; one of the mark costs at most the newer slot; no event changes."""
    files = small_log(FRAMES)
    path = HOME / name
    for bit in range(len(files.files[path].data) * 8):
        if not any(files.files[path].data[bit // 8 - 32 : bit // 8 + 32]):
            continue
        io = files.copy()
        io.files[path].data[bit // 8] ^= 1 << bit % 8
        assert isinstance(check(io, FRAMES, 1), LogRotError) == (name == "id")


@pytest.mark.parametrize("synced", [FRAMES, SYNCED])
def test_every_cut_is_found(synced):
    """Wherever a segment is cut off, the log is refused or the unsynced tail repaired; nothing synced is forgotten."""
    files = small_log(synced)
    sealed, last = segments(files)
    for path in (sealed, last):
        for length in range(SMALL):
            io = files.copy()
            del io.files[path].data[length:]
            outcome = check(io, synced, 1)
            assert_judged(outcome is not None, f"a cut of {path} at {length} went unnoticed")
            assert_judged(isinstance(outcome, LogRotError) or path == last, "a cut of a sealed segment was repaired")


@pytest.mark.parametrize("extra", [bytes(4), b"more"])
def test_a_file_that_grew_is_put_right(extra):
    """Bytes behind the full length of the last segment are taken off and reported, once."""
    io = small_log(FRAMES)
    _, last = segments(io)
    io.files[last].data.extend(extra)
    assert check(io, FRAMES, 1).seq == FRAMES + 1
    assert len(io.files[last].data) == SMALL
    assert check(io, FRAMES, 1) is None


@pytest.mark.parametrize("missing", [0, 1, "both"])
def test_a_missing_segment_is_refused(missing):
    """Without its first, its last or any segment the log is refused."""
    io = small_log(FRAMES)
    for path in segments(io) if missing == "both" else [segments(io)[missing]]:
        del io.files[path]
    outcome = check(io, FRAMES, 1)
    assert isinstance(outcome, LogRotError)
    assert outcome.problem.expected == MISSING[missing]


def test_a_segment_under_another_name_is_refused():
    """A segment whose name does not tell its first seq is refused, though order and chain are right."""
    io = small_log(FRAMES)
    _, last = segments(io)
    io.files[last.with_name(f"{99:020d}.seg")] = io.files.pop(last)
    assert check(io, FRAMES, 1).problem.expected == f"file name: {last.name}"


def test_swapped_segments_are_refused():
    """Two segments under each other's names are refused at the first of them."""
    io = small_log(FRAMES)
    first, last = segments(io)
    io.files[first], io.files[last] = io.files[last], io.files[first]
    outcome = check(io, FRAMES, 1)
    assert outcome.problem.file == str(first)
    assert outcome.problem.rule == "break"


@pytest.mark.parametrize("position", [0, 1])
def test_a_foreign_segment_is_refused(position):
    """A segment of another log of the same shape is refused, naming both log ids."""
    io, other = small_log(FRAMES), small_log(FRAMES)
    path = segments(io)[position]
    io.files[path] = other.files[path].copy()
    outcome = check(io, FRAMES, 1)
    assert outcome.problem.expected.startswith("log id")


def test_a_frame_from_before_is_no_continuation():
    """A whole frame of this log copied to its end breaks the sequence and is refused."""
    io = small_log(FRAMES)
    _, last = segments(io)
    data = io.files[last].data
    end = len(bytes(data).rstrip(b"\0"))
    first = bytes(data[80 : data.index(b"KVLFRAME", 81)])
    data[end : end + len(first)] = first
    outcome = check(io, FRAMES, 1)
    assert outcome.problem.rule == "break"
    assert outcome.problem.expected == "first seq: 11"


def forked_logs():
    """Return two logs that were one, and then were told different things: same id, same seqs, same sizes."""
    io = SimulatedLogIO()
    session = Session(HOME, io)
    session.put([1], durable=True)
    session.close()
    io.kill()
    branches = [io, io.copy()]
    for number, branch in enumerate(branches):
        session = Session(HOME, branch)
        for seq in range(2, FRAMES + 1):
            session.put([100 * number + 300 + seq], durable=True)
        session.close()
        branch.kill()
    return branches


@pytest.mark.parametrize("part", ["segment", "frame"])
def test_history_from_a_fork_is_refused_by_the_chain(part):
    """Whole frames of this very log, with the right seqs, are refused at once if they follow another past."""
    io, fork = forked_logs()
    path = segments(io)[-1 if part == "segment" else 0]
    start = 0 if part == "segment" else bytes(io.files[path].data).rindex(b"KVLFRAME")
    io.files[path].data[start:] = fork.files[path].data[start:]
    with pytest.raises(LogRotError) as caught:
        EventLog.open(HOME, io=io)
    problem = caught.value.problem
    assert problem.expected.startswith("previous chain: ")
    assert (problem.file, problem.offset, problem.rule) == (str(path), start, "break")


def test_later_frames_vouch_when_the_mark_is_gone():
    """Without the mark, after a power cut, a later frame still says that the damaged one had been synced."""
    io = small_log(FRAMES)
    del io.files[HOME / "mark"]
    _, last = segments(io)
    io.files[last].data[80 + 104] ^= 1
    assert check(io, FRAMES, OTHER_BOOT).problem.rule == "synced-damage"


def test_a_missing_id_is_refused_while_there_are_frames():
    """Frames without an id are never taken for an empty directory."""
    io = small_log(FRAMES)
    del io.files[HOME / "id"]
    outcome = check(io, FRAMES, 1)
    assert outcome.problem.rule == "identity"


def test_vanished_synced_frames_are_refused_by_the_mark():
    """If zeros stand where synced frames stood, the mark tells, though what is left is whole."""
    io = small_log(FRAMES)
    _, last = segments(io)
    data = io.files[last].data
    start = bytes(data).rindex(b"KVLFRAME")
    data[start:] = bytes(len(data) - start)
    outcome = check(io, FRAMES, 1)
    assert outcome.problem.rule == "synced-frames-missing"
    assert outcome.problem.seq == FRAMES


def test_the_repaired_tail_is_kept_and_the_report_says_where():
    """What recovery takes off lies in a side file byte for byte, and the log goes on from there."""
    io = small_log(SYNCED)
    _, last = segments(io)
    data = bytes(io.files[last].data)
    start = data.rindex(b"KVLFRAME")
    io.files[last].data[start] ^= 1
    torn = bytes(io.files[last].data[start:]).rstrip(b"\0")
    report = verify(HOME, io=io)
    assert (report.ok, report.decision, report.last_seq) == (True, "repair_tail", FRAMES - 1)
    repaired = check(io, SYNCED, 1)
    assert (repaired.seq, repaired.offset, repaired.length) == (FRAMES, start, len(torn))
    assert bytes(io.files[Path(repaired.saved_to)].data) == torn
    session = Session(HOME, io)
    assert session.put([77], durable=True) == FRAMES
    session.close()
    assert verify(HOME, io=io).problem is None


@pytest.mark.hostile("TI03")
def test_same_boot_and_other_boot_are_judged_apart():
    """A bad frame with a whole one behind is rot if no power was lost since, and a torn tail if it was."""
    files = small_log(SYNCED)
    _, last = segments(files)
    start = bytes(files.files[last].data).rindex(b"KVLFRAME", 0, bytes(files.files[last].data).rindex(b"KVLFRAME"))
    files.files[last].data[start + 104] ^= 1
    assert check(files.copy(), SYNCED, 1).problem.rule == "same-boot-damage"
    assert check(files.copy(), SYNCED, OTHER_BOOT).rule == "lost-out-of-order"
