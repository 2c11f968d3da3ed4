"""Colorlight i9 V7.2, missing in amaranth-boards: module of a LED card, with an ECP5-45 and two gigabit PHYs.

Pins as github.com/wuxx/Colorlight-FPGA-Projects documents them.
"""

from typing import Any, ClassVar

from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform

_IO = Attrs(IO_TYPE="LVCMOS33")


def _rgmii(number: int, clocks: str, rx: str, tx: str) -> Resource:
    """Return a Broadcom B50612D; ``rx`` and ``tx`` list the control pin, then the data pins."""
    tx_clock, rx_clock = clocks.split()
    (rx_ctl, *rx_data), (tx_ctl, *tx_data) = rx.split(), tx.split()
    return Resource(
        "eth_rgmii",
        number,
        Subsignal("rst", PinsN("P4", dir="o")),
        Subsignal("mdc", Pins("N5", dir="o")),
        Subsignal("mdio", Pins("P5", dir="io")),
        Subsignal("tx_clk", Pins(tx_clock, dir="o")),
        Subsignal("tx_ctl", Pins(tx_ctl, dir="o")),
        Subsignal("tx_data", Pins(" ".join(tx_data), dir="o")),
        Subsignal("rx_clk", Pins(rx_clock, dir="i")),
        Subsignal("rx_ctl", Pins(rx_ctl, dir="i")),
        Subsignal("rx_data", Pins(" ".join(rx_data), dir="i")),
        _IO,
    )


def _sdram() -> Resource:
    """Return the SDRAM, one chip of 2 M words; the board ties its clock enable, select and masks."""
    low = "B6 A5 A6 A7 C7 B8 B5 A8 D8 D7 E8 D6 C6 D5 E7 C5"
    high = "C10 D9 E11 D11 C11 D12 E9 C12 E14 C15 E13 D15 E12 B17 D14 D13"
    return Resource(
        "sdram",
        0,
        Subsignal("clk", Pins("B9", dir="o")),
        Subsignal("ras", PinsN("B10", dir="o")),
        Subsignal("cas", PinsN("A9", dir="o")),
        Subsignal("we", PinsN("A10", dir="o")),
        Subsignal("ba", Pins("B11 C8", dir="o")),
        Subsignal("a", Pins("B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12", dir="o")),
        Subsignal("dq", Pins(f"{low} {high}", dir="io")),
        Attrs(IO_TYPE="LVCMOS33", SLEWRATE="FAST"),
    )


class ColorlightI9Platform(LatticeECP5Platform):
    """Platform with clock, LED, SDRAM and the two Ethernet ports."""

    device = "LFE5U-45F"
    package = "BG381"
    speed = "6"
    default_clk = "clk25"
    resources: ClassVar = [
        Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), _IO),
        Resource("led", 0, PinsN("L2", dir="o"), _IO),
        _sdram(),
        _rgmii(0, "G1 H2", rx="P2 K2 L1 N1 P1", tx="K1 G2 H1 J1 J3"),
        _rgmii(1, "U19 L19", rx="M20 P20 N19 N20 M19", tx="P19 U20 T19 T20 R20"),
    ]
    connectors: ClassVar[list[Any]] = []
