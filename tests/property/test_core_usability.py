"""Whatever boundary was accepted is one: a look-up right after its commit resumes exactly there."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvledger.verdict import Exactness
from kvledger.wire.replies import Committed, Failed, Waiting
from kvledger.wire.requests import Abort, Commit, Join, Reserve
from kvledgerd.core.units.tickets import outstanding
from property.test_core_verdict import PROMPT, carry_out, deeds, layouts
from support.world import World

EXAMPLES = 300


def bring(user, reserved, seed, *, by_ranks):
    """Fill and commit a unit, from one connection or from one for each ticket; return the last answer."""
    if not by_ranks:
        user.fill(reserved, seed=seed)
        return user.commit(reserved)
    unit = user.world.state.units[reserved.unit]
    tickets = list(outstanding(user.world.state.layouts[unit.layout], unit))
    if not tickets:
        return user.commit(reserved)
    answers = []
    for ticket in tickets[:: -1 if seed % 2 else 1]:
        rank = user.beside()
        rank.ok(Join(reserved.unit, ticket))
        rank.fill(reserved, seed=seed, rank=ticket)
        answers.append(rank.ask(Commit(reserved.unit, b"", ticket)))
    left = range(len(answers) - 1, 0, -1)
    assert answers[:-1] == [Waiting(number) for number in left]
    return answers[-1]


def offered(user, number, end, **fields):
    """The offers that a look-up of the prompt up to `end` makes at exactly this end."""
    at = user.boundary(number, PROMPT, end)
    acquired = user.acquire(number, PROMPT[:end], **fields)
    return [o for o in acquired.offers if o.position == end and o.residue_hash == at.residue_hash]


def asked():
    """Deeds that requests can bring about: halves of a couple from two commits stand in logs of another hand only."""
    return deeds().filter(lambda done: not any(deed[0] == "halves" for deed in done))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layouts(), asked(), st.integers(1, 40), st.integers(0, 5), st.booleans())
def test_an_accepted_boundary_is_usable(what, before, end, first_block, by_ranks):
    """After any history, a boundary that was reserved and committed is offered there, exact; one refused is counted."""
    user = World(check=False).engine()
    number, ends = user.register(what), {}
    for deed in before:
        carry_out(user, number, deed, ends)
    counted = user.world.state.stored_unusable
    reserved = user.ask(Reserve(number, user.boundary(number, PROMPT, end), first_block=first_block))
    if isinstance(reserved, Failed):
        assert (reserved.code, reserved.field) in {
            ("caller", "first_block"),
            ("commit_refused", "end"),
            ("commit_refused", "first_block"),
        }
        useless = reserved.code == "commit_refused" and reserved.message != "the unit would hold nothing"
        assert user.world.state.stored_unusable == counted + useless
        return
    answer = bring(user, reserved, end, by_ranks=by_ranks)
    assert isinstance(answer, Committed), answer
    (offer,) = offered(user, number, end, leave=0)
    assert (offer.exactness, offer.replay) == (Exactness.EXACT, 0)
    if offer.ready:
        (offer,) = offered(user, number, end, leave=0, restore=False)
        assert offer.ready


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layouts(), asked(), st.integers(1, 40), st.integers(0, 5))
def test_a_unit_that_lost_what_it_stands_on_is_refused_or_usable(what, between, end, first_block):
    """Whatever is dropped between a reservation and its commit, the commit is refused or the boundary is usable."""
    user = World(check=False).engine()
    number = user.register(what)
    ends = {32: None}
    size = what.block_tokens
    carry_out(user, number, ("blocks", 31 // size * size - 1, 0, 0), ends)
    reserved = user.ask(Reserve(number, user.boundary(number, PROMPT, end), first_block=first_block))
    if isinstance(reserved, Failed):
        return
    user.fill(reserved, seed=end)
    for deed in between:
        carry_out(user, number, deed, ends)
    counted = user.world.state.stored_unusable
    answer = user.commit(reserved)
    if isinstance(answer, Failed):
        assert (answer.code, answer.field) == ("commit_refused", "unit")
        assert user.world.state.stored_unusable == counted + 1
        user.ok(Abort(reserved.unit))
        return
    (offer,) = offered(user, number, end, leave=0)
    assert (offer.exactness, offer.replay) == (Exactness.EXACT, 0)
