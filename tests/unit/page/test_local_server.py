"""The server of page and metrics: it ends when it is told to, whatever it was at."""

from __future__ import annotations

import socket
from socketserver import ThreadingMixIn

import pytest

from kvledgerd.web.address import HttpAddress
from kvledgerd.web.server import LocalHandler, serve_http


@pytest.mark.timeout(30)
def test_a_signal_ends_it_while_a_connection_is_handed_to_its_thread(tmp_socket_dir, monkeypatch):
    """A handler of signals may raise where a thread was just started, which can have answered already."""

    def interrupted(self, request, client_address):
        self.process_request_thread(request, client_address)
        raise SystemExit(0)

    monkeypatch.setattr(ThreadingMixIn, "process_request", interrupted)
    with socket.socket(socket.AF_UNIX) as client:

        def ready(path):
            client.connect(path)
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")

        with pytest.raises(SystemExit):
            serve_http(HttpAddress(tmp_socket_dir / "http"), LocalHandler, ready)
        assert client.recv(100).startswith(b"HTTP/1.0 501")
