"""Numbers of things in messages."""

import pytest

from kvledger.counts import counted


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((0, "object"), "0 objects"),
        ((1, "object"), "1 object"),
        ((1200, "object"), "1,200 objects"),
        ((1, "prefix", "prefixes"), "1 prefix"),
        ((2, "prefix", "prefixes"), "2 prefixes"),
    ],
)
def test_one_thing_is_not_told_as_several(asked, said):
    """A number is told with the noun that fits it, its thousands apart."""
    assert counted(*asked) == said
