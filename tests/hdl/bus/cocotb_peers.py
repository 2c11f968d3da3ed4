"""cocotb tests, run inside the simulator by test_peers.py: cocotbext-axi drives our ports."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiReadBus, AxiResp

from fanin.host.driver import AsyncRegisterDriver
from tests.hdl.bus.reader_with_registers import REGISTERS

WORD = 32


async def start(dut):
    """Clock, reset, host and memory; the stream is not taken yet."""
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    dut.rst.value = 1
    dut.o_ready.value = 0
    host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil"), dut.clk, dut.rst)
    memory = AxiRamRead(AxiReadBus.from_prefix(dut, "memory"), dut.clk, dut.rst, size=1 << 16)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return host, memory


def stall(bus):
    """Pause every channel of a bus model at random."""
    for name in ("aw_channel", "w_channel", "b_channel", "ar_channel", "r_channel"):
        for half in (bus, getattr(bus, "write_if", None), getattr(bus, "read_if", None)):
            if channel := getattr(half, name, None):
                channel.set_pause_generator(iter(lambda: random.random() < 0.4, None))


def driver(host):
    async def read32(address):
        return await host.read_dword(address)

    async def write32(address, data):
        await host.write_dword(address, data)

    return AsyncRegisterDriver(REGISTERS, read32, write32)


async def take(dut, count):
    """Take ``count`` words from the stream, at random pauses."""
    words = []
    while len(words) < count:
        dut.o_ready.value = random.random() < 0.8
        await ReadOnly()
        taken = dut.o_valid.value & dut.o_ready.value
        if int(taken):
            words.append(int(dut.o_payload.value).to_bytes(WORD, "little"))
        await RisingEdge(dut.clk)
    dut.o_ready.value = 0
    return words


@cocotb.test(timeout_time=200, timeout_unit="us")
async def registers_keep_every_byte(dut):
    host, _ = await start(dut)
    stall(host)
    base, model = REGISTERS.offset("scratch"), bytearray((0x1234_5678).to_bytes(4, "little") * 3)
    for _ in range(40):
        first = random.randrange(0, 12, 4)
        data = random.randbytes(random.randrange(1, 13 - first))
        model[first : first + len(data)] = data
        assert (await host.write(base + first, data)).resp == AxiResp.OKAY
        assert (await host.read(base, 12)).data == bytes(model)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def unknown_and_unaligned_addresses_answer_slverr(dut):
    host, _ = await start(dut)
    stall(host)
    for address in (REGISTERS.size, 0xFFC, REGISTERS.offset("scratch") + 1):
        answer = await host.read(address, 2)
        assert (answer.resp, answer.data) == (AxiResp.SLVERR, bytes(2))
        assert (await host.write(address, b"da")).resp == AxiResp.SLVERR
    assert (await host.write(REGISTERS.offset("status"), b"data")).resp == AxiResp.SLVERR


@cocotb.test(timeout_time=200, timeout_unit="us")
async def runs_of_memory_arrive_in_order(dut):
    host, memory = await start(dut)
    stall(host)
    stall(memory)
    registers = driver(host)
    content = random.randbytes(1 << 16)
    memory.write(0, content)
    for _ in range(6):
        beats, repeats = random.randrange(1, 150), random.randrange(1, 4)
        first = random.randrange(2048 - beats)
        await registers.write("address", first * WORD)
        await registers.write("beats", beats)
        await registers.write("repeats", repeats)
        await registers.write("control", start=1, clear=1)
        words = await take(dut, beats * repeats)
        assert b"".join(words) == content[first * WORD : (first + beats) * WORD] * repeats
        assert await registers.read("words") == beats * repeats
        assert await registers.read("status") == {"busy": 0, "error": 0}
