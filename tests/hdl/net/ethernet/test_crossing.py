# amaranth: UnusedElaboratable=no
"""Frames between two clocks: in order, at full rate, and none without its beginning."""

import random
from itertools import pairwise

import pytest
from amaranth import ClockDomain, Module
from amaranth.sim import Simulator

from fanin.hdl.net.ethernet.crossing import FrameCrossing
from fanin.hdl.stream.packet import packet_layout
from fanin.sim.rtl.monitor import Monitored
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed

WIDTH = 16


def cross(sent, *, write, read, stall, seed, idle=100, resets=None):
    """The beats that come out, each with its time, and the time of each that went in; picoseconds.

    ``resets``: a domain that is reset now and then.
    """
    rng = random.Random(seed)
    dut = FrameCrossing(shape=packet_layout(WIDTH), capacity=16)
    offered, out, into = list(beats(sent, WIDTH, errors=None)), [], []
    phases = {"write": rng.randrange(write), "read": rng.randrange(read)}
    top = Module()
    domains = {name: ClockDomain(name) for name in ("sync", "write", "read")}
    top.domains += list(domains.values())
    top.submodules.dut = Monitored(dut)

    async def put(ctx):
        cycle = 0
        for beat in offered:
            while rng.random() < stall:
                await ctx.tick("write")
                cycle += 1
            ctx.set(dut.i.p, beat)
            ctx.set(dut.i.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick("write").sample(dut.i.ready)
                cycle += 1
            into.append(phases["write"] + (cycle - 2) * write)
            ctx.set(dut.i.valid, 0)
        for _ in range(idle):
            await ctx.tick("read")

    async def take(ctx):
        cycle = 0
        while True:
            ctx.set(dut.o.ready, rng.random() >= stall)
            _, _, valid, ready, p = await ctx.tick("read").sample(dut.o.valid, dut.o.ready, dut.o.p)
            if valid and ready:
                out.append((phases["read"] + (cycle - 1) * read, p))
            cycle += 1

    async def reset(ctx):
        while True:
            for level, cycles in (0, rng.randrange(50, 200)), (1, 8):
                ctx.set(domains[resets].rst, level)
                for _ in range(cycles):
                    await ctx.tick(resets)

    sim = Simulator(top)
    if resets:
        sim.add_testbench(reset, background=True)
    for domain, period in ("sync", 4000), ("write", write), ("read", read):
        sim.add_clock(period * 1e-12, phase=phases.get(domain, 0) * 1e-12, domain=domain)
    sim.add_testbench(put)
    sim.add_testbench(take, background=True)
    sim.run()
    return out, into


@pytest.mark.parametrize(("write", "read"), [(8000, 8002), (8000, 10_000), (20_000, 8000), (8000, 29_000)])
def test_frames_cross_unchanged(write, read):
    rng = random.Random(seed := new_seed())
    sent = [rng.randbytes(rng.randrange(1, 30)) for _ in range(60)]
    out, _ = cross(sent, write=write, read=read, stall=0.3, seed=seed)
    assert frames(p for _, p in out) == sent


@pytest.mark.parametrize(("write", "read"), [(8000, 10_000), (20_000, 8000)])
def test_a_reader_that_is_reset_goes_on_with_a_frame_s_beginning(write, read):
    """What is read while it is in reset is lost; what comes whole is as it was sent, once and in order."""
    rng = random.Random(seed := new_seed())
    sent = [number.to_bytes(2, "big") + rng.randbytes(rng.randrange(1, 30)) for number in range(200)]
    out, _ = cross(sent, write=write, read=read, stall=0.3, seed=seed, resets="read")
    whole = [n for n, (_, p) in enumerate(out) if p.last]
    found = [frame for frame in frames(p for _, p in out[: whole[-1] + 1]) if frame in sent]
    numbers = [int.from_bytes(frame[:2], "big") for frame in found]
    assert numbers == sorted(set(numbers))
    assert 20 < len(found) < len(sent)


@pytest.mark.parametrize(("write", "read"), [(8000, 8000), (8000, 10_000), (8000, 29_000)])
def test_a_word_crosses_in_a_cycle_of_its_writer_and_up_to_two_of_its_reader(write, read):
    for phase in range(10):
        out, into = cross([b"ab"], write=write, read=read, stall=0, seed=phase)
        assert write + read < out[0][0] - into[0] <= write + 2 * read


def test_there_is_a_transfer_in_every_cycle():
    out, into = cross([bytes(200)], write=8000, read=8000, stall=0, seed=new_seed())
    assert [after - before for (before, _), (after, _) in pairwise(out)] == [8000] * 99
    assert into[-1] - into[0] == 99 * 8000


@pytest.mark.parametrize("capacity", [2, 12])
def test_the_capacity_is_checked(capacity):
    with pytest.raises(ValueError, match=f"capacity must be a power of two from 4, not {capacity}"):
        FrameCrossing(shape=packet_layout(WIDTH), capacity=capacity)
