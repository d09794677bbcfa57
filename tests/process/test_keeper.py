import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import support
from kvledgerd.keeper.messages import send
from support.hostile_descriptors import LINGER_SECONDS, lingering

TOY = Path(support.__path__[0]) / "toy_daemon.py"
# Delays of milliseconds instead of seconds, so that twenty deaths fit into a test.
RUN = (
    "import sys\nfrom pathlib import Path\nfrom kvledgerd.keeper.keeper import run\n"
    "from kvledgerd.keeper.listener import Listening\n"
    "from kvledgerd.keeper.policy import RestartPolicy\n"
    "policy = RestartPolicy(first_s={delay}, longest_s={delay}, stop_s={stop})\n"
    "sys.exit(run(sys.argv[2:], [Listening('kvledger.socket', Path(sys.argv[1]))], policy=policy))"
)


def wait_until(condition):
    """Wait until a condition holds, for a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_gone(pid):
    """Tell whether a process has ended, a zombie included."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


# A round of this keeper takes half a second between its first look at the notifications and its look at the daemon.
SLOW = (
    "import time\nfrom kvledgerd.keeper.keeper import _Keeper\nforward = _Keeper._forward_signals\n"
    "_Keeper._forward_signals = lambda self: (time.sleep(0.5), forward(self))\n"
)


