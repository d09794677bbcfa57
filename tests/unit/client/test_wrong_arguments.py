"""What a user gets wrong on the first day: an error of kvledger's own, with the field and what to do instead."""

import msgspec
import numpy as np
import pytest

from kvledger.errors import CallerError, LayoutError
from kvledger.kinds import Kind
from kvledger.layout import KernelABI
from kvledger.wire import requests
from unit.client.fake import layout
from unit.client.test_hit import TOKENS


def changed(**fields):
    """Return the example layout with fields of its first group changed."""
    first, second = layout().groups
    return layout(groups=(msgspec.structs.replace(first, **fields), second))


WRONG_LAYOUTS = {
    "a dict": (lambda: {"model": "tiny"}, "layout: a dict is no layout .*pass a kvledger.Layout"),
    "a number as text": (lambda: layout(block_tokens="64"), "block_tokens: expected `int`, got `str`"),
    "a negative block": (lambda: layout(block_tokens=-64), "^block_tokens: expected `int` >= 1"),
    "a count of layers": (lambda: changed(layers=4), r"groups\[0\].layers: expected `tuple`, got `int`"),
    "a range of layers": (lambda: changed(layers=range(4)), r"groups\[0\].layers: expected `tuple`, got `range`"),
    "a name with a space": (lambda: changed(name="a b"), r"groups\[0\].name: expected `str` matching"),
    "a kind as text": (lambda: changed(kind="COMPRESSED_KV"), r"groups\[0\].kind: .*use a member of kvledger.Kind"),
    "an element type": (lambda: changed(dtype=float), r"groups\[0\].dtype: expected `str`, got `type`"),
    "a number of numpy": (lambda: changed(row_bytes=np.int64(256)), r"row_bytes: expected `int`, got `int64`"),
    "a raw digest": (lambda: layout(weights_digest=b"\1" * 32), "weights_digest: expected `str`, got `bytes`"),
    "a group that is none": (lambda: layout(groups=("full",)), r"groups\[0\]: expected a struct or `dict`"),
    "a key that is no name": (lambda: layout(abi={"a b": KernelABI(name="x")}), "abi: expected `str` matching"),
}


@pytest.mark.parametrize("name", WRONG_LAYOUTS)
def test_layout_with_wrong_types(daemon, cache, name):
    """A layout whose field has another type is refused by the field's path, and never sent."""
    make, why = WRONG_LAYOUTS[name]
    with pytest.raises(LayoutError, match=why) as caught:
        cache.register(make())
    assert caught.value.remedy
    assert not daemon.asked(requests.Register)


def test_lists_in_a_layout_are_as_good_as_tuples(cache):
    """A layout with lists is the same as with tuples, and has the same digest."""
    assert cache.register(layout(groups=list(changed(layers=[0]).groups))).digest == layout().digest


CALLS = {
    "acquire": lambda cache, given: cache.acquire(given, TOKENS),
    "reserve": lambda cache, given: cache.reserve(given, TOKENS),
    "evict": lambda cache, given: cache.evict(given, TOKENS, kind=Kind.COMPRESSED_KV),
    "offload": lambda cache, given: cache.offload(given, TOKENS),
    "restore": lambda cache, given: cache.restore(given, TOKENS),
    "describe": lambda cache, given: cache.describe(given, TOKENS),
}


@pytest.mark.parametrize("call", CALLS)
def test_layout_that_was_not_registered(cache, call):
    """Every call that takes a layout tells that it has to be registered first."""
    with pytest.raises(CallerError, match=r"layout: a Layout is not registered \(register it first"):
        CALLS[call](cache, layout())


@pytest.mark.parametrize("kind", ["COMPRESSED_KV", 9, None])
def test_kind_that_is_none(cache, kind):
    """A kind by name or by an unknown number is refused with all kinds."""
    registered = cache.register(layout())
    with pytest.raises(CallerError, match=r"kind: .* is no Kind .*SWA_WINDOW.*for example Kind\.COMPRESSED_KV"):
        cache.evict(registered, TOKENS, kind=kind)


@pytest.mark.parametrize("tokens", [[TOKENS], np.array([TOKENS]), "text", np.array(3), 3.5, {"input_ids": TOKENS}])
def test_tokens_that_are_not_one_sequence(cache, tokens):
    """Several sequences, text and single numbers are refused with what is wanted."""
    registered = cache.register(layout())
    with pytest.raises(CallerError, match=r"tokens: not token ids: .*one sequence of token ids, one-dimensional"):
        cache.acquire(registered, tokens)


def test_bytes_are_one_token_each(daemon, cache):
    """Bytes are a sequence of small numbers, as anywhere in Python, and no raw memory of wider ones."""
    registered = cache.register(layout())
    cache.acquire(registered, bytes(TOKENS))
    cache.acquire(registered, TOKENS)
    first, second = daemon.asked(requests.Acquire)
    assert first == second


@pytest.mark.parametrize("extra", [{"salt": 3}, {"salt": None}, {3: "salt"}, "salt", [("salt", "a")]])
def test_extra_keys_that_are_none(cache, extra):
    """Extra keys are text or bytes by source; a number would have stood for that many zero bytes."""
    registered = cache.register(layout())
    with pytest.raises(CallerError, match=r"extra: .*pass text or bytes by source"):
        cache.acquire(registered, TOKENS, extra=extra)


def test_looping_over_a_unit_gives_its_objects(cache):
    """A unit can be looped over, object by object."""
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    assert list(unit) == unit.objects
    unit.abort()
