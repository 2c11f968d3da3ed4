"""RGMII's halves: what a PHY makes of those that are sent, and what is made of a PHY's."""

import random
from itertools import pairwise

import pytest
from amaranth.sim import Simulator

from fanin.hdl.net.ethernet.gmii import Cause
from fanin.hdl.net.ethernet.rgmii import STABLE, RgmiiReceiver, RgmiiTransmitter, Speed
from tests.hdl.net.ethernet.line import Symbol, carrier, gap, odd_carrier, read, with_fcs
from tests.support import new_seed

SPEEDS = pytest.mark.parametrize("speed", [Speed.MBPS_1000, Speed.MBPS_100])
IDLE = Symbol(0, False, False)
UP_1000, UP_100 = 0b1101, 0b1011  # full duplex, link up


def send(symbols, speed):
    """The pins in every half of a cycle, ``(data, control, clock)``, from the first symbol on."""
    dut = RgmiiTransmitter()
    halves = []

    async def bench(ctx):
        ctx.set(dut.speed, speed)
        for _ in range(40):  # whatever it was before
            await ctx.tick()
        left = iter([*symbols, *[IDLE] * 4])
        while True:
            _, _, enable = await ctx.tick().sample(dut.enable)
            halves.append((ctx.get(dut.data0), ctx.get(dut.ctl0), ctx.get(dut.clock0)))
            halves.append((ctx.get(dut.data1), ctx.get(dut.ctl1), ctx.get(dut.clock1)))
            if enable:
                symbol = next(left, None)
                if symbol is None:
                    return
                ctx.set(dut.gmii, symbol.fields)

    run(dut, bench)
    return halves


