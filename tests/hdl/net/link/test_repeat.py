"""Timers of a link's frames in flight: when a frame is offered again, beside the golden estimator."""

import pytest
from amaranth.sim import Simulator

from fanin.golden.round_trip import RoundTrip
from fanin.hdl.net.link.repeat import RepeatTimers
from fanin.wire.link import FLOOR_CYCLES

FRAMES = 8
CEILING = 2000
ACK_DELAY = 30
TRIP = 60  # cycles of each measured round trip
SCAN = 9  # cycles by which an offer follows its timer, in addition to one for each frame in flight


class Bench:
    """The send window around the timers: numbers of the frames in flight."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut, self.now, self.sent, self.freed = ctx, dut, 0, 0, 0

    async def tick(self, cycles=1):
        for _ in range(cycles):
            await self.ctx.tick()
            self.now += 1

    def _show(self):
        self.ctx.set(self.dut.first_in_flight, self.freed % (2 * FRAMES))
        self.ctx.set(self.dut.end_in_flight, self.sent % (2 * FRAMES))

    async def send(self):
        """Send a new frame; return the cycle."""
        self.ctx.set(self.dut.sent, {"en": 1, "number": self.sent % (2 * FRAMES)})
        await self.tick()
        self.ctx.set(self.dut.sent.en, 0)
        self.sent += 1
        self._show()
        return self.now

    async def free(self):
        """Acknowledge all frames in flight."""
        self.ctx.set(self.dut.answered, {"en": 1, "number": (self.sent - 1) % (2 * FRAMES)})
        await self.tick()
        self.ctx.set(self.dut.answered.en, 0)
        self.freed = self.sent
        self._show()

    async def offered(self, limit):
        """Wait for an offer; return its number and cycle, or None after ``limit`` cycles."""
        for _ in range(limit):
            if self.ctx.get(self.dut.offer.valid):
                return self.ctx.get(self.dut.offer.number), self.now
            await self.tick()
        return None

    async def take(self):
        """Send the offered frame again; return the cycle."""
        number = self.ctx.get(self.dut.offer.number)
        self.ctx.set(self.dut.sent, {"en": 1, "number": number})
        self.ctx.set(self.dut.take, 1)
        await self.tick()
        self.ctx.set(self.dut.sent.en, 0)
        self.ctx.set(self.dut.take, 0)
        return self.now


def run(script, *, trips=60, ceiling=CEILING):
    """Run ``script(bench, golden)`` after round trips of ``TRIP`` cycles, and a golden estimator's of them."""
    dut = RepeatTimers(replay_frames=FRAMES)
    golden = RoundTrip(ceiling, floor=ACK_DELAY + FLOOR_CYCLES)

    async def testbench(ctx):
        bench = Bench(ctx, dut)
        ctx.set(dut.ceiling, ceiling)
        ctx.set(dut.ack_delay, ACK_DELAY)
        await bench.tick(12)
        for _ in range(trips):
            await bench.send()
            await bench.tick(TRIP - 1)
            await bench.free()
            golden.sample(TRIP)
            await bench.tick(12)
        await script(bench, golden)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


def test_a_frame_is_offered_after_its_timer_and_each_time_after_twice_as_long():
    async def script(bench, golden):
        delay = golden.timeout
        assert TRIP + ACK_DELAY + FLOOR_CYCLES <= delay <= TRIP + ACK_DELAY + FLOOR_CYCLES + 4
        at = await bench.send()
        for _ in range(7):
            number, found = await bench.offered(2 * CEILING)
            assert number == (bench.sent - 1) % (2 * FRAMES)
            assert delay <= found - at <= delay + 1 + SCAN
            at = await bench.take()
            delay = golden.backed_off(delay)
        assert delay == CEILING

    run(script)


def test_a_frame_that_was_sent_twice_gives_no_round_trip():
    async def script(bench, golden):
        for _ in range(4):
            await bench.send()
            assert await bench.offered(CEILING)
            await bench.take()
            await bench.tick(5)
            await bench.free()
            await bench.tick(12)
        at = await bench.send()
        _, found = await bench.offered(CEILING)
        assert golden.timeout <= found - at <= golden.timeout + 1 + SCAN

    run(script)


