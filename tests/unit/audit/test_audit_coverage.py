"""No event is forgotten: each form is told by tables of its own, passed over on purpose, or kept whole."""

import inspect
from typing import get_args

import pytest

import kvledger_storage
from kvledger_storage import events
from kvledger_storage.events import Event
from kvledgerd.audit.telling.coverage import BRIEF, TOLD, WHOLE, is_whole
from kvledgerd.core.apply import _HANDLERS

FORMS = get_args(Event)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_each_event_is_told_or_kept_whole_on_purpose(form):
    """An event stands in exactly one of the three lists, so whoever adds one has decided what the audit keeps of it."""
    assert [form in forms for forms in (TOLD, BRIEF, WHOLE)].count(True) == 1
    assert is_whole(form) == (form in WHOLE)


def test_the_lists_hold_events_only():
    """What the lists name can happen, and what can happen is what the core applies."""
    assert {*TOLD, *BRIEF, *WHOLE} == set(FORMS) == set(_HANDLERS)


def test_all_events_of_the_package_are_in_the_union():
    """Every struct with a tag in any module of events is one that the log may hold, so none escapes these lists."""
    folder = inspect.getfile(kvledger_storage).rpartition("/")[0]
    modules = [name for name in vars(kvledger_storage) if name == "events" or name.endswith("_events")]
    tagged = {
        one
        for name in modules
        for one in vars(getattr(kvledger_storage, name)).values()
        if inspect.isclass(one) and getattr(getattr(one, "__struct_config__", None), "tag", None)
    }
    assert events.__file__.startswith(folder)
    assert len(modules) > 5
    assert tagged == set(FORMS)
