"""The descriptor store: names to descriptors, with the rules of the service manager's own."""

import os
from typing import Final

from kvledgerd.keeper.messages import Message

__all__ = ["DescriptorStore"]

_DEFAULT_NAME: Final = "stored"
_NAME_LIMIT: Final = 255


class DescriptorStore:
    """Holds descriptors for a process that may die at any moment.

    Args:
        limit: Descriptors it takes; what comes beyond is closed, as the service manager does.
    """

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._held: list[tuple[str, int]] = []

    def items(self) -> list[tuple[str, int]]:
        """Return (name, descriptor) of all that is held, in the order it came."""
        return list(self._held)

    def take(self, message: Message) -> None:
        """Do what one notification says; every descriptor that it does not store is closed.

        A BARRIER is answered by exactly this closing, since messages are taken in the order they were sent.
        """
        fields = dict(line.split("=", 1) for line in message.data.decode("utf-8", "replace").split("\n") if "=" in line)
        if "BARRIER" in fields or not message.whole:
            message.close()
            return
        name = _valid_name(fields.get("FDNAME", _DEFAULT_NAME))
        if fields.get("FDSTOREREMOVE") == "1":
            self._remove(name)
        if fields.get("FDSTORE") != "1":
            message.close()
            return
        for fd in message.descriptors:
            self._add(name, fd)

    def _add(self, name: str, fd: int) -> None:
        full = len(self._held) >= self.limit
        # A daemon that stores again what it was given back must not fill the store with copies.
        if full or _identity(fd) in {_identity(held) for known, held in self._held if known == name}:
            os.close(fd)
        else:
            self._held.append((name, fd))

    def _remove(self, name: str) -> None:
        for known, fd in self._held:
            if known == name:
                os.close(fd)
        self._held = [(known, fd) for known, fd in self._held if known != name]

    def close(self) -> None:
        """Let go of everything."""
        for _, fd in self._held:
            os.close(fd)
        self._held.clear()


def _identity(fd: int) -> tuple[int, int]:
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino


def _valid_name(name: str) -> str:
    valid = 0 < len(name) <= _NAME_LIMIT and all(" " <= char <= "~" and char != ":" for char in name)
    return name if valid else _DEFAULT_NAME
