"""One command on its way through the writer loop."""

from collections.abc import Callable

import msgspec

from kvledger.wire.replies import Reply
from kvledgerd.core.commands import Ask, Command

__all__ = ["DAEMON", "Answer", "Queued"]

DAEMON = "daemon"
"""The actor of what the daemon does by itself."""

Answer = Callable[[Reply | None], None]
"""Takes the reply once its class is reached; None where the core had nothing to say."""


class Queued(msgspec.Struct, eq=False):
    """A command with where its answer goes.

    Attributes:
        command: What is to be decided.
        actor: Who caused it, as the log will name it.
        answer: Takes the reply; None if nobody waits for one.
        deadline: Set by the first parking, seconds of the loop's clock.
    """

    command: Command
    actor: str = DAEMON
    answer: Answer | None = None
    deadline: float | None = None

    @property
    def connection(self) -> int | None:
        """The connection that asked, if one did."""
        return self.command.caller.connection if isinstance(self.command, Ask) else None
