"""Conversion of frames between transfers of different widths."""

from __future__ import annotations

from math import gcd
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.layers.interface import unit_stream


class Gearbox(wiring.Component):
    """Converter of frames to transfers of another width, in order.

    A frame begins with a new transfer on both sides. If a side's width does not divide the frame, that side's
    last transfer has unused words, which are ignored on ``i`` and zeros on ``o``. If neither width divides the
    frame, unused words of ``i`` may appear as unused words of ``o``.

    Members
    -------
    ``i`` : In, stream of ``source`` words
        ``ready`` follows ``o.ready`` through one LUT.
    ``o`` : Out, stream of ``target`` words

    Parameters
    ----------
    ``source``, ``target`` : int, words of a transfer in and out
    ``frame`` : int, words of a frame
    ``word_bits`` : int, bits of a word, default 32

    Latency
    -------
    1 cycle from the transfer that completes an output payload to that payload. The narrower side moves one
    transfer a cycle.

    Source
    ------
    docs/systems/cluster.md, "Store".
    """

    def __init__(self, *, source: int, target: int, frame: int, word_bits: int = WORD_BITS):
        for name, value in (("source", source), ("target", target), ("frame", frame)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1 word, not {value!r}")
        self.source = source
        self.target = target
        self.frame = frame
        self.word_bits = word_bits
        super().__init__({"i": In(unit_stream(word_bits, source)), "o": Out(unit_stream(word_bits, target))})

    def elaborate(self, platform: Any) -> Module:
        """Collect words in ``buffer``, with those of the next payload in the lowest bits.

        ``full`` counts the complete payloads in the buffer, ``partial`` the units of the incomplete one. A unit
        is the greatest common divisor of both widths. A transfer is taken when no payload is complete, or the
        only complete one leaves. Its words are placed after the incomplete payload.
        """
        m = Module()
        unit = gcd(self.source, self.target)
        source, target = self.source // unit, self.target // unit
        bits = self.word_bits * unit
        buffer = Signal((source + target - 1) * bits)
        full = Signal(range(source // target + 3))  # a frame's last transfer may begin one more
        partial = Signal(range(target))
        take = Signal()
        send = Signal()
        shifted = buffer >> target * bits  # the buffer without its first payload

        m.d.comb += [
            self.o.valid.eq(full.any()),
            self.o.payload.eq(buffer[: target * bits]),
            self.i.ready.eq(~self.o.valid | (full == 1) & self.o.ready),
            take.eq(self.i.valid & self.i.ready),
            send.eq(self.o.valid & self.o.ready),
        ]
        first, last = self._place(m, take)
        with m.If(send):
            m.d.sync += [full.eq(full - 1), buffer.eq(shifted)]
        with m.If(take):
            arrived = self.i.payload.as_value()
            for n, bit in enumerate(partial):
                arrived = Mux(bit, arrived << (bits << n), arrived)
            m.d.sync += buffer.eq(Mux(first, 0, Mux(self.o.valid, shifted, buffer)) | arrived)
            total = partial + source % target
            m.d.sync += [full.eq(source // target), partial.eq(total)]
            with m.If(total >= target):
                m.d.sync += [full.eq(source // target + 1), partial.eq(total - target)]
            with m.If(last):
                m.d.sync += [full.eq(self._last_payloads()), partial.eq(0)]
        return m

    def _place(self, m: Module, take: Signal) -> tuple[Signal, Signal]:
        """Return whether the incoming transfer is the first, and whether it is the last, of its frame."""
        transfers = -(-self.frame // self.source)
        number = Signal(range(transfers))
        first = Signal(init=1)
        last = Signal(init=transfers == 1)
        with m.If(take):
            m.d.sync += [
                number.eq(Mux(last, 0, number + 1)),
                first.eq(last),
                last.eq(transfers == 1 if transfers < 2 else (number == transfers - 2) & ~last),
            ]
        return first, last

    def _last_payloads(self) -> int:
        """Return the number of payloads that a frame's last transfer completes."""
        words_before = (-(-self.frame // self.source) - 1) * self.source
        return -(-self.frame // self.target) - words_before // self.target
