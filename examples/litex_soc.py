"""A node of fanin in a LiteX SoC, on a Colorlight i9 (ECP5-45F, SDRAM, two gigabit ports).

    pip install 'fanin[litex]'
    fanin verilog glm-node --preset tiny --package node
    python examples/litex_soc.py node -o build/litex

    fanin verilog ring-node --set lanes=2 --package node   # alternative: the ring's node

The script reads the node's package: registers on AXI4-Lite, memories on AXI4, a MAC of 8 to 64 bits. It writes
LiteX's inputs for the board: Verilog, pins, a script for yosys and nextpnr, and the map of the SoC. The script
does not run the tools; LiteX's ``build(run=True)`` does.

    host ── Ethernet 0 ── Etherbone ──┬── LiteX's bus ──┬── SRAM ◄── labels, memory
                                      │                 ├── SDRAM ◄── samples0, samples1, ...
            VexRiscv (--cpu) ─────────┘                 └── AXI4-Lite ──► registers
            switch ── Ethernet 1 ── LiteEth's MAC ◄──► mac_tx, mac_rx
"""

from __future__ import annotations

import argparse
from pathlib import Path
from xml.etree import ElementTree

from litedram.frontend.axi import LiteDRAMAXI2Native
from liteeth.common import eth_phy_description
from liteeth.mac.core import LiteEthMACCore
from liteeth.phy.ecp5rgmii import LiteEthPHYRGMII
from litex.gen import LiteXModule
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import stream
from litex.soc.interconnect.axi import AXIInterface, AXILiteInterface
from litex.soc.interconnect.packet import PacketFIFO
from litex_boards.targets.colorlight_i5 import BaseSoC
from migen import Cat, ClockDomainsRenamer, ClockSignal, Constant, Instance, Mux, ResetSignal, Signal

BUS_BITS = 32  # addresses on LiteX's bus; the node has 64 bits of them
REGISTERS = 0x9000_0000  # where the node's registers are; uncached for any CPU
MAC_DEPTH = 256  # words of a frame that waits for its end
IP_XACT = "{http://www.accellera.org/XMLSchema/IPXACT/1685-2014}"

Connections = dict[str, object]


class Package:
    """Package of ``fanin verilog --package``: the module, its Verilog, and the widths of its ports."""

    def __init__(self, folder: Path):
        root = ElementTree.parse(folder / "component.xml").getroot()
        self.module = root.findtext(f"{IP_XACT}name") or ""
        self.verilog = folder / f"{self.module}.v"
        self.widths = {
            port.findtext(f"{IP_XACT}name"): int(port.findtext(f".//{IP_XACT}left", "0")) + 1
            for port in root.iter(f"{IP_XACT}port")
        }

    @property
    def masters(self) -> list[str]:
        """AXI4 ports by which the node accesses memory."""
        return [str(port).removesuffix("_arid") for port in self.widths if str(port).endswith("_arid")]

    @property
    def status(self) -> list[str]:
        """Outputs outside the buses: events and states, for your own counters or LEDs."""
        buses = ("clk", "rst", "axil_", "mac_", *(f"{master}_" for master in self.masters))
        return [str(port) for port in self.widths if not str(port).startswith(buses)]

    def writes(self, master: str) -> bool:
        """Return whether the port ``master`` also writes."""
        return f"{master}_awid" in self.widths


