# amaranth: UnusedElaboratable=no
"""One transport, many jobs: whatever became of the last job, the next one's FAs are its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.transport import AggTransport
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import Protocol
from tests.hdl.aggregation.bench import BASE, SWITCH, Wire, config, own
from tests.support import new_seed, simulate

SLOTS = 8
LATE = 600  # cycles that a copy of a packet may come late
QUIET = 3  # cycles after its stop from which on a transport hands on nothing


class _Bench(wiring.Component):
    """The transport, and a stream ``done`` with which the test ends."""

    def __init__(self, dut: AggTransport):
        self.dut = dut
        super().__init__({"finish": In(1), "done": Out(stream.Signature(1))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = self.dut
        m.d.comb += self.done.valid.eq(self.finish)
        return m


@dataclass
class Life:
    """``jobs`` jobs, most of which end badly; FAs are compared in every cycle of all of them."""

    dut: AggTransport
    seed: int
    jobs: int
    queue: list[tuple[int, int, bool, bytes]] = field(default_factory=list)
    steps: int = 0
    finished: int = 0
    failures: int = 0

    def run(self) -> Life:
        """Simulate; AssertionError where an FA, or a lack of one, is wrong."""
        self.rng = rng = random.Random(self.seed)
        self.fate: Callable[[], list[int]] = lambda: [0]
        self.switch = ReferenceSwitch(endpoint=SWITCH, ports=1, values=8, protocol=self.dut.protocol)
        self.serial, self.number, self.cycles_stopped = 0, 0, 0
        self.offered, self.waits, self.number_of_fas = False, False, 0
        self.pas: list[tuple[int, ...]] = []
        self.taken: list[tuple[int, ...]] = []
        self.wire = Wire(self.dut, self._exchange, rng, stall=0.2)
        bench = _Bench(self.dut)

        async def host(ctx: Any) -> None:
            self.ctx = ctx
            for _ in range(self.jobs):
                await self._job()
            ctx.set(bench.finish, 1)
            await ctx.tick().until(bench.done.ready)
            ctx.set(bench.finish, 0)

        simulate(
            bench, collect={"done": 1}, processes=[self.wire.process, host], seed=self.seed, limit=10_000_000
        )
        assert not any(self.wire.counts.get(name) for name in ("short", "long", "malformed", "foreign"))
        return self

    def _exchange(self, frames: list[bytes], now: int) -> list[bytes]:
        for frame in frames:
            self._carry(True, frame, now)
        arrived = []
        while self.queue and self.queue[0][0] <= now:
            _, _, up, frame = heapq.heappop(self.queue)
            if up:
                for _, answer, _ in self.switch.inject(0, frame, now):
                    self._carry(False, answer, now)
            else:
                arrived.append(frame)
        return arrived

    def _carry(self, up: bool, frame: bytes, now: int) -> None:
        for delay in self.fate():
            self.serial += 1
            heapq.heappush(self.queue, (now + 3 + delay, self.serial, up, frame))

    async def _cycle(self, *, reset: int = 0) -> None:
        """Offer a PA, take an FA, and compare it with that of its operation."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        ctx.set(dut.reset, reset)
        ctx.set(dut.fa.ready, reset or rng.random() < self.appetite)
        if not self.offered and self.pas and rng.random() < 0.7:
            self.offered = True
            ctx.set(dut.pa.payload, self.pas[0])
            ctx.set(dut.pa.valid, 1)
        ports = (dut.pa.ready, dut.fa.valid, dut.fa.ready, dut.fa.payload, dut.status, dut.job.enable)
        _, _, pa_ready, fa_valid, fa_ready, fa, self.status, enabled = await ctx.tick().sample(*ports)
        stopped = self.status.failed or not enabled
        self.cycles_stopped = self.cycles_stopped + 1 if stopped else 0
        if self.cycles_stopped > QUIET and not reset:
            assert not fa_valid or self.waits, "an FA is handed on while the transport is stopped"
            assert not (self.offered and pa_ready), "a PA is accepted while the transport is stopped"
        self.waits = fa_valid and not fa_ready
        if self.offered and pa_ready:
            ctx.set(dut.pa.valid, 0)
            self.offered = False
            self.taken += [] if reset else [self.pas[0]]
            self.pas = self.pas[1:]
        if fa_valid and fa_ready and not reset:
            assert tuple(fa) == self.taken[self.number_of_fas], "an FA of another operation"
            self.number_of_fas += 1

    async def _job(self) -> None:
        """Reset, configure and send; then the job finishes, or it is left alone until the next one's reset."""
        rng, ctx = self.rng, self.ctx
        self.appetite = rng.choice([0.05, 0.5, 1.0])
        for _ in range(rng.randint(1, 3)):
            await self._cycle(reset=1)
            self.taken, self.number_of_fas = [], 0
        ctx.set(self.dut.job.enable, 0)
        assert not self.offered, "a PA of the old job waits after the reset"
        self.pas = []
        log2_slots = rng.randint(self.dut.protocol.slots_per_operation - 1, 3)
        clean = rng.random() < 0.3
        self._configure(log2_slots, clean=clean)
        self._choose_fate(clean=clean)
        for _ in range(rng.randrange(4)):
            await self._cycle()
        ctx.set(self.dut.job.enable, 1)
        operations = rng.randint(1, 20)
        self.pas = [tuple(rng.getrandbits(31) for _ in range(8)) for _ in range(operations)]
        if clean:
            await self._finish(operations)
            return
        for _ in range(rng.randint(1, 5)):
            self.steps += 1
            self._choose_fate(clean=False)
            ctx.set(self.dut.job.enable, rng.random() > 0.1)
            for _ in range(rng.choice([1, 3, 10, 40, 150, 400])):
                await self._cycle()
        self.failures += self.status.failed

    def _configure(self, log2_slots: int, *, clean: bool) -> None:
        """A job id that no packet under way has; a job that need not end well soon ends with TIMEOUT."""
        rng = self.rng
        patience = {"timeout": 120, "retries": 1000}
        if not clean:
            patience = {"timeout": rng.choice([25, 60, 120]), "retries": rng.choice([0, 1, 2])}
        self.number = (self.number + 1) % 256
        for old in list(self.switch._jobs):
            self.switch.remove_job(old)
        self.switch.add_job(Job(self.number, BASE, 1 << log2_slots, (Member(0, 1, own()),)))
        job = config(log2_slots=log2_slots, **patience, job=self.number) | {"enable": 0}
        self.ctx.set(self.dut.job, job)

    def _choose_fate(self, *, clean: bool) -> None:
        rng = self.rng
        fates: list[Callable[[], list[int]]] = [
            lambda: [0],
            lambda: [0, rng.randrange(LATE)],
            list,
            lambda: [] if rng.random() < 0.3 else [rng.randrange(60)],
            lambda: [rng.randrange(LATE)],
        ]
        self.fate = rng.choice(fates[:2] if clean else fates)

    async def _finish(self, operations: int) -> None:
        self.steps += 1
        self.appetite = max(self.appetite, 0.5)
        for _ in range(4000):
            if self.number_of_fas == operations and self.status.idle:
                self.finished += 1
                return
            await self._cycle()
        raise AssertionError(f"{self.number_of_fas} of {operations} FAs came: {self.status}")


@pytest.mark.parametrize("protocol", list(Protocol))
def test_the_fas_of_a_job_are_its_own_whatever_became_of_the_last(protocol):
    life = Life(AggTransport(mac_width=128, slots=SLOTS, protocol=protocol), new_seed(), jobs=4).run()
    assert life.steps


@pytest.mark.slow
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("width", [512, 64])
def test_a_long_life(protocol, width):
    life = Life(AggTransport(mac_width=width, slots=SLOTS, protocol=protocol), new_seed(), jobs=150).run()
    assert life.finished > 10
    assert life.failures > 3
