"""A node that reads the same word of memory all the time, and says by a write that the word has changed."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature, AXI4WriteSignature
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.stream.packet import packet_stream

WIDTH = 64
TARGET = 64  # the address of what is written
REGISTERS = RegisterMap(
    (
        Register("settings", "rw", "What it does.", (Field("unused", 3, "None."), Field("scan", 1, "Go on."))),
        Register("seen", "ro", "The word's low half."),
        Register("beats", "counter", "Beats received.", bits=32),
    ),
    address_bits=13,
)


class ScanNode(wiring.Component):
    """Reads the 8 bytes at 0 through the port ``scan``; writes what is new to ``TARGET`` through ``told``."""

    def __init__(self):
        axi = {"data_width": WIDTH, "address_width": 40}
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=REGISTERS.address_bits)),
                "scan": Out(AXI4ReadSignature(**axi)),
                "told": Out(AXI4WriteSignature(**axi)),
                "mac_tx": Out(packet_stream(128)),
                "mac_rx": In(packet_stream(128, error=True)),
                "events": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=REGISTERS)
        wiring.connect(m, wiring.flipped(self.axil), registers.axil)
        word, asked, addressed = Signal(WIDTH), Signal(), Signal()
        scan, told = self.scan, self.told
        news = scan.rvalid & (scan.rdata != word)
        writing = Signal()
        m.d.comb += [
            registers.seen.eq(word),
            scan.arvalid.eq(registers.scan & ~asked),
            scan.rready.eq(~writing),
            told.awaddr.eq(TARGET),
            told.awvalid.eq(writing & ~addressed),
            told.wdata.eq(word),
            told.wstrb.eq(-1),
            told.wlast.eq(1),
            told.wvalid.eq(writing),
            told.bready.eq(1),
            self.mac_rx.ready.eq(1),
            registers.beats.eq(self.mac_rx.valid),
        ]
        for port in (scan.arburst, told.awburst):
            m.d.comb += port.eq(1)
        for port in (scan.arsize, told.awsize):
            m.d.comb += port.eq(3)
        with m.If(scan.arvalid & scan.arready):
            m.d.sync += asked.eq(1)
        with m.If(scan.rvalid & scan.rready):
            m.d.sync += asked.eq(0)
        m.d.sync += self.events.eq(0)
        with m.If(news & ~writing):
            m.d.sync += [word.eq(scan.rdata), writing.eq(1), addressed.eq(0), self.events.eq(1)]
        with m.If(told.awvalid & told.awready):
            m.d.sync += addressed.eq(1)
        with m.If(told.wvalid & told.wready):
            m.d.sync += writing.eq(0)
        return m
