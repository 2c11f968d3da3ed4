"""Text of a configuration's program."""

from __future__ import annotations

from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.printer import Printer
from fanin.p4.tna import Tna
from fanin.p4.v1model import V1Model

PRINTERS: dict[Target, type[Printer]] = {Target.V1MODEL: V1Model, Target.TNA: Tna}


def program_text(config: ProgramConfig) -> str:
    """Return the program as P4_16. Raises ValueError for a target without a printer."""
    if config.target not in PRINTERS:
        raise ValueError(f"target {config.target} has no printer; there are {', '.join(PRINTERS)}")
    return PRINTERS[config.target](config).text()
