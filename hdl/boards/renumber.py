"""Change of a board's addresses in a finished build, without place and route.

A board's initial addresses are the initial values of the flip-flops of ``own_mac`` and ``own_ip``. The initial
value of a flip-flop is its REGSET: a parameter in the routed netlist, a line in ecppack's text input.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import parse_json
from fanin.hdl.boards.build import CONFIG, NETLIST, ROUTED
from fanin.hdl.boards.identity import Identity
from fanin.hdl.net.control.headers import IP_BITS, MAC_BITS

_STARTS = ("RESET", "SET")
_WIDTHS = {"mac": MAC_BITS, "ip": IP_BITS}
_BEL = re.compile(r"X(\d+)/Y(\d+)/(SLICE[A-D])\.FF([01])")


def renumber(project: Path, old: Identity, new: Identity, to: Path) -> None:
    """Write the routed netlist and the configuration of ``project`` to ``to``, with the addresses of ``new``.

    Raises InputError if ``project`` does not have the addresses of ``old``, or lacks files of a routed board.
    """
    try:
        synthesised, routed = (parse_json((project / name).read_text()) for name in (NETLIST, ROUTED))
        config = (project / CONFIG).read_text()
        cells = routed["modules"]["top"]["cells"]
        starts = _starts(synthesised["modules"]["top"], cells, old, new)
        for name, start in starts.items():
            cells[name]["parameters"]["REGSET"] = _STARTS[start]
        config = _configure(config, {cells[name]["attributes"]["NEXTPNR_BEL"]: s for name, s in starts.items()})
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{project}: no routed board with the addresses of its build ({error})") from error
    (to / ROUTED).write_text(json.dumps(routed))
    (to / CONFIG).write_text(config)


def _starts(
    synthesised: dict[str, Any], routed: dict[str, Any], old: Identity, new: Identity
) -> dict[str, bool]:
    """Return the new initial value of each address flip-flop, by its cell's name.

    nextpnr keeps the names of cells, and splits nets.
    """
    flops = {
        cell["connections"]["Q"][0]: name
        for name, cell in synthesised["cells"].items()
        if cell["type"] == "TRELLIS_FF"
    }
    starts: dict[str, bool] = {}
    for field, width in _WIDTHS.items():
        pattern = re.compile(rf"(.*\.)?own_{field}(\$\d+)?")
        registers = [
            [flops[bit] for bit in net["bits"]]
            for name, net in synthesised["netnames"].items()
            if pattern.fullmatch(name) and len(net["bits"]) == width and flops.keys() >= set(net["bits"])
        ]
        register = _starting_with(getattr(old, field), registers, routed)
        if register is None:
            raise ValueError(f"no register own_{field} starts with {getattr(old, field):#x}")
        starts |= {name: bool(getattr(new, field) >> bit & 1) for bit, name in enumerate(register)}
    return starts


def _starting_with(value: int, registers: list[list[str]], routed: dict[str, Any]) -> list[str] | None:
    """Return the register with that initial value; copies of the addresses in the node start with 0."""
    for register in registers:
        starts = [_STARTS.index(routed[name]["parameters"]["REGSET"]) for name in register]
        if sum(start << bit for bit, start in enumerate(starts)) == value:
            return register
    return None


def _configure(config: str, starts: dict[str, bool]) -> str:
    """Return ecppack's text with these initial values at these flip-flop places."""
    tiles = config.split("\n.tile ")
    index = {tile.partition("\n")[0]: n for n, tile in enumerate(tiles)}
    for bel, start in starts.items():
        location = _BEL.fullmatch(bel)
        if location is None:
            raise ValueError(f"{bel}: not the place of a flip-flop")
        x, y, slice_name, flip_flop = location.groups()
        tile = index[f"R{y}C{x}:PLC2"]
        line = f"enum: {slice_name}.REG{flip_flop}.REGSET "
        present = [line + s for s in _STARTS if f"\n{line}{s}\n" in tiles[tile] + "\n"]
        if len(present) != 1:
            raise ValueError(f"{bel}: has no REGSET in {CONFIG}")
        tiles[tile] = re.sub(rf"(?m)^{re.escape(present[0])}$", line + _STARTS[start], tiles[tile])
    return "\n.tile ".join(tiles)
