"""Arbiter of packet streams: many in, one out."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_stream


class PacketArbiter(wiring.Component):
    """Merge packet streams into one; a frame once begun goes through whole.

    Between frames, the waiting input with the lowest index goes first; with ``round_robin``, the next one
    after the input that went last, so that none waits for more than one frame of every other. An input's
    ``ready`` follows the valids and ``o.ready``; the output is registered.

    Members
    -------
    ``i`` : In, array of ``inputs`` packet streams
    ``o`` : Out, packet stream

    Parameters
    ----------
    ``width`` : int, bits; a positive multiple of 8
    ``inputs`` : int, 1…8
    ``round_robin`` : bool
    ``error`` : bool
        Carry the ``error`` bit, too.

    Latency
    -------
    1 cycle; one beat a cycle, without a pause between frames or inputs.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, width: int, inputs: int, round_robin: bool = False, error: bool = False):
        if inputs not in range(1, 9):
            raise ValueError(f"inputs must be from 1 to 8, not {inputs!r}")
        self.width = width
        self.inputs = inputs
        self.round_robin = round_robin
        self.error = error
        signature = packet_stream(width, error=error)
        super().__init__({"i": In(signature).array(inputs), "o": Out(signature)})

    def elaborate(self, platform: Any) -> Module:
        """``chosen`` is decided anew in every cycle that may begin a frame, else it is the frame's input."""
        m = Module()
        inside = Signal()  # a frame has begun and not ended
        current = Signal(range(self.inputs))  # its input, or that of the last frame
        chosen = Signal(range(self.inputs))
        free = self.o.ready | ~self.o.valid

        m.d.comb += chosen.eq(current)
        with m.If(~inside):
            self._choose(m, current, chosen)
        with m.If(free):
            m.d.sync += self.o.valid.eq(0)
        with m.Switch(chosen):
            for index, port in enumerate(self.i):
                with m.Case(index):
                    m.d.comb += port.ready.eq(free)
                    with m.If(free):
                        m.d.sync += [self.o.valid.eq(port.valid), self.o.payload.eq(port.payload)]
                    with m.If(free & port.valid):
                        m.d.sync += [inside.eq(~port.payload.last), current.eq(index)]
        return m

    def _choose(self, m: Module, current: Signal, chosen: Signal) -> None:
        """Later statements win: from the least to the most urgent input."""
        for index in reversed(range(self.inputs)):
            with m.If(self.i[index].valid):
                m.d.comb += chosen.eq(index)
        if self.round_robin:
            for index in reversed(range(self.inputs)):
                with m.If(self.i[index].valid & (current < index)):
                    m.d.comb += chosen.eq(index)
