"""Write the table of docs/metrics.md anew from the table of metrics, which is its only source.

Usage: .venv/bin/python scripts/metrics_table.py
"""

from __future__ import annotations

from pathlib import Path

from kvledgerd.metrics.table import LAG, METRICS, UP

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
HEADING = "## Every metric\n"


def main() -> None:
    """Replace what stands behind the heading."""
    head = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
    rows = [
        f"| `{UP}` | gauge | 1 if the daemon answered. |",
        f"| `{LAG}` | gauge | Events that were decided and are not written yet. |",
        *(f"| `{metric.name}` | {metric.type} | {metric.help} |" for metric in METRICS),
    ]
    table = "\n".join(["| metric | type | what it tells |", "|---|---|---|", *rows])
    PAGE.write_text(f"{head}{HEADING}\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
