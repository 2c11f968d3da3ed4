"""Top of an Alveo U280: a GLM node with HBM, 100 Gb/s Ethernet and PCIe.

The cores are AMD's. Vivado generates them (``cores.tcl``); this top instantiates them by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import io, wiring
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer

from fanin.hdl.boards.vendor.axi_slice import AxiSlice
from fanin.hdl.boards.vendor.mac_crossing import MacCrossing
from fanin.hdl.bus.axi4 import AXI4LiteSignature, memory_signature
from fanin.hdl.emit import component_instance
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed

MAC_BITS = 512  # bits of a beat on CMAC's user interface
PORT_BITS = 256  # bits of a word on an HBM port
HBM_ID_BITS = 6
HOST_PORT = 31  # HBM port nearest to PCIe
MAX_FRAME = 256  # bytes; longer than any aggregation packet
_HBM_ADDRESS = {"addr": 33, "burst": 2, "id": HBM_ID_BITS, "len": 4, "size": 3, "valid": 1}
#: Inputs of an HBM port (AMD PG276) and their widths: addresses of 8 GB, bursts of 16 words.
_HBM_INPUTS = {
    **{f"{channel}{name}": bits for channel in ("ar", "aw") for name, bits in _HBM_ADDRESS.items()},
    "wdata": PORT_BITS,
    "wstrb": PORT_BITS // 8,
    "wdata_parity": PORT_BITS // 8,
    "wlast": 1,
    "wvalid": 1,
    "rready": 1,
    "bready": 1,
}
_HBM_OUTPUTS = ["arready", "rdata", "rlast", "rresp", "rvalid", "awready", "wready", "bresp", "bvalid"]
_HBM_IDS = ("rid", "bid")


def check_node(node: GlmNode) -> None:
    """Raise ValueError unless the node has the cores' widths."""
    config = node.config
    for name, value, limit in (
        ("port_bits", config.port_bits, PORT_BITS),
        ("mac_width", config.mac_width, MAC_BITS),
    ):
        if value != limit:
            raise ValueError(f"{name} must be {limit} on an Alveo U280, not {value!r}")


