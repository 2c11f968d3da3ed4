"""Instance of a module: a wire for each port, and their connections, to include or paste into a module."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from fanin.hdl.package.harness import Port
from fanin.hdl.package.interfaces import CLOCK, RESET

NAME = "node"  #: of the instance
_INDENT = " " * 4
_WIDTH = 112


def instance(module: str, ports: Iterable[Port]) -> str:
    """Return the Verilog of an instance of ``module``, and of wires with the names of ``ports``.

    The module around it declares the clock and the reset, whose names have no wires here.
    """
    by_width: dict[int, list[str]] = {}
    ports = list(ports)
    for port in ports:
        if port.name not in (CLOCK, RESET):
            by_width.setdefault(port.width, []).append(port.name)
    wires = [
        _filled(f"wire {f'[{width - 1}:0] ' if width > 1 else ''}{', '.join(names)};", "")
        for width, names in sorted(by_width.items())
    ]
    connections = _filled(", ".join(f".{port.name}({port.name})" for port in ports), _INDENT)
    head = f"// Instance of {module}; include or paste it into a module that declares {CLOCK} and {RESET}."
    return "\n".join([head, *wires, f"{module} {NAME} (", connections, ");", ""])


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=_INDENT, break_long_words=False)
