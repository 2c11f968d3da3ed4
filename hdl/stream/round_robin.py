"""Round-robin arbiter."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


def lowest_set(flags: Value) -> tuple[Value, Value]:
    """Return whether a bit is set, and the number of the lowest set bit, as a tree of multiplexers."""
    if len(flags) == 1:
        return flags[0], Const(0, 0)
    half = len(flags) // 2
    (low, low_index), (high, high_index) = lowest_set(flags[:half]), lowest_set(flags[half:])
    return low | high, Cat(Mux(low, low_index, high_index), ~low)


class RoundRobin(wiring.Component):
    """Round-robin arbiter: selects the first requester after the one that was served last.

    Members
    -------
    ``requests`` : In, one bit for each requester
        Requesters that want to be served.
    ``last`` : In, range(count)
        Number of the requester that was served last.
    ``index`` : Out, range(count)
        Number of the requester to serve.
    ``valid`` : Out, 1
        At least one requester has a request.

    Parameters
    ----------
    ``count`` : int, a power of two, at least 2
        Number of requesters.

    Latency
    -------
    3 cycles from ``requests`` and ``last`` to ``index`` and ``valid``.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, count: int):
        if count < 2 or count & (count - 1):
            raise ValueError(f"count must be a power of two from 2, not {count!r}")
        self.count = count
        super().__init__(
            {"requests": In(count), "last": In(range(count)), "index": Out(range(count)), "valid": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Take the lowest request above ``last``, else the lowest of all.

        Each of the three steps ends in a register.
        """
        m = Module()
        all_requests = Signal(self.count)
        requests_above = Signal(self.count)
        any_above = Signal()
        lowest = Signal.like(self.index)
        lowest_above = Signal.like(self.index)
        any_request = Signal()
        mask_above = (Const(-2, self.count) << self.last)[: self.count]
        m.d.sync += [
            all_requests.eq(self.requests),
            requests_above.eq(self.requests & mask_above),
            Cat(any_request, lowest).eq(Cat(*lowest_set(all_requests))),
            Cat(any_above, lowest_above).eq(Cat(*lowest_set(requests_above))),
            self.valid.eq(any_request),
            self.index.eq(Mux(any_above, lowest_above, lowest)),
        ]
        return m
