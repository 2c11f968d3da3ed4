"""A model of SDRAM chips for the simulator, and boards with these at their pins."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files

from fanin.sdram import Sdram, SdramTiming

MODULE = "fanin_sdram"


def chips_verilog() -> str:
    """The Verilog of the module ``fanin_sdram``."""
    return (files("fanin.sim.boards") / "sdram.v").read_text()


def chip_parameters(sdram: Sdram, timing: SdramTiming) -> dict[str, int]:
    """Its parameters: what the chips hold, and their times in cycles."""
    sizes = {"banks": sdram.banks, "rows": sdram.rows, "columns": sdram.columns}
    return {name.upper(): value for name, value in (sizes | asdict(timing)).items()}
