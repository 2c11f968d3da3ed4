"""Harness: a module between registers, for placing it as the top level.

Every path ends in a register, not a pin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fanin.hdl.package.interfaces import CLOCK, RESET


@dataclass(frozen=True)
class Port:
    """Port of a Verilog module."""

    name: str
    width: int
    output: bool


def harness(module: str, ports: Iterable[Port], *, name: str) -> str:
    """Return the Verilog of a module with four pins: clock, reset, ``d`` and ``q``.

    A shift register from ``d`` feeds the inputs of ``module``, another one folds its outputs into ``q``.
    ``ports`` may include the clock and the reset of ``module``; they are connected if present.
    """
    ports = list(ports)
    clocks = [port.name for port in ports if port.name in (CLOCK, RESET)]
    feeds = [port for port in ports if not port.output and port.name not in clocks]
    drains = [port for port in ports if port.output]
    connections = [f".{name}({name})" for name in clocks] + _slices(feeds, "feed") + _slices(drains, "drain")
    inputs, outputs = (max(1, sum(port.width for port in bus)) for bus in (feeds, drains))
    return f"""module {name}(input {CLOCK}, input {RESET}, input d, output q);
reg [{inputs - 1}:0] feed;
reg [{outputs - 1}:0] caught, folded;
wire [{outputs - 1}:0] drain;
always @(posedge {CLOCK}) begin
    feed <= (feed << 1) | d;
    caught <= drain;
    folded <= (folded << 1) ^ caught;
end
assign q = folded[{outputs - 1}];
{module} dut({", ".join(connections)});
endmodule
"""


def _slices(ports: list[Port], bus: str) -> list[str]:
    """Return connections of each port to its own bits of ``bus``."""
    connections, low = [], 0
    for port in ports:
        connections.append(f".{port.name}({bus}[{low + port.width - 1}:{low}])")
        low += port.width
    return connections
