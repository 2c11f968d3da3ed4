"""Top of an Arria 10 GX development kit: a ring node, DDR3, 40 Gb/s Ethernet and a host by JTAG.

The cores are Intel's. Quartus generates them; this top instantiates them by name.
"""

from __future__ import annotations

from typing import Any

from amaranth import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    DomainRenamer,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.hdl import IOBufferInstance, IOPort
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer

from fanin.hdl.boards.vendor.arria10_gx import MEMORY_ADDRESS_BITS, MEMORY_PINS, QSFP_LANES
from fanin.hdl.boards.vendor.avalon_memory import AxiToAvalonMemory
from fanin.hdl.boards.vendor.avalon_registers import AvalonToAxiLite
from fanin.hdl.boards.vendor.avalon_stream import AvalonToPacket, PacketToAvalon
from fanin.hdl.boards.vendor.mac_crossing import MacCrossing
from fanin.hdl.emit import component_instance
from fanin.hdl.ring.node import RingNode
from fanin.hdl.ring.store import BURST
from fanin.hdl.stream.connect import connect_typed

WIDTH = 256  # bits of a word of the MAC and of the memory
_HEADER_BEATS = 2  # maximum beats of a frame before its payload


class Arria10GxTop(Elaboratable):
    """Node, instantiated as the Verilog module ``module``, with everything that the kit's pins need.

    Domains: ``sync``, the memory's user clock of 266.67 MHz, with the node; ``tx`` and ``rx``, the MAC's two
    clocks of 312.5 MHz.
    """

    def __init__(self, *, node: RingNode, module: str):
        if node.config.width != WIDTH:
            raise ValueError(f"width must be {WIDTH} on an Arria 10 GX kit, not {node.config.width!r}")
        self.node = node
        self.module = module

    def elaborate(self, platform: Any) -> Module:
        """Build the clocks, then connect memory, host and network to the node."""
        m = Module()
        m.submodules.node = component_instance(self.node, self.module)
        for domain in ("sync", "tx", "rx"):
            m.domains += ClockDomain(domain)
        clk100 = _input(m, "board_clock", platform.request("clk100", 0, dir="-").io)
        reset_n = platform.request("rst", 0, dir="-").io
        self._core_reset_n = Signal()
        m.submodules.core_reset = ResetSynchronizer(~self._core_reset_n, domain="sync")
        self._system(m, platform, clk100, reset_n)
        self._network(m, clk100)
        return m

    def _system(self, m: Module, platform: Any, clk100: Any, reset_n: Any) -> None:
        """Connect memory and host through bridges between the node's AXI and Intel's Avalon-MM."""
        address_bits = self.node.config.address_width
        m.submodules.memory = memory = AxiToAvalonMemory(
            data_width=WIDTH, address_width=address_bits, burst=BURST
        )
        m.submodules.registers = registers = AvalonToAxiLite(address_width=self.node.register_map.address_bits)
        connect_typed(m, self.node.memory, memory.memory)
        connect_typed(m, registers.axil, self.node.axil)
        ddr3 = platform.request("ddr3", 0, dir="-")
        spare_pins = platform.request("ddr3_spare", 0, dir="-").io
        m.submodules.spare = IOBufferInstance(spare_pins, o=Const(0, len(spare_pins)))
        m.submodules.system = Instance(
            "fanin_system",
            i_clk_clk=clk100,
            i_reset_reset_n=reset_n,
            o_core_clk_clk=ClockSignal("sync"),
            o_core_reset_reset_n=self._core_reset_n,
            i_ddr_pll_ref_clk_clk=platform.request("ddr3_clk", 0, dir="-").io,
            i_ddr_oct_oct_rzqin=platform.request("ddr3_rzq", 0, dir="-").io,
            **{
                f"{direction}_ddr_mem_mem_{name}": getattr(ddr3, name).io
                for name, (_, direction) in MEMORY_PINS.items()
            },
            i_memory_address=memory.address[:MEMORY_ADDRESS_BITS],
            i_memory_burstcount=memory.burstcount,
            i_memory_read=memory.read,
            i_memory_write=memory.write,
            i_memory_writedata=memory.writedata,
            i_memory_byteenable=memory.byteenable,
            i_memory_debugaccess=Const(0, 1),
            o_memory_waitrequest=memory.waitrequest,
            o_memory_readdata=memory.readdata,
            o_memory_readdatavalid=memory.readdatavalid,
            o_registers_address=registers.address,
            o_registers_read=registers.read,
            o_registers_write=registers.write,
            o_registers_writedata=registers.writedata,
            o_registers_byteenable=registers.byteenable,
            i_registers_waitrequest=registers.waitrequest,
            i_registers_readdata=registers.readdata,
            i_registers_readdatavalid=registers.readdatavalid,
        )

    def _network(self, m: Module, clk100: Any) -> None:
        """Connect the MAC, its PLL and the clock crossing; users place its ports (``qsfp_pins.tcl``)."""
        max_frame = (self.node.config.frame_beats + _HEADER_BEATS) * WIDTH // 8
        m.submodules.crossing = crossing = MacCrossing(width=WIDTH, max_frame=max_frame)
        connect_typed(m, self.node.mac_tx, crossing.core_tx)
        connect_typed(m, crossing.core_rx, self.node.mac_rx)
        transmitter, receiver = PacketToAvalon(width=WIDTH), AvalonToPacket(width=WIDTH)
        m.submodules.sending = DomainRenamer("tx")(transmitter)
        m.submodules.coming = receiver
        connect_typed(m, crossing.mac_tx, transmitter.i)
        connect_typed(m, receiver.o, crossing.mac_rx)
        clock = _input(m, "qsfp_clock", IOPort(1, name="qsfp_clk"))
        lanes = {direction: IOPort(QSFP_LANES, name=f"qsfp_{direction}") for direction in ("rx", "tx")}
        serial = Signal()
        locked = Signal()
        ready = Signal()
        reset = ResetSignal("sync")
        for domain in ("tx", "rx"):
            m.submodules[f"{domain}_reset"] = ResetSynchronizer(reset | ~locked, domain=domain)
        m.submodules.cut = FFSynchronizer(~ready, crossing.cut, o_domain="rx", init=1)
        m.submodules.atx = Instance(
            "fanin_atx",
            i_pll_refclk0=clock,
            i_pll_powerdown=reset,
            i_mcgb_rst=reset,
            o_pll_locked=locked,
            o_mcgb_serial_clk=serial,
        )
        errors = Signal(6)
        m.d.comb += receiver.error.eq(errors.any())
        m.submodules.eth40 = Instance(
            "fanin_eth40",
            i_clk_ref=clock,
            i_reset_async=reset,
            i_rx_serial=lanes["rx"],
            o_tx_serial=lanes["tx"],
            i_tx_serial_clk=Cat(serial for _ in range(QSFP_LANES)),
            i_tx_pll_locked=locked,
            o_clk_txmac=ClockSignal("tx"),
            o_clk_rxmac=ClockSignal("rx"),
            o_rx_pcs_ready=ready,
            i_l4_tx_data=transmitter.data,
            i_l4_tx_empty=transmitter.empty,
            i_l4_tx_startofpacket=transmitter.startofpacket,
            i_l4_tx_endofpacket=transmitter.endofpacket,
            i_l4_tx_valid=transmitter.valid,
            i_l4_tx_error=Const(0, 1),
            o_l4_tx_ready=transmitter.ready,
            o_l4_rx_data=receiver.data,
            o_l4_rx_empty=receiver.empty,
            o_l4_rx_endofpacket=receiver.endofpacket,
            o_l4_rx_valid=receiver.valid,
            o_l4_rx_error=errors,
            **_no_management(clk100, reset),
        )


def _input(m: Module, name: str, port: Any) -> Signal:
    """Return the signal of a port that several cores read; Quartus places the buffer."""
    value = Signal(name=name)
    m.submodules[name] = IOBufferInstance(port, i=value)
    return value


def _no_management(clk100: Any, reset: Any) -> dict[str, Any]:
    """Return idle inputs for the MAC's unused status and reconfiguration buses."""
    widths = {"status_addr": 16, "status_writedata": 32, "reconfig_address": 12, "reconfig_writedata": 32}
    idle = ("status_read", "status_write", "reconfig_read", "reconfig_write")
    return {
        "i_clk_status": clk100,
        "i_reconfig_clk": clk100,
        "i_reset_status": reset,
        "i_reconfig_reset": reset,
        **{f"i_{name}": Const(0, widths.get(name, 1)) for name in (*widths, *idle)},
    }
