# amaranth: UnusedElaboratable=no
"""RoundTripTimer beside the golden estimator, and that beside RFC 6298 in real numbers."""

import random

import pytest

from fanin.golden.round_trip import MISSES, RTT_BITS, RoundTrip
from fanin.hdl.net.round_trip import RoundTripTimer
from tests.support import new_seed, simulate, slow

SPACING = 9  # cycles from an answer until ``timeout`` has followed
LONGEST = (1 << RTT_BITS) - 1
SLOTS = 8


@pytest.mark.parametrize("ceiling", [2**31 - 1, 1 << RTT_BITS, 300, 25])
@pytest.mark.parametrize("cycles", [3000, *slow(60_000)])
def test_mean_deviation_and_timeout_are_the_golden_estimators(cycles, ceiling):
    """Packets of all slots are sent, sent again and answered at random, after short and long round trips."""
    rng = random.Random(new_seed())
    dut = RoundTripTimer(slots=SLOTS)
    seen = set()

    async def process(ctx):
        golden = RoundTrip(ceiling, floor=rng.choice([0, 16, 400]))
        ctx.set(dut.adaptive, 1)
        ctx.set(dut.ceiling, ceiling)
        ctx.set(dut.floor, golden.floor)
        sent, last, forgotten, pending = {}, -SPACING, -SPACING, None
        for now in range(cycles):
            lossy = now // 1000 % 3 == 2  # nothing but retransmissions, so that the estimate is forgotten
            index, again = rng.randrange(SLOTS), rng.random() < (1 if lossy else 0.1)
            sends = rng.random() < 0.15
            if sends:
                sent[index] = now, again
            answered = rng.choice(list(sent)) if sent and now - last >= SPACING and rng.random() < 0.3 else None
            if answered is not None and now - sent[answered][0] < 2:
                answered = None
            ctx.set(dut.sent, {"en": sends, "index": index, "again": again})
            ctx.set(dut.answer, {"en": answered is not None, "index": answered or 0})
            await ctx.tick()
            if pending and pending[0] == now:
                golden.sample(pending[1])
            elif sends and again:
                known = golden.known
                golden.retransmission()
                forgotten = now if known and not golden.known else forgotten
            if now - last == SPACING - 1:
                timeout = ctx.get(dut.timeout)
                value = ceiling if timeout.longest else timeout.cycles
                assert (ctx.get(dut.mean), ctx.get(dut.deviation)) == (golden.mean, golden.deviation)
                if now - forgotten > 3:
                    assert value == golden.timeout
                seen.add((golden.known, timeout.longest))
            if answered is not None:
                last = now
                when, was_again = sent[answered]
                if not was_again:
                    pending = now + 2, now - when

    simulate(dut, processes=[process], idle=cycles + 10)
    assert {known for known, _ in seen} == {False, True}


def test_the_golden_estimator_is_rfc_6298s_in_real_numbers():
    """Within the rounding of some cycles; with the gains of 1/8 and 1/16."""
    rng = random.Random(new_seed())
    golden = RoundTrip(2**31 - 1)
    assert golden.timeout == 2**31 - 1  # an eighth does not fit the layout of a delay
    assert RoundTrip(8000).timeout == 1000
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
        assert abs(golden.timeout - (mean + 4 * deviation)) < 20
    for _ in range(MISSES - 1):
        golden.retransmission()
    assert golden.mean
    golden.retransmission()
    assert (golden.mean, golden.deviation, golden.timeout) == (0, 0, 2**31 - 1)
    golden.ceiling = 8000
    assert golden.timeout == 8000
    golden.sample(100)
    assert golden.timeout == 100 + 4 * 50


@pytest.mark.parametrize("cycles", [0, 1, LONGEST, LONGEST + 1, 2**40])
def test_round_trips_of_any_length_are_samples(cycles):
    golden = RoundTrip(2**31 - 1)
    for _ in range(100):
        golden.sample(cycles)
    assert golden.mean == min(cycles, LONGEST)
    assert golden.timeout == (2**31 - 1 if cycles >= LONGEST else golden.mean + 16)


def test_a_fixed_timeout_follows_no_sample():
    golden = RoundTrip(1234, adaptive=False)
    golden.sample(100)
    assert golden.timeout == golden.backed_off(golden.timeout) == 1234