def test_without_an_estimate_a_frame_waits_for_the_ceiling():
    async def script(bench, golden):
        at = await bench.send()
        _, found = await bench.offered(2 * CEILING)
        assert CEILING <= found - at <= CEILING + 1 + SCAN

    run(script, trips=0)


@pytest.mark.parametrize("ceiling", [CEILING, 1 << 21, (1 << 31) - 1])
def test_without_an_estimate_a_frame_that_was_overtaken_is_offered_at_once(ceiling):
    async def script(bench, golden):
        await bench.send()
        await bench.send()
        bench.ctx.set(bench.dut.has_arrived, 0b1)
        reported = bench.now
        number, found = await bench.offered(100)
        assert number == 0
        assert found - reported <= 2 + SCAN

    run(script, trips=0, ceiling=ceiling)


@pytest.mark.parametrize("ceiling", [TRIP // 2, 1 << 21])
def test_an_overtaken_frame_waits_for_the_mean_whatever_the_ceiling(ceiling):
    """A ceiling below the mean ends every timer first; one beyond an estimate's bits changes nothing."""

    async def script(bench, golden):
        at = await bench.send()
        await bench.send()
        bench.ctx.set(bench.dut.has_arrived, 0b1)
        _, found = await bench.offered(CEILING)
        expected = min(golden.mean, golden.timeout)
        assert expected <= found - at <= expected + 2 + SCAN

    run(script, ceiling=ceiling)


@pytest.mark.parametrize("arrived", [0b001, 0b100])
def test_a_frame_that_a_later_one_has_overtaken_is_offered_after_the_mean_round_trip(arrived):
    """Of four frames the first is missing. Only those others follow that have not arrived, by their timers."""

    async def script(bench, golden):
        at = await bench.send()
        for _ in range(3):
            await bench.send()
        first = (bench.sent - 4) % (2 * FRAMES)
        bench.ctx.set(bench.dut.has_arrived, arrived)
        number, found = await bench.offered(CEILING)
        early = golden.mean
        assert number == first
        assert early <= found - at <= early + 4 + SCAN
        await bench.take()
        later = []
        while len(later) < FRAMES and (offer := await bench.offered(TRIP)) is not None:
            later.append((offer[0] - first) % (2 * FRAMES))
            await bench.take()
        assert sorted(later) == [k for k in (1, 2, 3) if not arrived >> (k - 1) & 1]

    run(script)


@pytest.mark.parametrize("has_later", [False, True])
def test_a_lost_retransmission_is_repeated_after_the_mean_only_if_a_frame_sent_after_it_has_arrived(has_later):
    """The first of two frames is lost twice; a third one follows its first retransmission."""

    async def script(bench, golden):
        await bench.send()
        await bench.send()
        first = (bench.sent - 2) % (2 * FRAMES)
        bench.ctx.set(bench.dut.has_arrived, 0b01)
        assert await bench.offered(CEILING)
        at = await bench.take()
        await bench.send()
        bench.ctx.set(bench.dut.has_arrived, 0b11 if has_later else 0b01)
        if not has_later:
            number, _ = await bench.offered(CEILING)
            assert number == (first + 2) % (2 * FRAMES)  # the third frame's timer ends first
            await bench.take()
        number, found = await bench.offered(CEILING)
        expected = golden.mean if has_later else golden.backed_off(golden.timeout)
        assert number == first
        assert expected <= found - at <= expected + 4 + 2 * SCAN

    run(script)


def test_a_report_withdraws_an_offer():
    async def script(bench, golden):
        await bench.send()
        await bench.send()
        assert await bench.offered(CEILING)
        await bench.take()
        number, _ = await bench.offered(CEILING)
        assert number == (bench.sent - 1) % (2 * FRAMES)
        bench.ctx.set(bench.dut.has_arrived, 0b1)
        await bench.tick()
        assert not bench.ctx.get(bench.dut.offer.valid)
        await bench.tick(TRIP)
        assert await bench.offered(TRIP // 4) is None

    run(script)