class AlveoU280Top(Elaboratable):
    """Node, instantiated as the Verilog module ``module``, with everything that the card's pins need.

    Domains: ``sync``, PCIe's 250 MHz, with the node; ``tx`` and ``rx``, the MAC's 322.265625 MHz; ``init``, the
    card's 100 MHz, which resets and calibrates the cores.
    """

    def __init__(self, *, node: GlmNode, module: str):
        check_node(node)
        self.node = node
        self.module = module

    def elaborate(self, platform: Any) -> Module:
        """Build the clocks, then connect host, memory and network to the node."""
        m = Module()
        self._reset = Signal()  # reset of the host's bus, active low
        self._calibrated = Signal()
        m.submodules.node = component_instance(self.node, self.module)
        pcie = platform.request("pcie", 0, dir="-")
        self._clocks(m, platform.request("clk100", 0, dir="-"), pcie)
        dma = self._host(m, pcie)
        self._memory(m, platform.request("hbm_cattrip", 0, dir="-"), dma)
        self._network(m, platform.request("qsfp", 0, dir="-"))
        return m

    def _clocks(self, m: Module, clk100: Any, pcie: Any) -> None:
        """Build the domains; ``sync`` is in reset until PCIe and HBM are ready."""
        for domain in ("sync", "tx", "rx", "init"):
            m.domains += ClockDomain(domain)
        m.submodules.board_clock = board_clock = io.Buffer("i", clk100)
        m.submodules.board_buffer = Instance("BUFG", i_I=board_clock.i, o_O=ClockSignal("init"))
        m.submodules.pcie_reset = perst = io.Buffer("i", pcie.rst)
        self._perst = perst.i
        m.submodules.init_reset = ResetSynchronizer(perst.i, domain="init")
        m.submodules.core_reset = ResetSynchronizer(~self._reset | ~self._calibrated, domain="sync")

    def _host(self, m: Module, pcie: Any) -> Any:
        """Connect PCIe: AXI4-Lite to the node's registers over a die border; return the port that loads HBM."""
        clock = Signal()
        clock_gt = Signal()
        m.submodules.pcie_clock = Instance(
            "IBUFDS_GTE4", i_I=pcie.clk.p, i_IB=pcie.clk.n, i_CEB=0, o_O=clock_gt, o_ODIV2=clock
        )
        dma = memory_signature(data_width=PORT_BITS, address_width=64, id_width=4).create()
        registers = AXI4LiteSignature(address_width=32).create()
        # Absent from both channels of XDMA.
        absent = {"arqos", "awqos"}
        m.submodules.xdma = Instance(
            "fanin_xdma",
            i_sys_clk=clock,
            i_sys_clk_gt=clock_gt,
            i_sys_rst_n=~self._perst,
            i_pci_exp_rxp=pcie.rx_p.io,
            i_pci_exp_rxn=pcie.rx_n.io,
            o_pci_exp_txp=pcie.tx_p.io,
            o_pci_exp_txn=pcie.tx_n.io,
            o_axi_aclk=ClockSignal("sync"),
            o_axi_aresetn=self._reset,
            i_usr_irq_req=Const(0, 1),
            **_master("m_axi_", dma, absent),
            **_master("m_axil_", registers),
        )
        slr0, slr1 = (AxiSlice(port=self.node.axil.signature.flip()) for _ in range(2))
        m.submodules.registers_slr0 = slr0
        m.submodules.registers_slr1 = slr1
        _join(m, registers, slr0.i)
        connect_typed(m, slr0.o, slr1.i)
        connect_typed(m, slr1.o, self.node.axil)
        return dma

    def _memory(self, m: Module, cattrip: Any, dma: Any) -> None:
        """Connect HBM: each port of the node over one die border, and a port for the host's DMA."""
        ports: dict[str, Any] = {}
        for number, port in enumerate([*self.node.samples, self.node.labels]):
            slr0, slr1 = (AxiSlice(port=port.signature) for _ in range(2))
            m.submodules[f"memory{number}_slr0"] = slr0
            m.submodules[f"memory{number}_slr1"] = slr1
            connect_typed(m, port, slr1.i)
            connect_typed(m, slr1.o, slr0.i)
            ports |= _hbm_port(m, number, slr0.o)
        ports |= _hbm_port(m, HOST_PORT, self._short_bursts(m, dma))
        calibrated = Signal(2)
        overheated = Signal(2)
        m.submodules.hbm = Instance(
            "fanin_hbm",
            *(("i", f"HBM_REF_CLK_{stack}", ClockSignal("init")) for stack in range(2)),
            *(("i", f"APB_{stack}_PCLK", ClockSignal("init")) for stack in range(2)),
            *(("i", f"APB_{stack}_PRESET_N", ~ResetSignal("init")) for stack in range(2)),
            *(("o", f"apb_complete_{stack}", calibrated[stack]) for stack in range(2)),
            *(("o", f"DRAM_{stack}_STAT_CATTRIP", overheated[stack]) for stack in range(2)),
            **ports,
        )
        m.d.comb += self._calibrated.eq(calibrated.all())
        m.submodules.cattrip = pin = io.Buffer("o", cattrip)
        m.d.comb += pin.o.eq(overheated.any())

    def _short_bursts(self, m: Module, dma: Any) -> Any:
        """Convert the DMA's bursts to AXI3; return the AXI3 port with the members that are used."""
        axi3 = memory_signature(data_width=PORT_BITS, address_width=64, id_width=4).create()
        lengths = {name: Signal(4, name=f"host_{name}") for name in ("arlen", "awlen")}
        m.d.comb += [getattr(axi3, name).eq(length) for name, length in lengths.items()]
        absent = {
            f"{channel}{name}" for channel in ("ar", "aw") for name in ("lock", "len", "cache", "prot", "qos")
        }
        m.submodules.axi3 = Instance(
            "fanin_axi3",
            i_aclk=ClockSignal(),
            i_aresetn=~ResetSignal(),
            i_s_axi_arregion=Const(0, 4),
            i_s_axi_awregion=Const(0, 4),
            o_m_axi_arlen=lengths["arlen"],
            o_m_axi_awlen=lengths["awlen"],
            **_slave("s_axi_", dma),
            **_master("m_axi_", axi3, absent),
        )
        return axi3

    def _network(self, m: Module, qsfp: Any) -> None:
        """Connect CMAC: frames cross to and from its clock on the highest die, over one die border."""
        m.submodules.crossing = crossing = MacCrossing(width=MAC_BITS, max_frame=MAX_FRAME)
        for name, source, target in (
            ("sent", self.node.mac_tx, crossing.core_tx),
            ("came", crossing.core_rx, self.node.mac_rx),
        ):
            dies = (1, 2) if name == "sent" else (2, 1)
            slices = [RegisterSlice(shape=source.payload.shape()) for _ in dies]
            for die, register_slice in zip(dies, slices, strict=True):
                m.submodules[f"{name}_slr{die}"] = register_slice
            connect_typed(m, source, slices[0].i)
            connect_typed(m, slices[0].o, slices[1].i)
            connect_typed(m, slices[1].o, target)
        clock = Signal()
        tx_reset = Signal()
        rx_reset = Signal()
        for domain in ("tx", "rx"):
            m.d.comb += ClockSignal(domain).eq(clock)
            m.submodules[f"{domain}_reset"] = ResetSynchronizer(tx_reset, domain=domain)
        aligned = Signal()
        linked = Signal()
        m.submodules.linked = FFSynchronizer(aligned, linked, o_domain="tx")
        send_frames = Signal()  # the receiver is aligned: send frames
        send_fault = Signal(init=1)  # the receiver is not aligned: send a remote fault indication
        m.d.tx += [send_frames.eq(linked), send_fault.eq(~linked)]
        m.d.comb += crossing.cut.eq(rx_reset)
        tx, rx = crossing.mac_tx, crossing.mac_rx
        m.submodules.cmac = Instance(
            "fanin_cmac",
            i_gt_ref_clk_p=qsfp.clk.p,
            i_gt_ref_clk_n=qsfp.clk.n,
            i_gt_rxp_in=qsfp.rx_p.io,
            i_gt_rxn_in=qsfp.rx_n.io,
            o_gt_txp_out=qsfp.tx_p.io,
            o_gt_txn_out=qsfp.tx_n.io,
            i_init_clk=ClockSignal("init"),
            i_sys_reset=ResetSignal("init"),
            o_gt_txusrclk2=clock,
            i_rx_clk=clock,
            o_usr_tx_reset=tx_reset,
            o_usr_rx_reset=rx_reset,
            o_stat_rx_aligned=aligned,
            i_ctl_rx_enable=1,
            i_ctl_tx_enable=send_frames,
            i_ctl_tx_send_rfi=send_fault,
            i_tx_axis_tdata=tx.p.data,
            i_tx_axis_tkeep=tx.p.keep,
            i_tx_axis_tlast=tx.p.last,
            i_tx_axis_tuser=Const(0, 1),
            i_tx_axis_tvalid=tx.valid,
            o_tx_axis_tready=tx.ready,
            o_rx_axis_tdata=rx.p.data,
            o_rx_axis_tkeep=rx.p.keep,
            o_rx_axis_tlast=rx.p.last,
            o_rx_axis_tuser=rx.p.error,
            o_rx_axis_tvalid=rx.valid,
            **dict(_cmac_constants()),
        )