class Kept:
    """A toy daemon under a real keeper."""

    def __init__(self, socket_path, *arguments, command=None, delay=0.02, stop=15, before=""):
        self.path = socket_path
        command = command or [sys.executable, str(TOY), *arguments]
        self.keeper = subprocess.Popen(
            [sys.executable, "-c", before + RUN.format(delay=delay, stop=stop), str(socket_path), *command],
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words):
        """Return the toy's answer to one command; None if it died instead."""
        with self.connected() as sock, sock.makefile("rw") as lines:
            lines.write(" ".join(map(str, words)) + "\n")
            with contextlib.suppress(ConnectionError):
                lines.flush()
                answer = lines.readline()
                return json.loads(answer) if answer else None

    def connected(self):
        """Return a connection, as soon as the keeper listens."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        end = time.monotonic() + 60
        while sock.connect_ex(str(self.path)):
            assert time.monotonic() < end
            time.sleep(0.01)
        return sock

    def kill_daemon(self):
        """Kill the toy, see it gone, and return the pid it had."""
        pid = self.ask("state")["pid"]
        self.end(pid)
        return pid

    def end(self, pid):
        """Kill a process and see it gone."""
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid))

    def keeper_fds(self):
        """Return how many descriptors the keeper has open."""
        return sum(1 for _ in Path(f"/proc/{self.keeper.pid}/fd").iterdir())

    def stop(self):
        """Stop the keeper as a user would, and return its exit code."""
        self.keeper.send_signal(signal.SIGTERM)
        self.keeper.communicate(timeout=60)
        return self.keeper.returncode


@pytest.fixture
def keep(tmp_socket_dir):
    """Give a function that starts a toy daemon under a keeper."""
    started = []

    def start(*arguments, **options):
        started.append(Kept(tmp_socket_dir / "s", *arguments, **options))
        return started[-1]

    yield start
    for kept in started:
        kept.keeper.kill()
        kept.keeper.communicate()


def test_bytes_outlive_twenty_kills(keep):
    """A daemon that is killed twenty times finds every byte it ever stored, and nobody leaks a descriptor."""
    kept = keep()
    held, fds = kept.keeper_fds, kept.ask("state")["fds"]
    baseline = held()
    for number in range(20):
        kept.ask("store_and_wait", f"arena-{number}", 1)
        kept.kill_daemon()
        assert kept.ask("contents") == {f"arena-{old}": [f"arena-{old}:0"] for old in range(number + 1)}
    assert held() == baseline + 20
    assert kept.ask("state")["fds"] == fds + 20
    for number in range(20):
        kept.ask("forget", f"arena-{number}")
    assert held() == baseline
    kept.kill_daemon()
    assert kept.ask("contents") == {}
    assert kept.stop() == 0


def test_descriptor_sent_by_a_dying_daemon_is_kept(keep):
    """What a daemon sent before it was killed is stored, although nobody looked while it lived."""
    kept = keep()
    for number in range(3):
        assert kept.ask("store_and_die", f"arena-{number}", 2) is None
    assert kept.ask("contents") == {f"arena-{old}": [f"arena-{old}:0", f"arena-{old}:1"] for old in range(3)}


def test_death_never_overtakes_a_descriptor(keep):
    """What a daemon sends after the keeper has looked, and before it sees the daemon dead, is stored all the same."""
    kept = keep(before=SLOW)
    address = "\0" + kept.ask("state")["notify"][1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        sock.send(b"wake up")
    time.sleep(0.1)
    kept.ask("store_and_die", "late", 1)
    assert kept.ask("contents") == {"late": ["late:0"]}


def test_kills_in_the_middle_of_storing_leave_a_sane_store(keep):
    """Killed fifteen times while it stores and forgets as fast as it can, a daemon finds all it kept, and no debris."""
    kept = keep()
    kept.ask("store_and_wait", "kept", 2)
    baseline, moments = kept.keeper_fds(), random.Random(3)
    for _ in range(15):
        pid = kept.ask("state")["pid"]
        kept.ask("churn")
        time.sleep(moments.random() / 50)
        kept.end(pid)
        assert kept.ask("contents")["kept"] == ["kept:0", "kept:1"]
        kept.ask("forget", "churn")
        assert kept.keeper_fds() == baseline


def test_full_message_of_descriptors_comes_back_in_order(keep):
    """253 descriptors in one notification, and more in several, come back under their name in the order sent."""
    kept = keep()
    kept.ask("store_and_wait", "many", 253)
    kept.ask("store_and_wait", "more", 255)
    kept.kill_daemon()
    assert kept.ask("contents") == {
        name: [f"{name}:{i}" for i in range(count)] for name, count in (("many", 253), ("more", 255))
    }


def test_store_takes_no_second_copy(keep):
    """A daemon that stores again what it was given back does not fill the store with copies."""
    kept = keep()
    kept.ask("store_and_wait", "arena-1", 3)
    before = kept.keeper_fds()
    kept.ask("store_again", "arena-1")
    assert kept.keeper_fds() == before


def test_stranger_is_ignored(keep):
    """A process that the daemon did not start can neither store, nor remove, nor make the keeper hold a descriptor."""
    kept = keep()
    kept.ask("store_and_wait", "arena-1", 1)
    before = kept.keeper_fds()
    address = "\0" + kept.ask("state")["notify"][1:]
    fd = os.memfd_create("foreign")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        send(sock, b"FDSTORE=1\nFDNAME=foreign", [fd] * 253)
        send(sock, b"FDSTOREREMOVE=1\nFDNAME=arena-1", [])
        send(sock, b"\xff\x00=\n=\nFDSTORE", [])
    os.close(fd)
    kept.ask("store_and_wait", "arena-2", 1)
    kept.kill_daemon()
    assert sorted(kept.ask("contents")) == ["arena-1", "arena-2"]
    wait_until(lambda: kept.keeper_fds() == before + 1)  # what others send is closed by threads that nobody waits for


def test_stranger_who_sends_without_pause_delays_nobody(keep):
    """While a foreign process floods the keeper, the daemon still stores, dies, comes back and is stopped."""
    kept = keep()
    program = (
        "import socket, sys\nsock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "sock.connect('\\0' + sys.argv[1][1:])\nprint(flush=True)\nwhile True: sock.send(b'FDSTOREREMOVE=1')"
    )
    command = [sys.executable, "-c", program, kept.ask("state")["notify"]]
    flood = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        flood.stdout.readline()
        kept.ask("store_and_wait", "stored", 1)
        kept.kill_daemon()
        assert kept.ask("contents") == {"stored": ["stored:0"]}
        assert kept.stop() == 0
    finally:
        flood.kill()
        flood.communicate()


@pytest.mark.hostile("DE06")
def test_stranger_whose_descriptor_closes_slowly_delays_nobody(keep):
    """A descriptor whose close takes a minute, from any process on the machine, keeps the keeper from nothing."""
    kept = keep()
    (fd, peer), address = lingering(), "\0" + kept.ask("state")["notify"][1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, peer:
        sock.connect(address)
        send(sock, b"FDSTORE=1\nFDNAME=foreign", [fd])
        os.close(fd)
        began = time.monotonic()
        kept.ask("store_and_wait", "arena-1", 1)
        kept.kill_daemon()
        assert sorted(kept.ask("contents")) == ["arena-1"]
        assert time.monotonic() - began < LINGER_SECONDS / 2


def test_child_of_the_daemon_may_store(keep):
    """A process that the daemon started speaks for it."""
    kept = keep()
    kept.ask("store_from_child", "helper")
    kept.kill_daemon()
    assert list(kept.ask("contents")) == ["helper"]


def test_daemon_learns_the_size_of_the_store(keep):
    """The daemon is told how much the store takes, and its children inherit nothing that was meant for it alone."""
    state = keep().ask("state")
    assert state["limit"] == 512
    assert state["inherited"] == []


def test_daemon_starts_with_default_signals(tmp_socket_dir):
    """None of the signals that an interpreter or a shell's job control ignores is blocked or ignored in the daemon."""
    command = [
        sys.executable,
        "-c",
        RUN.format(delay=1, stop=15),
        str(tmp_socket_dir / "s"),
        "grep",
        "-E",
        "Sig(Ign|Blk)",
        "/proc/self/status",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    masks = [int(line.split(":")[1], 16) for line in done.stdout.splitlines()]
    needed = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)

    assert len(masks) == 2
    assert [number for number in needed for mask in masks if mask >> (number - 1) & 1] == []


