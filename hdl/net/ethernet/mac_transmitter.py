"""Transmitter of a MAC: turns frames into the bytes for a PHY."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.crc import CRC_BITS, after_byte
from fanin.hdl.net.ethernet.gmii import PREAMBLE, START, Gmii
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import FCS_BYTES, GAP_BYTES, MIN_FRAME_BYTES, PREAMBLE_BYTES

_ALL_ONES = (1 << CRC_BITS) - 1


class _Part(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Part of a frame that a step sends."""

    IDLE = 0  # no frame; the gap has passed
    PREAMBLE = 1
    DATA = 2
    PADDING = 3
    FCS = 4
    GAP = 5
    DROP = 6  # nothing is sent while the rest of a frame that paused is dropped


class MacTransmitter(wiring.Component):
    """Transmitter that sends each frame with preamble, padding, FCS and the gap after it.

    A frame that pauses ends there, with an error on ``gmii``; the rest of the frame is taken and dropped.

    Members
    -------
    ``i`` : In, packet stream of 8 bits
        Frames without FCS; valid in every step of a frame.
    ``gmii`` : Out, Gmii
        Bytes to the PHY; the next byte follows a cycle after ``enable``.
    ``enable`` : In, 1
        The PHY takes a byte: a step.
    ``underrun`` : Out, 1
        Pulse: a frame has paused.

    Parameters
    ----------
    None.

    Latency
    -------
    From the first byte on ``i`` to the preamble on ``gmii``: 3 cycles where the gap is over, if ``enable`` is
    high in all of them. One byte a step; frames that wait follow one another with 12 bytes between them.

    Source
    ------
    IEEE 802.3, clauses 3.2, 4.2.8 and 35.2.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(packet_stream(8)), "gmii": Out(Gmii), "enable": In(1), "underrun": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """Select a byte in one step; in the next, add it to the CRC and send it, or send the FCS instead."""
        m = Module()
        next_byte = Signal(Gmii)
        counts = Signal()  # the byte enters the CRC
        is_fcs = Signal()
        self._choose(m, next_byte, counts, is_fcs)

        state = Signal(CRC_BITS, init=_ALL_ONES)
        low = state[:8]
        with m.If(self.enable):
            m.d.sync += [
                self.gmii.data.eq(Mux(is_fcs, ~low, next_byte.data)),
                self.gmii.valid.eq(next_byte.valid),
                self.gmii.error.eq(next_byte.error),
            ]
            with m.If(counts):
                # A byte equal to the remainder's lowest byte shifts the remainder: the next byte of the FCS
                # follows.
                m.d.sync += state.eq(after_byte(state, Mux(is_fcs, low, next_byte.data)))
            with m.Else():
                m.d.sync += state.eq(_ALL_ONES)
        return m

    def _choose(self, m: Module, next_byte: Any, counts: Signal, is_fcs: Signal) -> None:
        """Select the byte of each step, and the part of the frame in the next step.

        A part of fixed length counts its steps down in ``steps_left``; ``last`` marks its last step.
        """
        i = self.i
        part = Signal(_Part)
        # Steps of this part after the current step.
        steps_left = Signal(range(max(PREAMBLE_BYTES, FCS_BYTES, GAP_BYTES)))
        last = Signal()  # no step of this part is left
        number = Signal(range(MIN_FRAME_BYTES))  # bytes of the frame before this one, up to the minimum minus 1
        long_enough = Signal()  # the frame has its minimum length, with this byte
        in_data = Signal()
        dropping = Signal()
        pauses = Signal()
        m.d.comb += [
            in_data.eq(part == _Part.DATA),
            dropping.eq(part == _Part.DROP),
            i.ready.eq(self.enable & (in_data | dropping)),
            pauses.eq(in_data & ~i.valid),
        ]
        m.d.sync += self.underrun.eq(self.enable & pauses)

        def follow(next_part: Any, steps: int) -> list[Any]:
            return [part.eq(next_part), steps_left.eq(steps - 1), last.eq(steps == 1)]

        with m.If(self.enable):
            m.d.sync += [steps_left.eq(steps_left - 1), last.eq(steps_left == 1)]
            m.d.sync += [counts.eq(0), is_fcs.eq(0), next_byte.valid.eq(1), next_byte.error.eq(0)]
            m.d.sync += [number.eq(0), long_enough.eq(0)]
            with m.Switch(part):
                with m.Case(_Part.IDLE):
                    m.d.sync += next_byte.valid.eq(0)
                    with m.If(i.valid):
                        m.d.sync += follow(_Part.PREAMBLE, PREAMBLE_BYTES)
                with m.Case(_Part.PREAMBLE):
                    m.d.sync += next_byte.data.eq(Mux(last, START, PREAMBLE))
                    with m.If(last):
                        m.d.sync += part.eq(_Part.DATA)
                with m.Case(_Part.DATA, _Part.PADDING):
                    m.d.sync += [next_byte.data.eq(Mux(in_data, i.p.data, 0)), counts.eq(1)]
                    m.d.sync += [
                        number.eq(number + ~long_enough),
                        long_enough.eq(long_enough | (number == MIN_FRAME_BYTES - 2)),
                    ]
                    with m.If(pauses):
                        m.d.sync += [next_byte.error.eq(1), part.eq(_Part.DROP)]
                    with m.Elif(i.p.last | ~in_data):
                        m.d.sync += part.eq(_Part.PADDING)
                        with m.If(long_enough):
                            m.d.sync += follow(_Part.FCS, FCS_BYTES)
                with m.Case(_Part.FCS):
                    m.d.sync += [counts.eq(1), is_fcs.eq(1)]
                    with m.If(last):
                        # An idle step is the last of the gap.
                        m.d.sync += follow(_Part.GAP, GAP_BYTES - 1)
                with m.Case(_Part.GAP):
                    m.d.sync += next_byte.valid.eq(0)
                    with m.If(last):
                        m.d.sync += part.eq(_Part.IDLE)
                with m.Default():
                    m.d.sync += next_byte.valid.eq(0)
                    with m.If(i.valid & i.p.last):
                        m.d.sync += follow(_Part.GAP, GAP_BYTES - 1)
