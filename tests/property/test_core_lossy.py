"""Whatever happens to prompts in a lossy tier, nobody who did not ask for approximations ever reads one.

What an engine computed over exact state is known by its bytes. Everything else is an approximation: what came back from
a quantised record, and what an engine computed over that. The model remembers no history; it looks at what is read.
"""

from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvledger.kinds import Kind
from kvledger.verdict import Exactness
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Evict, Offload, Release, Reserve, Restore
from kvledgerd.snapshots import proof
from support.lossy import config, lossy_layout
from support.world import World

EXAMPLES = 60
BLOCK = 256
PROMPTS = [[*range(BLOCK), *(number * 1000 + token for token in range(BLOCK, 4 * BLOCK))] for number in range(2)]
COMPUTED = 100
"""Seeds below are those of exact bytes."""

deeds = st.lists(
    st.tuples(
        st.sampled_from(["compute", "continue", "continue", "away", "away", "restore", "drop", "forget", "restart"]),
        st.integers(0, 1),
        st.sampled_from([BLOCK, 2 * BLOCK]),
        st.integers(0, 7),
    ),
    min_size=4,
    max_size=12,
)


class Game:
    """One cache, one engine at a time, and the bytes that are exact."""

    def __init__(self):
        self.world = World(config())
        self.exact = set()
        self.approximated = 0
        self.enter()

    def enter(self):
        """Let an engine in."""
        self.user = self.world.engine()
        self.number = self.user.register(lossy_layout())

    def play(self, what, number, end, choice):
        """Do one deed; what is refused is part of the game."""
        prompt = PROMPTS[number]
        at = self.user.boundary(self.number, prompt, end)
        match what:
            case "compute":
                self.compute(prompt, end, choice)
            case "continue":
                self.continue_over(prompt, end, choice)
            case "away":
                self.user.ask(Offload(self.number, at, drop_memory=choice > 0, exact=choice == 7))
            case "restore":
                self.user.ask(Restore(self.number, at))
            case "drop":
                self.user.ask(Evict(Kind.COMPRESSED_KV, self.number, at, block=choice % 3 - 1, disk=choice > 3))
            case "forget":
                self.user.ask(Evict(Kind.DISK_PREFIX, self.number, at))
            case "restart":
                self.world.restart(arenas=choice > 3)
                self.enter()

    def compute(self, prompt, end, seed):
        """Look up exactly, compute the rest over that, and hand it in."""
        hit = self.user.acquire(self.number, prompt[:end])
        start = hit.usable_tokens
        self.store(prompt, end, start // BLOCK, seed)
        if hit.lease:
            self.user.ok(Release(hit.lease))

    def continue_over(self, prompt, end, choice):
        """Look up an approximation and compute over it, in the order that an engine likes."""
        self.user.ask(Restore(self.number, self.user.boundary(self.number, prompt, end)))
        hit = self.user.acquire(self.number, prompt[: end + 1], approx=True)
        if not hit.lease:
            return
        if hit.offers[0].exactness is Exactness.APPROX and hit.offers[0].ready:
            self.approximated += 1
            first, seed = choice // 2 % 2 * hit.usable_tokens // BLOCK, COMPUTED + choice
            if choice % 2:
                self.user.ok(Release(hit.lease))
                self.store(prompt, end + BLOCK, first, seed, approx=not first)
                return
            self.store(prompt, end + BLOCK, first, seed)
        self.user.ok(Release(hit.lease))

    def store(self, prompt, end, first_block, seed, **fields):
        """Reserve, fill and commit."""
        at = self.user.boundary(self.number, prompt, end)
        reserved = self.user.ask(Reserve(self.number, at, first_block=first_block, **fields))
        if isinstance(reserved, Failed):
            return
        self.user.fill(reserved, seed=seed)
        unit = self.world.state.units[reserved.unit]
        if seed < COMPUTED:
            self.exact |= {bytes(self.world.memory[unit.places[i]]) for i in unit.missing()}
        self.user.commit(reserved)

    def look(self):
        """Read everything that is offered as exact, also beside what is offered as an approximation."""
        for prompt, approx in product(PROMPTS, (False, True)):
            hit = self.user.acquire(self.number, prompt, approx=approx)
            for number, offer in enumerate(hit.offers):
                assert approx or offer.exactness is Exactness.EXACT
                if offer.exactness is Exactness.EXACT:
                    read = self.user.read(hit, number)
                    assert {bytes(data) for data in read.values()} <= self.exact
            if hit.lease:
                self.user.ok(Release(hit.lease))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(deeds)
def test_nobody_reads_an_approximation_unasked(done):
    """What is offered as exact has the bytes that somebody computed over exact state; log and image remember it."""
    game = Game()
    for deed in done:
        game.play(*deed)
        game.look()
    state = game.world.state
    assert game.world.replayed().digest() == state.digest()
    assert proof.proven(state)[1] == state.digest()