def _cmac_constants() -> Iterator[tuple[str, Const]]:
    """Yield constant inputs: no loopback, tests, faults or reconfiguration; error correction on."""
    widths = {"gt_loopback_in": 12, "tx_preamblein": 56, "drp_addr": 10, "drp_di": 16}
    low = (
        "gtwiz_reset_tx_datapath gtwiz_reset_rx_datapath core_rx_reset core_tx_reset ctl_rx_force_resync "
        "ctl_rx_test_pattern ctl_tx_test_pattern ctl_tx_send_idle ctl_tx_send_lfi core_drp_reset drp_clk "
        "drp_en drp_we ctl_rsfec_ieee_error_indication_mode"
    )
    high = (
        "ctl_rx_rsfec_enable ctl_tx_rsfec_enable ctl_rx_rsfec_enable_correction ctl_rx_rsfec_enable_indication"
    )
    for name in (*widths, *low.split()):
        yield f"i_{name}", Const(0, widths.get(name, 1))
    for name in high.split():
        yield f"i_{name}", Const(1, 1)


def _master(prefix: str, axi: Any, absent: frozenset[str] | set[str] = frozenset()) -> dict[str, Value]:
    """Return the connections of a core that is the master of ``axi`` and lacks the signals ``absent``."""
    return {
        f"{'o' if member.flow == wiring.Out else 'i'}_{prefix}{name}": Value.cast(getattr(axi, name))
        for name, member in axi.signature.members.items()
        if name not in absent
    }


def _slave(prefix: str, axi: Any) -> dict[str, Value]:
    """Return the connections of a core that is the slave of ``axi``."""
    return {
        f"{'i' if member.flow == wiring.Out else 'o'}_{prefix}{name}": Value.cast(getattr(axi, name))
        for name, member in axi.signature.members.items()
    }


def _join(m: Module, master: Any, slave: Any) -> None:
    """Connect a master's AXI4-Lite to a slave with fewer address bits."""
    for name, member in slave.signature.members.items():
        source, sink = getattr(master, name), getattr(slave, name)
        m.d.comb += sink.eq(source) if member.flow == wiring.In else source.eq(sink)


def _hbm_port(m: Module, number: int, axi: Any) -> dict[str, Any]:
    """Return the connections of an HBM port in its widths; inputs that ``axi`` lacks are constant."""
    prefix = f"AXI_{number:02}_"
    connections: dict[str, Any] = {f"i_{prefix}ACLK": ClockSignal(), f"i_{prefix}ARESET_N": ~ResetSignal()}
    for name, bits in _HBM_INPUTS.items():
        value = Value.cast(getattr(axi, name, Const(name == "bready", 1)))
        connections[f"i_{prefix}{name.upper()}"] = Cat(value, Const(0, bits))[:bits]
    for name in _HBM_OUTPUTS:
        if name in axi.signature.members:
            connections[f"o_{prefix}{name.upper()}"] = Value.cast(getattr(axi, name))
    for name in _HBM_IDS:
        if name in axi.signature.members:
            hbm_id = Signal(HBM_ID_BITS, name=f"{name}{number}")
            m.d.comb += getattr(axi, name).eq(hbm_id)
            connections[f"o_{prefix}{name.upper()}"] = hbm_id
    return connections
