"""A node with a host packet port and no memory: frames go from the host to the MAC, and from it to the host."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout, packet_stream

WIDTH = 128
BEAT = WIDTH // 8
HOLD, FAULT = 1, 2  # of the register settings
REGISTERS = RegisterMap(
    (
        Register(
            "settings",
            "rw",
            "What it does.",
            (
                Field("hold", 1, "Take nothing of the host."),
                Field("fault", 1, "Withdraw what the host stalls."),
            ),
        ),
    )
)


class HostNode(wiring.Component):
    """Passes frames on, a cycle later each way; those with errors too."""

    def __init__(self):
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=REGISTERS.address_bits)),
                "host_tx": In(packet_stream(WIDTH)),
                "mac_tx": Out(packet_stream(WIDTH)),
                "mac_rx": In(packet_stream(WIDTH, error=True)),
                "host_rx": Out(packet_stream(WIDTH)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=REGISTERS)
        wiring.connect(m, wiring.flipped(self.axil), registers.axil)
        m.submodules.tx = tx = StreamFIFO(shape=packet_layout(WIDTH), depth=4)
        m.submodules.rx = rx = StreamFIFO(shape=packet_layout(WIDTH), depth=4)
        free = ~registers.hold
        m.d.comb += [
            tx.i.valid.eq(self.host_tx.valid & free),
            tx.i.p.eq(self.host_tx.p),
            self.host_tx.ready.eq(tx.i.ready & free),
            rx.i.valid.eq(self.mac_rx.valid),
            self.mac_rx.ready.eq(rx.i.ready),
        ]
        m.d.comb += [rx.i.p[name].eq(self.mac_rx.p[name]) for name in ("data", "keep", "last")]
        wiring.connect(m, tx.o, wiring.flipped(self.mac_tx))
        withdrawn = Signal()
        m.d.sync += withdrawn.eq(registers.fault & self.host_rx.valid & ~self.host_rx.ready)
        m.d.comb += [
            self.host_rx.valid.eq(rx.o.valid & ~withdrawn),
            self.host_rx.p.eq(rx.o.p),
            rx.o.ready.eq(self.host_rx.ready & ~withdrawn),
        ]
        return m
