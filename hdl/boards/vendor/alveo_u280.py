"""AMD Alveo U280: the card's pins, and the generation of its cores by Vivado.

Pins, clocks and sites are facts that Corundum (``fpga/mqnic/Alveo``) and taxi (``src/cndm/board/Alveo``)
publish for this card.
"""

from __future__ import annotations

from typing import Any, ClassVar

from amaranth.build import Attrs, Clock, DiffPairs, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import XilinxPlatform

from fanin.hdl.boards.vendor.templates import render

PCIE_LANES = 8
_QSFP_RX = ("L53 K51 J53 H51", "L54 K52 J54 H52")
_QSFP_TX = ("L48 L44 K46 J48", "L49 L45 K47 J49")
_PCIE_RX = ("AL2 AM4 AN6 AN2 AP4 AR2 AT4 AU2", "AL1 AM3 AN5 AN1 AP3 AR1 AT3 AU1")
_PCIE_TX = ("AL11 AM9 AN11 AP9 AR11 AR7 AT9 AU11", "AL10 AM8 AN10 AP8 AR10 AR6 AT8 AU10")
_LVCMOS18 = Attrs(IOSTANDARD="LVCMOS18")

#: Settings of the bitstream for the card's flash.
CONFIGURATION = {
    "CFGBVS": "GND",
    "CONFIG_VOLTAGE": "1.8",
    "CONFIG_MODE": "SPIx4",
    "BITSTREAM.CONFIG.CONFIGFALLBACK": "ENABLE",
    "BITSTREAM.GENERAL.COMPRESS": "TRUE",
    "BITSTREAM.CONFIG.SPI_BUSWIDTH": "4",
    "BITSTREAM.CONFIG.CONFIGRATE": "85.0",
    "BITSTREAM.CONFIG.EXTMASTERCCLK_EN": "DISABLE",
    "BITSTREAM.CONFIG.SPI_FALL_EDGE": "YES",
    "BITSTREAM.CONFIG.UNUSEDPIN": "PULLUP",
    "BITSTREAM.CONFIG.SPI_32BIT_ADDR": "YES",
    "BITSTREAM.CONFIG.OVERTEMPSHUTDOWN": "ENABLE",
}


def _lanes(direction: str, pins: tuple[str, str]) -> list[Subsignal]:
    """Return a transceiver's pairs; each side is a separate port."""
    side = {"rx": "i", "tx": "o"}[direction]
    return [Subsignal(f"{direction}_{end}", Pins(at, dir=side)) for end, at in zip("pn", pins, strict=True)]


class AlveoU280Platform(XilinxPlatform):
    """Platform with clock, PCIe, one QSFP28, and the pin that reports an overheated HBM."""

    device = "xcu280"
    package = "fsvh2892"
    speed = "2L-e"
    default_clk = "clk100"
    resources: ClassVar = [
        Resource("clk100", 0, DiffPairs("BJ43", "BJ44", dir="i"), Clock(100e6), Attrs(IOSTANDARD="LVDS")),
        Resource("hbm_cattrip", 0, Pins("D32", dir="o"), _LVCMOS18),
        Resource(
            "pcie",
            0,
            Subsignal("rst", PinsN("BH26", dir="i"), Attrs(IOSTANDARD="LVCMOS18", PULLUP="TRUE")),
            Subsignal("clk", DiffPairs("AR15", "AR14", dir="i"), Clock(100e6)),
            *_lanes("rx", _PCIE_RX),
            *_lanes("tx", _PCIE_TX),
        ),
        Resource(
            "qsfp",
            0,
            Subsignal("clk", DiffPairs("T42", "T43", dir="i"), Clock(156.25e6)),  # the Si570's
            *_lanes("rx", _QSFP_RX),
            *_lanes("tx", _QSFP_TX),
        ),
    ]
    connectors: ClassVar[list[Any]] = []

    def toolchain_prepare(self, fragment: Any, name: str, **kwargs: Any) -> Any:
        """Prepare the project: cores before synthesis, constraints of crossings and places after it."""
        self.add_file("cores.tcl", render("alveo_u280_cores.tcl.j2", pcie_lanes=PCIE_LANES))
        self.add_file("placement.tcl", render("alveo_u280_placement.tcl.j2"))
        overrides = {
            "script_after_read": "source cores.tcl",
            "script_after_synth": "source placement.tcl",
            "add_constraints": "\n".join(
                f"set_property {key} {value} [current_design]" for key, value in CONFIGURATION.items()
            ),
        }
        return super().toolchain_prepare(fragment, name, **overrides, **kwargs)
