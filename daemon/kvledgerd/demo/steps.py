"""The course of the demo: four engine processes, one cache, a kill, a disk, and damage on purpose.

A commits, B resumes, the daemon is killed, C resumes from the memory that outlived it, the prefix goes to disk, D
resumes from there. B's cold runs come before it first speaks to the daemon, so they can not have been helped. The next
engine is started while the one before works, since importing costs seconds.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from kvledger import Cache
from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger.registered import RegisteredLayout
from kvledger.testing import Daemon, DaemonError
from kvledger_storage.events import EngineEntered
from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.object_life import object_life
from kvledgerd.audit.questions.lives import ObjectLife
from kvledgerd.audit.replay import moments
from kvledgerd.demo.compare import max_abs_difference, same_end, same_states
from kvledgerd.demo.damage import Trial, Victim, damages, try_damage
from kvledgerd.demo.engine_process import EngineProcess
from kvledgerd.demo.findings import ModelFindings, problems
from kvledgerd.demo.messages import Compute, Ran, Serve
from kvledgerd.demo.progress import Progress
from kvledgerd.demo.prompts import Prompt, cuts_of, tokens_of

__all__ = ["DemoError", "Outcome", "run"]

_MAIN, _CONTINUED, _PASSAGE = Prompt.MAIN, Prompt.CONTINUED, Prompt.PASSAGE
_SETTINGS = {"arena_bytes": "8MiB", "log_segment_bytes": "1MiB", "disk_segment_bytes": "64MiB"}
_LOG_TAIL_BYTES = 3000


class DemoError(Exception):
    """A step could not be done; the message names it, the reason, and what the daemon logged last."""


class Outcome(NamedTuple):
    """What came of it.

    Attributes:
        models: What was found out with each model.
        trials: What came of each damage, by model.
        life: What the log tells about one object.
        names: What people call the actors that it names.
        problems: What is not as it must be.
    """

    models: dict[str, ModelFindings]
    trials: dict[str, list[Trial]]
    life: ObjectLife
    names: dict[str, str]
    problems: list[str]


def run(models: Sequence[str], progress: Progress) -> Outcome:
    """Run the demo, with a daemon and engines of its own that are gone afterwards.

    Args:
        models: Names of the models.
        progress: Where steps are shown.

    Raises:
        DemoError: a step could not be done.
    """
    progress.now = "Start the daemon"
    try:
        with Daemon(memory="256MiB", settings=_SETTINGS) as daemon, ExitStack() as stack:
            outcome = _told(daemon, _Demo(daemon, models, progress, stack))
            progress.now = "Stop engines and daemon"
    except DaemonError as error:
        raise DemoError(f"{progress.now}: {error}") from error
    return outcome


def _told(daemon: Daemon, demo: "_Demo") -> Outcome:
    """Run all steps; what stops them is told with the step and the end of the daemon's log."""
    try:
        return demo.run()
    except Exception as error:
        tail = daemon.output.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        raise DemoError(f"{demo.progress.now}: {error}\nThe daemon's log ends with:\n{tail}") from error


