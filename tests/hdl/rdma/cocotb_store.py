"""cocotb tests, run inside the simulator by test_store.py: cocotbext-axi's memory behind a PayloadStore."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiRamWrite, AxiWriteBus

from tests.hdl.bus.cocotb_peers import stall
from tests.hdl.bus.cocotb_writer import offer
from tests.hdl.rdma.payloads import places, words_of

STEP = 32
SIZE = 1 << 16
ADDRESS_BITS, SIZE_BITS, LANE_BITS = 16, 13, 5


async def start(dut):
    """Clock, reset and memory."""
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    dut.rst.value = 1
    dut.command_valid.value = dut.i_valid.value = 0
    memory = AxiRamWrite(AxiWriteBus.from_prefix(dut, "axi"), dut.clk, dut.rst, size=SIZE)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return memory


async def count(dut, pulses):
    while True:
        await RisingEdge(dut.clk)
        pulses.append(int(dut.done.value))


async def fill(dut, memory, pause):
    """Payloads at any byte, some of them thrown away; the memory ends as it must."""
    expected = bytearray(random.randbytes(SIZE))
    memory.write(0, bytes(expected))
    commands, words, kept, pulses = [], [], 0, []
    for address, size, lane in places(random, 60, STEP, space=SIZE):
        keep, payload = random.random() < 0.8, random.randbytes(size)
        kept += keep
        if keep:
            expected[address : address + size] = payload
        run = random.randbytes(lane) + payload + random.randbytes(STEP)
        words += [int.from_bytes(run[n * STEP :][:STEP], "little") for n in range(words_of(lane, size, STEP))]
        commands.append(((keep << LANE_BITS | lane) << SIZE_BITS | size) << ADDRESS_BITS | address)
    cocotb.start_soon(count(dut, pulses))
    cocotb.start_soon(offer(dut, "command", commands, pause))
    await offer(dut, "i", words, pause)
    while sum(pulses) < kept:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 50)
    assert sum(pulses) == kept
    assert memory.read(0, SIZE) == bytes(expected)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def memory_ends_right_at_full_rate(dut):
    await fill(dut, await start(dut), pause=0.0)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def memory_ends_right_whatever_is_stalled(dut):
    memory = await start(dut)
    stall(memory)
    await fill(dut, memory, pause=0.3)
