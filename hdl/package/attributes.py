"""Verilog attributes for Vivado's IP packager and block designs, for facts that port names do not show.

From names alone, Vivado recognises ``axil_awaddr`` as AXI, and takes ``rst`` for a reset that is active low.
Other tools ignore the attributes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fanin.hdl.package.interfaces import CLOCK, RESET, Interface


def with_attributes(verilog: str, module: str, buses: Sequence[Interface]) -> str:
    """Return the Verilog with attributes on ports of ``module``.

    The ports are the clock, the reset, and ports of buses that names do not show.
    """
    attributes = {
        CLOCK: [("X_INTERFACE_INFO", f"xilinx.com:signal:clock:1.0 {CLOCK} CLK"), _parameters(buses)],
        RESET: [
            ("X_INTERFACE_INFO", f"xilinx.com:signal:reset:1.0 {RESET} RST"),
            ("X_INTERFACE_PARAMETER", "POLARITY ACTIVE_HIGH"),
        ],
    }
    for bus in buses:
        if not bus.by_name:
            for logical, port in bus.ports.items():
                attributes[port.name] = [
                    ("X_INTERFACE_INFO", f"xilinx.com:interface:axis:1.0 {bus.name} {logical}")
                ]
    start = verilog.index(f"\nmodule {module}(")
    end = verilog.index("\nendmodule", start)

    def with_attribute(match: re.Match[str]) -> str:
        lines = (f'  (* {key} = "{value}" *)\n' for key, value in attributes.get(match["name"], ()))
        return "".join(lines) + match[0]

    declaration = re.compile(r"^  (?:input|output) (?:\[\d+:0\] )?(?P<name>\w+);$", re.MULTILINE)
    return verilog[:start] + declaration.sub(with_attribute, verilog[start:end]) + verilog[end:]


def _parameters(buses: Sequence[Interface]) -> tuple[str, str]:
    """Return the clock's attribute that names its buses and its reset."""
    names = ":".join(bus.name for bus in buses)
    associated = f"ASSOCIATED_BUSIF {names}, " if names else ""
    return "X_INTERFACE_PARAMETER", f"{associated}ASSOCIATED_RESET {RESET}"
