"""Write the tables of docs/metrics.md anew from the table of metrics, which is their only source.

Usage: .venv/bin/python scripts/metrics_table.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvledgerd.metrics.table import LAG, METRICS, UP, Basis

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
HEADING = "## Every metric\n"
_WHY = "| metrics | why the log does not hold them |\n|---|---|\n"
_ALL = "| metric | type | of | what it tells |\n|---|---|---|---|\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(old: str) -> str:
    """Return the page with fresh tables: why some counters are not in the log, and behind its heading all metrics."""
    head = old.partition(_WHY)[0]
    return f"{head}{_WHY}{''.join(reasons())}\n{HEADING}\n{_ALL}{''.join(rows())}"


def reasons() -> Iterator[str]:
    """Yield a row for each reason, with the counters that bear it."""
    bearing: dict[str, list[str]] = {}
    for metric in METRICS:
        if metric.unlogged:
            bearing.setdefault(metric.unlogged, []).append(f"`{metric.name}`")
    for why, names in bearing.items():
        yield f"| {', '.join(names)} | {why} |\n"


def rows() -> Iterator[str]:
    """Yield a row for each metric, those of the exporter first."""
    yield f"| `{UP}` | gauge | {Basis.DAEMON} | 1 if the daemon answered. |\n"
    yield f"| `{LAG}` | gauge | {Basis.DAEMON} | Events that were decided and are not written yet. |\n"
    for metric in METRICS:
        yield f"| `{metric.name}` | {metric.type} | {metric.basis} | {metric.help} |\n"


if __name__ == "__main__":
    main()
