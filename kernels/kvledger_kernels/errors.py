"""The one error of this package: an argument that a kernel must not see.

A kernel has no bounds checks, so a wrong id or stride writes into foreign memory. Everything is therefore checked on
the host, before the launch, and refused by this error; nothing has been read or written when it is raised.
"""

from typing import NoReturn

from kvledger.errors import CallerError

__all__ = ["KernelArgumentError", "refuse"]


class KernelArgumentError(CallerError):
    """An argument of a kernel's launch function is wrong; `field` names it, `remedy` says what to pass instead."""

    code = "kernel_argument"


def refuse(argument: str, message: str, remedy: str) -> NoReturn:
    """Raise `KernelArgumentError` for the named argument.

    Raises:
        KernelArgumentError: Always.
    """
    raise KernelArgumentError(message, field=argument, remedy=remedy)
