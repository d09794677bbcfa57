# Generated from kvledger/_async/weights.py by scripts/unasync.py; change it there.
"""What a client says about weights: the epochs of its tenant, and what shall become of them."""

from kvledger._sync.link import Link
from kvledger.epochs import EpochState
from kvledger.errors import CallerError
from kvledger.waiting import Deadline
from kvledger.wire import requests
from kvledger.wire.replies import EpochInfo, EpochList, EpochSet

__all__ = ["AsyncWeights"]


class AsyncWeights:
    """The part of a cache that is about epochs."""

    _link: Link

    def epochs(self) -> list[EpochInfo]:
        """List the epochs: each model with each weights digest that was registered or announced."""
        _, found = self._link.call(lambda _: requests.Epochs(), EpochList, Deadline(self._link.timeout))
        return found.epochs

    def set_epoch(
        self, model: str, weights: str, state: EpochState, *, share: int = 0, kernel: tuple[str, int] | None = None
    ) -> EpochSet:
        """Change what a model's weights are to the cache, in one durable event; an operator's right.

        `CANARY` and `ACTIVE` stand side by side; to activate one drains the one that was active. `RETIRED` makes all
        its objects invalid at once.

        Args:
            model: Name of the model, as its layouts have it.
            weights: Digest of the weights.
            state: What they become. `CANARY` may be said before the first engine comes.
            share: Per cent of the caps on memory and disk that they may take, 1 to 100; 0 leaves that as it is.
            kernel: With `RETIRED`, retire only this kernel ABI, by name and number, with every layout that has it.

        Raises:
            CallerError: They can not become that from what they are now, or a value is out of bounds.
            NotFoundError: Nobody registered these weights, or the caller has not the right.
        """
        if state not in list(EpochState):
            remedy = f"name one of {', '.join(EpochState)}"
            raise CallerError(f"{state!r} is no state of an epoch", field="state", remedy=remedy)
        request = requests.SetEpoch(model, weights, state, share, *(kernel or ("", 0)))
        _, answer = self._link.call(lambda _: request, EpochSet, Deadline(self._link.timeout))
        return answer
