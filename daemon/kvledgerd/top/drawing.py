"""The screen of ``kvledger top``: bars for what is full, numbers for what moves."""

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kvledgerd.sizes import short_bytes
from kvledgerd.top.overview import Hits, Overview

__all__ = ["draw", "lost"]

_BAR = 32


def draw(now: Overview) -> RenderableType:
    """Return one screen."""
    parts: list[RenderableType] = [_head(now), _occupancy(now)]
    if any(hit.hash for hit in now.hits):
        parts.append(_hits(now.hits))
    parts.append(Text("   ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in now.counts.items())))
    parts += [Text(f"! {warning}", style="bold red") for warning in now.warnings]
    return Group(*parts)


def lost(socket: str, why: str) -> RenderableType:
    """Return the screen while no daemon answers."""
    return Text(f"no daemon answers at {socket} ({why}); asking again", style="yellow")


def _head(now: Overview) -> Text:
    rates = "   ".join(f"{name} {rate:,.0f}/s" for name, rate in now.rates.items())
    text = Text(f"incarnation {now.incarnation}   seq {now.seq:,}   {rates}", style="bold")
    return text.append("   restarted", style="bold yellow") if now.restarted else text


def _occupancy(now: Overview) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name, justify in (("", "left"), ("", "left"), ("in use", "right"), ("of", "right"), ("sure of", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # the literals above are what it takes
    table.add_row("memory", *_bar(*now.memory), "")
    for kind in now.kinds:
        table.add_row(f"  {kind.kind}", *_bar(kind.live, kind.held), short_bytes(kind.sure) if kind.sure else "")
    table.add_row("disk", *_bar(*now.disk), "")
    return table


def _bar(used: int, of: int) -> tuple[RenderableType, str, str]:
    bar = ProgressBar(total=max(of, 1), completed=min(used, of), width=_BAR, complete_style="cyan")
    return bar, short_bytes(used), short_bytes(of)


def _hits(hits: list[Hits]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("hit tokens a second")
    for name in ("by hash", "recoverable", "ready"):
        table.add_column(name, justify="right")
    for hit in hits:
        numbers = (f"{number:,.0f}" for number in (hit.hash, hit.recoverable, hit.ready))
        table.add_row(f"  {hit.kind}" if hit.kind else "whole hits", *numbers)
    return table
