"""The boards that fanin knows, each as a row of facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import Any

from fanin.base.errors import InputError
from fanin.boards.sdram import SDRAM_4M, SDRAM_8M, Sdram


class Flow(StrEnum):
    """Which tools make a bitstream."""

    OPEN = "open"  #: yosys and nextpnr, here
    VENDOR = "vendor"  #: a project for the vendor's tool


class Placer(StrEnum):
    """nextpnr's placers, by the names that it gives them."""

    HEAP = "heap"  #: packs densely: what routes a device that is nearly full
    STATIC = "static"  #: spreads cells: shorter nets; what routes a larger device, where heap packs too densely


@dataclass(frozen=True, kw_only=True)
class Phy:
    """A board's RGMII port: which, and what the FPGA delays, in nanoseconds.

    A clock must come half a bit, 2 ns, behind its data. The receive clock comes late by itself, by its way
    through the FPGA to the DDR cells; where the PHY delays it, too, the data have to wait for it.
    """

    port: int = 0
    rx_delay_ns: float = 0.0  #: of the received data
    tx_delay_ns: float = 0.0  #: of the transmit clock; 0 where the PHY delays it


@dataclass(frozen=True, kw_only=True)
class Board:
    """One card. ``platform`` names its class as MODULE:CLASS; it is imported when it is asked for."""

    name: str
    number: int  #: what its register ``board`` says
    title: str
    platform: str
    device: str  #: of ``fanin.boards.facts``
    flow: Flow = Flow.OPEN
    phy: Phy = Phy()
    preset: str  #: of the node that fits
    core_mhz: float  #: of the core, at most
    placer: Placer = Placer.STATIC
    sdram: Sdram | None = None  #: that the core can do without a CPU, so no DDR
    leds: int = 4  #: that show something
    loader: tuple[str, ...] = ()  #: how openFPGALoader finds it; empty where it does not know the board

    def make_platform(self) -> Any:
        """The platform, anew. Raises InputError where amaranth-boards is missing."""
        module, _, name = self.platform.partition(":")
        try:
            return getattr(import_module(module), name)()
        except ModuleNotFoundError as error:
            raise InputError(f"{error.name} is missing: pip install 'fanin[boards]'") from None


def _boards(*boards: Board) -> Mapping[str, Board]:
    return MappingProxyType({board.name: board for board in boards})


#: The delays as the boards' makers and LiteX's targets have them.
BOARDS = _boards(
    Board(
        name="colorlight_5a75b",
        number=1,
        title="Colorlight 5A-75B V7.0",
        platform="amaranth_boards.colorlight_5a75b_r7_0:Colorlight_5A75B_R70Platform",
        device="ecp5-25",
        phy=Phy(rx_delay_ns=2.0),
        preset="ecp5-25",
        core_mhz=50,
        placer=Placer.HEAP,
        sdram=SDRAM_4M,
        leds=1,
        loader=("--board", "colorlight"),
    ),
    Board(
        name="colorlight_i9",
        number=2,
        title="Colorlight i9 V7.2",
        platform="fanin.hdl.boards.colorlight_i9:ColorlightI9Platform",
        device="ecp5-45",
        phy=Phy(rx_delay_ns=2.0),
        preset="ecp5-45",
        core_mhz=50,
        sdram=SDRAM_8M,
        leds=1,
        loader=("--board", "colorlight-i9"),
    ),
    Board(
        name="versa_ecp5",
        number=3,
        title="Lattice ECP5 Versa",
        platform="amaranth_boards.versa_ecp5:VersaECP5Platform",
        device="ecp5-45",
        preset="ecp5-45",
        core_mhz=75,
        loader=("--cable", "ft2232"),
    ),
    Board(
        name="ecpix5",
        number=4,
        title="LambdaConcept ECPIX-5 (85F)",
        platform="amaranth_boards.ecpix5:ECPIX585Platform",
        device="ecp5-85",
        phy=Phy(tx_delay_ns=2.0),
        preset="ecp5-85",
        core_mhz=100,
        loader=("--board", "ecpix5"),
    ),
    Board(
        name="butterstick",
        number=5,
        title="Great Scott ButterStick (85F)",
        platform="amaranth_boards.butterstick:ButterStickPlatform",
        device="ecp5-85",
        phy=Phy(tx_delay_ns=2.0),
        preset="ecp5-85",
        core_mhz=100,
        leds=0,
    ),
    Board(
        name="genesys2",
        number=6,
        title="Digilent Genesys 2",
        platform="amaranth_boards.genesys2:Genesys2Platform",
        device="XC7K325T",
        flow=Flow.VENDOR,
        phy=Phy(rx_delay_ns=2.0, tx_delay_ns=2.0),
        preset="ecp5-85",
        core_mhz=100,
    ),
    Board(
        name="alveo_u280",
        number=7,
        title="AMD Alveo U280",
        platform="fanin.hdl.boards.vendor.alveo_u280:AlveoU280Platform",
        device="XCU280",
        flow=Flow.VENDOR,
        preset="u280",
        core_mhz=250,
    ),
    Board(
        name="arria10_gx",
        number=8,
        title="Intel Arria 10 GX development kit",
        platform="fanin.hdl.boards.vendor.arria10_gx:Arria10GxPlatform",
        device="10AX115S2",
        flow=Flow.VENDOR,
        preset="prototype",
        core_mhz=266.667,
    ),
)


def find_board(name: str) -> Board:
    """The board of that name. Raises InputError that lists those there are."""
    try:
        return BOARDS[name]
    except KeyError:
        raise InputError(f"no board {name!r}; there are {', '.join(BOARDS)}") from None
