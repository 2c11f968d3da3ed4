"""Width converter of packet streams."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_stream


class WidthConverter(wiring.Component):
    """Carry frames from a packet stream of one width to one of another, wider or narrower.

    The bytes of a frame stay as they are, and are packed without gaps: a frame has the fewest beats that
    its bytes need. Data bits of bytes that ``keep`` leaves out mean nothing. ``i.ready`` follows
    ``o.ready`` through one LUT.

    Members
    -------
    ``i`` : In, packet stream of ``input_width``
    ``o`` : Out, packet stream of ``output_width``

    Parameters
    ----------
    ``input_width`` : int, bits; a positive multiple of 8
    ``output_width`` : int, bits; a power of two times, or a power-of-two share of, ``input_width``
    ``error`` : bool
        Carry the ``error`` bit, too.

    Latency
    -------
    1 cycle, from the last of the input beats that make up an output beat, or from an input beat to the
    first of its output beats. The narrower side runs at one beat a cycle, frame after frame.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, input_width: int, output_width: int, error: bool = False):
        self.input_width = input_width
        self.output_width = output_width
        self.error = error
        members = {
            "i": In(packet_stream(input_width, error=error)),
            "o": Out(packet_stream(output_width, error=error)),
        }
        narrow, wide = sorted((input_width, output_width))
        if wide % narrow or (wide // narrow) & (wide // narrow - 1):
            raise ValueError(
                f"output_width must be a power of two times input_width, {input_width}, or a share of it, "
                f"not {output_width!r}"
            )
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Neither way needs more storage than the output beat, or the input beat, itself."""
        m = Module()
        if self.output_width >= self.input_width:
            self._widen(m)
        else:
            self._narrow(m)
        return m

    def _widen(self, m: Module) -> None:
        """Input beats are written into the lanes of the output register, which is free until complete."""
        i, o = self.i, self.o
        lanes = self.output_width // self.input_width
        lane = Signal(range(lanes))
        m.d.comb += i.ready.eq(o.ready | ~o.valid)
        with m.If(i.ready):
            m.d.sync += o.valid.eq(i.valid & (i.p.last | (lane == lanes - 1)))
        with m.If(i.ready & i.valid):
            m.d.sync += [lane.eq(lane + 1), o.p.last.eq(i.p.last)]
            if self.error:
                m.d.sync += o.p.error.eq(i.p.error)
            with m.If(i.p.last):
                m.d.sync += lane.eq(0)
            with m.If(lane == 0):
                m.d.sync += o.p.keep.eq(0)
            for n in range(lanes):
                with m.If(lane == n):
                    m.d.sync += o.p.data.word_select(n, self.input_width).eq(i.p.data)
                    m.d.sync += o.p.keep.word_select(n, self.input_width // 8).eq(i.p.keep)

    def _narrow(self, m: Module) -> None:
        """The input beat is shifted out; it ends where the next lane's first byte is not kept."""
        i, o = self.i, self.o
        step = self.output_width // 8
        beat = Signal(i.p.shape())
        final = ~beat.keep[step]
        m.d.comb += [
            i.ready.eq(~o.valid | (o.ready & final)),
            o.p.data.eq(beat.data),
            o.p.keep.eq(beat.keep),
            o.p.last.eq(beat.last & final),
        ]
        if self.error:
            m.d.comb += o.p.error.eq(beat.error)
        with m.If(o.ready):
            m.d.sync += [beat.data.eq(beat.data[self.output_width :]), beat.keep.eq(beat.keep[step:])]
        with m.If(i.ready):
            m.d.sync += [o.valid.eq(i.valid), beat.eq(i.p)]
