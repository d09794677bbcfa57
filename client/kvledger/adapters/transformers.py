"""kvledger for Transformers: save and restore a `DynamicCache` of any known layer class, at any boundary.

    shared = TransformersCache(Cache.open(path), model, tokenizer_digest=digest)
    answer = shared.generate(input_ids, max_new_tokens=32)

A lookup, a restore or a save that fails is a miss with a reason, never an exception in the engine: it goes on computing
what the cache could not give. Errors of the model's own forwards are the engine's and pass.
"""

from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from transformers import DynamicCache, PreTrainedModel

from kvledger.adapters._answers import Counters, Generated, Prefilled, Resumed, Saved
from kvledger.adapters._codec import decode, encode, position_of, state_digest
from kvledger.adapters._compute import as_batch, compute, greedy
from kvledger.adapters._identity import identity_of
from kvledger.adapters._plan import Plan, plan_for
from kvledger.errors import CallerError, CommitRefusedError, KVLedgerError
from kvledger.hashing import ExtraKeys
from kvledger.layout import Layout

__all__ = [
    "Counters",
    "Generated",
    "Plan",
    "Prefilled",
    "Resumed",
    "Saved",
    "TransformersCache",
    "compute",
    "decode",
    "encode",
    "greedy",
    "layout_for",
    "plan_for",
    "position_of",
    "state_digest",
]


def layout_for(
    model: PreTrainedModel, *, tokenizer_digest: str, block_tokens: int | None = None, checkpoint_tokens: int = 0
) -> Layout:
    """Return the layout of a live model; see `plan_for` for arguments and errors."""
    plan = plan_for(
        model, tokenizer_digest=tokenizer_digest, block_tokens=block_tokens, checkpoint_tokens=checkpoint_tokens
    )
    return plan.layout


