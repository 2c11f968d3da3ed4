"""Netlists that cannot be read or simulated are refused, with what is wrong."""

import json
import os
import re
import time

import pytest

from fanin.base.errors import InputError
from fanin.hdl.boards.board import find_board
from fanin.sim.boards import netlist
from fanin.sim.boards.model import routed_model
from fanin.sim.boards.netlist import read_netlist
from fanin.sim.boards.setup import board_config


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
        ({"u": cell(["TRELLIS_FF"])}, {}, "a cell's type is ['TRELLIS_FF']"),
        ({"u": cell("TRELLIS_FF", o_Q=True, CLK=5)}, {}, "a bit is True"),
    ],
)
def test_what_would_become_other_verilog_is_refused(tmp_path, cells, ports, cause):
    with pytest.raises(InputError, match=re.escape(cause)):
        read_netlist(written(tmp_path, cells, ports))


def test_a_fifo_and_a_large_file_are_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="is no regular file"):
        read_netlist(tmp_path / "fifo")
    monkeypatch.setattr(netlist, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="has more than 10 bytes"):
        read_netlist(written(tmp_path, {}))


def test_a_table_has_as_many_bits_as_its_inputs_need(tmp_path):
    cells = {"u": cell("TRELLIS_COMB", {"INITVAL": "1" * 5 + "0" * 15 + "1"}, A=7, B=8, C=9, D=10, o_F=11)}
    assert "assign n11 = (~n10 & (~n9 & (~n8 & ~n7)))" in routed_model(written(tmp_path, cells)).verilog


def test_a_long_chain_of_buffers_is_followed_once(tmp_path):
    chain = {f"u{net}": cell("DCCA", CLKI=net, o_CLKO=net + 1) for net in range(2, 20_000)}
    ports = {"clk": {"direction": "input", "bits": [2]}, "q": {"direction": "output", "bits": [20_000]}}
    start = time.process_time()
    assert "assign q[0] = n2;" in routed_model(written(tmp_path, chain, ports)).verilog
    assert time.process_time() - start < 1


def test_a_top_without_the_ports_of_its_board(tmp_path):
    board = find_board("colorlight_i9")
    model = routed_model(written(tmp_path, {}))
    with pytest.raises(InputError, match="top: colorlight_i9 needs a port eth_rgmii_"):
        board_config(board, model)


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
        ({"u": cell("DELAYG", {"DEL_VALUE": "1" * 40}, A=4, o_Z=5)}, "u: a delay line has at most 127 steps"),
        ({"u": cell("DCCA", CLKI=5, o_CLKO=5)}, "top: net 5 drives itself through pads or buffers"),
        ({"u": cell("DCCA", CLKI=5, o_CLKO=6), "v": cell("DCCA", CLKI=6, o_CLKO=5)}, "net . drives itself"),
        ({"u": cell("TRELLIS_IO", {"DIR": "INPUT"}, B=5, o_O=5)}, "net 5 drives itself"),
        ({"u": cell("TRELLIS_IO", {"DIR": "INPUT"}, o_O=5)}, "u: a pad must be at a pin of the board"),
        ({"u": cell("DP16KD", RAM | {"DATA_WIDTH_A": "1" * 20_000})}, "DATA_WIDTH_A must have at most 4,096"),
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
    with pytest.raises(InputError, match=r"u: a PLL's dividers must be in 1…128"):
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
