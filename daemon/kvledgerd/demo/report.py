"""The result for people: what was reused and how fast, what was refused and why, and the life of one object."""

import sys
from collections.abc import Sequence

from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.table import Table

from kvledgerd.audit.questions.lives import ObjectLife
from kvledgerd.demo.damage import Trial
from kvledgerd.demo.findings import ModelFindings
from kvledgerd.demo.steps import Outcome
from kvledgerd.output import moment

__all__ = ["show"]


def show(outcome: Outcome) -> None:
    """Print tables to stdout."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 132)
    console.print(_reuse(outcome.models))
    console.print(_refusals(outcome.trials))
    console.print(_life(outcome.life, outcome.names))
    for problem in outcome.problems:
        console.print(f"[red]WRONG[/red] {problem}", markup=True)
    if not outcome.problems:
        equal = "Every reuse was bit for bit a cold run that was cut at the same boundary, every damage was refused."
        console.print(f"[green]All equal.[/green] {equal}")


def _table(title: str, columns: Sequence[str], right: Sequence[str] = ()) -> Table:
    frame = HEAVY_HEAD if sys.stdout.isatty() else None
    table = Table(title=title, title_justify="left", title_style="bold", box=frame)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def _reuse(models: dict[str, ModelFindings]) -> Table:
    numbers = ("prompt", "cold", "warm", "faster", "logit diff")
    where = ("reused from memory", "after SIGKILL", "from disk")
    table = _table(
        "The same prompt in a fresh process: time to first token, tokens reused, equal to a cold run in every bit",
        ("model", *numbers, *where),
        numbers,
    )
    for name, model in models.items():
        table.add_row(
            name,
            f"{model.prompt_tokens:,}",
            f"{model.cold_ttft_s:.2f} s",
            f"{model.warm_ttft_s:.3f} s",
            f"{model.cold_ttft_s / model.warm_ttft_s:.0f} x" if model.warm_ttft_s else "",
            f"{model.max_abs_logit_diff:.1e}",
            _reused(model.reused_tokens, equal=model.tokens_equal and model.state_equal),
            _reused(model.reused_after_kill, equal=model.tokens_equal_after_kill),
            _reused(model.reused_from_disk, equal=model.tokens_equal_from_disk),
        )
    return table


def _reused(tokens: int, *, equal: bool) -> str:
    return f"{tokens:,}, " + ("[green]equal[/green]" if equal else "[red]NOT EQUAL[/red]")


def _refusals(trials: dict[str, list[Trial]]) -> Table:
    columns = ("model", "damage", "by hash", "used", "refused at", "reason", "then")
    title = "Damaged on purpose: tokens that a plain hash cache would have handed out, and why they were not used"
    table = _table(title, columns, ("by hash", "used"))
    for model, tried in trials.items():
        for number, trial in enumerate(tried):
            table.add_row("" if number else model, trial.damage.what, *_verdict(trial), _then(trial))
        table.add_section()
    return table


def _verdict(trial: Trial) -> tuple[str, ...]:
    refusal = trial.refusal
    if refusal is None:
        return "", "", "", "[red]NOT REFUSED[/red]"
    where = f"layer {refusal.layer}" + (f", {refusal.group}" if refusal.group else "")
    return str(refusal.hash_tokens), str(refusal.usable_tokens), where, f"[bold]{refusal.code}[/bold]: {trial.detail}"


def _then(trial: Trial) -> str:
    if trial.right and trial.mended:
        return "[green]computed, equal[/green]"
    return "[red]" + ("NOT MENDED" if trial.right else "WRONG ANSWER") + "[/red]"


def _life(life: ObjectLife, names: dict[str, str]) -> Table:
    title = f"From the log: object {life.name}, {life.group} ({life.kind}) of {life.model}, {life.place}"
    table = _table(title, ("seq", "time (UTC)", "actor", "what", "detail"), ("seq",))
    for entry in life.entries:
        name = names.get(entry.actor)
        actor = f"{entry.actor} ({name})" if name else entry.actor
        table.add_row(str(entry.seq), moment(entry.time_ms)[11:], actor, entry.what, entry.detail)
    return table
