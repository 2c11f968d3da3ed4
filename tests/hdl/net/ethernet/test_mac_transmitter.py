"""Frames to carriers: preamble, padding, FCS and gap, and what comes of a frame that pauses."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.net.ethernet.mac_transmitter import MacTransmitter
from tests.hdl.net.ethernet.line import Symbol, enables, with_fcs
from tests.support import new_seed, slow


def transmit(items, steps=None, *, idle=90):
    """The symbols of every step, and the cycles of underruns; an item is a byte and ``last``, None a pause."""
    dut = MacTransmitter()
    symbols, underruns = [], 0

    async def feed(ctx):
        for item in items:
            ctx.set(dut.i.valid, item is not None)
            if item is None:
                await ctx.tick()
                continue
            ctx.set(dut.i.p, {"data": item[0], "keep": 1, "last": item[1]})
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.i.ready)
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(idle)

    async def take(ctx):
        nonlocal underruns
        enable = False
        while True:
            if enable:  # in the cycle before
                p = ctx.get(dut.gmii)
                symbols.append(Symbol(p.data, bool(p.valid), bool(p.error)))
            underruns += ctx.get(dut.underrun)
            enable = next(steps) if steps else True
            ctx.set(dut.enable, enable)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(8e-9)
    sim.add_testbench(feed)
    sim.add_testbench(take, background=True)
    sim.run()
    return symbols, underruns


def items_of(frame):
    return [(byte, n == len(frame) - 1) for n, byte in enumerate(frame)]


def carriers_of(symbols):
    """The bytes of each carrier, whether it ends with an error, and the gap before it."""
    found, line, space, error = [], b"", 0, False
    for symbol in symbols:
        if symbol.valid:
            assert not error, "a carrier goes on behind an error"
            line += bytes([symbol.data])
            error = symbol.error
        else:
            if line:
                found.append((line, error, space))
                line, space, error = b"", 0, False
            assert not symbol.error
            space += 1
    assert not line
    return found


def on_the_line(frame):
    return b"\x55" * 7 + b"\xd5" + with_fcs(frame.ljust(60, b"\0"))


@pytest.mark.parametrize("every_cycle", [True, False])
@pytest.mark.parametrize("drawn", [0, *slow(60)])
def test_frames_follow_one_another_whole_with_twelve_bytes_between_them(every_cycle, drawn):
    rng = random.Random(new_seed())
    lengths = [*range(1, 64, 5), *range(57, 64), 200, 1, *rng.sample(range(1, 2000), drawn)]
    frames = [rng.randbytes(length) for length in lengths]
    items = [item for frame in frames for item in items_of(frame)]
    symbols, underruns = transmit(items, None if every_cycle else enables(rng), idle=400)
    found = carriers_of(symbols)
    assert [line for line, _, _ in found] == [on_the_line(frame) for frame in frames]
    assert not any(error for _, error, _ in found)
    assert {space for _, _, space in found[1:]} == {12}
    assert underruns == 0


@pytest.mark.parametrize("every_cycle", [True, False])
def test_a_frame_that_pauses_ends_with_an_error_and_its_rest_is_never_sent(every_cycle):
    rng = random.Random(new_seed())
    items, expected, paused = [], [], 0
    for _ in range(25):
        frame = rng.randbytes(rng.randrange(2, 100))
        own = items_of(frame)
        pause = rng.random() < 0.4
        if pause:
            at = rng.randrange(1, len(frame))
            own[at:at] = [None] * 60  # some step falls into it, whatever the steps
            if rng.random() < 0.5:
                own[-1:-1] = [None] * rng.randrange(1, 90)
            paused += 1
        items += own
        line = on_the_line(frame)
        expected.append((line[: 8 + at], True) if pause else (line, False))
    symbols, underruns = transmit(items, None if every_cycle else enables(rng), idle=400)
    found = carriers_of(symbols)
    assert [(line[:-1] if error else line, error) for line, error, _ in found] == expected
    assert all(space >= 12 for _, _, space in found[1:])
    assert underruns == paused


def test_the_preamble_begins_three_cycles_after_the_first_byte():
    symbols, _ = transmit(items_of(bytes(60)))
    # The first symbol is seen a cycle late: it follows the first step.
    assert next(n for n, symbol in enumerate(symbols) if symbol.valid) + 1 == 3
