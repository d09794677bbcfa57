"""Made-up loads, each of one shape that serving systems know; seeded, so that every run sees the same requests."""

import random
from collections.abc import Callable, Iterable
from itertools import count

__all__ = ["SHAPES"]

Requests = list[list[int]]
_HOUR = 3600.0


class _Blocks:
    """Draws blocks that nobody had before."""

    def __init__(self) -> None:
        self._next = count()

    def new(self, number: int) -> list[int]:
        return [next(self._next) for _ in range(number)]


def _in_time(sent: Iterable[tuple[float, list[int]]]) -> Requests:
    return [blocks for _, blocks in sorted(sent, key=lambda one: one[0])]


def _zipf(things: int, exponent: float) -> list[float]:
    return [1 / (rank + 1) ** exponent for rank in range(things)]


def chat(draw: random.Random, think: float = 60, turns: float = 0.7) -> Requests:
    """Conversations whose prompts grow turn by turn."""
    fresh, sent = _Blocks(), []
    for _ in range(1000):
        at, prompt = draw.random() * _HOUR, fresh.new(draw.randint(1, 12))
        sent.append((at, prompt + fresh.new(1)))
        while draw.random() < turns:
            at += draw.expovariate(1 / think) + 5
            prompt = prompt + fresh.new(draw.randint(1, 6))
            sent.append((at, prompt + fresh.new(1)))
    return _in_time(sent)


def slow_chat(draw: random.Random) -> Requests:
    """The same with people who think for minutes."""
    return chat(draw, think=400, turns=0.8)


def prompts(draw: random.Random) -> Requests:
    """System prompts of which few are asked for most."""
    fresh = _Blocks()
    shared = [fresh.new(draw.randint(2, 30)) for _ in range(400)]
    return [one + fresh.new(draw.randint(1, 4)) for one in draw.choices(shared, _zipf(400, 1.0), k=4000)]


def retrieval(draw: random.Random) -> Requests:
    """One to three documents behind a common prompt; a document behind another one is another path."""
    fresh, known = _Blocks(), dict[tuple[int, ...], list[int]]()
    common, sent = fresh.new(2), []
    for _ in range(3500):
        found = draw.choices(range(1500), _zipf(1500, 0.8), k=draw.randint(1, 3))
        path = list(common)
        for depth in range(1, len(found) + 1):
            path += known.setdefault(tuple(found[:depth]), fresh.new(3 + found[depth - 1] % 7))
        sent.append(path + fresh.new(1))
    return sent


def agents(draw: random.Random) -> Requests:
    """Agents that call themselves every few seconds with all that was said."""
    fresh, sent = _Blocks(), []
    tools = [fresh.new(8) for _ in range(5)]
    for _ in range(200):
        at, prompt = draw.random() * _HOUR, draw.choice(tools) + fresh.new(draw.randint(1, 4))
        for _ in range(draw.randint(3, 40)):
            sent.append((at, prompt))
            at += draw.expovariate(1 / 8) + 1
            prompt = prompt + fresh.new(draw.randint(1, 3))
    return _in_time(sent)


def scans(draw: random.Random) -> Requests:
    """Two of three requests come once and never again."""
    fresh = _Blocks()
    shared = [fresh.new(6) for _ in range(150)]
    return [
        shared[int(draw.random() ** 2 * 150)] + fresh.new(1) if draw.random() < 0.35 else fresh.new(draw.randint(5, 25))
        for _ in range(4000)
    ]


def shifting(draw: random.Random) -> Requests:
    """What is popular changes at once, every thousand requests."""
    fresh, sent = _Blocks(), []
    shared = [fresh.new(draw.randint(3, 15)) for _ in range(600)]
    for _ in range(5):
        draw.shuffle(shared)
        sent += [one + fresh.new(2) for one in draw.choices(shared, _zipf(600, 1.1), k=1000)]
    return sent


def bursts(draw: random.Random) -> Requests:
    """The same prompt once, or many times within a minute."""
    fresh, sent = _Blocks(), []
    for _ in range(800):
        at, prompt = draw.random() * _HOUR, fresh.new(draw.randint(4, 20))
        for _ in range(draw.choice((1, 1, 1, 2, 5, 20))):
            sent.append((at, prompt + fresh.new(1)))
            at += draw.expovariate(1 / 3)
    return _in_time(sent)


def loop(draw: random.Random) -> Requests:
    """Everything again and again in the same order, more than fits."""
    fresh = _Blocks()
    shared = [fresh.new(draw.randint(8, 12)) for _ in range(300)]
    return [shared[turn % 300] + fresh.new(1) for turn in range(4000)]


SHAPES: dict[str, Callable[[random.Random], Requests]] = {
    made.__name__: made for made in (chat, slow_chat, prompts, retrieval, agents, scans, shifting, bursts, loop)
}
