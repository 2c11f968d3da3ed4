"""An AxiReader behind a RegisterFile: a small design with both AXI ports, for third-party peers."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.stream.connect import connect_typed

REGISTERS = RegisterMap(
    (
        Register(
            "control",
            "pulse",
            "Commands.",
            (Field("start", 1, "Read a run."), Field("clear", 1, "Zero words.")),
        ),
        Register(
            "status", "ro", "State.", (Field("busy", 1, "Not done."), Field("error", 1, "A bad response."))
        ),
        Register("address", "rw", "First byte of the run.", bits=40),
        Register("beats", "rw", "Words of the run."),
        Register("repeats", "rw", "How often it is read.", reset=1),
        Register("words", "counter", "Words delivered.", bits=64),
        Register("scratch", "rw", "Free.", reset=0x1234_5678, count=3),
    ),
    clear="clear",
)


class ReaderWithRegisters(wiring.Component):
    """Start runs of the reader by registers."""

    def __init__(self):
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=REGISTERS.address_bits)),
                "memory": Out(AXI4ReadSignature(data_width=256, address_width=40)),
                "o": Out(stream.Signature(256)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=REGISTERS)
        m.submodules.reader = reader = AxiReader()
        connect_typed(m, wiring.flipped(self.axil), registers.axil)
        connect_typed(m, reader.axi, wiring.flipped(self.memory))
        connect_typed(m, reader.o, wiring.flipped(self.o))
        m.d.comb += [
            reader.command.valid.eq(registers.start),
            reader.command.payload.address.eq(registers.address),
            reader.command.payload.beats.eq(registers.beats),
            reader.command.payload.repeats.eq(registers.repeats),
            registers.busy.eq(reader.busy),
            registers.error.eq(reader.error),
            registers.words.eq(self.o.valid & self.o.ready),
        ]
        return m
