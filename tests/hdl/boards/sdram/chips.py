# amaranth: UnusedElaboratable=no
"""Tops for Verilator: a SdramMemory with chips behind pads, read by AXI masters or by AxiReaders."""

from dataclasses import replace

from amaranth import ClockSignal, Instance, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from fanin.hdl.boards.sdram.core import core_verilog
from fanin.hdl.boards.sdram.memory import SdramMemory
from fanin.hdl.bus.axi_reader import AxiReader, command_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.sim.boards.sdram import MODULE, chip_parameters, chips_verilog

COMMAND = command_layout(32)
READ_AHEAD, BURST = 16, 4  # of a board's node


def timing(sdram):
    """The board's, with a short start."""
    return replace(sdram.timing(50e6), start=100)


def verilog(sdram, ports):
    """What the tops instantiate."""
    return core_verilog(sdram, timing(sdram), ports=ports) + chips_verilog()


def memory_with_chips(m, memory):
    """A memory as a submodule, and what stands at its pins: a register each way, then the chips."""
    m.submodules.memory = memory
    chip, given = memory.chip, Signal(32)
    pads = {name: Signal.like(getattr(chip, name), name=f"pad_{name}") for name in chip.signature.members}
    m.d.sync += [pad.eq(getattr(chip, name)) for name, pad in pads.items() if name != "dq_i"]
    m.d.sync += chip.dq_i.eq(given)
    m.submodules.chips = Instance(
        MODULE,
        **{f"p_{name}": value for name, value in chip_parameters(memory.sdram, memory.timing).items()},
        i_clk=~ClockSignal(),
        **{f"i_{name}_n": ~pads[name] for name in ("ras", "cas", "we")},
        i_ba=pads["ba"],
        i_a=pads["a"],
        i_dq_i=pads["dq_o"],
        i_driven=pads["dq_oe"],
        o_dq_o=given,
    )


class PortsWithChips(wiring.Component):
    """All ports of the memory."""

    def __init__(self, sdram, memories):
        self.sdram, self.memories = sdram, memories
        self.memory = SdramMemory(sdram=sdram, timing=timing(sdram), memories=memories)
        ports = self.memory.signature.members
        super().__init__({name: member for name, member in ports.items() if name != "chip"})

    def elaborate(self, platform):
        m = Module()
        memory = self.memory
        memory_with_chips(m, memory)
        for name in self.signature.members:
            connect(m, flipped(getattr(self, name)), getattr(memory, name))
        return m


class ReadersWithChips(wiring.Component):
    """Readers as a node has them: two ports in step on ``samples``, and ``labels``; the host's ports."""

    def __init__(self, sdram, memories):
        self.sdram, self.memories = sdram, memories
        self.memory = SdramMemory(sdram=sdram, timing=timing(sdram), memories=memories)
        ports = self.memory.signature.members
        super().__init__(
            {name: member for name, member in ports.items() if name.startswith("axil")}
            | {
                "command": In(stream.Signature(COMMAND)),
                "label_command": In(stream.Signature(COMMAND)),
                "samples": Out(stream.Signature(64)),
                "labels": Out(stream.Signature(32)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        memory = self.memory
        memory_with_chips(m, memory)
        readers = []
        for number in range(3):
            connect(m, flipped(getattr(self, f"axil{number}")), getattr(memory, f"axil{number}"))
            m.submodules[f"reader{number}"] = reader = AxiReader(
                data_width=32,
                address_width=32,
                burst=BURST,
                outstanding=2 * READ_AHEAD // BURST,
                fifo_depth=READ_AHEAD,
            )
            connect_typed(m, reader.axi, getattr(memory, f"axi{number}"))
            readers.append(reader)
        low, high, labels = readers
        for reader in (low, high):
            m.d.comb += [
                reader.command.valid.eq(self.command.valid),
                reader.command.payload.eq(self.command.payload),
            ]
        m.d.comb += [
            self.command.ready.eq(low.command.ready & high.command.ready),
            self.samples.valid.eq(low.o.valid & high.o.valid),
            self.samples.payload.eq(low.o.payload | high.o.payload << 32),
            low.o.ready.eq(self.samples.ready & high.o.valid),
            high.o.ready.eq(self.samples.ready & low.o.valid),
        ]
        connect_typed(m, flipped(self.label_command), labels.command)
        connect_typed(m, labels.o, flipped(self.labels))
        return m
