"""An engine process of the demo: serves all models, takes orders as lines on stdin, answers on stdout.

    python -m kvledgerd.demo.engine --socket PATH --name A --models deepseek-v4,gpt-oss

It computes on one thread, since the order of sums, and so the last bit, depends on how work is split. It talks to the
daemon only when it is first told to serve, so a cold run before that has seen no cache at all.
"""

import argparse
import os
import sys
import time
import traceback
from functools import cached_property
from typing import BinaryIO

import msgspec
import torch
from transformers import DynamicCache, PreTrainedModel

from kvledger import Cache
from kvledger.adapters.transformers import Plan, Prefilled, TransformersCache, compute, greedy, plan_for, state_digest
from kvledgerd.demo.messages import Compute, Failed, Order, Ran, Ready, Serve, Variant
from kvledgerd.demo.models import build
from kvledgerd.demo.prompts import TOKENIZER_DIGEST, Prompt, answer_tokens, tokens_of

__all__ = ["Engine", "main"]


class Engine:
    """Models, and their views of the shared cache.

    Args:
        socket: The daemon's socket.
        name: What people call the engine.
        models: Names of its models.
    """

    def __init__(self, socket: str, name: str, models: list[str]) -> None:
        self._socket = socket
        self._name = name
        self._models = {(model, Variant.USUAL): build(model) for model in models}
        self._plans = {model: self._plan(self._models[model, Variant.USUAL]) for model in models}
        self._views: dict[tuple[str, Variant], TransformersCache] = {}
        for model in self._models.values():
            compute(model, tokens_of(Prompt.WARM_UP))

    @property
    def ready(self) -> Ready:
        """What the engine says first."""
        return Ready({model: plan.layout for model, plan in self._plans.items()})

    @cached_property
    def cache(self) -> Cache:
        """The connection to the daemon, made when it is first needed."""
        return Cache.open(self._socket, name=self._name, leader=True)

    def obey(self, order: Order) -> Ran:
        """Carry out one order."""
        return self._compute(order) if isinstance(order, Compute) else self._serve(order)

    def _compute(self, order: Compute) -> Ran:
        model, plan = self._model(order.model, order.variant), self._plans[order.model]
        states: dict[int, str] = {}
        began = time.perf_counter()

        def at_cut(cache: DynamicCache, boundary: int) -> None:
            states[boundary] = state_digest(plan, cache, boundary)

        cache, logits = compute(model, tokens_of(order.prompt), cuts=order.cuts, at_cut=at_cut)
        logits.argmax(dim=-1).item()
        took = time.perf_counter() - began
        return Ran(took, states, _raw(logits), greedy(model, cache, logits, answer_tokens(order.prompt)))

    def _serve(self, order: Serve) -> Ran:
        view, ids = self._view(order.model, order.variant), tokens_of(order.prompt)
        began = time.perf_counter()
        prefilled = view.prefill(ids) if order.save else _prefill_unsaved(view, ids)
        prefilled.logits.argmax(dim=-1).item()
        took = time.perf_counter() - began
        states = {len(ids): state_digest(view.plan, prefilled.cache, len(ids))}
        if prefilled.reused_tokens:
            again = view.resume(ids)
            states[again.tokens] = state_digest(view.plan, again.cache, again.tokens)
        return Ran(
            took,
            states,
            _raw(prefilled.logits),
            greedy(view.model, prefilled.cache, prefilled.logits, answer_tokens(order.prompt)),
            prefilled.reused_tokens,
            tuple(saved.boundary for saved in prefilled.saved if saved.committed),
            prefilled.resumed.hash_tokens,
            prefilled.resumed.verdict_cuts,
            "\n".join([prefilled.why, *(f"not saved: {saved.why}" for saved in prefilled.saved if saved.why)]),
        )

    def _model(self, name: str, variant: Variant) -> PreTrainedModel:
        if variant is not Variant.OTHER_WEIGHTS:
            return self._models[name, Variant.USUAL]
        if (name, variant) not in self._models:
            model = build(name)
            with torch.no_grad():
                next(model.parameters()).add_(0.01)
            self._models[name, variant] = model
        return self._models[name, variant]

    def _view(self, name: str, variant: Variant) -> TransformersCache:
        if (name, variant) not in self._views:
            view = TransformersCache(self.cache, self._model(name, variant), tokenizer_digest=TOKENIZER_DIGEST)
            if variant is Variant.OTHER_ABI:
                view.plan = _with_other_abi(view.plan)
            elif variant is Variant.USUAL:
                # Once all the way, so that no import and no first use of anything counts as time to the first token
                view.prefill(tokens_of(Prompt.WARM_UP))
            self._views[name, variant] = view
        return self._views[name, variant]

    def _plan(self, model: PreTrainedModel) -> Plan:
        return plan_for(model, tokenizer_digest=TOKENIZER_DIGEST)


def _with_other_abi(plan: Plan) -> Plan:
    """Return the plan of an engine whose kernel reads the bytes of one group in another way."""
    layout = plan.layout
    group = layout.groups[0].name
    raised = msgspec.structs.replace(layout.abi[group], number=layout.abi[group].number + 1)
    other = msgspec.structs.replace(layout, abi=layout.abi | {group: raised})
    return Plan(other, plan.facets, plan.config, plan.classes, plan.devices)


def _prefill_unsaved(view: TransformersCache, ids: list[int]) -> Prefilled:
    resumed = view.resume(ids)
    cache, logits = compute(view.model, ids, cache=resumed.cache, start=resumed.tokens, cuts=resumed.wanted)
    return Prefilled(cache, logits, len(ids), resumed, ())


def _raw(logits: torch.Tensor) -> bytes:
    return logits.contiguous().numpy().tobytes()


def _claim_stdout() -> BinaryIO:
    """Take stdout for answers alone; whatever a library prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _obey(engine: Engine, line: bytes) -> Ran | Failed:
    try:
        return engine.obey(msgspec.json.decode(line, type=Order))
    except Exception:  # noqa: BLE001 - whatever it is, the demo shows it and ends
        return Failed(traceback.format_exc())


def main() -> int:
    """Run an engine until stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m kvledgerd.demo.engine", description="An engine of the demo.")
    parser.add_argument("--socket", required=True, metavar="PATH", help="the daemon's socket")
    parser.add_argument("--name", required=True, help="what people call it")
    parser.add_argument("--models", required=True, help="names of its models, with commas between")
    arguments = parser.parse_args()
    answers = _claim_stdout()
    torch.set_num_threads(1)
    engine = Engine(arguments.socket, arguments.name, arguments.models.split(","))
    answers.write(msgspec.json.encode(engine.ready) + b"\n")
    answers.flush()
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(_obey(engine, line)) + b"\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
