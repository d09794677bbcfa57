"""The recovery table: what the end of each segment means.

Recovery reads all segments in order. Each ends in some way, and five conditions decide what that means:

* `end`: zeros up to the file's full length; a *bad* frame (or a file of the wrong length); or a *break*: a frame or
  segment that is whole but does not follow in sequence or chain, or that is missing where one must be.
* `sealed`: a later segment exists. It was named only after everything in this one had been synced.
* `behind`: the header of another frame stands behind the bad one.
* `covered`: the mark, or a header behind, says that the sync of the seq that should come next had returned.
* `same_boot`: a header behind was written under the boot of the machine that is running now. Then no power was lost
  since, and the kernel had the bad frame in full before it had the one behind.

Three decisions follow. CLEAN: go on. REPAIR_TAIL: nobody was told that these events were durable, and a crash
explains what is there; save the bytes, put zeros in their place, report it. REFUSE: no crash explains it, so the disk
or somebody's hand has changed the log, and whoever started on it would lie about the past.

A condition of None does not matter in that row. Exactly one row fits each combination; a test tries all of them.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from kvledger_storage.log.segment import End


class Decision(enum.Enum):
    """What recovery does about the end of a segment."""

    CLEAN = "clean"
    REPAIR_TAIL = "repair_tail"
    REFUSE = "refuse"


class Facts(NamedTuple):
    """The five conditions, as found at the end of one segment."""

    end: End
    sealed: bool
    behind: bool
    covered: bool
    same_boot: bool


class Row(NamedTuple):
    """One row of the table: a pattern over `Facts` (None fits both), the decision, and the reason in a sentence."""

    name: str
    end: End
    sealed: bool | None
    behind: bool | None
    covered: bool | None
    same_boot: bool | None
    decision: Decision
    because: str

    def fits(self, facts: Facts) -> bool:
        """Tell whether this row speaks about these facts."""
        pattern = (self.end, self.sealed, self.behind, self.covered, self.same_boot)
        return all(wanted is None or wanted == fact for wanted, fact in zip(pattern, facts, strict=True))


_ANY: Final = None
_YES: Final = True
_NO: Final = False

# A table is read by its columns, so the formatter keeps out.
# fmt: off
TABLE: Final[tuple[Row, ...]] = (
    #   name                     end        sealed behind covered same boot
    Row("continues",             End.ZEROS, _YES,  _ANY,  _ANY,   _ANY, Decision.CLEAN,
        "the log goes on in the next segment, whose header has to name this chain"),
    Row("ends",                  End.ZEROS, _NO,   _ANY,  _NO,    _ANY, Decision.CLEAN,
        "nothing is there, and nothing says that something was"),
    Row("synced-frames-missing", End.ZEROS, _NO,   _ANY,  _YES,   _ANY, Decision.REFUSE,
        "the log ends before what the mark says was synced"),
    Row("break",                 End.BREAK, _ANY,  _ANY,  _ANY,   _ANY, Decision.REFUSE,
        "frames are written in sequence, each naming the one before, so a crash leaves no break"),
    Row("sealed-damage",         End.BAD,   _YES,  _ANY,  _ANY,   _ANY, Decision.REFUSE,
        "a segment is synced before the next one is named, so a crash leaves no bad frame in it"),
    Row("synced-damage",         End.BAD,   _NO,   _ANY,  _YES,   _ANY, Decision.REFUSE,
        "the sync of this frame had returned"),
    Row("same-boot-damage",      End.BAD,   _NO,   _YES,  _NO,    _YES, Decision.REFUSE,
        "a frame behind was written in this boot, so this one had been written in full and no power was lost since"),
    Row("lost-out-of-order",     End.BAD,   _NO,   _YES,  _NO,    _NO,  Decision.REPAIR_TAIL,
        "the machine went down before the sync, and the disk had taken later sectors before earlier ones"),
    Row("torn",                  End.BAD,   _NO,   _NO,   _NO,    _ANY, Decision.REPAIR_TAIL,
        "the last frame was torn before its sync returned"),
)
# fmt: on


def judge(facts: Facts) -> Row:
    """Return the one row of `TABLE` that fits."""
    (row,) = (row for row in TABLE if row.fits(facts))
    return row
