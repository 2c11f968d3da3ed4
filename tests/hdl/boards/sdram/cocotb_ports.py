"""cocotb tests, run inside the simulator by test_memory.py: cocotbext-axi's masters at all ports of SDRAM."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Combine
from cocotbext.axi import AxiBurstType, AxiLiteBus, AxiLiteMaster, AxiMasterRead, AxiReadBus, AxiResp

from tests.hdl.boards.sdram.test_memory import MEMORIES
from tests.hdl.bus.cocotb_peers import stall

PORTS = range(len(MEMORIES))


async def start(dut):
    """Clock and reset; a host and a master for each memory."""
    cocotb.start_soon(Clock(dut.clk, 20, unit="ns").start())
    dut.rst.value = 1
    hosts = [AxiLiteMaster(AxiLiteBus.from_prefix(dut, f"axil{n}"), dut.clk, dut.rst) for n in PORTS]
    masters = [AxiMasterRead(AxiReadBus.from_prefix(dut, f"axi{n}"), dut.clk, dut.rst) for n in PORTS]
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return hosts, masters


def some_of(size, unit):
    """A run of whole units, over the end of a row or where it likes."""
    first = random.choice([random.randrange(size), 1024 * random.randrange(1 + size // 1024) - 8])
    first = max(0, min(first, size - unit)) // unit * unit
    return first, unit * random.randint(1, min(40, (size - first) // unit))


async def use(host, master, size, width):
    """Write here, read there, all at a time; each port sees what was written before."""
    content = bytearray(size)
    places = [0, size - 256, *(random.randrange(0, size - 256, 4) for _ in range(4))]
    for place in places:
        data = random.randbytes(256)
        content[place : place + 256] = data
        assert (await host.write(place, data)).resp == AxiResp.OKAY
    for _ in range(12):
        place = random.choice(places)
        first, count = some_of(256, width // 8)
        reads = [cocotb.start_soon(master.read(place // 4 * 4 + first, count, burst=AxiBurstType.INCR))]
        word = place + random.randrange(0, 256, 4)
        reads.append(cocotb.start_soon(host.read(word, 4)))
        await Combine(*reads)
        burst, single = (read.result() for read in reads)
        assert (burst.resp, burst.data) == (AxiResp.OKAY, bytes(content[place + first : place + first + count]))
        assert (single.resp, single.data) == (AxiResp.OKAY, bytes(content[word : word + 4]))
        data = random.randbytes(4)
        content[word : word + 4] = data
        assert (await host.write(word, data)).resp == AxiResp.OKAY


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def hosts_and_masters_see_the_same_bytes(dut):
    hosts, masters = await start(dut)
    for bus in (*hosts, *masters):
        stall(bus)
    users = zip(hosts, masters, MEMORIES, strict=True)
    await Combine(*(cocotb.start_soon(use(host, master, *memory)) for host, master, memory in users))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def behind_the_end_every_beat_and_access_is_an_error(dut):
    hosts, masters = await start(dut)
    for host, master, (size, _) in zip(hosts, masters, MEMORIES, strict=True):
        assert (await master.read(size, 8)).resp == AxiResp.SLVERR
        assert (await master.read(size - 8, 8)).resp == AxiResp.OKAY
        if size & (size - 1):
            assert (await host.write(size, bytes(4))).resp == AxiResp.SLVERR
            assert (await host.read(size, 4)).resp == AxiResp.SLVERR
        assert (await host.write(size - 4, b"some")).resp == AxiResp.OKAY
        assert (await host.write(size - 4, b"no")).resp == AxiResp.SLVERR
        assert (await host.read(size - 4, 4)).data == b"some"
