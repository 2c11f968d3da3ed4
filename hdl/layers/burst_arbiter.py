"""Arbiter of the store's channels at a memory port."""

from __future__ import annotations

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.layers.burst_requests import BurstRequest
from fanin.hdl.stream.round_robin import RoundRobin

_CHOICE = 3  # cycles from requests to an index


def granted_layout(count: int) -> data.StructLayout:
    """Return the layout of a request and its source, one of ``count`` channels."""
    return data.StructLayout({"request": BurstRequest, "channel": range(count)})


class BurstArbiter(wiring.Component):
    """Round-robin arbiter of the bursts of all channels.

    Members
    -------
    ``requests`` : In, array of ``count`` streams of BurstRequest
        Requests of the channels, served in round-robin order.
    ``stop`` : In(1)
        Choose no further request. A request already on ``o`` stays valid until it is taken.
    ``o`` : Out, stream of :func:`granted_layout`

    Parameters
    ----------
    ``count`` : int, at least 1

    Latency
    -------
    4 cycles from a request to ``o``; a request every 4 cycles.

    Source
    ------
    docs/systems/cluster.md, "Store".
    """

    def __init__(self, *, count: int):
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}")
        self.count = count
        super().__init__(
            {
                "requests": In(stream.Signature(BurstRequest)).array(count),
                "stop": In(1),
                "o": Out(stream.Signature(granted_layout(count))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Choose only after some cycles, so that the choice reflects the requests left by the previous one."""
        m = Module()
        m.submodules.round_robin = round_robin = RoundRobin(count=max(2, 1 << (self.count - 1).bit_length()))
        elapsed = Signal(_CHOICE)  # a one for each cycle since the last choice
        choose = Signal()
        m.d.comb += [
            round_robin.requests.eq(Cat(port.valid for port in self.requests)),
            choose.eq(elapsed[-1] & ~self.stop & round_robin.valid & (~self.o.valid | self.o.ready)),
        ]
        m.d.sync += elapsed.eq(Mux(choose, 0, Cat(1, elapsed)))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(choose):
            m.d.sync += [
                round_robin.last.eq(round_robin.index),
                self.o.valid.eq(1),
                self.o.payload.channel.eq(round_robin.index),
                self.o.payload.request.eq(Array(port.payload for port in self.requests)[round_robin.index]),
            ]
        for index, port in enumerate(self.requests):
            m.d.comb += port.ready.eq(choose & (round_robin.index == index))
        return m
