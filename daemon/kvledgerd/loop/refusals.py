"""How an error becomes a reply: the one place where the shell turns exceptions into `Failed`."""

from kvledger.errors import KVLedgerError
from kvledger.wire.replies import Failed

__all__ = ["failed", "internal"]

# Bounds of the fields of `Failed`; a text that is longer would make the reply unreadable.
_MESSAGE, _FIELD, _REMEDY = 4096, 256, 1024


def failed(error: KVLedgerError) -> Failed:
    """Return the reply that says what ``error`` says."""
    return Failed(error.code, error.message[:_MESSAGE], error.field[:_FIELD], error.remedy[:_REMEDY])


def internal(error: BaseException) -> Failed:
    """Return the reply for a bug of the daemon; what went wrong stands in its log, not in the answer."""
    return Failed(
        "internal",
        f"the daemon failed to decide this ({type(error).__name__}); nothing was changed",
        remedy="look into the daemon's log and report it",
    )
