"""Adders of a ring node: received values plus the node's own, a word a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.fp32 import FP32Adder
from fanin.hdl.emit import shared
from fanin.hdl.ring.words import word_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

# Places after the adders. A word takes one when it enters the adders and gives it back when it leaves the FIFO.
# More places than the cycles between the two sustain one word a cycle.
FIFO_WORDS = 16


def own_layout(width: int) -> data.StructLayout:
    """Return the layout of a word of the node's own.

    ``data``: the word.
    ``last``: the word is the last of its frame.
    ``add``: add the word to the next received word; 0: pass it unchanged.
    """
    return data.StructLayout({"data": width, "last": 1, "add": 1})


class RingLanes(wiring.Component):
    """Adders for received and own words; own words without ``add`` pass unchanged, in order.

    Members
    -------
    ``own`` : In, stream of :func:`own_layout`
        Words of this node.
    ``received`` : In, stream of :func:`word_layout`
        Words of the previous node, one for each own word with ``add``.
    ``o`` : Out, stream of :func:`word_layout`
        ``received`` + ``own``, lane by lane.
    ``added`` : Out, 1
        Pulse: two words enter the adders.
    ``mismatch`` : Out, 1
        Pulse: two words were added of which only one is the last of its frame.

    Parameters
    ----------
    ``lanes`` : int
        Values of a word, at least 1.

    Latency
    -------
    ``LATENCY``, 8 cycles; one word a cycle.

    Source
    ------
    AI Smart NIC, section IV-A; docs/systems/ring.md.
    """

    LATENCY = FP32Adder.LATENCY + 2
    assert FIFO_WORDS > LATENCY + 1  # 1: the register of ``Credits``

    def __init__(self, *, lanes: int = 16):
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self.lanes = lanes
        words = stream.Signature(word_layout(lanes * FLOAT_BITS))
        super().__init__(
            {
                "own": In(stream.Signature(own_layout(lanes * FLOAT_BITS))),
                "received": In(words),
                "o": Out(words),
                "added": Out(1),
                "mismatch": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Admit a word only when the FIFO after the adders has room; the adders themselves never wait."""
        m = Module()
        own, received = self.own, self.received
        m.submodules.fifo = fifo = StreamFIFO(shape=self.o.payload.shape(), depth=FIFO_WORDS)
        connect_typed(m, fifo.o, flipped(self.o))
        complete = Signal()  # both operands of the next word are present
        accept = Signal()
        m.submodules.places = places = Credits(limit=FIFO_WORDS, full=True)
        m.d.comb += [
            complete.eq(own.valid & (received.valid | ~own.payload.add)),
            places.take.eq(accept),
            places.give.eq(self.o.valid & self.o.ready),
            accept.eq(complete & places.ok),
            # A stream's ``ready`` must not depend on its own ``valid``, so ``accept`` cannot be used for both.
            own.ready.eq((received.valid | ~own.payload.add) & places.ok),
            received.ready.eq(own.valid & own.payload.add & places.ok),
        ]
        m.d.comb += self.added.eq(accept & own.payload.add)
        m.d.sync += self.mismatch.eq(self.added & (own.payload.last ^ received.payload.last))

        def stage(value: Any, cycles: int, name: str, **options: bool) -> Any:
            return delayed(m, value, cycles, name=name, **options)[-1]

        depth = FP32Adder.LATENCY + 1
        received_word = stage(received.payload.data, 1, "received")
        own_word = stage(own.payload.data, 1, "own")
        unchanged = stage(own_word, FP32Adder.LATENCY, "unchanged")
        add = stage(own.payload.add, depth, "add")
        sums = []
        for lane in range(self.lanes):
            m.submodules[f"adder_{lane}"] = adder = shared(FP32Adder())
            m.d.comb += [
                adder.a.eq(received_word.word_select(lane, FLOAT_BITS)),
                adder.b.eq(own_word.word_select(lane, FLOAT_BITS)),
            ]
            m.d.comb += adder.enable.eq(1)
            sums.append(adder.o)
        m.d.comb += [
            fifo.i.valid.eq(stage(accept, depth, "enter", reset_less=False)),
            fifo.i.payload.data.eq(Mux(add, Cat(sums), unchanged)),
            fifo.i.payload.last.eq(stage(own.payload.last, depth, "last")),
        ]
        return m
