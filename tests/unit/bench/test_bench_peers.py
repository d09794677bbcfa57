"""The rows about peers: each is compared before it is timed, and none fails for a peer that is not there."""

from contextlib import contextmanager, nullcontext

import pytest

from kvledgerd.bench.contents import WrongAnswerError
from kvledgerd.bench.figures import spread_of
from kvledgerd.bench.peers import row
from kvledgerd.bench.peers.system import LostError, Peer, UnusablePeerError, work_for
from kvledgerd.bench.scale import TINY

WORK = work_for(TINY)
ROWS = ["put 1 MiB", "get 1 MiB", "exists of 4 blocks", "restart with 8 x 1 MiB"]


class Shelf:
    """A system that holds one unit in this process."""

    def __init__(self, work, *, damage=0):
        self.work = work
        self.damage = damage
        self.held = b""

    def put(self):
        """Hold the unit."""
        self.held = bytes(self.work.unit)

    def get(self):
        """Return a copy of what is held."""
        copy = bytearray(self.held)
        copy[-1] ^= self.damage
        return memoryview(copy)

    def exists(self):
        """Find everything."""
        return self.work.blocks

    def restart(self):
        """Come back in half a second."""
        return 0.5


def _peer(name="Shelf", **more):
    return Peer(name, lambda: "", lambda work: nullcontext((Shelf(work, **more), "a shelf")))


@pytest.fixture
def measure(monkeypatch):
    """Return what measures some peers beside a shelf that stands for kvledger."""
    monkeypatch.setattr(row, "ours", lambda work: nullcontext(Shelf(work)))

    def run(*there):
        monkeypatch.setattr(row, "PEERS", there)
        return list(row.peers(TINY))

    return run


def test_each_peer_has_a_row_for_each_thing_that_is_asked(measure):
    """The rows are those of the design, bear the name of their peer, and say how it was configured."""
    found = measure(_peer("One"), _peer("Two")._replace(only_put=True))
    assert [figure.name for figure in found] == [*(f"{name} (One)" for name in ROWS), "put 1 MiB (Two)"]
    assert {figure.peer for figure in found} == {"a shelf"}
    assert all(number > 0 for figure in found for number in spread_of(figure).beside)


def test_goal_of_a_look_up_is_that_of_its_peer(measure):
    """A look-up has to be as many times faster than a peer's as the design says of that peer."""
    found = measure(_peer()._replace(exists_bound=0.02))
    assert [str(figure.goal) for figure in found] == [">= 1", ">= 1", "<= 0.02", "<= 1"]


def test_peer_that_is_not_there_is_one_line(measure, capsys):
    """What is missing is told with what to install; the others are measured, and nothing fails."""
    absent = _peer("Absent")._replace(lacks=lambda: "install it")
    assert len(measure(absent, absent._replace(only_put=True), _peer())) == len(ROWS)
    assert capsys.readouterr().err == "peers: Absent is not measured: install it\n"
    assert measure(absent) == []


def test_peer_that_does_not_start_is_one_line(measure, capsys):
    """A peer that is installed and ends at once is told with its own words; the others are measured."""

    @contextmanager
    def broken(_work):
        raise UnusablePeerError("no such device")
        yield

    assert len(measure(_peer("Broken")._replace(run=broken), _peer())) == len(ROWS)
    assert capsys.readouterr().err == "peers: Broken does not start here: no such device\n"


def test_peer_that_loses_everything_has_no_time_for_it(measure, capsys, monkeypatch):
    """A peer whose restart brings nothing back has the other rows, and is told to have lost what it held."""

    def lose(_shelf):
        raise LostError("the shelf is empty")

    monkeypatch.setattr(Shelf, "restart", lose)
    assert [figure.name for figure in measure(_peer())] == [f"{name} (Shelf)" for name in ROWS[:-1]]
    assert capsys.readouterr().err == "peers: Shelf has no row for restart: the shelf is empty\n"


@pytest.mark.parametrize("wrong", ["ours", "theirs"])
def test_wrong_bytes_are_never_timed(measure, monkeypatch, wrong):
    """One wrong bit in what either side returns ends the row before its first number."""
    if wrong == "ours":
        monkeypatch.setattr(row, "ours", lambda work: nullcontext(Shelf(work, damage=1)))
    with pytest.raises(WrongAnswerError):
        measure(_peer(damage=int(wrong == "theirs")))


@pytest.mark.slow
@pytest.mark.timeout(300)  # of one of them each start takes seconds
@pytest.mark.filterwarnings("default")  # what the packages of peers warn of is theirs
@pytest.mark.parametrize("peer", row.PEERS, ids=lambda peer: peer.name)
def test_installed_peer_fills_its_rows(monkeypatch, peer):
    """A peer that is installed stores, reads and finds the same bytes as kvledger, and each row has positive times."""
    if lacking := peer.lacks():
        pytest.skip(f"{peer.name}: {lacking}")
    monkeypatch.setattr(row, "PEERS", (peer,))
    measured = list(row.peers(TINY))
    names = [f"{name} ({peer.name})" for name in ROWS]
    assert [figure.name for figure in measured] == names[: len(measured)]
    assert len(measured) >= (1 if peer.only_put else 3)
    assert all(number > 0 for figure in measured for number in (*spread_of(figure).ours, *spread_of(figure).beside))
