"""cocotb tests, run inside the simulator by test_nic_peers.py: cocotbext-axi is host and MAC."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from fanin.codec.facts import MAX_FRAME
from fanin.hdl.codec.nic.registers import COUNTERS, nic_registers
from fanin.host.driver import AsyncRegisterDriver
from tests.fanin.codec.golden.packets import TRANSPORTS, frame_of, gradients, rebuilt
from tests.hdl.codec.nic_traffic import host_frames, received, sent, wire_frames

REGISTERS = nic_registers()
QUIET = 400  # cycles after which nothing more comes


class Bench:
    """The NIC with host and MAC around it, out of reset."""

    def __init__(self, dut):
        self.dut = dut
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil"), dut.clk, dut.rst)
        self.sources = {name: self._peer(AxiStreamSource, name) for name in ("host_tx", "mac_rx")}
        self.sinks = {name: self._peer(AxiStreamSink, name) for name in ("mac_tx", "host_rx")}
        self.registers = AsyncRegisterDriver(REGISTERS, self.host.read_dword, self.host.write_dword)

    def _peer(self, kind, name):
        return kind(AxiStreamBus.from_prefix(self.dut, name), self.dut.clk, self.dut.rst)

    async def start(self, *, stall):
        cocotb.start_soon(Clock(self.dut.clk, 4, unit="ns").start())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        if stall:
            for peer in (*self.sources.values(), *self.sinks.values()):
                peer.set_pause_generator(iter(lambda: random.random() < stall, None))

    async def exchange(self, source, sink, frames, count, *, errors=()):
        """Send frames and return ``count`` that come out, and nothing more."""
        for k, frame in enumerate(frames):
            user = 1 if k in errors else 0
            await self.sources[source].send(AxiStreamFrame(frame, tuser=user) if errors else frame)
        made = [bytes((await self.sinks[sink].recv()).tdata) for _ in range(count)]
        await ClockCycles(self.dut.clk, QUIET)
        assert self.sinks[sink].empty()
        return made


async def bench(dut, *, stall=0.2):
    made = Bench(dut)
    await made.start(stall=stall)
    return made


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_length_goes_over_the_wire_and_comes_back(dut):
    """Payloads of 0 to 100 bytes and some long ones: as the golden model has it, and scapy agrees."""
    nic = await bench(dut)
    lengths = [*range(101), 1460, 1461, 1462, 1463, 1472, 8900, 8961]
    frames = [frame_of(gradients(n, n), transport) for n in lengths for transport in TRANSPORTS]
    wire = await nic.exchange("host_tx", "mac_tx", frames, len(frames))
    assert wire == sent(frames, max_frame=MAX_FRAME)
    back = await nic.exchange("mac_rx", "host_rx", wire, len(frames))
    assert back == received(wire, max_frame=MAX_FRAME)
    assert all(frame == rebuilt(frame) for frame in (*wire, *back))


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def mixed_traffic_in_both_directions_at_once_is_counted(dut):
    nic = await bench(dut)
    rng = random.Random(random.random())

    def lengths():
        return [rng.choice([rng.randrange(400), rng.randrange(9000)]) for _ in range(100)]

    out = list(host_frames(rng, lengths(), max_frame=MAX_FRAME))
    back = list(wire_frames(rng, lengths(), max_frame=MAX_FRAME))
    errors = {k for k in range(len(back)) if rng.random() < 0.05}
    expected = {
        "mac_tx": sent(out, max_frame=MAX_FRAME),
        "host_rx": received(back, errors=errors, max_frame=MAX_FRAME),
    }
    transmitting = cocotb.start_soon(nic.exchange("host_tx", "mac_tx", out, len(expected["mac_tx"])))
    made = await nic.exchange("mac_rx", "host_rx", back, len(expected["host_rx"]), errors=errors)
    assert made == expected["host_rx"]
    assert await transmitting == expected["mac_tx"]
    for direction, came, left in ("tx", out, expected["mac_tx"]), ("rx", back, expected["host_rx"]):
        counts = {name: await nic.registers.read(f"{direction}_{name}") for name in COUNTERS}
        assert sum(counts[kind] for kind in ("coded", "raw", "bypassed", "dropped")) == len(came)
        assert counts["dropped"] == len(came) - len(left)
        assert counts["bytes_out"] == sum(map(len, left))
        assert min(counts.values()) > 0
