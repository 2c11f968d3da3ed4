"""AXI4 memory models for Amaranth's simulator, with latency, stalls, errors and protocol checks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

from fanin.hdl.bus.axi4 import BOUNDARY, Burst, Resp
from fanin.sim.rtl.stalls import Side, Stalls


def _check_burst(address: int, words: int, size: int, burst: Burst, step: int) -> None:
    assert 1 << size == step, f"the size is {size}"
    assert burst is Burst.INCR, f"the burst is {burst}"
    assert address % step == 0, f"{address:#x} is unaligned"
    assert address // BOUNDARY == (address + words * step - 1) // BOUNDARY, f"{address:#x} crosses 4 KiB"


class ReadMemory:
    """Slave of an AXI4 read port that answers bursts in order; add ``process`` to a simulation as a testbench.

    - ``port``: the master's port.
    - ``word``: function from a byte address, a multiple of the word size, to the data.
    - ``latency``: cycles from a burst's AR to its first word, at least 1.
    - ``stall``: odds of :class:`~fanin.sim.rtl.stalls.Stalls`; stream ``ar``: AR is not ready; ``r``: a word is
      late.
    - ``errors``: byte addresses of words with the response SLVERR.

    Raises AssertionError if the master withdraws or changes a request or lowers ``rready`` while data wait. A
    burst must be INCR, of whole words, and must not cross 4 KiB.
    ``requests`` keeps ``(cycle, address, words)`` of every burst.
    """

    def __init__(
        self,
        port: Any,
        word: Callable[[int], int],
        *,
        latency: int = 1,
        stall: float | Mapping[str, float] = 0.0,
        seed: int = 0,
        errors: Collection[int] = (),
    ):
        if latency < 1:
            raise ValueError(f"latency must be at least 1, not {latency!r}")
        self.port = port
        self.word = word
        self.latency = latency
        self.errors = errors
        self.requests: list[tuple[int, int, int]] = []
        self._stalls = Stalls(stall, seed)
        self._beats: deque[tuple[int, int, bool]] = deque()  # (first cycle, address, last)

    async def process(self, ctx: Any) -> None:
        """Run forever: in each cycle, offer a word, accept an address, and check the master."""
        port, cycle = self.port, 0
        names = ("arvalid", "araddr", "arlen", "arsize", "arburst")
        signals = [getattr(port, name) for name in names]
        offered, pending = False, None
        while True:
            offered = self._offer_word(ctx, cycle, offered)
            ready = not self._stalls.pauses("ar", Side.SINK, cycle)
            ctx.set(port.arready, ready)
            _, _, taken_by_master, *request = await ctx.tick().sample(port.rready, *signals)
            assert taken_by_master or not offered, "rready is low"
            assert pending is None or request == pending, f"request changed from {pending} to {request}"
            if offered:
                self._beats.popleft()
                offered = False
            valid = request[0]
            pending = request if valid and not ready else None
            if valid and ready:
                self._accept_address(cycle, *request[1:])
            cycle += 1

    def _accept_address(self, cycle: int, address: int, length: int, size: int, burst: Burst) -> None:
        step, count = len(self.port.rdata) // 8, length + 1
        _check_burst(address, count, size, burst, step)
        self.requests.append((cycle, address, count))
        for n in range(count):
            self._beats.append((cycle + self.latency, address + n * step, n == count - 1))

    def _offer_word(self, ctx: Any, cycle: int, offered: bool) -> bool:
        """Offer the next word when it is due; return whether one is offered."""
        due = bool(self._beats) and self._beats[0][0] <= cycle
        if not due or (not offered and self._stalls.pauses("r", Side.SOURCE, cycle)):
            ctx.set(self.port.rvalid, 0)
            return False
        _, address, last = self._beats[0]
        ctx.set(self.port.rdata, self.word(address))
        ctx.set(self.port.rlast, last)
        ctx.set(self.port.rresp, Resp.SLVERR if address in self.errors else Resp.OKAY)
        ctx.set(self.port.rvalid, 1)
        return True


class Order(Enum):
    """Order in which a slave accepts a burst: in any order, the address first, or its words first."""

    ANY = "any"
    ADDRESS_FIRST = "address first"
    WORDS_FIRST = "words first"


class WriteMemory:
    """Slave of an AXI4 write port; add ``process`` to a simulation as a testbench.

    - ``port``: the master's port.
    - ``latency``: cycles from the last transfer of a burst, address or word, to its response, at least 1.
    - ``stall``: odds of :class:`~fanin.sim.rtl.stalls.Stalls`; streams ``aw``, ``w``: not ready; ``b``: a
      response is late.
    - ``errors``: byte addresses of words whose burst is stored, with the response SLVERR.
    - ``order``: whether the slave waits for addresses or for words first.

    Raises AssertionError if the master withdraws or changes an offer, is not ready for a response, or sets
    ``wlast`` at the wrong word. A burst must be INCR, of whole words, and must not cross 4 KiB.
    ``content`` has the written bytes by address; ``requests`` has ``(cycle, address, words)`` of every burst.
    ``words`` and ``responses`` have the cycles of all words and responses.
    """

    def __init__(
        self,
        port: Any,
        *,
        latency: int = 1,
        stall: float | Mapping[str, float] = 0.0,
        seed: int = 0,
        errors: Collection[int] = (),
        order: Order = Order.ANY,
    ):
        if latency < 1:
            raise ValueError(f"latency must be at least 1, not {latency!r}")
        self.port = port
        self.latency = latency
        self.errors = errors
        self.order = order
        self.content: dict[int, int] = {}
        self.requests: list[tuple[int, int, int]] = []
        self.words: list[int] = []
        self.responses: list[int] = []
        self._stalls = Stalls(stall, seed)
        # Bursts that are not stored yet: address and word count, and their words.
        self._bursts: deque[tuple[int, int]] = deque()
        self._waiting: deque[list[tuple[int, int]]] = deque([[]])
        self._due_responses: deque[tuple[int, Any]] = deque()  # (first cycle, response)

    async def process(self, ctx: Any) -> None:
        """Run forever: in each cycle, offer a response, accept an address and a word, and check the master."""
        port, cycle = self.port, 0
        address = [getattr(port, name) for name in ("awvalid", "awaddr", "awlen", "awsize", "awburst")]
        word = [getattr(port, name) for name in ("wvalid", "wdata", "wstrb", "wlast")]
        offered, pending = False, [None, None]
        while True:
            offered = self._offer_response(ctx, cycle, offered)
            ready = self._ready(cycle)
            ctx.set(port.awready, ready[0])
            ctx.set(port.wready, ready[1])
            _, _, taken_by_master, *sampled = await ctx.tick().sample(port.bready, *address, *word)
            assert taken_by_master or not offered, "bready is low"
            if offered:
                self._due_responses.popleft()
                self.responses.append(cycle)
                offered = False
            for n, offer in enumerate((sampled[:5], sampled[5:])):
                assert pending[n] is None or offer == pending[n], f"changed from {pending[n]} to {offer}"
                pending[n] = offer if offer[0] and not ready[n] else None
            if sampled[0] and ready[0]:
                self._accept_address(cycle, *sampled[1:5])
            if sampled[5] and ready[1]:
                self._accept_word(cycle, *sampled[6:])
            self._store(cycle)
            cycle += 1

    def _ready(self, cycle: int) -> tuple[bool, bool]:
        """Return whether an address, and a word, is accepted in this cycle."""
        address, word = (not self._stalls.pauses(name, Side.SINK, cycle) for name in ("aw", "w"))
        complete = len(self._waiting) - 1
        return (
            address and (self.order is not Order.WORDS_FIRST or complete > len(self._bursts)),
            word and (self.order is not Order.ADDRESS_FIRST or len(self._bursts) > complete),
        )

    def _accept_address(self, cycle: int, address: int, length: int, size: int, burst: Burst) -> None:
        _check_burst(address, length + 1, size, burst, len(self.port.wdata) // 8)
        self.requests.append((cycle, address, length + 1))
        self._bursts.append((address, length + 1))

    def _accept_word(self, cycle: int, data: int, strobe: int, last: bool) -> None:
        self.words.append(cycle)
        self._waiting[-1].append((data, strobe))
        if last:
            self._waiting.append([])

    def _store(self, cycle: int) -> None:
        """Write the oldest burst when its address and all its words have arrived."""
        if not self._bursts or len(self._waiting) == 1:
            return
        (address, count), words = self._bursts.popleft(), self._waiting.popleft()
        assert len(words) == count, f"{len(words)} words up to wlast, not {count}"
        step = len(self.port.wdata) // 8
        for n, (data, strobe) in enumerate(words):
            for byte in range(step):
                if strobe >> byte & 1:
                    self.content[address + n * step + byte] = data >> 8 * byte & 0xFF
        has_error = any(address + n * step in self.errors for n in range(count))
        self._due_responses.append((cycle + self.latency, Resp.SLVERR if has_error else Resp.OKAY))

    def _offer_response(self, ctx: Any, cycle: int, offered: bool) -> bool:
        """Offer the next response when it is due; return whether one is offered."""
        due = bool(self._due_responses) and self._due_responses[0][0] <= cycle
        offers = due and (offered or not self._stalls.pauses("b", Side.SOURCE, cycle))
        ctx.set(self.port.bvalid, offers)
        if offers:
            ctx.set(self.port.bresp, self._due_responses[0][1])
        return offers
