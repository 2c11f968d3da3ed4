"""Boards that fanin supports, one table entry each."""

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
    """Tools that make a board's bitstream."""

    OPEN = "open"  #: yosys and nextpnr, run by fanin
    VENDOR = "vendor"  #: the vendor's tool, with a project that fanin writes


class Placer(StrEnum):
    """Placers of nextpnr, by nextpnr's names."""

    HEAP = "heap"  #: packs densely; routes devices that are nearly full
    STATIC = "static"  #: spreads cells for shorter nets; routes larger devices, which heap packs too densely


@dataclass(frozen=True, kw_only=True)
class Phy:
    """RGMII port of a board, and the delays that the FPGA adds, in nanoseconds.

    A clock must arrive half a bit, 2 ns, after its data. The receive clock is late already because of its path
    through the FPGA to the DDR cells. If the PHY delays it as well, the received data need ``rx_delay_ns``.
    """

    port: int = 0  #: number of the port, as Amaranth's platform counts
    rx_delay_ns: float = 0.0  #: delay of the received data
    tx_delay_ns: float = 0.0  #: delay of the transmit clock; 0 if the PHY delays it


@dataclass(frozen=True, kw_only=True)
class Board:
    """Card with an FPGA."""

    name: str
    number: int  #: value of its register ``board``
    title: str
    platform: str  #: Amaranth platform as MODULE:CLASS, imported on use
    device: str  #: name in ``fanin.boards.facts``
    flow: Flow = Flow.OPEN
    phy: Phy = Phy()
    preset: str  #: default preset of the node, which fits the FPGA
    core_mhz: float  #: highest clock of the core, in MHz
    placer: Placer = Placer.STATIC
    sdram: Sdram | None = None  #: SDRAM that needs no CPU; None for DDR memory
    leds: int = 4  #: LEDs that are driven
    loader: tuple[str, ...] = ()  #: openFPGALoader's options for the board; empty if it is not supported

    def make_platform(self) -> Any:
        """Return a new platform. Raises InputError if amaranth-boards is missing."""
        module, _, name = self.platform.partition(":")
        try:
            return getattr(import_module(module), name)()
        except ModuleNotFoundError as error:
            raise InputError(f"{error.name} is missing: pip install 'fanin[boards]'") from None


def _boards(*boards: Board) -> Mapping[str, Board]:
    return MappingProxyType({board.name: board for board in boards})


#: All boards by name. The delays are those of the boards' makers and of LiteX's targets.
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
        preset="ecp5-85",  # this FPGA has no preset of its own; the ECP5-85's is smaller
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
    """Return the board of that name. Raises InputError with the list of boards."""
    try:
        return BOARDS[name]
    except KeyError:
        raise InputError(f"no board {name!r}; there are {', '.join(BOARDS)}") from None
