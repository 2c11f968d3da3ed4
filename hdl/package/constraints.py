"""The clock's period, to the tools that synthesise a node by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fanin.hdl.package.interfaces import CLOCK

#: by the suffix of the file: of the module, a line that says what this is, and the clock in MHz
CONSTRAINTS: Mapping[str, Callable[[str, float], str]] = {
    "xdc": lambda module, mhz: _sdc(module, mhz, "Vivado"),
    "sdc": lambda module, mhz: _sdc(module, mhz, "Quartus and others"),
    "lpf": lambda module, mhz: (
        f"# {module} by itself, nextpnr-ecp5. A top level has its own clock's FREQUENCY in place of this.\n"
        f'FREQUENCY PORT "{CLOCK}" {mhz:g} MHZ;\n'
    ),
}


def _sdc(module: str, mhz: float, tool: str) -> str:
    """As Vivado's XDC has what Synopsys' SDC says of a clock, one text serves both."""
    return (
        f"# {module} by itself, {tool}. A top level has its own clock's constraint in place of this.\n"
        f"create_clock -name {CLOCK} -period {1000 / mhz:.3f} [get_ports {{{CLOCK}}}]\n"
    )
