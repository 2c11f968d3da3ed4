"""Descriptors and the segments into which their vectors are cut."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.link_job import COUNT_BITS, NODE_BITS, OPERATION_BITS
from fanin.hdl.ring.orders import word_address_bits
from fanin.ring.facts import MAX_NODES, RingConfig


def descriptor_layout(config: RingConfig) -> data.StructLayout:
    """A vector: ``count`` values, at least 1, from byte ``address`` on, a multiple of the word."""
    return data.StructLayout(
        {"address": config.address_width, "count": COUNT_BITS, "operation": OPERATION_BITS}
    )


def segment_layout(config: RingConfig) -> data.StructLayout:
    """A segment: slices of ``size`` words; ``own`` and ``top`` are where the node's and the last one begin.

    ``address``: the first word's number in memory; ``rest``: words of the vector after that one.
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
    """Cut a descriptor's vector into segments of N slices, as ``RingConfig.segments`` says.

    A slice is ceil(rest / N) words, half of that where it is too long, or ``slice_words`` if that is, too.

    Members
    -------
    ``nodes``, ``rank`` : In, 8 bits
        N, 2…255, and which of the slices this node begins with; they hold while a descriptor is inside.
    ``i`` : In, stream of :func:`descriptor_layout`
    ``o`` : Out, stream of :func:`segment_layout`

    Parameters
    ----------
    ``config`` : RingConfig

    Latency
    -------
    A segment every 13 cycles and one for each bit of a word's number in the vector (29 with 8 lanes, 28 with
    16): one quotient bit, and one bit of the products with N and rank, a cycle. A descriptor's first is on
    ``o`` that many cycles after it was taken.

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
        """Restoring division, then two products by shifting and adding; no carry chain follows another."""
        m = Module()
        segment = self.o.payload
        following = Signal.like(segment.rest)  # ``rest`` of the next segment; negative: there is none
        whole = Signal.like(segment.own)  # words of all slices
        descriptor = self.i.payload
        lane_bits = len(segment.lanes)
        word_bits = self.config.address_width - len(segment.address)
        last_word = (descriptor.count - 1)[lane_bits:COUNT_BITS]
        quotient = Signal(len(segment.rest) - 1)  # of ``rest`` by N: one less than a slice's words
        remainder = Signal(NODE_BITS)
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
                m.d.sync += [following.eq(segment.rest - whole), segment.top.eq(whole - segment.size)]
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.o.ready):
                m.d.sync += [segment.address.eq(segment.address + whole), segment.rest.eq(following)]
                m.next = "BEGIN"
                with m.If(following[-1]):
                    m.next = "IDLE"
            begin, multiplying = fsm.ongoing("BEGIN"), fsm.ongoing("MULTIPLY")
        m.d.comb += segment.final.eq(following[-1])
        for product, factor in (whole, self.nodes), (segment.own, self.rank):
            self._multiply(m, product, factor, begin, multiplying)
        return m

    def _divide(self, m: Module, quotient: Signal, remainder: Signal) -> None:
        """One step of the restoring division by ``nodes``: the quotient's bits follow the dividend's out."""
        shifted = Cat(quotient[-1], remainder)
        difference = Signal(signed(NODE_BITS + 2))
        m.d.comb += difference.eq(shifted - self.nodes)
        m.d.sync += [
            remainder.eq(Mux(difference[-1], shifted, difference)),
            quotient.eq(Cat(~difference[-1], quotient)),
        ]

    def _multiply(self, m: Module, product: Any, factor: Signal, begin: Any, enable: Any) -> None:
        """``product`` = size · ``factor`` once ``enable`` was high for as many cycles as it has bits."""
        bits = Signal.like(factor)
        with m.If(begin):
            m.d.sync += [bits.eq(factor), product.eq(0)]
        with m.Elif(enable):
            addend = Mux(bits[-1], self.o.payload.size, 0)
            m.d.sync += [bits.eq(Cat(0, bits)), product.eq(Cat(0, product) + addend)]
