"""Who is let in, and on whose behalf: the rules of access as the server asks them.

Operators may name the tenant they act for, in their hello. Whoever is refused one learns nothing about which tenants
there are: one that does not exist, and one that is another's, are the same answer.
"""

from collections.abc import Callable, Collection
from typing import Final

from kvledger.errors import NotFoundError
from kvledgerd.access import Access, AccessRules
from kvledgerd.server.peer import Peer

__all__ = ["Admission"]


class Admission:
    """Asks the rules, which may be replaced.

    Args:
        rules: Who gets what; without any everybody is operator.
        stored: Returns the tenants that the cache knows, named by a rule or not.

    Attributes:
        rules: Those of now.
        closed: Names of sockets that are still listened at and that the settings do not name any more.
    """

    def __init__(self, rules: AccessRules, stored: Callable[[], Collection[str]] = tuple) -> None:
        self.rules = rules
        self.closed: Collection[str] = ()
        self._stored: Final = stored

    def of(self, socket: str, peer: Peer) -> Access | None:
        """Return what a peer at a socket, called as in rules, may do; None if it is not let in.

        Rules are written for the sockets that stand beside them. One that does not would leave whoever comes to another
        socket to rules that were never meant for it, such as that of uid 0, which everybody is in a container.
        """
        return None if socket in self.closed else self.rules.of(socket, peer)

    def admit(self, socket: str, peer: Peer) -> Access:
        """Return what a peer at a socket, called as in rules, gets; raises NotFoundError if no rule is about it."""
        access = self.of(socket, peer)
        if access is None:
            raise NotFoundError(
                f"there is nothing here for uid {peer.uid} and gid {peer.gid}",
                field="access",
                remedy="ask the operator for a rule that names this socket, uid or gid",
            )
        return access

    def acting(self, admitted: Access, tenant: str) -> Access:
        """Return what a connection gets whose hello names a tenant; its own if that is empty.

        Raises:
            NotFoundError: There is no such tenant, or the caller is no operator.
        """
        if tenant in {"", admitted.tenant}:
            return admitted
        if admitted.right != "operator" or tenant not in {*self.rules.tenants, *self._stored()}:
            remedy = "leave it out to act for the tenant of this socket and uid; operators may name others"
            raise NotFoundError("there is no such tenant for this caller", field="tenant", remedy=remedy)
        return Access(tenant, admitted.right)
