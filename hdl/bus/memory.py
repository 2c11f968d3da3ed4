"""A memory behind an AXI4 read port, for Amaranth's simulator: latency, stalls, errors, and a strict eye."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from fanin.hdl.bus.axi4 import BOUNDARY, Burst, Resp


class ReadMemory:
    """Answers an AXI4 read port's bursts in order; add ``process`` to a simulation as a testbench.

    ``port``: the master's port; ``word``: the data at a byte address, a multiple of the word;
    ``latency``: cycles from a burst's AR to its first word, at least 1; ``stall``: the probability that AR
    is not ready, and that a word is late; ``errors``: byte addresses whose words answer SLVERR.

    Raises AssertionError when the master withdraws or changes a request, leaves out ``rready`` while data
    wait, or asks for a burst that is not INCR, not of whole words, or crosses 4 KiB.
    ``requests`` keeps ``(cycle, address, words)`` of every burst.
    """

    def __init__(
        self,
        port: Any,
        word: Callable[[int], int],
        *,
        latency: int = 1,
        stall: float = 0.0,
        seed: int = 0,
        errors: Collection[int] = (),
    ):
        if latency < 1:
            raise ValueError(f"latency must be at least 1, not {latency!r}")
        self.port = port
        self.word = word
        self.latency = latency
        self.stall = stall
        self.errors = errors
        self.requests: list[tuple[int, int, int]] = []
        self._rng = random.Random(seed)
        self._beats: deque[tuple[int, int, bool]] = deque()  # (cycle from which on, address, last)

    async def process(self, ctx: Any) -> None:
        """Run for ever."""
        port, cycle = self.port, 0
        names = ("arvalid", "araddr", "arlen", "arsize", "arburst")
        signals = [getattr(port, name) for name in names]
        shown, waiting = False, None
        while True:
            shown = self._show(ctx, cycle, shown)
            ready = self._rng.random() >= self.stall
            ctx.set(port.arready, ready)
            _, _, taken, *request = await ctx.tick().sample(port.rready, *signals)
            assert taken or not shown, "rready is low"
            assert waiting is None or request == waiting, f"request changed from {waiting} to {request}"
            if shown:
                self._beats.popleft()
                shown = False
            valid = request[0]
            waiting = request if valid and not ready else None
            if valid and ready:
                self._accept(cycle, *request[1:])
            cycle += 1

    def _accept(self, cycle: int, address: int, length: int, size: int, burst: Burst) -> None:
        step, count = 1 << size, length + 1
        assert step == len(self.port.rdata) // 8, f"arsize is {size}"
        assert burst is Burst.INCR, f"arburst is {burst}"
        assert address % step == 0, f"araddr {address:#x} is unaligned"
        assert address // BOUNDARY == (address + count * step - 1) // BOUNDARY, f"{address:#x} crosses 4 KiB"
        self.requests.append((cycle, address, count))
        for n in range(count):
            self._beats.append((cycle + self.latency, address + n * step, n == count - 1))

    def _show(self, ctx: Any, cycle: int, shown: bool) -> bool:
        """Offer the next word when it is due; whether one is offered."""
        if not self._beats or self._beats[0][0] > cycle or (not shown and self._rng.random() < self.stall):
            ctx.set(self.port.rvalid, 0)
            return False
        _, address, last = self._beats[0]
        ctx.set(self.port.rdata, self.word(address))
        ctx.set(self.port.rlast, last)
        ctx.set(self.port.rresp, Resp.SLVERR if address in self.errors else Resp.OKAY)
        ctx.set(self.port.rvalid, 1)
        return True
