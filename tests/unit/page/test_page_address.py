"""Where the page may be served: on this machine alone."""

from __future__ import annotations

import socket

import pytest

from kvledgerd.exits import Exit
from kvledgerd.page.handler import is_local_host
from kvledgerd.settings.loading import ConfigError, load
from kvledgerd.web.address import HttpAddress
from support.commands import kvledger

OUTSIDE = ("0.0.0.0:80", "[::]:80", "192.168.1.2:80", "10.0.0.1:9465", "[fe80::1]:80", "[::ffff:127.0.0.1]:80")
NONSENSE = (
    "example.org:80",
    "localhost.:80",
    "127.0.0.1",
    "127.0.0.1:",
    "127.0.0.1:65536",
    "127.1:80",
    "page.sock",
    ":٣",
)


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("127.0.0.1:9465", "127.0.0.1:9465"),
        ("127.8.9.10:1", "127.8.9.10:1"),
        ("localhost:9465", "127.0.0.1:9465"),
        ("9465", "127.0.0.1:9465"),
        ("[::1]:9465", "[::1]:9465"),
        ("/run/kvledger/page.sock", "/run/kvledger/page.sock"),
        ("", ""),
    ],
)
def test_loopback_and_unix_sockets_are_taken(text, usual):
    """A loopback address with a port, a port alone and a path are taken, in one spelling."""
    assert HttpAddress.parse(text) == usual


@pytest.mark.parametrize("text", [*OUTSIDE, *NONSENSE])
def test_everything_else_is_refused_with_a_typed_error(text):
    """An address that others could reach, or that is none, is refused as a setting, with what is right."""
    with pytest.raises(
        ConfigError, match=r"http: .*\(on the command line\) is not an address of this machine"
    ) as caught:
        load(None, {}, {"http": text})
    assert caught.value.field == "http"


def test_a_port_that_is_taken_is_named():
    """Where somebody listens already the command says at which port, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        said = kvledger("page", "--http", at)
    assert said.returncode == Exit.CONFIG
    assert said.stderr == (
        f"kvledger: http: can not listen at {at}: Address already in use"
        " (choose another port, or stop what has this one)\n"
    )


def test_the_command_refuses_the_same():
    """`kvledger page` and `kvledger serve` end with the code of a wrong setting before anything listens."""
    for words in (["page", "--http", "0.0.0.0:9465"], ["serve", "--http", "192.168.1.2:80"]):
        ended = kvledger(*words)
        assert ended.returncode == Exit.CONFIG
        assert "can be reached from outside" in ended.stderr


def test_a_missing_extra_is_named(monkeypatch):
    """Without its library the page says which extra brings it, and so does a daemon that is to serve it."""
    monkeypatch.setattr("kvledgerd.commands.page.find_spec", lambda _: None)
    for words in (["page", "--http", "127.0.0.1:0"], ["serve", "--http", "127.0.0.1:9465", "--print-config"]):
        ended = kvledger(*words)
        assert ended.returncode == Exit.CONFIG
        assert "pip install 'kvledger[daemon,page]'" in ended.stderr


@pytest.mark.parametrize("header", ["localhost", "localhost:8080", "127.0.0.1:9465", "[::1]:1", "127.9.9.9"])
def test_this_machine_is_known_by_its_host_header(header):
    """Any name of loopback is this machine, with whatever port a tunnel has."""
    assert is_local_host(header)


@pytest.mark.parametrize(
    "header",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "192.168.1.2", "[::1", "a@localhost:x:y"],
)
def test_a_name_that_was_pointed_here_is_not(header):
    """Under any other name, as DNS rebinding has it, nobody is answered."""
    assert not is_local_host(header)
