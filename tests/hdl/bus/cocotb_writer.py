"""cocotb tests, run inside the simulator by test_peers.py: cocotbext-axi's memory behind an AxiWriter."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotbext.axi import AxiRamWrite, AxiWriteBus

from tests.hdl.bus.cocotb_peers import stall

WORD = 32
SIZE = 1 << 16
ADDRESS_BITS = 40


async def start(dut):
    """Clock, reset and memory."""
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    dut.rst.value = 1
    dut.command_valid.value = dut.i_valid.value = 0
    memory = AxiRamWrite(AxiWriteBus.from_prefix(dut, "axi"), dut.clk, dut.rst, size=SIZE)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return memory


async def offer(dut, name, payloads, pause):
    """Put payloads on a stream."""
    valid, ready, payload = (getattr(dut, f"{name}_{signal}") for signal in ("valid", "ready", "payload"))
    for item in payloads:
        while random.random() < pause:
            await RisingEdge(dut.clk)
        payload.value, valid.value, taken = item, 1, 0
        while not taken:
            await ReadOnly()
            taken = int(ready.value)
            await RisingEdge(dut.clk)
        valid.value = 0


async def fill(dut, memory, pause):
    """Runs that do not overlap, in any order, with some bytes left out; the memory ends as it must."""
    expected = bytearray(random.randbytes(SIZE))
    memory.write(0, bytes(expected))
    commands, words, first = [], [], 0
    while (first := first + random.randrange(9)) < SIZE // WORD - 150:
        beats = random.randrange(1, 150)
        commands.append((first, beats))
        first += beats
    random.shuffle(commands)
    for first, beats in commands:
        for n in range(first, first + beats):
            data, strobe = random.randbytes(WORD), random.choice([0xFFFF_FFFF, random.getrandbits(WORD)])
            words.append(strobe << 8 * WORD | int.from_bytes(data, "little"))
            for byte in range(WORD):
                if strobe >> byte & 1:
                    expected[n * WORD + byte] = data[byte]
    runs = [beats << ADDRESS_BITS | first * WORD for first, beats in commands]
    cocotb.start_soon(offer(dut, "command", runs, pause))
    await offer(dut, "i", words, pause)
    while int(dut.busy.value):
        await RisingEdge(dut.clk)
    assert memory.read(0, SIZE) == bytes(expected)
    assert not int(dut.error.value)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def memory_ends_right_at_full_rate(dut):
    await fill(dut, await start(dut), pause=0.0)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def memory_ends_right_whatever_is_stalled(dut):
    memory = await start(dut)
    stall(memory)
    await fill(dut, memory, pause=0.3)