def run(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(8e-9)
    sim.add_testbench(bench)
    sim.run()


def sampled(halves):
    """What a PHY takes at a rising edge and at the falling one behind it: ``data, control, data, control``."""
    edges = [n for n, (before, after) in enumerate(pairwise(halves), 1) if before[2] != after[2]]
    edges = edges[halves[edges[0]][2] == 0 :]
    return [(*halves[rise][:2], *halves[fall][:2]) for rise, fall in zip(edges[::2], edges[1::2], strict=False)]


def receive(periods):
    """The symbols of every step and, after each period, the status: ``(up, speed, full_duplex)``."""
    dut = RgmiiReceiver()
    symbols, status = [], []

    async def bench(ctx):
        for data0, ctl0, data1, ctl1 in periods:
            for port, value in (dut.data0, data0), (dut.ctl0, ctl0), (dut.data1, data1), (dut.ctl1, ctl1):
                ctx.set(port, value)
            await ctx.tick()
            if ctx.get(dut.enable):
                p = ctx.get(dut.gmii)
                symbols.append(Symbol(p.data, bool(p.valid), bool(p.error)))
            p = ctx.get(dut.status)
            status.append((p.up, p.speed, p.full_duplex))

    run(dut, bench)
    return symbols, status


def periods_of(symbols, status, *, extra_nibbles=0):
    """As a PHY sends them: with its status where there is no carrier, and some nibbles of preamble more."""
    fast = status == UP_1000
    periods, before = [], False
    for symbol in symbols:
        if not symbol.valid:
            periods += [(status, 0, status, 0)] * (1 if fast else 2)
        else:
            low, high, control = symbol.data & 15, symbol.data >> 4, int(not symbol.error)
            if not before:
                periods += [(5, 1, 5, 1)] * extra_nibbles
            periods += [(low, 1, high, control)] if fast else [(low, 1, low, control), (high, 1, high, control)]
        before = symbol.valid
    return periods


def some_carriers(rng, count=15):
    symbols = [IDLE] * 30
    for _ in range(count):
        symbols += odd_carrier(rng, max_frame=100) + gap(rng.choice([1, 2, 12]), rng)
    return symbols


@SPEEDS
def test_a_phy_takes_what_is_sent(speed):
    rng = random.Random(new_seed())
    sent = [symbol if symbol.valid else IDLE for symbol in some_carriers(rng)]
    taken = sampled(send(sent, speed))
    taken = iter(taken[next(n for n, (_, valid, *_) in enumerate(taken) if valid) :])
    found = []
    for low, valid, high, control in taken:
        if speed == Speed.MBPS_100:
            assert high == low
            high, *again = next(taken, (0, valid, 0, control))
            assert again == [valid, high, control]
        found.append(Symbol(low | high << 4 if valid else 0, bool(valid), valid != control))
    expected = sent[next(n for n, symbol in enumerate(sent) if symbol.valid) :]
    assert found[: len(expected)] == expected


@SPEEDS
def test_the_transmit_clock_has_even_halves_and_its_data_stand_still_around_its_edges(speed):
    halves = send(some_carriers(random.Random(new_seed()), 5), speed)
    edges = [n for n, (before, after) in enumerate(pairwise(halves), 1) if before[2] != after[2]]
    length = 1 if speed == Speed.MBPS_1000 else 5
    assert {after - before for before, after in pairwise(edges)} == {length}
    for edge, after in pairwise(edges):
        assert len(set(halves[edge:after])) == 1


def aligned(periods):
    """The symbols of what comes in nibbles: a byte begins behind the first D after a 5."""
    symbols, line, damaged = [], [], False
    for nibble, valid, _, control in periods:
        if valid:
            line.append(nibble)
            damaged |= not control
        elif line:
            starts = [n for n, pair in enumerate(pairwise(line)) if pair == (5, 13)]
            rest = line[starts[0] :] if starts else [0, 0]
            content = bytes(low | high << 4 for low, high in zip(rest[::2], rest[1::2], strict=False))
            symbols += [*(Symbol(byte, True, damaged) for byte in content), IDLE]
            line, damaged = [], False
    return symbols


def test_the_mac_gets_what_the_phy_sends_at_1_gbps():
    sent = some_carriers(random.Random(new_seed()))
    symbols = receive(periods_of(sent, UP_1000))[0]
    assert read(symbols, max_frame=100) == read(sent, max_frame=100)


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_the_mac_gets_what_the_phy_sends_at_100_mbps_with_any_preamble(extra):
    periods = periods_of(some_carriers(random.Random(new_seed())), UP_100, extra_nibbles=extra)
    assert read(receive(periods)[0], max_frame=100) == read(aligned(periods), max_frame=100)


@pytest.mark.parametrize("space", [1, 2, 3])
def test_half_a_byte_at_a_carriers_end_or_of_a_gap_does_not_matter(space):
    """Of a gap of nibbles, or behind a last nibble too many, every frame is still found."""
    rng = random.Random(new_seed())
    frames = [rng.randbytes(60) for _ in range(10)]
    periods = periods_of([IDLE] * 30, UP_100)
    for frame in frames:
        periods += periods_of(carrier(with_fcs(frame)), UP_100)
        periods += [(rng.randrange(16), 1, 0, 1)] * rng.randrange(2)
        periods += [(UP_100, 0, UP_100, 0)] * space
    periods += periods_of([IDLE] * 3, UP_100)
    assert read(receive(periods)[0]) == [(frame, Cause.GOOD) for frame in frames]


def test_a_status_is_believed_when_it_has_stayed_between_frames():
    idle, other = (UP_1000, 0, UP_1000, 0), (UP_100, 0, UP_100, 0)
    # Carrier and false carrier have no status, and do not interrupt it.
    noise = [(0b1011, 1, 5, 1), (0b0000, 0, 0b1110, 1)]
    _, status = receive([*[idle, *noise] * (STABLE + 1), *[other] * STABLE, idle, *[other] * (STABLE + 1)])
    up_1000, up_100 = (1, Speed.MBPS_1000, 1), (1, Speed.MBPS_100, 1)
    first = next(n for n, now in enumerate(status) if now == up_1000)
    assert first == 3 * STABLE
    assert set(status[first:-1]) == {up_1000}
    assert status[-1] == up_100


def test_a_phy_that_says_nothing_of_its_link_is_taken_for_a_fast_one():
    sent = some_carriers(random.Random(new_seed()))
    symbols, status = receive(
        [(0, c0, 0, c1) if not c0 else (d0, c0, d1, c1) for d0, c0, d1, c1 in periods_of(sent, UP_1000)]
    )
    assert [symbol for symbol in symbols if symbol.valid] == [symbol for symbol in sent if symbol.valid]
    assert set(status) == {(0, Speed.MBPS_1000, 1)}


def test_a_link_that_goes_down_leaves_its_speed():
    _, status = receive([(UP_100, 0, UP_100, 0)] * 40 + [(0, 0, 0, 0)] * 40)
    assert status[39] == (1, Speed.MBPS_100, 1)
    assert status[-1] == (0, Speed.MBPS_100, 1)
