"""Testbench of a fanin node with the bus models of cocotbext-axi: registers, memories, packet streams."""

from __future__ import annotations

import logging
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiRam,
    AxiRamRead,
    AxiReadBus,
    AxiResp,
    AxiStreamBus,
    AxiStreamMonitor,
    AxiStreamSink,
    AxiStreamSource,
)
from compare import REPEATS, check_equal

from fanin.host.driver import AsyncRegisterDriver, BaseDriver, Batch, Value

warnings.filterwarnings("ignore", category=DeprecationWarning, module="cocotbext")  # it also serves cocotb 1

PERIOD_NS = 4
POLLS = 5000
QUIET = 500  # cycles: longer than a healthy node takes between two frames
CHANNELS = ("aw_channel", "w_channel", "b_channel", "ar_channel", "r_channel")


class Bench:
    """Testbench of a node: clock, reset, AXI4-Lite master. Attach memories and streams, then ``await start()``.

    ``driver`` is the node's own of ``fanin.host``: it makes batches of register accesses, ``run`` carries them
    out. Every channel of every bus pauses at random, each with odds of its own up to ``most_stalls``.
    """

    def __init__(self, dut: Any, driver: BaseDriver, *, most_stalls: float = 0.5):
        self.dut = dut
        self.driver = driver
        self.most_stalls = most_stalls
        self.scoreboards: list[Scoreboard] = []
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)  # a line for each access and frame
        self._host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil"), dut.clk, dut.rst)
        self._stall(self._host.write_if, self._host.read_if)
        self.registers = AsyncRegisterDriver(driver.registers, self._read32, self._write32)

    def memory(self, prefix: str, size: int) -> AxiRam | AxiRamRead:
        """Attach a memory of ``size`` bytes to the AXI4 port ``prefix``, a read-only or a read-write port."""
        if hasattr(self.dut, f"{prefix}_awvalid"):
            memory = AxiRam(AxiBus.from_prefix(self.dut, prefix), self.dut.clk, self.dut.rst, size=size)
            self._stall(memory.write_if, memory.read_if)
        else:
            memory = AxiRamRead(AxiReadBus.from_prefix(self.dut, prefix), self.dut.clk, self.dut.rst, size=size)
            self._stall(memory)
        return memory

    def source(self, prefix: str) -> AxiStreamSource:
        """Return a source of frames to the node: ``send_nowait(frame)``."""
        return self._stream(AxiStreamSource, prefix)

    def sink(self, prefix: str) -> AxiStreamSink:
        """Return a sink of the node's frames: ``bytes(await sink.recv())``."""
        return self._stream(AxiStreamSink, prefix)

    def scoreboard(self, prefix: str, *, only: Callable[[bytes], bool] = lambda frame: True) -> Scoreboard:
        """Return a scoreboard that checks a stream's outgoing frames, if they pass ``only``, next to a sink."""
        monitor = AxiStreamMonitor(AxiStreamBus.from_prefix(self.dut, prefix), self.dut.clk, self.dut.rst)
        self.scoreboards.append(Scoreboard(prefix, monitor, only))
        return self.scoreboards[-1]

    async def start(self) -> None:
        """Run the clock, end the reset, and check that the node matches the driver."""
        cocotb.log.info(REPEATS)
        cocotb.start_soon(Clock(self.dut.clk, PERIOD_NS, unit="ns").start())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        self.driver.check_identity(await self.run(self.driver.identify()))

    async def run(self, *batches: Batch) -> list[Value]:
        """Execute batches of register accesses. Return the values that the last batch has read."""
        values: list[Value] = []
        for batch in batches:
            values = await self.registers.run(batch)
        return values

    async def poll(self, register: str, field: str, value: int) -> None:
        """Read a register until its field has the value. Raises AssertionError after ``POLLS`` reads."""
        for _ in range(POLLS):
            found = (await self.registers.read(register))[field]
            if found == value:
                return
        raise AssertionError(f"{register}: {field} is still {found}, not {value}; {REPEATS}")

    async def arrive(self) -> None:
        """Wait for ``QUIET`` cycles without a frame. Raises AssertionError if an expected frame is missing."""
        seen, checked = -1, 0
        while seen != checked:
            await ClockCycles(self.dut.clk, QUIET)
            seen, checked = checked, sum(scoreboard.checked for scoreboard in self.scoreboards)
        for scoreboard in self.scoreboards:
            scoreboard.check_complete()

    def _stream(self, kind: type, prefix: str) -> Any:
        stream = kind(AxiStreamBus.from_prefix(self.dut, prefix), self.dut.clk, self.dut.rst)
        stream.set_pause_generator(self._pauses())
        return stream

    def _stall(self, *halves: Any) -> None:
        for half in halves:
            for name in CHANNELS:
                if channel := getattr(half, name, None):
                    channel.set_pause_generator(self._pauses())

    def _pauses(self) -> Iterator[bool]:
        rng = random.Random(random.random())
        odds = rng.uniform(0, self.most_stalls)
        while True:
            yield rng.random() < odds

    async def _read32(self, address: int) -> int:
        answer = await self._host.read(address, 4)
        assert answer.resp == AxiResp.OKAY, f"read of register {address:#x}: {answer.resp.name}"
        return int.from_bytes(answer.data, "little")

    async def _write32(self, address: int, data: int) -> None:
        answer = await self._host.write(address, data.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, f"write of register {address:#x}: {answer.resp.name}"


class Scoreboard:
    """Scoreboard that compares the frames of a monitor with the expected frames, in order of arrival."""

    def __init__(self, name: str, monitor: AxiStreamMonitor, only: Callable[[bytes], bool]):
        self.name = name
        self.checked = 0
        self._monitor = monitor
        self._only = only
        self._expected: deque[bytes] = deque()
        cocotb.start_soon(self._compare())

    def expect(self, frames: Iterable[bytes]) -> None:
        """Expect ``frames`` after all frames expected so far."""
        self._expected.extend(frames)

    def check_complete(self) -> None:
        """Raise AssertionError if an expected frame is missing."""
        if self._expected:
            self._check(self._expected[0], b"")

    async def _compare(self) -> None:
        while True:
            frame = bytes(await self._monitor.recv())
            if self._only(frame):
                self._check(self._expected.popleft() if self._expected else b"", frame)
                self.checked += 1

    def _check(self, expected: bytes, got: bytes) -> None:
        name = f"{self.name}, frame {self.checked}"
        check_equal(name, expected, got, word_bytes=self._monitor.byte_lanes)
