"""Receiver of a MAC: extracts frames from the bytes of a PHY."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.crc import CRC_BITS, after_byte, remainder
from fanin.hdl.net.ethernet.gmii import START, Cause, Gmii, ReceivedByte
from fanin.wire.ethernet import FCS_BYTES, MAX_FRAME_BYTES, MIN_FRAME_BYTES

_ALL_ONES = (1 << CRC_BITS) - 1
_RESIDUE = remainder(bytes(FCS_BYTES), _ALL_ONES)  # remainder of any frame with its FCS
# Parts of the comparison with ``_RESIDUE``: two LUTs in series for each part, then two for all in the next
# cycle.
_PARTS = 3
_SHORTEST = MIN_FRAME_BYTES + FCS_BYTES


class MacReceiver(wiring.Component):
    """Receiver that finds each frame in its carrier, checks its FCS and removes it.

    All bytes before the start delimiter count as preamble. Every carrier, even one without a start, ends with a
    byte that has ``last`` and a ``cause``. After fewer than five bytes, that byte's data is not part of the
    frame.

    Members
    -------
    ``gmii`` : In, Gmii
        Bytes from the PHY.
    ``enable`` : In, 1
        ``gmii`` has its next byte; also in cycles without a carrier.
    ``o`` : Out, stream of ReceivedByte, always ready
        Bytes of frames.

    Parameters
    ----------
    ``max_frame`` : int, bytes; 64 to 2,000
        Longest frame, FCS included.

    Latency
    -------
    From the last byte on ``gmii`` to the last one on ``o``: 4 cycles, if ``enable`` is high in all of them. A
    byte a cycle, and a gap of one byte between frames.

    Source
    ------
    IEEE 802.3, clauses 3.2 and 35.2.
    """

    def __init__(self, *, max_frame: int = MAX_FRAME_BYTES):
        check_max_frame(max_frame)
        self.max_frame = max_frame
        super().__init__(
            {
                "gmii": In(Gmii),
                "enable": In(1),
                "o": Out(stream.Signature(ReceivedByte, always_ready=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Hold five bytes: four of the FCS, and one that is the frame's last if the carrier ends.

        A ``step`` is a cycle with a new byte.
        """
        m = Module()
        step = Signal()
        byte = Signal(Gmii)
        in_frame = Signal()  # after the start delimiter
        had_carrier = Signal()  # carrier was present a step ago
        content = Signal()
        ends = Signal()
        m.d.sync += [step.eq(self.enable), byte.eq(self.gmii)]
        m.d.comb += [content.eq(byte.valid & in_frame), ends.eq(had_carrier & ~byte.valid)]
        with m.If(step):
            m.d.sync += [
                had_carrier.eq(byte.valid),
                in_frame.eq(byte.valid & (in_frame | (byte.data == START))),
            ]

        line = Signal(8 * (FCS_BYTES + 1))
        filled = Signal(FCS_BYTES + 1)
        with m.If(step):
            with m.If(content):
                m.d.sync += [line.eq(Cat(byte.data, line)), filled.eq(Cat(1, filled))]
            with m.Else():
                m.d.sync += filled.eq(0)

        output = Signal(ReceivedByte)
        valid = Signal()
        with m.If(step):
            m.d.sync += [
                valid.eq(filled[-1] & content | ends),
                output.data.eq(line[-8:]),
                output.last.eq(ends),
                self.o.p.data.eq(output.data),
                self.o.p.last.eq(output.last),
                self.o.p.cause.eq(self._cause(m, step, byte, content)),
            ]
        m.d.sync += self.o.valid.eq(step & valid)
        return m

    def _cause(self, m: Module, step: Signal, byte: Any, content: Signal) -> Any:
        """Return the outcome of the frame, in the step after its carrier's end."""
        state = Signal(CRC_BITS, init=_ALL_ONES)
        number = Signal(range(self.max_frame + 1))  # frame bytes so far; wrapping does no harm
        short = Signal(init=1)
        long = Signal()
        damaged = Signal()
        with m.If(step):
            with m.If(content):
                m.d.sync += [state.eq(after_byte(state, byte.data)), number.eq(number + 1)]
                with m.If(number[: _SHORTEST.bit_length() - 1].all()):  # 64 bytes or a multiple, with this one
                    m.d.sync += short.eq(0)
                with m.If(number == self.max_frame):
                    m.d.sync += long.eq(1)
            with m.Else():
                m.d.sync += [state.eq(_ALL_ONES), number.eq(0), short.eq(1), long.eq(0)]
            m.d.sync += damaged.eq(byte.valid & (damaged | byte.error))

        size = -(-CRC_BITS // _PARTS)
        residue_matches = Signal(_PARTS)
        was_short = Signal()
        was_long = Signal()
        was_damaged = Signal()
        with m.If(step):
            m.d.sync += [
                residue_matches[n].eq(
                    state[n * size :][:size] == (Const(_RESIDUE, CRC_BITS)[n * size :][:size])
                )
                for n in range(_PARTS)
            ]
            m.d.sync += [was_short.eq(short), was_long.eq(long), was_damaged.eq(damaged)]
        cause = Mux(residue_matches.all(), Cause.GOOD, Cause.BAD_FCS)
        for condition, name in (was_long, Cause.LONG), (was_short, Cause.RUNT), (was_damaged, Cause.ERROR):
            cause = Mux(condition, name, cause)
        return cause


def check_max_frame(max_frame: int) -> None:
    """Raise ValueError unless ``max_frame`` is a possible length of a frame."""
    if not _SHORTEST <= max_frame <= MAX_FRAME_BYTES:
        raise ValueError(f"max_frame must be {_SHORTEST} to {MAX_FRAME_BYTES} bytes, not {max_frame!r}")
