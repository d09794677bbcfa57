"""Who is behind a connection: the rules that map listening socket, uid and group to a tenant and a right.

Rules stand in the configuration, in order, and **the first that matches counts**; whoever none matches is let in
nowhere. Without any rule everybody who may open the socket is operator of the one tenant there is, which is right for a
machine with one owner. Containers need a socket each: inside of them everyone is uid 0.

Both settings are lists of tables in TOML, in the file as in the environment. A rule that could never match, because an
earlier one takes all it names, is refused: whoever wrote it believes in a limit that does not hold.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Protocol, Self, TypeVar

import msgspec
from msgspec import Meta

from kvledger.wire.commands import Right
from kvledgerd.keeper.listener import Listening
from kvledgerd.toml_text import toml_text

__all__ = ["DEFAULT_TENANT", "Access", "AccessRule", "AccessRules", "Credentials", "SocketRow", "Sockets"]

DEFAULT_TENANT: Final = "default"

R = TypeVar("R", bound="_Row")
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]
Number = Annotated[int, Meta(ge=0, lt=1 << 32)]
Numbers = Number | Annotated[tuple[Number, ...], Meta(min_length=1)]


class Credentials(Protocol):
    """What the kernel says of a peer."""

    @property
    def uid(self) -> int:
        """Its user."""

    @property
    def gid(self) -> int:
        """Its group."""

    @property
    def groups(self) -> tuple[int, ...]:
        """Its further groups."""


class Access(NamedTuple):
    """Which tenant a caller belongs to, and the most it may do there; operators may look at all tenants."""

    tenant: str
    right: Right


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a list in the configuration."""

    def __str__(self) -> str:
        return toml_text(msgspec.to_builtins(self))


class SocketRow(_Row, frozen=True):
    """One more listening socket.

    Attributes:
        name: What rules call it, and the FileDescriptorName of its systemd unit.
        path: Where clients connect.
        mode: Permissions of the file if the daemon or its keeper makes it, octal.
    """

    name: Name
    path: Annotated[str, Meta(pattern=r"\A/.*\Z")]
    mode: Annotated[str, Meta(pattern=r"\A0[0-7]{3}\Z")] = "0660"

    @property
    def listening(self) -> Listening:
        """The socket as it is bound."""
        return Listening(self.name, Path(self.path), int(self.mode, 8))


class AccessRule(_Row, frozen=True):
    """One rule; what it does not name it does not ask about.

    Attributes:
        tenant: Whose cache a caller gets that it matches.
        right: What the caller may do there.
        socket: Name of the socket that was connected to.
        uid: User ids, one or several.
        gid: Group ids; the peer's own group or one of its further ones.
    """

    tenant: Name
    right: Right
    socket: str = ""
    uid: Numbers = ()
    gid: Numbers = ()

    def matches(self, socket: str, peer: Credentials) -> bool:
        """Tell whether a peer at a socket is meant."""
        return (
            self.socket in {"", socket}
            and peer.uid in (_several(self.uid) or (peer.uid,))
            and (not _several(self.gid) or not {peer.gid, *peer.groups}.isdisjoint(_several(self.gid)))
        )

    def covers(self, later: "AccessRule") -> bool:
        """Tell whether whoever another rule matches is matched by this one."""
        return self.socket in {"", later.socket} and _within(later.uid, self.uid) and _within(later.gid, self.gid)


class _Rows(tuple[R, ...]):
    """A list of tables, as TOML writes one."""

    __slots__ = ()

    row: type[R]

    @classmethod
    def parse(cls, value: object) -> Self:
        """Check a list of tables, or its text in TOML.

        Raises:
            ValueError: It is neither, or a table of it has a wrong key or value.
        """
        tables = tomllib.loads(f"rows = {value}")["rows"] if isinstance(value, str) else value
        if not isinstance(tables, list | tuple):
            raise ValueError("no list")  # noqa: TRY004  what is wrong with a setting's value is a ValueError here
        return cls(msgspec.convert(table, cls.row) for table in tables)

    def __str__(self) -> str:
        return "[\n" + "".join(f"  {row},\n" for row in self) + "]" if self else "[]"


class Sockets(_Rows[SocketRow]):
    """The listening sockets besides the first one."""

    __slots__ = ()

    row = SocketRow


class AccessRules(_Rows[AccessRule]):
    """The rules in their order."""

    __slots__ = ()

    row = AccessRule

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that rules name, each once; the one there is if there are no rules."""
        return tuple(dict.fromkeys(rule.tenant for rule in self)) or (DEFAULT_TENANT,)

    def of(self, socket: str, peer: Credentials) -> Access | None:
        """Return what a peer at a socket may do; None if it is not let in."""
        if not self:
            return Access(DEFAULT_TENANT, "operator")
        return next((Access(rule.tenant, rule.right) for rule in self if rule.matches(socket, peer)), None)


def _several(named: Numbers) -> tuple[int, ...]:
    return (named,) if isinstance(named, int) else named


def _within(later: Numbers, earlier: Numbers) -> bool:
    """Tell whether a rule that names `earlier` asks for no more than one that names `later`; nothing named is all."""
    some = _several(earlier)
    return not some or (bool(_several(later)) and set(_several(later)) <= set(some))
