"""Clock constraints for tools that synthesise a node as the top level."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fanin.hdl.package.interfaces import CLOCK

#: Text of a constraint file by its suffix, from the module's name and the clock in MHz.
CONSTRAINTS: Mapping[str, Callable[[str, float], str]] = {
    "xdc": lambda module, mhz: _sdc(module, mhz, "Vivado"),
    "sdc": lambda module, mhz: _sdc(module, mhz, "Quartus and others"),
    "lpf": lambda module, mhz: (
        f"# {module} by itself, nextpnr-ecp5. A top level has its own clock's FREQUENCY in place of this.\n"
        f'FREQUENCY PORT "{CLOCK}" {mhz:g} MHZ;\n'
    ),
}


def _sdc(module: str, mhz: float, tool: str) -> str:
    """Return a clock constraint. Vivado's XDC and Synopsys' SDC share the syntax, so one text serves both."""
    return (
        f"# {module} by itself, {tool}. A top level has its own clock's constraint in place of this.\n"
        f"create_clock -name {CLOCK} -period {1000 / mhz:.3f} [get_ports {{{CLOCK}}}]\n"
    )