class TransformersCache:
    """One model's view of a shared cache.

    Args:
        cache: An open `kvledger.Cache`.
        model: A decoder of Transformers 5, batch of one.
        tokenizer_digest: Digest of the tokenizer, so that equal ids mean equal text.
        extra: Extra keys that hold for every prompt, for example a salt.
        block_tokens: Tokens of a block; see `plan_for`.
        checkpoint_tokens: Distance of further boundaries worth keeping, 0 for none.
        wait: Seconds that a lookup may wait for states on disk; what is in memory is taken when they are over.
        recompute: Tokens a second that the model computes in a prefill, so that nothing is read from disk that would
            be computed sooner; 0 to read whatever is there.

    Raises:
        CallerError: `cache` is no open synchronous cache, or `tokenizer_digest` is empty.
        LayoutError: the model's cache is of a class that kvledger does not know.
    """

    def __init__(
        self,
        cache: Any,
        model: PreTrainedModel,
        *,
        tokenizer_digest: str,
        extra: ExtraKeys | None = None,
        block_tokens: int | None = None,
        checkpoint_tokens: int = 0,
        wait: float = 30.0,
        recompute: int = 0,
    ) -> None:
        # What the engine's programmer did wrong must not become a miss at every request
        _require_cache(cache)
        self.model = model
        self._read = partial(
            plan_for,
            model,
            tokenizer_digest=tokenizer_digest,
            block_tokens=block_tokens,
            checkpoint_tokens=checkpoint_tokens,
        )
        self.plan = self._read()
        self.counters = Counters()
        self._cache = cache
        self._extra = extra
        # No replay is asked for: a forward writes the rows of all layers, those that were cached too
        self._asked: dict[str, Any] = {"leave": 1, "wait": wait, "recompute": recompute}
        self._registered: Any = None

    @property
    def layout(self) -> Layout:
        """The layout under which states are kept."""
        return self.plan.layout

    def resume(self, input_ids: Any) -> Resumed:
        """Look a prompt up and restore the state of its longest usable boundary, its last token left to compute.

        Args:
            input_ids: One sequence: a list of ints, or an integer tensor [tokens] or [1, tokens].
        """
        try:
            resumed, reason = self._look_up(input_ids)
        except Exception as error:  # noqa: BLE001 - an engine goes on computing, whatever its cache does
            resumed, reason = Resumed(self._empty(), 0, _text(error)), _reason(error)
        self._count_lookup(resumed, reason)
        return resumed

    def save(self, input_ids: Any, dynamic_cache: DynamicCache, boundary: int, *, start: int = 0) -> Saved:
        """Commit what a resume at `boundary` needs.

        Args:
            input_ids: The tokens, at least `boundary` of them.
            dynamic_cache: The live cache, made by the model as it is now; it stands at `boundary` exactly.
            boundary: Tokens.
            start: Tokens whose whole blocks are stored already, so that their rows need not be named again.
        """
        try:
            saved = self._commit(input_ids, dynamic_cache, boundary, start)
        except Exception as error:  # noqa: BLE001 - an engine goes on computing, whatever its cache does
            saved = Saved(boundary, committed=False, why=_text(error))
            self.counters.reasons[_reason(error)] += 1
        self.counters.saved += saved.committed
        self.counters.unsaved += not saved.committed
        return saved

    def prefill(self, input_ids: Any) -> Prefilled:
        """Compute a prompt, reusing what there is and saving where a state is worth keeping.

        Args:
            input_ids: One sequence: a list of ints, or an integer tensor [tokens] or [1, tokens].

        Raises:
            CallerError: `input_ids` are not one sequence.
        """
        ids = as_batch(input_ids, self.model.device)
        resumed = self.resume(ids)
        saved: list[Saved] = []

        def at_cut(cache: DynamicCache, boundary: int) -> None:
            start = saved[-1].boundary if saved and saved[-1].committed else resumed.tokens
            saved.append(self.save(ids, cache, boundary, start=start))

        cache, logits = compute(
            self.model, ids, cache=resumed.cache, start=resumed.tokens, cuts=resumed.wanted, at_cut=at_cut
        )
        return Prefilled(cache, logits, ids.shape[1], resumed, tuple(saved))

    def generate(self, input_ids: Any, max_new_tokens: int) -> Generated:
        """Prefill a prompt and decode greedily; exactly `max_new_tokens` tokens, no token ends the run early."""
        prefilled = self.prefill(input_ids)
        return Generated(greedy(self.model, prefilled.cache, prefilled.logits, max_new_tokens), prefilled)

    def _empty(self) -> DynamicCache:
        return DynamicCache(config=self.plan.config)

    def _registration(self) -> Any:
        # Weights may have been trained or merged since, and what they made would be found under their old name
        if identity_of(self.model) != self.plan.identity:
            self.plan, self._registered = self._read(), None
        # Late, so that an engine starts while the daemon is away
        if self._registered is None:
            self._registered = self._cache.register(self.layout)
        return self._registered

    def _look_up(self, input_ids: Any) -> tuple[Resumed, str]:
        tokens = as_batch(input_ids)[0].tolist()
        with self._cache.acquire(self._registration(), tokens, extra=self._extra, **self._asked) as hit:
            common = {"wanted": tuple(hit.wanted), "hash_tokens": hit.hash_tokens, "verdict_cuts": tuple(hit.cuts)}
            reason = hit.cuts[0].code.value if hit.cuts else ""
            if not hit:
                return Resumed(self._empty(), 0, hit.why, **common), reason
            restored = decode(self.plan, hit.tokens, ((handle, handle.buffer) for handle in hit))
            # The bytes are copied by now; if their lease was lost meanwhile, the copies are somebody else's
            hit.check()
            return Resumed(restored, hit.tokens, hit.why, **common), reason

    def _count_lookup(self, resumed: Resumed, reason: str) -> None:
        self.counters.hits += resumed.tokens > 0
        self.counters.misses += resumed.tokens == 0
        self.counters.reused_tokens += resumed.tokens
        if resumed.tokens == 0:
            self.counters.reasons[reason] += 1

    def _commit(self, input_ids: Any, cache: DynamicCache, boundary: int, start: int) -> Saved:
        tokens, layout = as_batch(input_ids)[0, :boundary].tolist(), self._registration()
        step = self.layout.block_tokens
        first = start // step * step
        try:
            return self._commit_from(first, layout, tokens, cache)
        except CommitRefusedError:
            # Rows below `first` may have been evicted since they were stored; the live cache still has them
            if not first:
                raise
            return self._commit_from(0, layout, tokens, cache)

    def _commit_from(self, first: int, layout: Any, tokens: list[int], cache: DynamicCache) -> Saved:
        end = len(tokens)
        unit = self._cache.reserve(layout, tokens, boundary=end, start=first, extra=self._extra)
        missing = [slot for slot in unit.objects if not slot.present]
        # One buffer for all: `put` copies what it is given, and also cuts what is longer than the staging ring
        scratch = memoryview(bytearray(max((slot.length for slot in missing), default=0)))
        try:
            for slot in missing:
                encode(self.plan, cache, slot, scratch[: slot.length])
                unit.put(slot, scratch[: slot.length])
            unit.commit()
        except BaseException:
            unit.abort()
            raise
        return Saved(end, committed=True, objects=len(missing), size=sum(slot.length for slot in missing))


def _require_cache(cache: Any) -> None:
    if not all(hasattr(cache, name) for name in ("register", "acquire", "reserve")):
        wrong, remedy = f"a {type(cache).__name__} is no open cache", "pass kvledger.Cache.open(socket_path)"
    elif iscoroutinefunction(cache.acquire):
        wrong = f"an {type(cache).__name__} has to be awaited, which a forward can not"
        remedy = "pass a synchronous kvledger.Cache"
    else:
        return
    raise CallerError(wrong, field="cache", remedy=remedy)


def _reason(error: Exception) -> str:
    return error.code if isinstance(error, KVLedgerError) else type(error).__name__


def _text(error: Exception) -> str:
    return f"{_reason(error)}: {error}"