class Node(LiteXModule):
    """Node's Verilog with its ports as LiteX interfaces: a slave, masters, and two streams."""

    def __init__(self, package: Package):
        self.axil = AXILiteInterface(data_width=32, address_width=BUS_BITS)
        self.memories = {name: self._memory(package, name) for name in package.masters}
        width = package.widths["mac_tx_tdata"]
        self.source = stream.Endpoint(eth_phy_description(width))
        self.sink = stream.Endpoint(eth_phy_description(width))
        ports: Connections = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys")}
        ports |= {f"o_{name}": Signal(package.widths[name]) for name in package.status}
        ports |= _axi_lite("axil", self.axil, package.widths["axil_araddr"])
        for name, axi in self.memories.items():
            ports |= self._axi_read(name, axi, package.widths[f"{name}_araddr"])
            if package.writes(name):
                ports |= self._axi_write(name, axi, package.widths[f"{name}_awaddr"])
        ports |= self._mac_streams(width // 8)
        self.specials += Instance(package.module, **ports)

    @staticmethod
    def _memory(package: Package, name: str) -> AXIInterface:
        return AXIInterface(data_width=package.widths[f"{name}_rdata"], address_width=BUS_BITS, id_width=1)

    def _axi_read(self, name: str, axi: AXIInterface, address_bits: int) -> Connections:
        """Return the connections of the read channels; the node's addresses are wider than the bus's."""
        address = Signal(address_bits)
        self.comb += axi.ar.addr.eq(address)
        asked = {f"o_{name}_ar{field}": getattr(axi.ar, field) for field in ("id", "len", "size", "burst")}
        asked |= {f"o_{name}_ar{field}": getattr(axi.ar, field) for field in ("lock", "cache", "prot", "qos")}
        answered = {f"i_{name}_r{field}": getattr(axi.r, field) for field in ("id", "data", "resp", "last")}
        handshakes = {
            f"o_{name}_araddr": address,
            f"o_{name}_arvalid": axi.ar.valid,
            f"i_{name}_arready": axi.ar.ready,
            f"i_{name}_rvalid": axi.r.valid,
            f"o_{name}_rready": axi.r.ready,
        }
        return asked | answered | handshakes

    def _axi_write(self, name: str, axi: AXIInterface, address_bits: int) -> Connections:
        """Return the connections of the write channels."""
        address = Signal(address_bits)
        self.comb += axi.aw.addr.eq(address)
        asked = {f"o_{name}_aw{field}": getattr(axi.aw, field) for field in ("id", "len", "size", "burst")}
        asked |= {f"o_{name}_aw{field}": getattr(axi.aw, field) for field in ("lock", "cache", "prot", "qos")}
        data = {f"o_{name}_w{field}": getattr(axi.w, field) for field in ("data", "strb", "last")}
        answered = {f"i_{name}_b{field}": getattr(axi.b, field) for field in ("id", "resp")}
        handshakes = {
            f"o_{name}_awaddr": address,
            f"o_{name}_awvalid": axi.aw.valid,
            f"i_{name}_awready": axi.aw.ready,
            f"o_{name}_wvalid": axi.w.valid,
            f"i_{name}_wready": axi.w.ready,
            f"i_{name}_bvalid": axi.b.valid,
            f"o_{name}_bready": axi.b.ready,
        }
        return asked | data | answered | handshakes

    def _mac_streams(self, lanes: int) -> Connections:
        """Convert AXI4-Stream to LiteEth's stream, which marks the last byte instead of all valid bytes."""
        keep, rx_keep, error = Signal(lanes), Signal(lanes), Signal()
        first_of_rest = Cat(keep[1:], Constant(0, 1))
        up_to_last = Cat(*(self.sink.last_be[lane:] != 0 for lane in range(lanes)))
        self.comb += [
            self.source.last_be.eq(Mux(self.source.last, keep & ~first_of_rest, 0)),
            rx_keep.eq(Mux(self.sink.last, up_to_last, 2**lanes - 1)),
            error.eq(self.sink.error != 0),
        ]
        return {
            "o_mac_tx_tdata": self.source.data,
            "o_mac_tx_tkeep": keep,
            "o_mac_tx_tlast": self.source.last,
            "o_mac_tx_tvalid": self.source.valid,
            "i_mac_tx_tready": self.source.ready,
            "i_mac_rx_tdata": self.sink.data,
            "i_mac_rx_tkeep": rx_keep,
            "i_mac_rx_tlast": self.sink.last,
            "i_mac_rx_tuser": error,
            "i_mac_rx_tvalid": self.sink.valid,
            "o_mac_rx_tready": self.sink.ready,
        }


def _axi_lite(name: str, bus: AXILiteInterface, address_bits: int) -> Connections:
    """Return the connections of all five channels; the node decodes the lower bits of an address."""
    ports: Connections = {}
    for channel in ("aw", "ar"):
        endpoint = getattr(bus, channel)
        ports |= {
            f"i_{name}_{channel}addr": endpoint.addr[:address_bits],
            f"i_{name}_{channel}prot": endpoint.prot,
        }
    ports |= {f"i_{name}_wdata": bus.w.data, f"i_{name}_wstrb": bus.w.strb, f"o_{name}_bresp": bus.b.resp}
    ports |= {f"o_{name}_rdata": bus.r.data, f"o_{name}_rresp": bus.r.resp}
    for channel in ("aw", "w", "ar"):
        endpoint = getattr(bus, channel)
        ports |= {f"i_{name}_{channel}valid": endpoint.valid, f"o_{name}_{channel}ready": endpoint.ready}
    for channel in ("b", "r"):
        endpoint = getattr(bus, channel)
        ports |= {f"o_{name}_{channel}valid": endpoint.valid, f"i_{name}_{channel}ready": endpoint.ready}
    return ports


class Soc(BaseSoC):
    """LiteX SoC of the board, with the node attached."""

    def __init__(self, package: Package, *, clock_hz: float, **options: object):
        super().__init__(board="i9", revision="7.2", sys_clk_freq=clock_hz, **options)
        self.host_phy, self.node_phy = self._phy(0), self._phy(1)
        self.add_etherbone(phy=self.host_phy, phy_cd="host_phy_eth", data_width=8)
        self.platform.add_source(str(package.verilog.absolute()))
        self.node = Node(package)
        self.bus.add_slave("node", self.node.axil, SoCRegion(origin=REGISTERS, size=0x1000, cached=False))
        for name, axi in self.node.memories.items():
            if name.startswith("samples"):  # what has to be fast
                self._add_memory(name, axi)
            else:
                self.bus.add_master(name, axi)
        self._add_mac()

    def _phy(self, number: int) -> LiteEthPHYRGMII:
        pads, clocks = self.platform.request("eth", number), self.platform.request("eth_clocks", number)
        return LiteEthPHYRGMII(clock_pads=clocks, pads=pads, tx_delay=0)

    def _add_memory(self, name: str, axi: AXIInterface) -> None:
        """Connect a read port of the node to a port of the SDRAM's crossbar; addresses are those of the bus."""
        port = self.sdram.crossbar.get_port(mode="read", data_width=axi.data_width)
        bridge = LiteDRAMAXI2Native(axi, port, base_address=self.bus.regions["main_ram"].origin)
        self.add_module(name=f"{name}_to_sdram", module=bridge)

    def _add_mac(self) -> None:
        """Connect the node to the second Ethernet port through frame FIFOs, as a MAC may not pause."""
        layout = self.node.source.description
        mac = LiteEthMACCore(phy=self.node_phy, dw=len(self.node.source.data), with_sys_datapath=True)
        renamed = {f"eth_{side}": f"node_phy_eth_{side}" for side in ("rx", "tx")}
        self.node_mac = ClockDomainsRenamer(renamed)(mac)
        self.node_frames = PacketFIFO(layout, payload_depth=MAC_DEPTH)
        self.comb += [
            self.node.source.connect(self.node_frames.sink),
            self.node_frames.source.connect(self.node_mac.sink),
            self.node_mac.source.connect(self.node.sink),
        ]


def main() -> None:
    """Elaborate the SoC, and write its files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="folder of fanin verilog NODE --package")
    parser.add_argument("-o", type=Path, dest="output", default=Path("build/litex"), help="folder to write")
    parser.add_argument(
        "--cpu", choices=["none", "vexriscv"], default="none", help="a CPU beside the host's bridge"
    )
    parser.add_argument("--clock-mhz", type=float, default=50, help="clock of bus and node")
    args = parser.parse_args()
    cpu = None if args.cpu == "none" else args.cpu
    soc = Soc(Package(args.package), clock_hz=args.clock_mhz * 1e6, cpu_type=cpu, uart_name="crossover")
    build = Builder(
        soc, output_dir=str(args.output), compile_software=False, csr_json=str(args.output / "soc.json")
    )
    build.build(run=False)


if __name__ == "__main__":
    main()