def test_client_waits_while_the_daemon_restarts(keep):
    """A client that connects between two lives of the daemon is answered by the next one."""
    kept = keep()
    for _ in range(3):
        old = kept.kill_daemon()
        assert kept.ask("state")["pid"] != old


def test_children_of_a_dead_daemon_are_ended(keep):
    """What a killed daemon left running is gone before the next one starts."""
    kept = keep()
    sleeper = kept.ask("start_sleeper")
    kept.kill_daemon()
    kept.ask("state")
    assert is_gone(sleeper)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_signal_ends_daemon_and_keeper(keep, number):
    """Each stop signal ends the daemon, then the keeper with 0, and takes the socket file away."""
    kept = keep()
    pid = kept.ask("state")["pid"]
    kept.keeper.send_signal(number)
    assert kept.keeper.wait(timeout=60) == 0
    assert is_gone(pid)
    assert not kept.path.exists()


def test_keeper_stops_between_two_lives_of_the_daemon(keep):
    """A keeper that is waiting to restart a daemon that always fails ends at once with 0 when it is told to stop."""
    kept = keep(command=["false"], delay=60)
    assert [kept.keeper.stderr.readline().split("; ")[1] for _ in range(2)] == [
        "next start in 0.0 s\n",
        "next start in 60.0 s\n",
    ]
    assert kept.stop() == 0
    assert not kept.path.exists()


def test_daemon_that_will_not_stop_is_killed(keep):
    """A daemon that ignores the stop signal is killed after its time, and the exit code says so."""
    kept = keep("deaf", stop=0.2)
    kept.ask("state")
    assert kept.stop() == 128 + signal.SIGKILL


@pytest.mark.parametrize("code", [0, 64, 65, 78])
def test_final_exit_code_ends_the_keeper(keep, code):
    """A daemon that is done, or that would fail the same way again, is not restarted; the code is passed on."""
    kept = keep()
    kept.ask("exit", code)
    assert kept.keeper.wait(timeout=60) == code
    assert not kept.path.exists()


def test_wrong_settings_lose_no_memory(keep):
    """A daemon that stored memory and then finds wrong settings is tried until they are mended, and has it all."""
    kept = keep()
    kept.ask("store_and_wait", "arena-1", 1)
    for _ in range(3):
        kept.ask("exit", 78)
    assert kept.ask("contents") == {"arena-1": ["arena-1:0"]}

    kept.ask("forget", "arena-1")
    kept.ask("exit", 78)
    assert kept.keeper.wait(timeout=60) == 78


def test_other_exit_codes_restart_the_daemon(keep):
    """A daemon that ends with a code that may pass, such as 1 or 75, is started again."""
    kept = keep()
    pids = set()
    for code in (1, 75):
        pids.add(kept.ask("state")["pid"])
        kept.ask("exit", code)
    pids.add(kept.ask("state")["pid"])
    assert len(pids) == 3


def test_command_that_does_not_exist_is_named(keep):
    """A command that can not be run ends the keeper at once, with the name and the reason on stderr."""
    kept = keep(command=["/does/not/exist"])
    _, text = kept.keeper.communicate(timeout=60)
    assert kept.keeper.returncode == 127
    assert "can not run /does/not/exist: No such file or directory" in text


def test_daemon_dies_with_its_keeper_and_the_next_keeper_takes_over(keep):
    """A killed keeper takes the daemon with it, and the socket file that it left is replaced by the next one."""
    kept = keep()
    pid = kept.ask("state")["pid"]
    kept.keeper.kill()
    kept.keeper.wait()
    wait_until(lambda: is_gone(pid))
    assert kept.path.exists()
    assert keep().ask("state")["pid"] != pid


def test_second_keeper_leaves_the_first_alone(keep):
    """A keeper that finds somebody listening ends with 78 and a sentence, and the first one goes on."""
    kept = keep()
    pid = kept.ask("state")["pid"]
    command = [sys.executable, "-m", "kvledgerd.keeper", "--socket", str(kept.path), "--", "true"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 78
    assert "already listens" in second.stderr
    assert kept.ask("state")["pid"] == pid
