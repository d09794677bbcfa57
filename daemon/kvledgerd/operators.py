"""What only operators are told: a tenant's report has its own numbers and no digest."""

from kvledger.errors import CallerError
from kvledger.wire.replies import StatusReport

__all__ = ["require_whole"]


def require_whole(report: StatusReport) -> StatusReport:
    """Return a report of the whole daemon.

    Raises:
        CallerError: It is a tenant's own.
    """
    if not report.digest:
        remedy = "ask as an operator, or use kvledger status, which tells what your own tenant has"
        raise CallerError("only operators are told of the whole daemon", field="right", remedy=remedy)
    return report
