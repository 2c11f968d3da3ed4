"""Descriptors, and the segments into which their vectors are cut."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.link_job import COUNT_BITS, NODE_BITS, OPERATION_BITS
from fanin.hdl.ring.orders import word_address_bits
from fanin.ring.facts import MAX_NODES, RingConfig


def descriptor_layout(config: RingConfig) -> data.StructLayout:
    """Return the layout of a descriptor.

    ``address``: byte address of the vector, a multiple of the word size.
    ``count``: values of the vector, at least 1.
    ``operation``: number of the descriptor.
    """
    return data.StructLayout(
        {"address": config.address_width, "count": COUNT_BITS, "operation": OPERATION_BITS}
    )


def segment_layout(config: RingConfig) -> data.StructLayout:
    """Return the layout of a segment.

    ``address``: number of the segment's first word in memory.
    ``rest``: words of the vector after that word: its remaining words, less 1.
    ``size``: words of a slice.
    ``own``: offset of the slice that this node sends first, ``rank`` · ``size`` words.
    ``top``: offset of the last slice, (N − 1) · ``size`` words.
    ``lanes``: values of the vector's last word; 0 means all.
    ``operation``: number of the descriptor.
    ``count``: values of the descriptor's vector.
    ``final``: the segment is the descriptor's last.
    """
    offset_bits = (MAX_NODES * config.slice_words).bit_length()
    return data.StructLayout(
        {
            "address": word_address_bits(config),
            "rest": signed(COUNT_BITS - (config.lanes - 1).bit_length() + 1),
            "size": range(config.slice_words + 1),
            "own": offset_bits,
            "top": offset_bits,
            "lanes": (config.lanes - 1).bit_length(),
            "operation": OPERATION_BITS,
            "count": COUNT_BITS,
            "final": 1,
        }
    )


class RingSegments(wiring.Component):
    """Divider of a descriptor's vector into segments of N slices; ``RingConfig.segments`` computes the same.

    Let s be the remaining words divided by N, rounded up. A slice has s words if s ≤ ``slice_words``,
    s / 2 rounded up if s ≤ 2 · ``slice_words``, else ``slice_words``. The last two
    segments of a long vector thus have slices of equal size.

    Members
    -------
    ``nodes`` : In, 8 bits
        N, 2…255; constant while a descriptor is inside.
    ``rank`` : In, 8 bits
        Number of the slice that this node sends first, 0…N − 1; constant while a descriptor is inside.
    ``i`` : In, stream of :func:`descriptor_layout`
        Descriptors.
    ``o`` : Out, stream of :func:`segment_layout`
        Segments.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths and ``slice_words``.

    Latency
    -------
    A segment takes 13 cycles plus one for each bit of a word's number in the vector (29 with 8 lanes, 28 with
    16). Each cycle computes one quotient bit, or one bit of the products with N and rank. The first segment is
    on ``o`` that many cycles after its descriptor was taken.

    Source
    ------
    docs/systems/ring.md; ``fanin.ring.facts.RingConfig.segments``.
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        super().__init__(
            {
                "nodes": In(NODE_BITS),
                "rank": In(NODE_BITS),
                "i": In(stream.Signature(descriptor_layout(config))),
                "o": Out(stream.Signature(segment_layout(config))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Divide by restoring division, then form two products by shift and add; no carry chains in series."""
        m = Module()
        segment = self.o.payload
        next_rest = Signal.like(segment.rest)  # ``rest`` of the next segment; negative if this is the last
        segment_words = Signal.like(segment.own)  # words of all slices of the segment
        descriptor = self.i.payload
        lane_bits = len(segment.lanes)
        word_bits = self.config.address_width - len(segment.address)
        last_word = (descriptor.count - 1)[lane_bits:COUNT_BITS]
        # ⌊rest / N⌋ = ⌈(rest + 1) / N⌉ − 1: words of a slice, less 1. Holds the dividend before DIVIDE.
        quotient = Signal(len(segment.rest) - 1)
        remainder = Signal(NODE_BITS)
        # Steps of a loop after the current one, less 1: negative in the last step, whose sign bit ends the
        # loop.
        steps = Signal(signed(len(quotient).bit_length() + 1))
        with m.FSM() as fsm:
            m.d.comb += [self.i.ready.eq(fsm.ongoing("IDLE")), self.o.valid.eq(fsm.ongoing("OFFER"))]
            with m.State("IDLE"), m.If(self.i.valid):
                m.d.sync += [segment[name].eq(descriptor[name]) for name in ("operation", "count")]
                m.d.sync += segment.address.eq(descriptor.address[word_bits:])
                m.d.sync += [segment.rest.eq(last_word), segment.lanes.eq(descriptor.count)]
                m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += [quotient.eq(segment.rest), remainder.eq(0), steps.eq(len(quotient) - 2)]
                m.next = "DIVIDE"
            with m.State("DIVIDE"):
                self._divide(m, quotient, remainder)
                m.d.sync += steps.eq(steps - 1)
                with m.If(steps[-1]):
                    m.next = "LIMIT"
            with m.State("LIMIT"):
                with m.If(quotient >= 2 * self.config.slice_words):
                    m.d.sync += quotient.eq(self.config.slice_words - 1)
                with m.Elif(quotient >= self.config.slice_words):
                    m.d.sync += quotient.eq(quotient >> 1)
                m.next = "ROUND"
            with m.State("ROUND"):
                m.d.sync += [segment.size.eq(quotient + 1), steps.eq(NODE_BITS - 2)]
                m.next = "MULTIPLY"
            with m.State("MULTIPLY"):
                m.d.sync += steps.eq(steps - 1)
                with m.If(steps[-1]):
                    m.next = "SUBTRACT"
            with m.State("SUBTRACT"):
                m.d.sync += [
                    next_rest.eq(segment.rest - segment_words),
                    segment.top.eq(segment_words - segment.size),
                ]
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.o.ready):
                m.d.sync += [segment.address.eq(segment.address + segment_words), segment.rest.eq(next_rest)]
                m.next = "BEGIN"
                with m.If(next_rest[-1]):
                    m.next = "IDLE"
            begin, multiplying = fsm.ongoing("BEGIN"), fsm.ongoing("MULTIPLY")
        m.d.comb += segment.final.eq(next_rest[-1])
        for product, factor in (segment_words, self.nodes), (segment.own, self.rank):
            self._multiply(m, product, factor, begin, multiplying)
        return m

    def _divide(self, m: Module, quotient: Signal, remainder: Signal) -> None:
        """Do one step of a restoring division by ``nodes``, from the highest bit of the dividend on.

        Dividend bits shift out of ``quotient`` at the top while quotient bits shift in below. A quotient bit is
        1 if the remainder, with the next dividend bit, is at least ``nodes``.
        """
        shifted = Cat(quotient[-1], remainder)
        difference = Signal(signed(NODE_BITS + 2))
        m.d.comb += difference.eq(shifted - self.nodes)
        m.d.sync += [
            remainder.eq(Mux(difference[-1], shifted, difference)),
            quotient.eq(Cat(~difference[-1], quotient)),
        ]

    def _multiply(self, m: Module, product: Any, factor: Signal, begin: Any, enable: Any) -> None:
        """Compute ``product`` = size · ``factor``; takes one cycle of ``enable`` for each bit of ``factor``.

        Bits of ``factor`` are used from the highest down: each doubles the product and may add the size.
        """
        bits = Signal.like(factor)
        with m.If(begin):
            m.d.sync += [bits.eq(factor), product.eq(0)]
        with m.Elif(enable):
            addend = Mux(bits[-1], self.o.payload.size, 0)
            m.d.sync += [bits.eq(Cat(0, bits)), product.eq(Cat(0, product) + addend)]
