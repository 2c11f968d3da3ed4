"""Both ends of an ``ActivationSignature`` as streams, which the test fixture can drive and collect."""

from amaranth import Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.glm.reducer import ActivationReducer
from fanin.hdl.glm.shapes import ActivationSignature
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class Queued(wiring.Component):
    """An engine, or its forward half, and a queue behind ``pa``, as in the reducer: ``LATENCY`` cycles."""

    LATENCY = 1

    def __init__(self, dut):
        self.dut = dut
        self.queue = StreamFIFO(shape=dut.pa.payload.shape(), depth=ActivationSignature.QUEUE)
        members = dict(dut.signature.members.items())
        super().__init__(members | {"pa": Out(stream.Signature(dut.pa.payload.shape()))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut, queue = self.dut, self.queue
        m.submodules.queue = ResetInserter(self.start)(queue)
        connect_typed(m, queue.o, flipped(self.pa))
        m.d.comb += [queue.i.payload.eq(self.dut.pa.payload), queue.i.valid.eq(self.dut.pa.valid)]
        m.d.sync += self.dut.pa.taken.eq(queue.o.valid & queue.o.ready & ~self.start)
        for name, member in self.dut.signature.members.items():
            outer, inner = getattr(self, name), getattr(self.dut, name)
            if name == "pa":
                continue
            if member.is_signature:
                connect_typed(m, flipped(outer), inner)
            else:
                m.d.comb += inner.eq(outer) if member.flow is In else outer.eq(inner)
        return m


class Credited(wiring.Component):
    """A reducer in front of which every engine keeps to its credits, and uses them all."""

    def __init__(self, dut: ActivationReducer):
        self.dut = dut
        members = dict(dut.signature.members.items())
        engine = stream.Signature(dut.i[0].payload.shape())
        super().__init__(members | {"i": In(engine).array(dut.engines)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self.dut
        for outer, inner in zip(self.i, self.dut.i, strict=True):
            credits = Signal(range(ActivationSignature.QUEUE + 1), init=ActivationSignature.QUEUE)
            m.d.comb += [
                outer.ready.eq(credits != 0),
                inner.payload.eq(outer.payload),
                inner.valid.eq(outer.valid & outer.ready),
            ]
            m.d.sync += credits.eq(credits + inner.taken - inner.valid)
        connect_typed(m, self.dut.o, flipped(self.o))
        m.d.comb += [self.dut.clamp_bits.eq(self.clamp_bits), self.clamped.eq(self.dut.clamped)]
        return m
