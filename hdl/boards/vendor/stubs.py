"""Empty Verilog modules with the ports of vendors' cores and cells, for linting a top.

Names and widths are those of the vendors' product guides and of published designs, for the parameters that our
scripts set. The stubs have all inputs, and the outputs that a top may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Port:
    """Port of a stub; ``output`` is None for a bidirectional port."""

    name: str
    output: bool | None
    width: int = 1

    @property
    def verilog(self) -> str:
        """Declaration of the port."""
        span = f" [{self.width - 1}:0]" if self.width > 1 else ""
        direction = {True: "output", False: "input", None: "inout"}[self.output]
        return f"  {direction}{span} {self.name}"


def stub(module: str, ports: Iterable[Port], parameters: Iterable[str] = ()) -> str:
    """Return an empty module with these ports and parameters."""
    values = ",\n".join(f"  parameter {name} = 0" for name in parameters)
    head = f"module {module} #(\n{values}\n) (" if values else f"module {module} ("
    return head + "\n" + ",\n".join(port.verilog for port in ports) + "\n);\nendmodule\n"


def _ports(inputs: str, outputs: str = "") -> Iterator[Port]:
    """Yield ports by name; ``name:width`` for more than one bit."""
    for text, output in ((inputs, False), (outputs, True)):
        for word in text.split():
            name, _, width = word.partition(":")
            yield Port(name, output, int(width or 1))


def _axi(prefix: str, *, master: bool, write: str, read: str) -> Iterator[Port]:
    """Yield an AXI port; ``write`` and ``read`` list the master's signals, a bar, and the slave's signals."""
    for text in (write, read):
        master_signals, slave_signals = text.split("|")
        for signals, output in ((master_signals, master), (slave_signals, not master)):
            for port in _ports(signals):
                yield Port(f"{prefix}{port.name}", output, port.width)


def _axi4(prefix: str, *, master: bool, extra: str = "") -> Iterator[Port]:
    """Yield AXI4 of 256 bits with 4-bit IDs and 64-bit addresses; ``extra``: more address channel signals."""
    address = "id:4 addr:64 len:8 size:3 burst:2 lock cache:4 prot:3 valid " + extra
    channels = {channel: " ".join(channel + word for word in address.split()) for channel in ("aw", "ar")}
    yield from _axi(
        prefix,
        master=master,
        write=f"{channels['aw']} wdata:256 wstrb:32 wlast wvalid bready | awready wready bid:4 bresp:2 bvalid",
        read=f"{channels['ar']} rready | arready rid:4 rdata:256 rresp:2 rlast rvalid",
    )


def _axi3_master(prefix: str) -> Iterator[Port]:
    """Yield the outputs of AMD's protocol converter that a top uses, and their answers."""
    address = "id:4 addr:64 len:4 size:3 burst:2 valid"
    channels = {channel: " ".join(channel + word for word in address.split()) for channel in ("aw", "ar")}
    yield from _axi(
        prefix,
        master=True,
        write=f"{channels['aw']} wdata:256 wstrb:32 wlast wvalid bready | awready wready bid:4 bresp:2 bvalid",
        read=f"{channels['ar']} rready | arready rid:4 rdata:256 rresp:2 rlast rvalid",
    )


def _axi_lite(prefix: str) -> Iterator[Port]:
    """Yield AXI4-Lite, master side."""
    yield from _axi(
        prefix,
        master=True,
        write="awaddr:32 awprot:3 awvalid wdata:32 wstrb:4 wvalid bready | awready wready bresp:2 bvalid",
        read="araddr:32 arprot:3 arvalid rready | arready rdata:32 rresp:2 rvalid",
    )


def _hbm(*, readers: Iterable[int], writers: Iterable[int]) -> Iterator[Port]:
    """Yield AMD PG276, two stacks of 4 GB, without APB registers; ``readers`` lack the answers to writes."""
    writers = set(writers)
    address = "ID:6 ADDR:33 LEN:4 SIZE:3 BURST:2 VALID"
    for number in sorted({*readers, *writers}):
        answers = "AWREADY WREADY BID:6 BRESP:2 BVALID" if number in writers else ""
        forth = {channel: " ".join(channel + word for word in address.split()) for channel in ("AW", "AR")}
        yield from _ports(f"AXI_{number:02}_ACLK AXI_{number:02}_ARESET_N")
        yield from _axi(
            f"AXI_{number:02}_",
            master=False,
            write=f"{forth['AW']} WDATA:256 WSTRB:32 WDATA_PARITY:32 WLAST WVALID BREADY | {answers}",
            read=f"{forth['AR']} RREADY | ARREADY RID:6 RDATA:256 RRESP:2 RLAST RVALID",
        )
    for stack in range(2):
        yield from _ports(
            f"HBM_REF_CLK_{stack} APB_{stack}_PCLK APB_{stack}_PRESET_N",
            f"apb_complete_{stack} DRAM_{stack}_STAT_CATTRIP",
        )


