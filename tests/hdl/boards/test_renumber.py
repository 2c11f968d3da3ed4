"""Addresses of a finished build, changed."""

import json
import random
import re

import pytest

from fanin.base.errors import InputError
from fanin.hdl.boards.build import CONFIG, NETLIST, ROUTED
from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.renumber import renumber
from tests.support import new_seed

OLD = Identity(board=1, build=7, mac=0x0200_0000_0001, ip=0x0A00_0001)
NEW = Identity(board=1, build=7, mac=0x0200_0000_0012, ip=0x0A00_0012)
STARTS = ("RESET", "SET")


def project(folder, rng, *, mac=OLD.mac, ip=OLD.ip):
    """A routed board: its two address registers, a copy of one that starts with 0, and others, anywhere."""
    values = {"node.own_mac$385": (mac, 48), "job.own_mac": (0, 48), "own_ip": (ip, 32), "other": (ip, 32)}
    bits = iter(rng.sample(range(2, 1000), 160))
    places = rng.sample([(x, y, s, f) for x in range(9) for y in range(9) for s in "ABCD" for f in "01"], 160)
    nets, cells, tiles = {}, {}, {}
    for name, (value, width) in values.items():
        nets[name] = {"bits": [next(bits) for _ in range(width)]}
        for n, bit in enumerate(nets[name]["bits"]):
            x, y, piece, which = places.pop()
            start = STARTS[value >> n & 1]
            cells[f"ff{bit}"] = {
                "type": "TRELLIS_FF",
                "parameters": {"REGSET": start},
                "attributes": {"NEXTPNR_BEL": f"X{x}/Y{y}/SLICE{piece}.FF{which}"},
                "connections": {"Q": [bit]},
            }
            tiles.setdefault(f"R{y}C{x}:PLC2", []).append(f"enum: SLICE{piece}.REG{which}.REGSET {start}")
    top = {"modules": {"top": {"netnames": nets, "cells": cells}}}
    (folder / NETLIST).write_text(json.dumps(top))
    (folder / ROUTED).write_text(json.dumps(top))
    text = [".device LFE5U-25F", *("\n".join([f".tile {name}", *tiles[name], ""]) for name in tiles)]
    (folder / CONFIG).write_text("\n".join(text))
    return cells


def starts(folder):
    """What both files say, by place."""
    cells = json.loads((folder / ROUTED).read_text())["modules"]["top"]["cells"].values()
    in_netlist = {cell["attributes"]["NEXTPNR_BEL"]: cell["parameters"]["REGSET"] for cell in cells}
    in_config = {}
    for tile in (folder / CONFIG).read_text().split(".tile ")[1:]:
        y, x = re.match(r"R(\d+)C(\d+):PLC2", tile).groups()
        for piece, which, start in re.findall(r"(SLICE.)\.REG(.)\.REGSET (\w+)\n", tile):
            in_config[f"X{x}/Y{y}/{piece}.FF{which}"] = start
    assert in_netlist == in_config
    return in_netlist


def test_the_flops_of_the_addresses_alone_start_otherwise(tmp_path):
    was, to, again = (tmp_path / name for name in ("was", "to", "again"))
    for folder in (was, to, again):
        folder.mkdir()
    project(was, random.Random(new_seed()))
    renumber(was, OLD, NEW, to)
    before, after = starts(was), starts(to)
    changed = [bel for bel in before if before[bel] != after[bel]]
    assert len(changed) == (OLD.mac ^ NEW.mac).bit_count() + (OLD.ip ^ NEW.ip).bit_count()
    top = json.loads((to / ROUTED).read_text())["modules"]["top"]
    for name, value in (("node.own_mac$385", NEW.mac), ("own_ip", NEW.ip)):
        found = [top["cells"][f"ff{bit}"]["parameters"]["REGSET"] for bit in top["netnames"][name]["bits"]]
        assert sum(STARTS.index(start) << n for n, start in enumerate(found)) == value
    (to / NETLIST).write_bytes((was / NETLIST).read_bytes())
    renumber(to, NEW, OLD, again)
    assert starts(again) == before


@pytest.mark.parametrize("spoil", ["mac", "ip", "config", "routed"])
def test_a_project_without_these_addresses_is_refused(tmp_path, spoil):
    values = {spoil: 5} if spoil in ("mac", "ip") else {}
    project(tmp_path, random.Random(1), **values)
    if spoil == "config":
        text = (tmp_path / CONFIG).read_text()
        (tmp_path / CONFIG).write_text(text.replace("REGSET", "SD"))
    if spoil == "routed":
        (tmp_path / ROUTED).unlink()
    to = tmp_path / "to"
    to.mkdir()
    with pytest.raises(InputError, match="no routed board with the addresses of its build"):
        renumber(tmp_path, OLD, NEW, to)
    assert list(to.iterdir()) == []
