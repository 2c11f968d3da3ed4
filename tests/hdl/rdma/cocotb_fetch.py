"""cocotb tests, run inside the simulator by test_fetch.py: cocotbext-axi's memory behind a PayloadFetch."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotbext.axi import AxiRamRead, AxiReadBus

from fanin.hdl.rdma.merge import window_layout
from tests.hdl.bus.cocotb_peers import stall
from tests.hdl.bus.cocotb_writer import offer
from tests.hdl.rdma.payloads import places, turned_words, windows

STEP = 32
SIZE = 1 << 16
ADDRESS_BITS, SIZE_BITS = 16, 13


async def start(dut):
    """Clock, reset and memory."""
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    dut.rst.value = 1
    dut.command_valid.value = dut.o_ready.value = dut.packet_ready.value = 0
    memory = AxiRamRead(AxiReadBus.from_prefix(dut, "axi"), dut.clk, dut.rst, size=SIZE)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return memory


async def take(dut, name, number, pause):
    """Take payloads from a stream, at random pauses."""
    valid, ready, payload = (getattr(dut, f"{name}_{signal}") for signal in ("valid", "ready", "payload"))
    taken = []
    while len(taken) < number:
        ready.value = random.random() >= pause
        await ReadOnly()
        if int(valid.value) and int(ready.value):
            taken.append(int(payload.value))
        await RisingEdge(dut.clk)
    ready.value = 0
    return taken


async def read(dut, memory, pause):
    """Payloads from any byte, to any lane."""
    content = random.randbytes(SIZE)
    memory.write(0, content)
    runs = list(places(random, 60, STEP, space=SIZE))
    words = turned_words(content, runs, STEP)
    commands = [(lane << SIZE_BITS | size) << ADDRESS_BITS | address for address, size, lane in runs]
    cocotb.start_soon(offer(dut, "command", commands, pause))
    packets = cocotb.start_soon(take(dut, "packet", len(runs), pause))
    assert await take(dut, "o", len(words), pause) == words
    layout = window_layout(8 * STEP)
    assert await packets == [layout.const(fields).as_value().value for fields in windows(runs, STEP)]


@cocotb.test(timeout_time=200, timeout_unit="us")
async def words_are_right_at_full_rate(dut):
    await read(dut, await start(dut), pause=0.0)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def words_are_right_whatever_is_stalled(dut):
    memory = await start(dut)
    stall(memory)
    await read(dut, memory, pause=0.3)
