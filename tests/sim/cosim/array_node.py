"""A node without memories that multiplies, adds and accumulates what its registers hold."""

from amaranth import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.bus.register_map import Access, Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.emit import shared
from fanin.hdl.stream.packet import packet_stream

TERMS = 2
REGISTERS = RegisterMap(
    (
        Register("control", Access.PULSE, "start", (Field("start", 1, "add a · b to the total"),)),
        *(Register(f"{side}{term}", Access.RW, "an operand") for side in "ab" for term in range(TERMS)),
        Register("total", Access.RO, "of all products"),
        Register("runs", Access.RO, "how often it was added to"),
    )
)


class Accumulator(wiring.Component):
    """``total`` ← ``total`` ⊕ (a0 ⊗ b0 ⊕ a1 ⊗ b1), some cycles after ``start``. Its outputs are registers."""

    def __init__(self):
        super().__init__({"a": In(64), "b": In(64), "start": In(1), "total": Out(32), "runs": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.lanes = lanes = shared(LaneArray(trees=(tuple((k, k) for k in range(TERMS)),)))
        m.submodules.adder = adder = shared(AdderArray(lanes=1))
        valid = delayed(m, self.start, lanes.latency + adder.latency, name="valid", reset_less=False)
        m.d.comb += [
            lanes.a.eq(self.a),
            lanes.b.eq(self.b),
            lanes.valid.eq(self.start),
            adder.a.eq(lanes.o),
            adder.b.eq(self.total),
            adder.valid.eq(valid[lanes.latency]),
        ]
        with m.If(valid[-1]):
            m.d.sync += [self.total.eq(adder.o), self.runs.eq(self.runs + 1)]
        return m


class ArrayNode(wiring.Component):
    """Registers around an :class:`Accumulator`; its MAC is idle."""

    def __init__(self):
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=REGISTERS.address_bits)),
                "mac_tx": Out(packet_stream(128)),
                "mac_rx": In(packet_stream(128, error=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=REGISTERS)
        m.submodules.accumulator = accumulator = shared(Accumulator())
        wiring.connect(m, wiring.flipped(self.axil), registers.axil)
        m.d.comb += [
            accumulator.a.eq(Cat(registers.a0, registers.a1)),
            accumulator.b.eq(Cat(registers.b0, registers.b1)),
            accumulator.start.eq(registers.start),
            registers.total.eq(accumulator.total),
            registers.runs.eq(accumulator.runs),
            self.mac_rx.ready.eq(1),
        ]
        return m
