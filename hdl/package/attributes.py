"""Attributes in a module's Verilog that tell Vivado's IP packager and block designs what names do not.

Names alone make an AXI interface of ``axil_awaddr``, and a reset of ``rst``, but one that is low when active.
Other tools ignore the attributes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fanin.hdl.package.interfaces import CLOCK, RESET, Interface


def with_attributes(verilog: str, module: str, buses: Sequence[Interface]) -> str:
    """The text with attributes on ports of ``module``: clock, reset, and buses that names do not show."""
    notes = {
        CLOCK: [("X_INTERFACE_INFO", f"xilinx.com:signal:clock:1.0 {CLOCK} CLK"), _parameters(buses)],
        RESET: [
            ("X_INTERFACE_INFO", f"xilinx.com:signal:reset:1.0 {RESET} RST"),
            ("X_INTERFACE_PARAMETER", "POLARITY ACTIVE_HIGH"),
        ],
    }
    for bus in buses:
        if not bus.by_name:
            for logical, port in bus.ports.items():
                notes[port.name] = [("X_INTERFACE_INFO", f"xilinx.com:interface:axis:1.0 {bus.name} {logical}")]
    start = verilog.index(f"\nmodule {module}(")
    end = verilog.index("\nendmodule", start)

    def noted(match: re.Match[str]) -> str:
        lines = (f'  (* {key} = "{value}" *)\n' for key, value in notes.get(match["name"], ()))
        return "".join(lines) + match[0]

    declaration = re.compile(r"^  (?:input|output) (?:\[\d+:0\] )?(?P<name>\w+);$", re.MULTILINE)
    return verilog[:start] + declaration.sub(noted, verilog[start:end]) + verilog[end:]


def _parameters(buses: Sequence[Interface]) -> tuple[str, str]:
    """Whose clock it is."""
    names = ":".join(bus.name for bus in buses)
    associated = f"ASSOCIATED_BUSIF {names}, " if names else ""
    return "X_INTERFACE_PARAMETER", f"{associated}ASSOCIATED_RESET {RESET}"
