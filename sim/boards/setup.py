"""Simulation settings of a board: its clocks, its PHY, its pins."""

from __future__ import annotations

from pathlib import Path

from fanin.base.errors import InputError
from fanin.hdl.boards.board import Board
from fanin.hdl.boards.build import ROUTED, SOURCE
from fanin.hdl.boards.cells import cells_of
from fanin.hdl.boards.sdram.core import FILE
from fanin.sim.boards.board import BoardConfig, Clock, PhyConfig
from fanin.sim.boards.model import BoardModel, routed_model, source_model
from fanin.sim.boards.sdram import with_chips

_HALF_BIT_PS = 2000  # RGMII at 1 Gb/s


def project_model(project: Path, *, routed: bool) -> BoardModel:
    """Return the model of a ``fanin board build``: its routed netlist, or its source."""
    if routed:
        return routed_model(project / ROUTED)
    return source_model(project / SOURCE, verilog_files=[file for file in (project / FILE,) if file.exists()])


def with_sdram(model: BoardModel, board: Board, core_mhz: float) -> BoardModel:
    """Return the model of a build with SDRAM, with the chips; the core's clock is at most ``core_mhz``."""
    assert board.sdram is not None
    crystal_mhz = board.make_platform().default_clk_frequency / 1e6
    dividers = cells_of(board).choose_dividers(crystal_mhz, core_mhz)
    return with_chips(model, board.sdram, board.sdram.timing(dividers.core_mhz * 1e6))


def board_config(board: Board, model: BoardModel, *, ppm: float = 0.0, phase_ps: int = 0) -> BoardConfig:
    """Return a board whose oscillator is off by ``ppm``; ``phase_ps``: first edge of its PHY's clock.

    The netlist has only the delays of its delay cells. The PHY adds the others, so that each clock reaches its
    cells half a bit after its data, as on the board.
    """
    platform = board.make_platform()
    port = f"eth_rgmii_{board.phy.port}_"
    pins = [name for name in (*model.inputs, *model.outputs) if name.startswith(port)]
    names = {name.removeprefix(port): name for name in pins}
    clock_pins = [name for name in model.inputs if name.startswith(f"{platform.default_clk}_")]

    def pin(*spellings: str) -> str:
        found = next((names[each] for each in spellings if each in names), None)
        if found is None:
            raise InputError(f"{model.top}: {board.name} needs a port {port}{spellings[0]}")
        return found

    phy = PhyConfig(
        rx_clk=pin("rx_clk"),
        rx_ctl=pin("rx_ctl", "rx_ctrl"),
        rx_data=pin("rx_data"),
        tx_clk=pin("tx_clk"),
        tx_ctl=pin("tx_ctl", "tx_ctrl"),
        tx_data=pin("tx_data"),
        reset=names.get("rst", ""),
        phase_ps=phase_ps,
        rx_delay_ps=_HALF_BIT_PS + round(1000 * board.phy.rx_delay_ns),
        tx_delay_ps=_HALF_BIT_PS - round(1000 * board.phy.tx_delay_ns),
    )
    if not clock_pins:
        raise InputError(f"{model.top}: {board.name} needs an input {platform.default_clk}_…, its clock")
    clock = Clock.of_mhz(platform.default_clk_frequency / 1e6, ppm=ppm)
    reset = f"{platform.default_rst}_"
    resets = {name: 1 for name in model.inputs if name.startswith(reset)}
    return BoardConfig(model, {clock_pins[0]: clock}, [phy], pins=resets)


def core_clock(config: BoardConfig) -> Clock:
    """Return the clock of a board's core: the PLL output that :mod:`fanin.hdl.boards.clocks` assigns to it."""
    (port,) = (clock.port for clock in config.model.pins.clocks if clock.port.endswith("_clkos2"))
    return config.all_clocks()[port]
