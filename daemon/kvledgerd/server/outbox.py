"""When replies leave: at the end of the turn that brings them, those of a connection together.

A reply that is sent from the writer loop would else wait for another turn of the event loop, which costs a look at all
sockets: for a lone request as much as a small decision. What is sent outside of it leaves in the next turn.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

__all__ = ["Outbox"]


class Outbox:
    """The connections that have something to send; a context manager around a turn of the writer loop.

    To be made on the running loop.
    """

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._due: list[Callable[[], None]] = []
        self._in_turn = False

    def __enter__(self) -> None:
        self._in_turn = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_turn = False
        self._send()

    def add(self, send: Callable[[], None]) -> None:
        """Call back at the end of this turn; `send` raises nothing, since others come after it."""
        if not self._due and not self._in_turn:
            self._loop.call_soon(self._send)
        self._due.append(send)

    def _send(self) -> None:
        due, self._due = self._due, []
        for send in due:
            send()
