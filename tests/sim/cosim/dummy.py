"""The least node that a co-simulation can run: reads 8 values, has them aggregated, adds up what comes back."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature
from fanin.hdl.bus.register_map import Access, Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.emit import shared
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.aggregation import ETHERTYPE_AGGREGATION, VERSION, Kind

SLOTS = 4
VALUES = 8
JOB = 5
WIDTH = 512
REGISTERS = RegisterMap(
    (
        Register("control", Access.PULSE, "start", (Field("start", 1, "run the operations"),)),
        Register("worker", Access.RW, "which bit of the bitmap", bits=5),
        Register("operations", Access.RW, "how many", bits=16),
        Register("busy", Access.RO, "running", bits=1),
        Register("total", Access.RO, "sum of all first values that came back"),
        Register("fault", Access.RW, "1: frames of two beats with a pause between", bits=1),
        Register("bad_frames", Access.RO, "received with an error"),
    )
)


def _swapped(value):
    """Network byte order: bytes reversed, the first on the wire in the lowest bits."""
    return Cat(value[n : n + 8] for n in reversed(range(0, len(value), 8)))


class DummyNode(wiring.Component):
    """Runs ``operations`` AllReduces one after the other, without retransmission."""

    def __init__(self):
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=REGISTERS.address_bits)),
                "samples": Out(AXI4ReadSignature(data_width=256, address_width=34)).array(1),
                "mac_tx": Out(packet_stream(WIDTH)),
                "mac_rx": In(packet_stream(WIDTH, error=True)),
                "events": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = shared(RegisterFile(registers=REGISTERS))
        wiring.connect(m, wiring.flipped(self.axil), registers.axil)
        number = Signal(16)
        operand = Signal(256)
        kind = Signal(4)
        axi = self.samples[0]
        rx = self.mac_rx.p
        heard = self.mac_rx.valid & rx.last
        m.d.comb += [
            axi.araddr.eq(number * 32),
            axi.arsize.eq(5),
            axi.arburst.eq(1),
            axi.rready.eq(1),
            self.mac_tx.p.data.eq(self._frame(kind, number, registers.worker, operand)),
            self.mac_tx.p.keep.eq(Mux(registers.fault, -1, (1 << 60) - 1)),
            self.mac_tx.p.last.eq(~registers.fault),
            self.mac_rx.ready.eq(1),
        ]
        m.d.sync += self.events.eq(0)
        m.d.sync += registers.bad_frames.eq(registers.bad_frames + (heard & rx.error))
        with m.FSM() as fsm:
            m.d.comb += registers.busy.eq(~fsm.ongoing("idle"))
            with m.State("idle"), m.If(registers.start):
                m.d.sync += [number.eq(0), registers.total.eq(0)]
                m.next = "address"
            with m.State("address"):
                m.d.comb += axi.arvalid.eq(1)
                with m.If(axi.arready):
                    m.next = "data"
            with m.State("data"), m.If(axi.rvalid):
                m.d.sync += [operand.eq(axi.rdata), kind.eq(Kind.AGG)]
                m.next = "send"
            with m.State("send"):
                m.d.comb += self.mac_tx.valid.eq(1)
                m.d.sync += self.events[0].eq(kind == Kind.AGG)
                with m.If(self.mac_tx.ready):
                    m.next = "wait"
            with m.State("wait"), m.If(heard & ~rx.error & (rx.data[112:116] == kind + 1)):
                with m.If(kind == Kind.AGG):
                    m.d.sync += self.events[1].eq(1)
                    m.d.sync += registers.total.eq(registers.total + _swapped(rx.data[208:240]))
                    m.d.sync += kind.eq(Kind.ACK)
                    m.next = "send"
                with m.Else():
                    m.d.sync += number.eq(number + 1)
                    m.next = "address"
                    with m.If(number + 1 == registers.operations):
                        m.next = "idle"
        return m

    @staticmethod
    def _frame(kind, number, worker, operand):
        values = [_swapped(operand[32 * n : 32 * n + 32]) for n in range(VALUES)]
        return Cat(
            Const(0, 96),
            _swapped(Const(ETHERTYPE_AGGREGATION, 16)),
            kind,
            Const(VERSION, 4),
            Const(JOB, 8),
            _swapped(Cat(number[: SLOTS.bit_length() - 1], Const(0, 17 - SLOTS.bit_length()))),
            _swapped(((number >> SLOTS.bit_length() - 1) + 1)[:16] | Const(0, 32)),
            _swapped((Const(1, 32) << worker)[:32]),
            *values,
        )
