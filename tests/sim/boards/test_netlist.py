"""Netlists that cannot be read or simulated are refused, with what is wrong."""

import json
import re

import pytest

from fanin.base.errors import InputError
from fanin.sim.boards.model import routed_model
from fanin.sim.boards.netlist import read_netlist


def cell(kind, parameters=None, **pins):
    """A cell whose pins in capitals with O in front are outputs."""
    names = {name.removeprefix("o_"): [bit] for name, bit in pins.items()}
    directions = {n.removeprefix("o_"): "output" if n.startswith("o_") else "input" for n in pins}
    return {"type": kind, "parameters": parameters or {}, "connections": names, "port_directions": directions}


def written(folder, cells, ports=None):
    module = {"attributes": {"top": "1"}, "ports": ports or {}, "cells": cells, "netnames": {}}
    path = folder / "routed.json"
    path.write_text(json.dumps({"modules": {"top": module, "other": {"attributes": {}}}}))
    return path


def test_other_files(tmp_path):
    with pytest.raises(InputError, match="no netlist in JSON, as yosys or nextpnr writes it"):
        read_netlist(tmp_path / "missing.json")
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="no netlist in JSON"):
        read_netlist(path)


EVIL = 'q; initial $system("touch /tmp/evil"); wire zz'


@pytest.mark.parametrize(
    ("cells", "ports", "cause"),
    [
        ({"u": cell("TRELLIS_FF", o_Q=EVIL, CLK=5)}, {}, "a bit is 'q; initial"),
        ({"u": cell("TRELLIS_FF", o_Q=-1, CLK=5)}, {}, "a bit is -1"),
        ({}, {"x": {"direction": "input", "bits": [EVIL]}}, "a bit is 'q; initial"),
        ({}, {"x": {"direction": EVIL, "bits": [2]}}, "a port's direction is 'q; initial"),
        ({}, [1], "no netlist in JSON"),
        ({"u": 7}, {}, "no netlist in JSON"),
    ],
)
def test_what_would_become_other_verilog_is_refused(tmp_path, cells, ports, cause):
    with pytest.raises(InputError, match=re.escape(cause)):
        read_netlist(written(tmp_path, cells, ports))


CLOCKED = {"SD": "1 ", "CLKMUX": "CLK"}
RAM = {"CSDECODE_A": "0b111", "CSDECODE_B": "0b111"}
DIVIDED = {"CLKFB_DIV": "101", "CLKOP_DIV": "101"}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"u": cell("ALU54B"), "v": cell("SGSR")}, "top: no model in simulation of: ALU54B, SGSR"),
        ({"u": cell("MULT18X18D", {"REG_OUTPUT_CLK": "CLK0"})}, r"u: a MULT18X18D with registers .*OUTPUT"),
        ({"u": cell("IOLOGIC", {"MODE": "ODDRXN"})}, "u: a IOLOGIC with mode ODDRXN has no model"),
        ({"u": cell("TRELLIS_FF", CLOCKED, o_Q=4, DI=5)}, "u: a TRELLIS_FF without a clock"),
        ({"u": cell("TRELLIS_FF", {"LSRMODE": "PRLD"}, o_Q=4, CLK=5)}, "with a preload has no model"),
        ({"u": cell("DP16KD", {"CSDECODE_A": "0b010"})}, "u: a DP16KD with a chip select"),
        (
            {"u": cell("DP16KD", RAM | {"WRITEMODE_B": "OTHER"})},
            "u: a DP16KD with the write mode 'OTHER' has no",
        ),
        (
            {"u": cell("DP16KD", RAM | {"INITVAL_00": "10q"})},
            "u: INITVAL_00 must have the bits 0, 1 and x alone",
        ),
        ({"u": cell("DP16KD", RAM | {"INITVAL_00": ""})}, "u: INITVAL_00 must have the bits 0, 1 "),
        ({"u": cell("DCCA", CLKI=4, o_CLKO=5, CE=6)}, "u: a clock that is switched"),
        ({"u": cell("EHXPLLL", DIVIDED, CLKI=9, o_CLKOP=5)}, "u: its reference is neither a pin nor"),
        ({"u": cell("DELAYG", {"DEL_VALUE": "11"}, A=4, o_Z=5)}, "a delay line that is at no pin"),
    ],
)
def test_cells_without_a_model(tmp_path, cells, message):
    with pytest.raises(InputError, match=message):
        routed_model(written(tmp_path, cells))


@pytest.mark.parametrize("divider", ["CLKI_DIV", "CLKFB_DIV", "CLKOP_DIV", "CLKOS3_DIV"])
def test_a_divider_of_0_is_refused(tmp_path, divider):
    pll = {"u": cell("EHXPLLL", {divider: "0"}, CLKI=9, o_CLKOP=5)}
    pads = {"p": cell("TRELLIS_IO", {"DIR": "INPUT"}, B=8, o_O=9)}
    clock = {"clk": {"direction": "input", "bits": [8]}}
    with pytest.raises(InputError, match="u: a PLL's dividers must be at least 1"):
        routed_model(written(tmp_path, pads | pll, clock))


def test_ports(tmp_path):
    wide = {"x": {"direction": "input", "bits": list(range(2, 67))}}
    with pytest.raises(InputError, match="x: a port may have 64 bits, not 65"):
        routed_model(written(tmp_path, {}, wide))
    same = {"x__y": {"direction": "input", "bits": [2]}, "x_y": {"direction": "input", "bits": [3]}}
    with pytest.raises(InputError, match="two ports would have the same name"):
        routed_model(written(tmp_path, {}, same))
    pll = {"p": cell("EHXPLLL", DIVIDED | {"FEEDBK_PATH": "USERCLOCK"}, CLKI=2, o_CLKOP=5)}
    with pytest.raises(InputError, match="p: a PLL with the feedback USERCLOCK"):
        routed_model(written(tmp_path, pll, {"x": {"direction": "input", "bits": [2]}}))