#: AMD PG203: CAUI-4 with AXI4-Stream and RS-FEC, transceivers inside, no AXI4-Lite.
_CMAC = _ports(
    "gt_ref_clk_p gt_ref_clk_n gt_rxp_in:4 gt_rxn_in:4 gt_loopback_in:12 gtwiz_reset_tx_datapath "
    "gtwiz_reset_rx_datapath sys_reset init_clk rx_clk core_rx_reset core_tx_reset ctl_rx_enable "
    "ctl_rx_force_resync ctl_rx_test_pattern ctl_tx_enable ctl_tx_test_pattern ctl_tx_send_idle "
    "ctl_tx_send_rfi ctl_tx_send_lfi ctl_rx_rsfec_enable ctl_tx_rsfec_enable "
    "ctl_rx_rsfec_enable_correction ctl_rx_rsfec_enable_indication "
    "ctl_rsfec_ieee_error_indication_mode tx_axis_tdata:512 tx_axis_tkeep:64 tx_axis_tlast tx_axis_tuser "
    "tx_axis_tvalid tx_preamblein:56 core_drp_reset drp_clk drp_addr:10 drp_di:16 drp_en drp_we",
    "gt_txp_out:4 gt_txn_out:4 gt_txusrclk2 usr_tx_reset usr_rx_reset stat_rx_aligned tx_axis_tready "
    "rx_axis_tdata:512 rx_axis_tkeep:64 rx_axis_tlast rx_axis_tuser rx_axis_tvalid",
)

#: AMD PG195: 8 lanes, one channel each way.
_XDMA = (
    *_ports(
        "sys_clk sys_clk_gt sys_rst_n pci_exp_rxp:8 pci_exp_rxn:8 usr_irq_req",
        "pci_exp_txp:8 pci_exp_txn:8 axi_aclk axi_aresetn",
    ),
    *_axi4("m_axi_", master=True),
    *_axi_lite("m_axil_"),
)

# AMD PG059: converter from AXI4 to AXI3.
_AXI3 = (
    *_ports("aclk aresetn"),
    *_axi4("s_axi_", master=False, extra="region:4 qos:4"),
    *_axi3_master("m_axi_"),
)

#: Cells of AMD UG953 and UG974.
_XILINX_CELLS = {
    "BUFG": stub("BUFG", _ports("I", "O")),
    "IBUF": stub("IBUF", _ports("I", "O")),
    "IBUFDS": stub("IBUFDS", _ports("I IB", "O")),
    "OBUFT": stub("OBUFT", _ports("I T", "O")),
    "FDPE": stub("FDPE", _ports("C CE PRE D", "Q"), ["INIT"]),
}
_OUTPUTS = range(4)  # used outputs of an MMCM
_SERIES7_CELLS = {
    "MMCME2_BASE": stub(
        "MMCME2_BASE",
        _ports("CLKIN1 RST PWRDWN CLKFBIN", "CLKFBOUT LOCKED " + " ".join(f"CLKOUT{n}" for n in _OUTPUTS)),
        [
            *("CLKIN1_PERIOD", "DIVCLK_DIVIDE", "CLKFBOUT_MULT_F", "CLKOUT0_DIVIDE_F"),
            *(f"CLKOUT{n}_DIVIDE" for n in _OUTPUTS if n),
            *(f"CLKOUT{n}_PHASE" for n in _OUTPUTS),
        ],
    ),
    "IDELAYCTRL": stub("IDELAYCTRL", _ports("REFCLK RST")),
    "IDELAYE2": stub(
        "IDELAYE2",
        _ports("IDATAIN DATAIN C CE INC LD LDPIPEEN CINVCTRL CNTVALUEIN:5 REGRST", "DATAOUT"),
        ["IDELAY_TYPE", "IDELAY_VALUE", "DELAY_SRC"],
    ),
    "IDDR": stub("IDDR", _ports("C CE D R S", "Q1 Q2"), ["DDR_CLK_EDGE"]),
    "ODDR": stub("ODDR", _ports("C CE D1 D2 R S", "Q"), ["DDR_CLK_EDGE"]),
}

