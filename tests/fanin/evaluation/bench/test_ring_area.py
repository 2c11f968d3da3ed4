"""The ring node's area by part: every cell has one owner, and parts add up to the whole."""

import re

import pytest

from fanin.codec.facts import Bfp
from fanin.evaluation.bench import ring_area
from fanin.evaluation.bench.netlist import Area
from fanin.hdl.emit import emit_verilog
from fanin.hdl.ring.node import RingNode
from fanin.ring.facts import RingConfig

INNER = """module top__leaf__inner(input clk, input [2:0] i, output reg [2:0] o);
always @(posedge clk) o <= i;
endmodule
"""
LEAF = """module top__leaf_17(input clk, input [4:0] i, output reg [4:0] o);
wire [2:0] a, b; reg [4:0] q;
top__leaf__inner first(clk, q[2:0], a); top__leaf__inner second(clk, a, b);
always @(posedge clk) begin q <= i; o <= {q[4:3], b}; end
endmodule
"""
PLAIN = """module plain(input clk, input [4:0] i, output reg [4:0] o);
always @(posedge clk) o <= ~i;
endmodule
"""
TOP = """module top(input clk, input [4:0] i, output [4:0] o);
wire [4:0] a, b; top__leaf_17 one(clk, i, a); plain two(clk, a, b); top__leaf_17 three(clk, b, o);
endmodule
"""
DESIGN = INNER + LEAF + PLAIN + TOP


def test_each_cell_is_counted_as_often_as_its_module_occurs_and_for_one_part():
    owners = {"top": "shim", "top__leaf": "work", "top__leaf__inner": "codec"}
    parts = ring_area.split(DESIGN, "top", owners)
    assert {owner: area.flip_flops for owner, area in parts.items()} == {"shim": 5, "work": 20, "codec": 12}
    assert not set(sum(parts.values(), Area()).cells) & {"top__leaf_17", "top__leaf__inner", "plain"}


@pytest.mark.parametrize("owner", ["top__leaf__lost", "plai"])
def test_a_module_that_has_been_renamed_is_no_part_silently(owner):
    with pytest.raises(ValueError, match=f"one module must be called {owner}, not 0"):
        ring_area.split(DESIGN, "top", {"top": "shim", owner: "work"})


def test_the_ring_node_has_every_module_that_has_an_owner():
    config = RingConfig(lanes=8, frame_words=4, slice_frames=2, buffer_frames=4, replay_frames=4, codec=Bfp())
    verilog = emit_verilog(RingNode(config=config), name=ring_area.TOP)
    modules = [ring_area._module(verilog, name) for name in ring_area.OWNERS]
    assert len(set(modules)) == len(ring_area.OWNERS)
    assert all(re.search(rf"^  {module} ", verilog, re.MULTILINE) for module in modules[1:])


def test_the_paper_is_beside_what_it_prints_and_the_whole_is_the_sum(monkeypatch):
    parts = {"all-reduce": 100, "BFP": 30, "shim": 7}
    areas = {part: Area() for part in parts}
    for part, area in areas.items():
        area.cells.update({"LUT6": parts[part], "FDRE": 2 * parts[part], "RAMB36E2": 3, "RAMB18E2": 1})
    monkeypatch.setattr(ring_area, "_node", lambda sizes: areas)
    rows = {row.name: row for row in ring_area.measure()}
    total = rows["ring node, 8 lanes, 40 Gb/s: total, LUTs"]
    assert (total.value, total.note) == (137, "the paper: 69,570 ALMs")
    assert rows["ring node, 4 × 16 lanes, 400 Gb/s: all-reduce and BFP, LUTs"].value == 4 * 130
    assert rows["ring node, 16 lanes, 100 Gb/s: total, block RAM"].value == pytest.approx(10.5)
