"""Where HTTP is served: a port of loopback or a Unix socket, and nowhere else.

What is told there names models, engines and prefixes, so an address that another machine could reach is refused before
anything listens. A name is not looked up: what a resolver answers is no promise, so only `localhost` is taken.
"""

import ipaddress
from typing import Final, Self

__all__ = ["HttpAddress"]

_REMEDY: Final = "write 127.0.0.1:9465, [::1]:9465, or /run/kvledger/page.sock"


class HttpAddress(str):
    """The text of such an address in its usual spelling; empty where nothing is served."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check a text: a port, a loopback address with a port, or the path of a Unix socket.

        Raises:
            ValueError: It is none of these, or an address that is not of loopback.
        """
        if not text or text.startswith("/"):
            return cls(text)
        host, _, port = text.rpartition(":")
        if not port.isascii() or not port.isdecimal() or int(port) >> 16:
            raise ValueError(f"{text!r} has no port; {_REMEDY}")
        bare = host.removeprefix("[").removesuffix("]")
        if bare in {"", "localhost"}:
            return cls(f"127.0.0.1:{int(port)}")
        try:
            address = ipaddress.ip_address(bare)
        except ValueError:
            raise ValueError(f"{bare!r} is no address of loopback; {_REMEDY}") from None
        if not address.is_loopback or (address.version == 6 and address.ipv4_mapped):
            raise ValueError(f"{address} can be reached from outside; {_REMEDY}")
        return cls(f"[{address}]:{int(port)}" if address.version == 6 else f"{address}:{int(port)}")

    @property
    def path(self) -> str:
        """The path of the Unix socket, empty for a port."""
        return str(self) if self.startswith("/") else ""

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address of a port."""
        host, _, port = self.rpartition(":")
        return host.strip("[]"), int(port)
