import errno
import fcntl
import os
import socket
import stat

import pytest

from kvledgerd.keeper import listener
from kvledgerd.keeper.listener import PATH_LIMIT, ListenError, listen, unlink_own
from kvledgerd.keeper.messages import Message
from kvledgerd.keeper.policy import RestartPolicy
from kvledgerd.keeper.store import DescriptorStore
from support.shm import open_descriptors


def told(store, text, count=0, *, whole=True):
    """Tell the store something, with ``count`` new memfds."""
    fds = tuple(os.memfd_create("x") for _ in range(count))
    store.take(Message(text.encode("utf-8", "surrogateescape"), fds, None, whole))


def names(store):
    """Return the names of all that is held."""
    return [name for name, _ in store.items()]


def test_store_holds_by_name_up_to_its_limit():
    """Descriptors are held by name; what comes beyond the limit is closed; removing a name closes all of it."""
    before = open_descriptors()
    store = DescriptorStore(3)
    told(store, "FDSTORE=1\nFDNAME=a", 2)
    told(store, "FDNAME=b\nFDSTORE=1\nFDPOLL=0", 2)
    assert names(store) == ["a", "a", "b"]
    told(store, "FDSTOREREMOVE=1\nFDNAME=a")
    assert names(store) == ["b"]
    assert open_descriptors() == before + 1
    store.close()
    assert open_descriptors() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "READY=1",
        "FDSTORE=0",
        "FDSTORE",
        "BARRIER=1",
        "BARRIER=1\nFDSTORE=1",
        "\udcff\x00=\n==\n",
        "FDSTOREREMOVE=1",
    ],
)
def test_what_asks_for_no_storing_is_closed(text):
    """Descriptors of any other message, a barrier's above all, are closed at once."""
    before = open_descriptors()
    store = DescriptorStore(10)
    told(store, text, 3)
    assert store.items() == []
    assert open_descriptors() == before


def test_cut_message_stores_nothing():
    """A message of which a part was lost is not believed, and what came of it is closed."""
    before = open_descriptors()
    store = DescriptorStore(10)
    told(store, "FDSTORE=1\nFDNAME=a", 3, whole=False)
    assert open_descriptors() == before


@pytest.mark.parametrize("line", ["FDNAME=a:b", "FDNAME=", "FDNAME=\u00e9", "FDNAME=" + "x" * 256, ""])
def test_odd_names_become_the_default_one(line):
    """A name that could not be passed on, or none, becomes `stored`, as with the service manager."""
    store = DescriptorStore(10)
    told(store, f"FDSTORE=1\n{line}", 1)
    assert names(store) == ["stored"]
    store.close()


def test_restarts_come_at_once_then_slower():
    """The first restart is immediate, the delay then doubles up to its ceiling and never overflows."""
    policy = RestartPolicy(first_s=0.1, longest_s=5.0)
    assert [policy.delay(failures) for failures in (1, 2, 3, 4, 8, 100_000)] == [0.0, 0.1, 0.2, 0.4, 5.0, 5.0]


def test_socket_has_its_mode_from_the_start(tmp_socket_dir):
    """The socket file is 0660 whatever the umask, and the umask is as before."""
    umask = os.umask(0o027)
    try:
        with listen(tmp_socket_dir / "s"):
            assert stat.S_IMODE((tmp_socket_dir / "s").stat().st_mode) == 0o660
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(umask)


@pytest.mark.parametrize("length", [PATH_LIMIT, PATH_LIMIT + 1])
def test_longest_path_binds_and_one_more_is_named(tmp_socket_dir, length):
    """A path of 107 bytes binds; one of 108 is refused with both numbers and a remedy."""
    before = open_descriptors()
    path = tmp_socket_dir / ("s" * (length - len(os.fsencode(tmp_socket_dir)) - 1))
    if length <= PATH_LIMIT:
        listen(path).close()
    else:
        with pytest.raises(ListenError, match=r"has 108 bytes.*at most 107.*shorter"):
            listen(path)
    assert open_descriptors() == before


def test_only_a_dead_socket_is_replaced(tmp_socket_dir):
    """A socket that nobody listens at is replaced; a live one, even with a full backlog, and a file are not."""
    path = tmp_socket_dir / "s"
    listen(path).close()
    live = listen(path)
    with pytest.raises(ListenError, match="already listens"):
        listen(path)
    live.listen(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as full:
        assert full.connect_ex(str(path)) == errno.EAGAIN
        with pytest.raises(ListenError, match="already listens"):
            listen(path)
    live.close()
    path.unlink()
    path.write_text("mine")
    with pytest.raises(ListenError, match="no socket"):
        listen(path)
    assert path.read_text() == "mine"


def test_symbolic_link_is_not_followed(tmp_socket_dir):
    """A link in the socket's place is refused, also if it leads to a dead socket."""
    listen(tmp_socket_dir / "target").close()
    (tmp_socket_dir / "s").symlink_to(tmp_socket_dir / "target")
    with pytest.raises(ListenError, match="no socket"):
        listen(tmp_socket_dir / "s")


def test_missing_directory_is_named(tmp_socket_dir):
    """A directory that does not exist is a typed error with the path."""
    with pytest.raises(ListenError, match="No such file"):
        listen(tmp_socket_dir / "absent" / "s")


def test_directory_locked_by_another_program_is_no_hang(tmp_socket_dir, monkeypatch):
    """A directory that somebody keeps locked is a typed error after a moment."""
    monkeypatch.setattr(listener, "_LOCK_S", 0.05)
    directory = os.open(tmp_socket_dir, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    with pytest.raises(ListenError, match="locked"):
        listen(tmp_socket_dir / "s")
    os.close(directory)


def test_only_the_own_socket_file_is_removed(tmp_socket_dir):
    """A socket file that somebody else has put in the meantime stays."""
    path = tmp_socket_dir / "s"
    with listen(path):
        facts = path.lstat()
        unlink_own(path, (facts.st_dev, facts.st_ino + 1))
        assert path.exists()
        unlink_own(path, (facts.st_dev, facts.st_ino))
        assert not path.exists()
        unlink_own(path, (facts.st_dev, facts.st_ino))
