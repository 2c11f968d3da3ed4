# amaranth: UnusedElaboratable=no
"""Which bursts a channel asks for and when, and in which order channels have them."""

import itertools

import pytest

from fanin.hdl.layers.burst_arbiter import BurstArbiter
from fanin.hdl.layers.burst_requests import BurstRequests
from tests.support import simulate


def request(address, length=3, last=0):
    return {"address": address, "length": length, "last": last}


def place(payload):
    return payload.channel, payload.request.address


def test_channels_have_bursts_in_turn_every_four_cycles():
    offers = {f"requests[{n}]": [request(10 * n + k) for k in range(4)] for n in range(3)}
    log = simulate(BurstArbiter(count=3), drive=offers, collect={"o": 12}, stall=0.0)
    assert [place(payload) for _, payload in log["o"]] == [(n, 10 * n + k) for k in range(4) for n in (1, 2, 0)]
    cycles = [cycle for cycle, _ in log["o"]]
    assert [b - a for a, b in itertools.pairwise(cycles)] == [4] * 11


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_request_is_lost_whatever_stalls(count):
    offers = {f"requests[{n}]": [request(100 * n + k, k % 16, k % 2) for k in range(9)] for n in range(count)}
    log = simulate(BurstArbiter(count=count), drive=offers, collect={"o": 9 * count}, stall=0.5)
    for n in range(count):
        mine = [payload.request for _, payload in log["o"] if payload.channel == n]
        assert [(r.address, r.length, r.last) for r in mine] == [(100 * n + k, k % 16, k % 2) for k in range(9)]


def asked(beats, base, frames, *, ready, wrap=0, count, given=0):
    """Bursts of so many frames, as (cycle, address, beats, last); ``given`` beats come one a cycle."""
    dut = BurstRequests(beats=beats, limit=256, ready_beats=ready, wrap=wrap)
    started = 5

    async def run(ctx):
        ctx.set(dut.base, base)
        ctx.set(dut.frames, frames)
        await ctx.tick().repeat(started)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        await ctx.tick().repeat(20)
        for _ in range(given):
            ctx.set(dut.beat, 1)
            await ctx.tick()
        ctx.set(dut.beat, 0)

    log = simulate(dut, processes=[run], collect={"request": count}, stall=0.0, idle=300)
    return [(cycle, p.address, p.length + 1, p.last) for cycle, p in log["request"]]


def test_bursts_end_at_multiples_of_sixteen_and_with_the_frame():
    found = asked(20, 0x3B, 2, ready=256, count=5)
    assert [burst[1:] for burst in found] == [
        (0x3B, 5, 0),
        (0x40, 15, 1),
        (0x4F, 1, 0),
        (0x50, 16, 0),
        (0x60, 3, 1),
    ]
    cycles = [cycle for cycle, *_ in found]
    assert [b - a for a, b in itertools.pairwise(cycles)] == [3] * 4


def test_behind_the_last_frame_of_a_ring_comes_the_first():
    found = asked(4, 8, 5, ready=256, wrap=2, count=5)
    assert [address for _, address, *_ in found] == [8, 12, 8, 12, 8]


def test_a_burst_waits_for_its_beats():
    """The beat of cycle 26 is the first one; two cycles after the sixteenth the burst is asked for."""
    found = asked(16, 0, 1, ready=0, count=1, given=16)
    assert found == [(26 + 15 + 2, 0, 16, 1)]


def test_a_restart_while_a_burst_is_asked_for_ends_the_simulation():
    dut = BurstRequests(beats=4, limit=16, ready_beats=4)

    async def run(ctx):
        ctx.set(dut.frames, 1)
        for cycle in range(10):
            ctx.set(dut.restart, cycle != 1 and cycle != 2)
            await ctx.tick()

    with pytest.raises(AssertionError, match="BurstRequests: restart while a burst is asked for"):
        simulate(dut, processes=[run], collect={"request": 2}, stall=0.0)


def test_no_more_frames_are_asked_for_than_there_are_credits():
    assert len(asked(4, 0, 3, ready=256, count=3)) == 3  # and none in the 300 cycles behind them


def test_a_limit_below_a_burst_is_refused():
    with pytest.raises(ValueError, match="limit must be at least a burst, 16 beats, not 15"):
        BurstRequests(beats=4, limit=15)
