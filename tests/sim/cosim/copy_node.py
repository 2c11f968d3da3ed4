"""A node that copies memory to memory, and sends frames of no protocol that we know to another one."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature, AXI4WriteSignature
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.bus.axi_writer import AxiWriter
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.stream.packet import packet_stream

WIDTH = 256
ADDRESS = 34
ETHERTYPE = 0x88B6
REGISTERS = RegisterMap(
    (
        Register("control", "pulse", "Commands.", (Field("copy", 1, "Copy."), Field("send", 1, "Send."))),
        Register("source", "rw", "First byte read.", bits=ADDRESS),
        Register("target", "rw", "First byte written.", bits=ADDRESS),
        Register("beats", "rw", "Words."),
        Register("strobe", "rw", "Bytes written of each word."),
        Register("frames", "rw", "How many are sent.", bits=16),
        Register("frame_beats", "rw", "Beats of each.", bits=16),
        Register("last_bytes", "rw", "Bytes of its last beat.", bits=6),
        Register("pause", "rw", "Cycles between two frames in which none is offered.", bits=16),
        Register("destination", "rw", "Lowest byte of its MAC.", bits=8),
        Register("status", "ro", "State.", (Field("busy", 1, "Not done."), Field("error", 1, "Bad response."))),
        Register("received", "counter", "Frames.", bits=32),
    )
)


def mac(node):
    """Address of a node."""
    return node + 1


class CopyNode(wiring.Component):
    """Copies and sends at the same time, if told so; ``split`` has a port for reading and one for writing."""

    def __init__(self, *, split=False):
        self.split = split
        axi = {"data_width": WIDTH, "address_width": ADDRESS}
        read, write = AXI4ReadSignature(**axi), AXI4WriteSignature(**axi)
        both = Out(wiring.Signature(dict(read.members) | dict(write.members)))
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=REGISTERS.address_bits)),
                **({"source": Out(read), "target": Out(write)} if split else {"memory": both}),
                "mac_tx": Out(packet_stream(WIDTH)),
                "mac_rx": In(packet_stream(WIDTH, error=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=REGISTERS)
        wiring.connect(m, wiring.flipped(self.axil), registers.axil)
        sending = Signal()
        m.d.comb += [
            registers.busy.eq(self._copy(m, registers) | sending),
            registers.received.eq(self.mac_rx.valid & self.mac_rx.p.last),
            self.mac_rx.ready.eq(1),
        ]
        self._send(m, registers, sending)
        return m

    def _copy(self, m, registers):
        m.submodules.reader = reader = AxiReader(data_width=WIDTH, address_width=ADDRESS)
        m.submodules.writer = writer = AxiWriter(data_width=WIDTH, address_width=ADDRESS)
        ports = (self.source, self.target) if self.split else (self.memory, self.memory)
        for part, port in zip((reader, writer), ports, strict=True):
            for name, member in part.axi.signature.members.items():
                inner, outer = getattr(part.axi, name), getattr(port, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
            m.d.comb += [part.command.valid.eq(registers.copy), part.command.payload.beats.eq(registers.beats)]
        m.d.comb += [
            reader.command.payload.address.eq(registers.source),
            reader.command.payload.repeats.eq(1),
            writer.command.payload.address.eq(registers.target),
            writer.i.valid.eq(reader.o.valid),
            writer.i.payload.data.eq(reader.o.payload),
            writer.i.payload.strobe.eq(registers.strobe),
            reader.o.ready.eq(writer.i.ready),
            registers.error.eq(writer.error | reader.error),
        ]
        return reader.busy | writer.busy

    def _send(self, m, registers, sending):
        left, beat, pause = Signal(16), Signal(16), Signal(16)
        tx = self.mac_tx
        last = beat == registers.frame_beats - 1
        header = Cat(
            Const(0, 40),
            registers.destination,
            Const(0, 48),
            Const(ETHERTYPE >> 8, 8),
            Const(ETHERTYPE & 255, 8),
        )
        m.d.comb += [
            tx.valid.eq(sending & (pause == 0)),
            tx.p.data.eq(Mux(beat == 0, header, beat)),
            tx.p.keep.eq(Mux(last, (1 << registers.last_bytes) - 1, -1)),
            tx.p.last.eq(last),
        ]
        with m.If(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.If(registers.send):
            m.d.sync += [sending.eq(registers.frames != 0), left.eq(registers.frames), beat.eq(0)]
        with m.Elif(tx.valid & tx.ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(last):
                m.d.sync += [beat.eq(0), left.eq(left - 1), pause.eq(registers.pause)]
                m.d.sync += sending.eq(left != 1)