#: Intel UG-01172, 40GbE with Avalon-ST and an internal MAC PLL, as Intel's own example instantiates it.
_ETH40 = _ports(
    "reset_async clk_ref rx_serial:4 tx_serial_clk:4 tx_pll_locked clk_status reset_status status_addr:16 "
    "status_read status_write status_writedata:32 reconfig_clk reconfig_reset reconfig_read reconfig_write "
    "reconfig_address:12 reconfig_writedata:32 l4_tx_data:256 l4_tx_empty:5 l4_tx_startofpacket "
    "l4_tx_endofpacket l4_tx_valid l4_tx_error",
    "tx_serial:4 clk_txmac clk_rxmac rx_pcs_ready l4_tx_ready l4_rx_data:256 l4_rx_empty:5 l4_rx_endofpacket "
    "l4_rx_valid l4_rx_error:6",
)
_ATX = _ports("pll_refclk0 pll_powerdown mcgb_rst", "pll_locked mcgb_serial_clk")  # Intel UG-01143

#: Module that Platform Designer makes of ``system.tcl``; port names consist of interface and role.
_SYSTEM = (
    *_ports(
        "clk_clk reset_reset_n ddr_pll_ref_clk_clk ddr_oct_oct_rzqin memory_address:28 memory_burstcount:5 "
        "memory_read memory_write memory_writedata:256 memory_byteenable:32 memory_debugaccess "
        "registers_waitrequest registers_readdata:32 registers_readdatavalid",
        "core_clk_clk core_reset_reset_n memory_waitrequest memory_readdata:256 memory_readdatavalid "
        "registers_address:12 registers_read registers_write registers_writedata:32 registers_byteenable:4 "
        "ddr_mem_mem_ck ddr_mem_mem_ck_n ddr_mem_mem_a:12 ddr_mem_mem_ba:3 ddr_mem_mem_cke ddr_mem_mem_cs_n "
        "ddr_mem_mem_odt ddr_mem_mem_reset_n ddr_mem_mem_we_n ddr_mem_mem_ras_n ddr_mem_mem_cas_n "
        "ddr_mem_mem_dm:8",
    ),
    *(Port(f"ddr_mem_mem_{name}", None, width) for name, width in (("dqs", 8), ("dqs_n", 8), ("dq", 64))),
)
# Modules of Intel's simulation library.
_SYNCHRONIZERS = {
    "altera_std_synchronizer": stub("altera_std_synchronizer", _ports("clk reset_n din", "dout"), ["depth"]),
    "altera_std_synchronizer_bundle": (
        "module altera_std_synchronizer_bundle #(\n  parameter depth = 2,\n  parameter width = 1\n) (\n"
        "  input clk,\n  input reset_n,\n  input [width-1:0] din,\n  output [width-1:0] dout\n);\nendmodule\n"
    ),
}

#: Vendor modules in a board's top, by board.
STUBS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "alveo_u280": MappingProxyType(
            {
                "fanin_cmac": stub("fanin_cmac", _CMAC),
                "fanin_hbm": stub("fanin_hbm", _hbm(readers=range(17), writers=[31])),
                "fanin_xdma": stub("fanin_xdma", _XDMA),
                "fanin_axi3": stub("fanin_axi3", _AXI3),
                "IBUFDS_GTE4": stub("IBUFDS_GTE4", _ports("I IB CEB", "O ODIV2")),
                **_XILINX_CELLS,
            }
        ),
        "genesys2": MappingProxyType({**_SERIES7_CELLS, **_XILINX_CELLS}),
        "arria10_gx": MappingProxyType(
            {
                "fanin_system": stub("fanin_system", _SYSTEM),
                "fanin_eth40": stub("fanin_eth40", _ETH40),
                "fanin_atx": stub("fanin_atx", _ATX),
                **_SYNCHRONIZERS,
            }
        ),
    }
)
