"""Fmax by place and route: nextpnr's report, and what does not fit."""

import json

import pytest

from fanin.base.errors import ToolFailed
from fanin.cli.main import main
from fanin.evaluation.bench import ecp5, fmax
from fanin.evaluation.bench.ecp5 import DoesNotFitDevice, Placement, pack, parse_report, place
from fanin.evaluation.bench.netlist import Area, Depth

ADDER = """module adder(input clk, input rst, input [7:0] a, input [7:0] b, output reg [8:0] sum);
always @(posedge clk) sum <= rst ? 0 : a + b;
endmodule
"""
PORTS = {
    "clk": {"direction": "input", "bits": [2]},
    "rst": {"direction": "input", "bits": [3]},
    "a": {"direction": "input", "bits": list(range(8))},
    "b": {"direction": "input", "bits": list(range(8))},
    "sum": {"direction": "output", "bits": list(range(9))},
}
SMALL = Placement(fmax_mhz=123.4, luts=10, flip_flops=20, block_rams=1, multipliers=0)


def test_a_report_without_a_clock_is_a_failure():
    with pytest.raises(ToolFailed, match="nextpnr found 0 clocks, not one"):
        parse_report({"fmax": {}, "utilization": {}})


def test_the_report_of_nextpnr_is_read():
    report = {
        "fmax": {"$glbnet$clk": {"achieved": 200.5, "constraint": 150.0}},
        "utilization": {
            name: {"used": n, "available": 100}
            for n, name in enumerate(("TRELLIS_COMB", "TRELLIS_FF", "DP16KD", "MULT18X18D"))
        },
    }
    assert parse_report(report) == Placement(200.5, 0, 1, 2, 3)


def test_what_does_not_fit_is_told_from_what_fails(monkeypatch):
    def run(message):
        def fail(command, folder, timeout):
            if "nextpnr" in command[0]:
                raise ToolFailed(message)
            (folder / "ports.json").write_text(json.dumps({"modules": {"adder": {"ports": PORTS}}}))

        monkeypatch.setattr(ecp5, "run_tool", fail)
        return place(ADDER, "adder")

    monkeypatch.setattr(ecp5, "program", lambda name, install: name)
    with pytest.raises(DoesNotFitDevice):
        run("ERROR: Unable to place cell 'x', no BELs remaining to implement cell type 'DP16KD'")
    with pytest.raises(ToolFailed, match="timing loop"):
        run("ERROR: timing loop")


def test_a_part_is_told_by_its_clock_and_what_it_takes(monkeypatch, capsys):
    monkeypatch.setattr(fmax, "place", lambda verilog, top, seed: SMALL)
    monkeypatch.setattr(fmax, "synthesise", lambda verilog, top: Area(depth=Depth(3, 1, 20)))
    assert main(["bench", "fmax", "--part", "loss unit"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "Fmax" in line)
    assert "123.4 MHz" in line
    assert "10 LUT4, 20 flip-flops, 1 block RAMs" in line


@pytest.mark.parametrize("name", fmax.PARTS)
def test_every_part_can_be_made(name):
    part = fmax.PARTS[name]()
    part._MustUse__used = True
    assert "clk" not in part.signature.members


def test_a_part_that_there_is_not_takes_one_line(capsys):
    assert main(["bench", "fmax", "--part", "wing"]) == 2
    assert "no part 'wing'; there are GLM node, 8 lanes, " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.needs("nextpnr")
def test_an_adder_is_placed():
    found = place(ADDER, "adder")
    assert 100 < found.fmax_mhz < 1000
    assert found.flip_flops >= 9 + 16 + 2 * 9


def test_what_is_in_use_is_read_from_the_log():
    log = "Info: In use:\nInfo: \t  DP16KD:       4/    208     1%\nInfo: \tTRELLIS_COMB: 20192/83640  24%\n"
    assert ecp5._utilisation(log) == {"DP16KD": 4, "TRELLIS_COMB": 20192}
    with pytest.raises(ToolFailed, match="prints no count"):
        ecp5._utilisation("Info: nothing")


@pytest.mark.needs("nextpnr")
def test_an_adder_is_counted_without_its_harness():
    used = pack(ADDER, "adder")
    assert (used.flip_flops, used.block_rams, used.multipliers) == (9, 0, 0)
    assert 9 <= used.luts <= 24
