"""How late the event loop is: what a timer of a second misses by, everybody who waits for the loop has waited."""

import asyncio

__all__ = ["LoopLag"]


class LoopLag:
    """Measures the loop that sleeps by it.

    Attributes:
        micros: By how much the latest sleep was too long, microseconds.
    """

    def __init__(self) -> None:
        self.micros = 0

    async def sleep(self, seconds: float) -> None:
        """Sleep, and note how much longer it took."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        await asyncio.sleep(seconds)
        self.micros = max(0, int((loop.time() - end) * 1e6))
