"""The depth walk must count what stands between two registers, no more and no less."""

import pytest

from fanin.evaluation.bench.netlist import Goal, analyse, synthesise


def _verilog(body: str, ports: str) -> str:
    return f"module top(input clk, {ports});\n{body}\nendmodule\n"


def test_one_adder_between_registers_is_one_lut_and_one_chain_of_its_width():
    area = synthesise(
        _verilog(
            "reg [31:0] p, q; always @(posedge clk) begin p <= a; q <= b; o <= p + q; end",
            "input [31:0] a, input [31:0] b, output reg [31:0] o",
        ),
        "top",
    )
    assert (area.depth.luts, area.depth.chains) == (1, 1)
    assert 31 <= area.depth.chain_bits <= 32
    assert area.flip_flops == 96


@pytest.mark.slow
def test_two_adders_in_series_are_two_chains():
    area = synthesise(
        _verilog(
            "reg [23:0] p, q, r;"
            "always @(posedge clk) begin p <= a; q <= b; r <= c; o <= ((p + q) ^ q) + r; end",
            "input [23:0] a, input [23:0] b, input [23:0] c, output reg [23:0] o",
        ),
        "top",
    )
    assert area.depth.chains == 2
    assert area.depth.luts >= 2


@pytest.mark.slow
def test_reading_a_lut_memory_is_a_lut_level():
    area = synthesise(
        _verilog(
            "reg [7:0] m [0:31]; reg [4:0] w, r; reg e; reg [7:0] d;"
            "always @(posedge clk) begin w <= a; r <= b; e <= we; d <= i; if (e) m[w] <= d; o <= m[r]; end",
            "input [4:0] a, input [4:0] b, input we, input [7:0] i, output reg [7:0] o",
        ),
        "top",
    )
    assert area.lutrams > 0
    assert area.depth.luts == 1


@pytest.mark.slow
def test_levels_come_first_unless_area_does():
    """Beside a long chain there is time to decode a multiplexer's select for all its bits: a level more."""
    verilog = _verilog(
        "reg [255:0] d; reg [4:0] s; reg [47:0] n; integer k;"
        "always @(posedge clk) begin d <= i; s <= a; n <= n + 1; if (n[47]) s <= 0;"
        "for (k = 0; k < 8; k = k + 1) o[k] <= d[{s, k[2:0]}]; end",
        "input [255:0] i, input [4:0] a, output reg [7:0] o",
    )
    assert synthesise(verilog, "top").depth.luts == 3 < synthesise(verilog, "top", goal=Goal.AREA).depth.luts


def test_a_combinational_loop_is_refused():
    cell = {
        "type": "LUT1",
        "port_directions": {"I0": "input", "O": "output"},
        "connections": {"I0": [2], "O": [2]},
    }
    with pytest.raises(ValueError, match="combinational loop"):
        analyse({"cells": {"loop": cell}})
