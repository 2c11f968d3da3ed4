"""cocotb tests, run inside the simulator by test_memory.py: more than a megabit through a node's readers."""

import logging
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Combine, ReadOnly, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from tests.hdl.boards.sdram.chips import COMMAND

WORD = 4
WORDS = 14_000  # of each sample memory: the two have 0.9 Mb, with the labels more than one
LABELS = WORDS // 2
REPEATS = 2
SHARE = 0.95  # words of SDRAM a cycle: docs/boards.md
FIRST = 32  # cycles from a command to the first word, at most


async def start(dut):
    """Clock and reset; the hosts. Nothing is read yet."""
    logging.getLogger("cocotb.top").setLevel(logging.WARNING)
    cocotb.start_soon(Clock(dut.clk, 20, unit="ns").start())
    dut.rst.value = 1
    for name in ("command_valid", "label_command_valid", "samples_ready", "labels_ready"):
        getattr(dut, name).value = 0
    hosts = [AxiLiteMaster(AxiLiteBus.from_prefix(dut, f"axil{n}"), dut.clk, dut.rst) for n in range(3)]
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return hosts


async def read(dut, command, stream, beats, *, every=1):
    """A run, twice over; (cycle, word) of what came. ``every``: the cycles for which a word is taken once."""
    valid, payload = (getattr(dut, f"{command}_{name}") for name in ("valid", "payload"))
    offered, ready, word = (getattr(dut, f"{stream}_{name}") for name in ("valid", "ready", "payload"))
    payload.value = COMMAND.const({"address": 0, "beats": beats, "repeats": REPEATS}).as_value().value
    valid.value = 1
    await RisingEdge(dut.clk)
    valid.value = 0
    got = []
    cycle = 0
    while len(got) < beats * REPEATS:
        ready.value = cycle % every == 0
        await ReadOnly()
        if int(offered.value) and int(ready.value):
            got.append((cycle, int(word.value)))
        await RisingEdge(dut.clk)
        cycle += 1
    ready.value = 0
    return got


def rate(got, words):
    """Words of SDRAM a cycle, where each that came has so many."""
    return words * (len(got) - 1) / (got[-1][0] - got[0][0])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_megabit_at_nearly_a_word_a_cycle(dut):
    hosts = await start(dut)
    content = [random.randbytes(WORD * count) for count in (WORDS, WORDS, LABELS)]
    await Combine(*(cocotb.start_soon(host.write(0, data)) for host, data in zip(hosts, content, strict=True)))
    low, high, labels = ([data[at : at + WORD] for at in range(0, len(data), WORD)] for data in content)
    pairs = [int.from_bytes(a + b, "little") for a, b in zip(low, high, strict=True)]
    got = await read(dut, "command", "samples", WORDS)
    assert [word for _, word in got] == pairs * REPEATS
    assert rate(got, 2) > SHARE
    assert got[0][0] <= FIRST

    # As in a run: labels meanwhile, a word for every eight pairs or so, and a host that reads.
    both = [
        cocotb.start_soon(read(dut, "command", "samples", WORDS)),
        cocotb.start_soon(read(dut, "label_command", "labels", LABELS, every=6)),
        cocotb.start_soon(hosts[0].read(WORD * 5000, WORD * 40)),
    ]
    await Combine(*both)
    got, got_labels, looked = (each.result() for each in both)
    assert [word for _, word in got] == pairs * REPEATS
    assert [word for _, word in got_labels] == [int.from_bytes(word, "little") for word in labels] * REPEATS
    assert looked.data == content[0][WORD * 5000 : WORD * 5040]
    assert rate(got, 2) + rate(got_labels, 1) > 0.9
