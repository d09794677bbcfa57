import os
import socket
import threading
import time

import pytest

from kvledger.errors import CapacityError
from kvledgerd.keeper.messages import receive
from kvledgerd.keeper.notify import Notifier, NotifyError, listen_fds, watchdog_seconds
from support.shm import open_descriptors


@pytest.fixture(params=["abstract", "path"])
def manager(request, tmp_socket_dir):
    """Give a service manager's socket and the address under which a service finds it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        if request.param == "path":
            sock.bind(str(tmp_socket_dir / "notify"))
            yield sock, str(tmp_socket_dir / "notify")
        else:
            sock.bind("")
            yield sock, "@" + sock.getsockname()[1:].decode()


@pytest.fixture
def notifier(manager):
    """Give a notifier that talks to that manager."""
    made = Notifier(manager[1], store_limit=300)
    yield made
    made.close()


def text(sock):
    """Return the next notification's text, its descriptors closed."""
    message = receive(sock, 4096)
    message.close()
    return message.data.decode()


def test_states_are_said_in_the_managers_words(manager, notifier):
    """Readiness, status, watchdog and stopping are the datagrams that sd_notify(3) describes."""
    assert notifier.ready("12 arenas")
    assert notifier.status("two\nlines=1")
    assert notifier.watchdog()
    assert notifier.stopping()
    said = [text(manager[0]) for _ in range(4)]
    assert said == ["READY=1\nSTATUS=12 arenas", "STATUS=two lines=1", "WATCHDOG=1", "STOPPING=1"]


def test_stored_descriptors_travel_by_name_and_are_not_polled(manager, notifier):
    """Storing sends at most 253 descriptors a datagram under one name, and asks the manager not to poll them."""
    fd = os.memfd_create("x")
    notifier.store("arena-1", [fd] * 254)
    first, second = receive(manager[0], 4096), receive(manager[0], 4096)
    assert first.data == second.data == b"FDSTORE=1\nFDPOLL=0\nFDNAME=arena-1"
    assert (len(first.descriptors), len(second.descriptors)) == (253, 1)
    first.close()
    second.close()
    notifier.remove("arena-1")
    assert text(manager[0]) == "FDSTOREREMOVE=1\nFDNAME=arena-1"
    os.close(fd)


@pytest.mark.hostile("AR04")
def test_full_store_is_an_error_here_as_the_manager_would_say_nothing(notifier):
    """More descriptors than the store takes are refused before they are sent, those of earlier lives included."""
    notifier.assume_stored(298, "arena-0")
    notifier.assume_stored(1)
    with pytest.raises(CapacityError, match="FileDescriptorStoreMax"):
        notifier.store("arena-1", [0, 1])
    notifier.remove("unknown")
    with pytest.raises(CapacityError, match="299 stored, 2 more"):
        notifier.store("arena-1", [0, 1])
    notifier.remove("arena-0")
    notifier.store("arena-1", [0, 1])


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "\u00e9", "x" * 256])
def test_names_that_the_manager_would_not_take_are_refused(notifier, name):
    """A stored descriptor's name is 1 to 255 printable ASCII characters without a colon."""
    with pytest.raises(NotifyError, match="FDNAME"):
        notifier.store(name, [0])
    with pytest.raises(NotifyError, match="FDNAME"):
        notifier.remove(name)


def test_barrier_waits_until_the_manager_closes_its_end(manager, notifier):
    """A barrier stands alone with one descriptor, and returns when the manager has closed that."""
    before = open_descriptors()
    closed = []

    def answer():
        message = receive(manager[0], 4096)
        time.sleep(0.05)
        closed.append((message.data, len(message.descriptors)))
        message.close()

    thread = threading.Thread(target=answer)
    thread.start()
    notifier.barrier(deadline_s=60)
    assert closed == [(b"BARRIER=1", 1)]
    thread.join()
    assert open_descriptors() == before


def test_silent_manager_is_an_error_after_the_deadline(notifier):
    """A manager that does not answer a barrier is an error after the deadline, and leaks nothing."""
    before = open_descriptors()
    start = time.monotonic()
    with pytest.raises(NotifyError, match=r"0\.1 s"):
        notifier.barrier(deadline_s=0.1)
    assert 0.09 < time.monotonic() - start < 30
    assert open_descriptors() == before


def test_full_queue_never_blocks_the_loop(notifier):
    """When the manager does not read, a watchdog message is a quick no, and storing an error after its deadline."""
    start = time.monotonic()
    while notifier.watchdog():
        assert time.monotonic() - start < 60
    with pytest.raises(NotifyError, match="did not answer"):
        notifier.store("arena-1", [0], deadline_s=0.05)
    assert not notifier.watchdog()


def test_manager_that_went_away_is_an_error(manager, notifier):
    """A manager whose socket is closed is reported, not ignored."""
    manager[0].close()
    with pytest.raises(NotifyError, match="can not be told"):
        notifier.watchdog()


def test_without_a_manager_nothing_is_stored():
    """Outside of any manager the states are quiet, and storing says how to start the daemon."""
    notifier = Notifier.from_environment({})
    assert not notifier.present
    assert not notifier.ready()
    with pytest.raises(NotifyError, match="kvledger serve"):
        notifier.store("arena-1", [0])


@pytest.mark.parametrize("address", ["vsock:2:1234", "relative", "@nobody-listens-here-kvledger"])
def test_address_that_leads_nowhere_is_refused(address):
    """An address of an unknown kind, or that nobody has bound, is a typed error and leaks no socket."""
    before = open_descriptors()
    with pytest.raises(NotifyError, match="NOTIFY_SOCKET"):
        Notifier(address)
    assert open_descriptors() == before


def test_environment_of_another_process_is_not_ours():
    """LISTEN variables that name another pid pass nothing, and are taken away so that no child believes them."""
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "3", "LISTEN_FDNAMES": "a:b:c", "HOME": "/"}
    assert listen_fds(environment) == {}
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({"LISTEN_FDS": "x"}, "LISTEN_FDS"),
        ({"LISTEN_FDS": "-1"}, "LISTEN_FDS"),
        ({"LISTEN_FDS": "1", "LISTEN_FDNAMES": "a:b"}, "LISTEN_FDNAMES"),
        ({"LISTEN_FDS": "100000"}, "LISTEN_FDS"),
    ],
)
def test_nonsense_from_the_manager_is_named(variables, field):
    """A count that is none, too few names, and descriptors that are not open are typed errors."""
    with pytest.raises(NotifyError) as refusal:
        listen_fds({"LISTEN_PID": str(os.getpid())} | variables)
    assert refusal.value.field == field


def test_watchdog_is_fed_twice_in_its_time():
    """The interval is half the manager's deadline, and None without one or if it is meant for another process."""
    assert watchdog_seconds({"WATCHDOG_USEC": "30000000"}) == 15.0
    assert watchdog_seconds({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}) is None
    assert watchdog_seconds({}) is None
    assert watchdog_seconds({"WATCHDOG_USEC": "0"}) is None
