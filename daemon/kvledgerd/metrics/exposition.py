"""A status report in the text form of Prometheus (format 0.0.4): help, type, and one line a number."""

from collections.abc import Iterator

from kvledger.wire.replies import StatusReport
from kvledgerd.metrics.table import LAG, METRICS, UP, Metric

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(report: StatusReport | None) -> str:
    """Return all metrics of a report; without one, since the daemon did not answer, that it is down."""
    lines = [f"# HELP {UP} 1 if the daemon answered.", f"# TYPE {UP} gauge", f"{UP} {int(report is not None)}"]
    if report is not None:
        if "log_written_seq" in report.counters:  # operators are told alone
            lag = report.seq - report.counters["log_written_seq"]
            lines += [f"# HELP {LAG} Events that were decided and are not written yet.", f"# TYPE {LAG} gauge"]
            lines.append(f"{LAG} {max(lag, 0)}")
        for metric in METRICS:
            lines += _of(metric, report.counters)
    return "\n".join(lines) + "\n"


def _of(metric: Metric, counters: dict[str, int]) -> Iterator[str]:
    found = {name: number for name, number in counters.items() if name.partition(".")[0] == metric.counter}
    if found:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.type}"
    for name, number in found.items():
        kind = name.partition(".")[2]
        label = f'{{kind="{kind}"}}' if kind else ""
        yield f"{metric.name}{label} {number if metric.scale == 1 else number / metric.scale}"
