# amaranth: UnusedElaboratable=no
"""RoundTripTimer beside the golden estimator, and RoundTrips beside a table of what was sent and answered."""

import random

import pytest

from fanin.golden.round_trip import RTT_BITS, RoundTrip
from fanin.hdl.aggregation.round_trip import RoundTrips, RoundTripTimer
from tests.support import new_seed, simulate, slow

LATENCY = 9
LONGEST = (1 << RTT_BITS) - 1


def trips(rng, count):
    """Round trips of several kinds: steady, noisy, jumping, and extreme ones."""
    base = rng.choice([10, 159, 3000, 1 << 20])
    noise = rng.choice([0, 1, base // 10, base * 3])
    for _ in range(count):
        if rng.random() < 0.05:
            yield rng.choice([0, 1, LONGEST, LONGEST + 1, 2**31, 2**32 - 1])
        elif rng.random() < 0.02:
            base = rng.choice([5, 200, 70_000])
        yield base + rng.randrange(noise + 1)


@pytest.mark.parametrize("count", [60, *slow(*[3000] * 4)])
def test_timeout_and_slack_are_the_golden_estimators(count):
    seed = new_seed()
    rng = random.Random(seed)
    dut = RoundTripTimer()

    async def process(ctx):
        most = rng.choice([2**31 - 1, 25_000, 300])
        golden = RoundTrip(least=rng.choice([0, 64, 5000]), most=most)
        for name, value in {"adaptive": 1, "least": golden.least, "most": most}.items():
            ctx.set(getattr(dut, name), value)
        for cycles in [None, *trips(rng, count)]:
            if cycles is not None:
                golden.sample(cycles)
                ctx.set(dut.sample, {"en": 1, "cycles": cycles})
                await ctx.tick()
                ctx.set(dut.sample, {"en": 0, "cycles": rng.randrange(2**32)})
            for _ in range(LATENCY):
                await ctx.tick()
            expected = golden.mean, golden.deviation, golden.timeout, golden.slack
            delay = ctx.get(dut.delay)
            assert (ctx.get(dut.mean), ctx.get(dut.deviation), delay.timeout, delay.slack) == expected
        ctx.set(dut.adaptive, 0)
        await ctx.tick().repeat(2)
        assert (ctx.get(dut.delay).timeout, ctx.get(dut.delay).slack) == (most, 0)

    simulate(dut, processes=[process], idle=100)


def test_the_golden_estimator_is_rfc_6298s_in_real_numbers():
    """Within the rounding of a cycle or two; with the gains of 1/8 and 1/16."""
    rng = random.Random(new_seed())
    golden = RoundTrip(least=0, most=2**31 - 1)
    mean = deviation = None
    for _ in range(2000):
        cycles = 20_000 + rng.randrange(9000)
        golden.sample(cycles)
        if mean is None:
            mean, deviation = cycles, cycles / 2
        else:
            deviation += (abs(cycles - mean) - deviation) / 16
            mean += (cycles - mean) / 8
        assert abs(golden.mean - mean) < 3
        assert abs(golden.deviation - deviation) < 5
        assert abs(golden.timeout - (mean + max(4 * deviation, mean / 8))) < 20


@pytest.mark.parametrize("acknowledges", [True, False])
def test_samples_are_of_packets_that_were_sent_once_and_of_their_own_kind(acknowledges):
    """Answers are far enough apart for each to be a sample."""
    rng = random.Random(new_seed())
    slots = 8
    dut = RoundTrips(slots=slots, acknowledges=acknowledges)

    async def process(ctx):
        kinds = {False: RoundTrip(least=3, most=4000), True: RoundTrip(least=3, most=4000)}
        for name, value in {"adaptive": 1, "least": 3, "most": 4000}.items():
            ctx.set(getattr(dut, name), value)
        sent = {}
        for now in range(3000):
            index, confirm = rng.randrange(slots), acknowledges and rng.random() < 0.5
            sends, again = rng.random() < 0.2, rng.random() < 0.3
            ctx.set(dut.sent, {"en": sends, "index": index, "again": again})
            if sends:
                sent[index] = now, again
            answered = rng.choice(list(sent)) if sent and not now % 15 else None
            if answered is not None and now - sent[answered][0] < 2:
                answered = None
            ctx.set(dut.answer, {"en": answered is not None, "index": answered or 0, "confirm": confirm})
            if answered is not None and not sent[answered][1]:
                kinds[confirm].sample(now - sent[answered][0])
            await ctx.tick()
            if now % 15 == 13:
                for confirm, timer in {False: dut.agg, True: dut.ack}.items():
                    got, golden = ctx.get(timer), kinds[confirm]
                    if confirm and not acknowledges:
                        assert (got.mean, got.delay.timeout) == (0, 0)
                    else:
                        assert (got.mean, got.deviation) == (golden.mean, golden.deviation)
                        assert (got.delay.timeout, got.delay.slack) == (golden.timeout, golden.slack)
        assert kinds[False].known

    simulate(dut, processes=[process], idle=100)