class _Demo:
    def __init__(self, daemon: Daemon, models: Sequence[str], progress: Progress, stack: ExitStack) -> None:
        self.daemon, self.progress, self.stack = daemon, progress, stack
        self.found = {model: ModelFindings(prompt_tokens=len(tokens_of(_MAIN))) for model in models}
        self.trials: dict[str, list[Trial]] = {}
        self.layouts: dict[str, Layout] = {}
        self.cold: dict[tuple[str, Prompt], Ran] = {}
        self.uncut: dict[str, Ran] = {}

    def run(self) -> Outcome:
        a, b = self.engine("A"), self.engine("B")
        with self.progress.step("Start the daemon and engines A and B: imports, models, a warm-up each"):
            self.layouts.update(a.layouts())
            b.layouts()
        self.commit(a, b)
        a.close()
        c, d = self.engine("C"), self.engine("D")
        self.resume(b)
        b.close()
        with self.progress.step("Start engines C and D"):
            c.layouts()
            d.layouts()
        self.kill()
        self.resume_after_kill(c)
        c.close()
        with Cache.open(self.daemon.socket, name="operator") as cache:
            self.resume_from_disk(cache, d)
            self.damage(cache, d)
            life = self.audit(cache)
        wrong = [f"{m}: {p}" for m, trials in self.trials.items() for t in trials for p in t.problems]
        names = _names(self.daemon.data_dir)
        return Outcome(self.found, self.trials, life, names, problems(self.found) + wrong)

    def engine(self, name: str) -> EngineProcess:
        process = EngineProcess(name, self.daemon.socket, tuple(self.found), self.daemon.directory)
        return self.stack.enter_context(process)

    def commit(self, a: EngineProcess, b: EngineProcess) -> None:
        """Let A compute and commit, while B makes the cold runs that all others are compared with."""
        for model in self.found:
            for prompt in (_MAIN, _CONTINUED, _PASSAGE):
                b.post(Compute(model, prompt, cuts_of(prompt)))
        for model, found in self.found.items():
            with self.progress.step(f"A computes {model} cold, commits; B computes it cold, cut where A saves") as step:
                self.uncut[model] = a.ask(Compute(model, _MAIN))
                committed = a.ask(Serve(model, _MAIN))
                for prompt in (_MAIN, _CONTINUED, _PASSAGE):
                    self.cold[model, prompt] = b.take()
                if committed.saved != cuts_of(_MAIN) or not same_end(committed, self.cold[model, _MAIN]):
                    raise DemoError(f"{model} did not commit what a cold run computes; {committed.why}")
                found.cold_ttft_s = self.uncut[model].ttft_s
                step.note = f"first token after {found.cold_ttft_s:.2f} s"

    def resume(self, b: EngineProcess) -> None:
        """Let B resume the prompt and its continuation."""
        for model, found in self.found.items():
            with self.progress.step(f"B resumes {model}") as step:
                ran, tokens_equal, found.state_equal = self.both(b, model)
                found.tokens_equal = tokens_equal
                found.warm_ttft_s, found.reused_tokens = ran.ttft_s, ran.reused
                found.max_abs_logit_diff = max_abs_difference(ran.logits, self.uncut[model].logits)
                step.note = f"first token after {ran.ttft_s:.3f} s, {ran.reused} tokens reused"

    def kill(self) -> None:
        """Kill the daemon with SIGKILL; its keeper brings it back."""
        with self.progress.step("SIGKILL for the daemon") as step:
            self.daemon.kill()
            step.note = f"back as incarnation {self.daemon.wait_ready().incarnation}"

    def resume_after_kill(self, c: EngineProcess) -> None:
        """Let C resume from the memory that outlived the daemon."""
        for model, found in self.found.items():
            with self.progress.step(f"C resumes {model} from memory that outlived the daemon") as step:
                ran, tokens_equal, state_equal = self.both(c, model)
                found.reused_after_kill, found.tokens_equal_after_kill = ran.reused, tokens_equal and state_equal
                step.note = f"first token after {ran.ttft_s:.3f} s, {ran.reused} tokens reused"

    def resume_from_disk(self, cache: Cache, d: EngineProcess) -> None:
        """Send the prefix to disk, drop its memory, and let D resume from there."""
        for model, found in self.found.items():
            with self.progress.step(f"{model} goes to disk, its memory is dropped; D resumes") as step:
                size = _send_to_disk(cache, cache.register(self.layouts[model]))
                ran, tokens_equal, state_equal = self.both(d, model)
                found.reused_from_disk, found.tokens_equal_from_disk = ran.reused, tokens_equal and state_equal
                step.note = f"{size / 2**20:.1f} MiB, first token after {ran.ttft_s:.3f} s, {ran.reused} tokens reused"

    def both(self, engine: EngineProcess, model: str) -> tuple[Ran, bool, bool]:
        """Serve prompt and continuation; return the first run, and whether tokens and states of both are equal."""
        # The continuation is not saved, so that each engine has to go on from where the prompt ends
        orders = (Serve(model, _MAIN), Serve(model, _CONTINUED, save=False))
        tokens_equal = state_equal = True
        runs: list[Ran] = []
        for order, boundary in zip(orders, cuts_of(_MAIN), strict=True):
            ran, cold = engine.ask(order), self.cold[model, order.prompt]
            tokens_equal &= ran.tokens == cold.tokens
            state_equal &= ran.reused == boundary and boundary in ran.states
            state_equal &= same_states(ran, cold) and ran.logits == cold.logits
            runs.append(ran)
        return runs[0], tokens_equal, state_equal

    def damage(self, cache: Cache, d: EngineProcess) -> None:
        """Damage each model's passage in every way, one after the other."""
        for model, found in self.found.items():
            layout = cache.register(self.layouts[model])
            victim = Victim(model, d, cache, layout, self.daemon.data_dir, self.cold[model, _PASSAGE])
            with self.progress.step(f"D commits a passage with {model}"):
                d.ask(Serve(model, _PASSAGE))
            self.trials[model] = []
            for damage in damages(layout.layout.groups):
                with self.progress.step(f"{model}, {damage.what}") as step:
                    trial = try_damage(victim, damage)
                    step.note = f"refused, {trial.refusal.code}" if trial.refusal else "NOT REFUSED"
                self.trials[model].append(trial)
            found.verdicts = [trial.refusal for trial in self.trials[model] if trial.refusal is not None]

    def audit(self, cache: Cache) -> ObjectLife:
        """Read from the log what happened to one window of each model; return the first one's."""
        lives = []
        for model, found in self.found.items():
            with self.progress.step(f"The log tells the life of a window of {model}") as step:
                name = _window(cache, cache.register(self.layouts[model]))
                lives.append(object_life(self.daemon.data_dir, name))
                found.audit_events = len(lives[-1].entries)
                step.note = f"object {name}, {found.audit_events} entries"
        return lives[0]


def _send_to_disk(cache: Cache, layout: RegisteredLayout) -> int:
    """Write the prompt's boundaries to disk, drop their memory, and return the bytes written."""
    tokens, size = tokens_of(_MAIN), 0
    for boundary in cuts_of(_MAIN):
        size += cache.offload(layout, tokens, boundary=boundary, drop_memory=True).bytes
        places = {item.state for item in cache.describe(layout, tokens, boundary=boundary).objects}
        # What stayed in memory would pass for a restore
        if places != {"ON_DISK"}:
            raise DemoError(
                f"objects of boundary {boundary} are {', '.join(sorted(places))} where all are to be ON_DISK"
            )
    return size


def _window(cache: Cache, layout: RegisteredLayout) -> ObjectName:
    """Return the name of the window that belongs to the boundary at which the prompt was resumed."""
    kinds = [spec.kind for spec in layout.layout.groups]
    told = cache.describe(layout, tokens_of(_MAIN), boundary=cuts_of(_MAIN)[0]).objects
    found = next(item for item in told if item.block == -1 and kinds[item.group] is Kind.SWA_WINDOW)
    return ObjectName(found.cell, found.slot)


def _names(data: Path) -> dict[str, str]:
    """Return what people call each engine that the log knows, by its name as an actor."""
    entered = [moment.event for moment in moments(data) if isinstance(moment.event, EngineEntered)]
    return {f"engine:{event.engine}": event.name for event in entered}
