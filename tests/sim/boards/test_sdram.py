"""The model of SDRAM chips: it holds what it was given, and stops at each rule that is broken."""

import subprocess
from dataclasses import replace

import pytest

from fanin.boards.sdram import SDRAM_8M
from fanin.sim.boards.model import BoardModel
from fanin.sim.boards.pins import Pins
from fanin.sim.boards.sdram import chip_parameters, chips_verilog, with_chips
from fanin.sim.cosim.program_build import VerilogModel, build_program

TIMING = replace(SDRAM_8M.timing(100e6), start=20)
NONE, ACTIVATE, READ, WRITE, PRECHARGE, REFRESH, MODE, STOP = 7, 3, 5, 4, 2, 1, 0, 6  # ras, cas, we; low: 1
ALL = 1 << 10
MAIN = """
#include <cstdio>
#include "VChips.h"
int main() {
  VChips chips;
  unsigned command, ba, a, driven, dq;
  while (scanf("%u %u %u %u %u", &command, &ba, &a, &driven, &dq) == 5) {
    chips.ras_n = command >> 2, chips.cas_n = command >> 1 & 1, chips.we_n = command & 1;
    chips.ba = ba, chips.a = a, chips.driven = driven, chips.dq_i = dq, chips.clk = 0;
    chips.eval();
    chips.clk = 1;
    chips.eval();
    printf("%u\\n", unsigned(chips.dq_o));
  }
}
"""


def nothing(cycles):
    return [(NONE, 0, 0, 0, 0)] * cycles


def command(code, ba=0, a=0, dq=None):
    return [(code, ba, a, dq is not None, dq or 0)]


START = [
    *nothing(20),
    *command(PRECHARGE, a=ALL),
    *nothing(1),
    *command(REFRESH),
    *nothing(6),
    *command(REFRESH),
    *nothing(6),
    *command(MODE, a=2 << 4),
    *nothing(1),
]
OPEN = [*START, *command(ACTIVATE), *nothing(1)]  # an access may follow
CLOSED = [*OPEN, *nothing(3), *command(PRECHARGE)]


@pytest.fixture(scope="module")
def chips(tmp_path_factory):
    """What the chips answer to commands, a word a cycle; and what they complain of."""
    folder = tmp_path_factory.mktemp("chips")
    settings = ", ".join(f".{name}({value})" for name, value in chip_parameters(SDRAM_8M, TIMING).items())
    top = f"""module top(
      input clk, ras_n, cas_n, we_n, driven, input [1:0] ba, input [10:0] a, input [31:0] dq_i,
      output [31:0] dq_o);
      fanin_sdram #({settings}) chips(.*);
    endmodule
    """
    model = VerilogModel("VChips", "top", chips_verilog() + top)
    program = build_program([model], {"main.cpp": MAIN}, quiet=True)

    def run(commands):
        text = "".join(" ".join(map(str, map(int, each))) + "\n" for each in commands)
        done = subprocess.run([program], cwd=folder, input=text, capture_output=True, text=True, timeout=60)
        complaint = [line for line in done.stdout.splitlines() if line.startswith("fanin_sdram: ")]
        assert bool(complaint) == bool(done.returncode), done.stderr
        return complaint or [int(line) for line in done.stdout.splitlines()]

    return run


@pytest.mark.verilator
def test_words_are_kept_and_come_two_cycles_behind_their_reads(chips):
    words = {
        (bank, row, column): bank << 20 | row << 8 | column
        for bank in (0, 3)
        for row in (0, 2047)
        for column in (0, 9, 255)
    }
    commands = [*START]
    for (bank, row, column), word in words.items():
        commands += [*command(ACTIVATE, bank, row), *nothing(1), *command(WRITE, bank, column, dq=word)]
        commands += [*nothing(2), *command(PRECHARGE, bank), *nothing(1)]
    at = {}
    for (bank, row, column), word in words.items():
        commands += [*command(ACTIVATE, bank, row), *nothing(1)]
        at[len(commands) + 1] = word
        commands += [*command(READ, bank, column), *nothing(2), *command(PRECHARGE, bank), *nothing(1)]
    answers = chips(commands)
    assert {cycle: answers[cycle] for cycle in at} == at


@pytest.mark.verilator
@pytest.mark.parametrize(
    ("commands", "complaint"),
    [
        (nothing(5) + command(PRECHARGE, a=ALL), "a command before the start"),
        (nothing(20) + command(REFRESH) + nothing(5) + command(REFRESH), "a command within a refresh"),
        (nothing(20) + command(ACTIVATE), "no mode was set"),
        (nothing(20) + command(MODE, a=2 << 4), "mode: refreshes before it"),
        (START[:-2] + command(MODE, a=3 << 4), "mode: not latency 2, one word"),
        (START[:-1] + command(ACTIVATE), "a command behind the mode"),
        (OPEN + command(ACTIVATE), "activate: the bank is open"),
        (CLOSED + command(ACTIVATE), "activate: tRP"),
        (CLOSED + nothing(1) + command(ACTIVATE), None),
        (OPEN[:-1] + command(ACTIVATE, 1), "activate: tRRD"),
        (START + command(READ), "access: the bank is closed"),
        (OPEN[:-1] + command(READ), "access: tRCD"),
        (OPEN + command(READ, a=ALL), "access: with auto-precharge"),
        (OPEN + command(WRITE), "access: the bus's driver"),
        (OPEN + nothing(2) + command(PRECHARGE), "precharge: tRAS"),
        (OPEN + nothing(3) + command(WRITE, dq=1) + command(PRECHARGE), "precharge: tWR"),
        (OPEN + command(REFRESH), "refresh: a bank is open"),
        (CLOSED + command(REFRESH), "refresh: a bank is open"),
        (OPEN + command(MODE, a=2 << 4), "mode: a bank is open"),
        (OPEN + command(READ) + nothing(1) + command(WRITE, dq=1), "both drive the bus"),
        (OPEN + command(READ) + nothing(2) + command(WRITE, dq=1), None),
        (START + command(STOP), "burst stop"),
        (START + nothing(8 * 1560 + 2), "refreshes are missing"),
        (START + (nothing(1559) + command(REFRESH)) * 9, None),
    ],
)
def test_a_broken_rule_is_named(chips, commands, complaint):
    said = chips(commands)
    if complaint is None:
        assert len(said) == len(commands)
    else:
        assert said[0].startswith(f"fanin_sdram: {complaint}, cycle ")


def test_a_board_s_pins_are_joined_to_the_chips():
    names = {"clk": 1, "ras": 1, "cas": 1, "we": 1, "ba": 2, "a": 11, "dq_o": 32, "dq_t": 32}
    widths = {f"sdram_0_{name}": bits for name, bits in names.items()} | {
        "sdram_0_dq_i": 32,
        "clk25": 1,
        "led": 8,
    }
    outputs = tuple(sorted(widths.keys() - {"sdram_0_dq_i", "clk25"}))
    board = BoardModel("top", "module top(); endmodule\n", ("clk25", "sdram_0_dq_i"), outputs, Pins(), widths)
    both = with_chips(board, SDRAM_8M, TIMING)
    assert (both.top, both.inputs, both.outputs) == ("top_with_sdram", ("clk25",), ("led",))
    assert "module top_with_sdram(input [0:0] clk25, output [7:0] led);" in both.verilog
    assert all(f".{name}({name})" in both.verilog for name in widths)
