# amaranth: UnusedElaboratable=no
"""What stands between a node and vendors' cores in other clock domains, or beyond a border of dies."""

import random

import pytest
from amaranth import ClockDomain, Module, Value
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from fanin.hdl.boards.vendor.axi_slice import AxiSlice
from fanin.hdl.boards.vendor.mac_crossing import DEPTH, MacCrossing
from fanin.hdl.bus.axi4 import AXI4LiteSignature, memory_signature
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

WIDTH = 64
PERIODS = {"sync": 4.0e-9, "tx": 3.1e-9, "rx": 3.1e-9}


def cross(processes, *, cycles, periods=PERIODS, max_frame=200):
    """Run a crossing whose three clocks have nothing to do with one another."""
    dut = MacCrossing(width=WIDTH, max_frame=max_frame)
    top = Module()
    for domain in periods:
        top.domains += ClockDomain(domain)
    top.submodules.dut = dut
    sim = Simulator(top)
    for number, (domain, period) in enumerate(periods.items()):
        sim.add_clock(period, phase=period * number / 3, domain=domain)

    async def end(ctx):
        await ctx.tick().repeat(cycles)

    sim.add_testbench(end)
    for process in processes:
        sim.add_testbench(process(dut), background=True)
    sim.run()


def offer(stream, items, domain, rng, *, gaps):
    async def process(ctx):
        for item in items:
            while rng.random() < gaps:
                await ctx.tick(domain)
            ctx.set(stream.payload, item)
            ctx.set(stream.valid, 1)
            taken = False
            while not taken:
                _, _, taken = await ctx.tick(domain).sample(stream.ready)
            ctx.set(stream.valid, 0)

    return process


def take(stream, taken, domain, rng, *, stall, whole=False):
    """Collect beats; between those of a frame ``valid`` holds if frames are to be ``whole``."""

    async def process(ctx):
        begun = False
        while True:
            ctx.set(stream.ready, rng.random() >= stall)
            fields = stream.valid, stream.ready, stream.p
            _, _, valid, ready, payload = await ctx.tick(domain).sample(*fields)
            assert valid or not (begun and whole), "a frame pauses inside"
            if valid and ready:
                taken.append(payload)
                begun = not payload.last

    return process


def some_frames(rng, count):
    return [rng.randbytes(rng.choice([60, 64, 65, rng.randrange(60, 200)])) for _ in range(count)]


@pytest.mark.parametrize(("stall", "cycles"), [(0, 1600), (0.6, 2200)])
def test_sent_frames_leave_whole_and_without_a_pause(stall, cycles):
    rng, taken = random.Random(new_seed()), []
    sent = some_frames(rng, 40)
    offered = list(beats(sent, WIDTH, errors=None))
    cross(
        [
            lambda dut: offer(dut.core_tx, offered, "sync", rng, gaps=0.4),
            lambda dut: take(dut.mac_tx, taken, "tx", rng, stall=stall, whole=True),
        ],
        cycles=cycles,
    )
    assert list(frames(taken)) == sent


def test_frames_that_came_are_all_there_with_their_errors():
    rng, taken = random.Random(new_seed()), []
    came = some_frames(rng, 40)
    bad = {n for n in range(len(came)) if rng.random() < 0.3}
    cross(
        [
            lambda dut: offer(dut.mac_rx, list(beats(came, WIDTH, errors=bad)), "rx", rng, gaps=0.4),
            lambda dut: take(dut.core_rx, taken, "sync", rng, stall=0),
        ],
        cycles=1500,
    )
    assert list(frames(taken)) == came
    assert [n for n, end in enumerate(beat for beat in taken if beat.last) if end.error] == sorted(bad)


def test_a_core_that_is_too_slow_loses_whole_frames():
    """Beats come faster than the core takes them, for longer than the crossing holds."""
    rng, taken, lost = random.Random(new_seed()), [], []
    came = some_frames(rng, 60)
    assert sum(-(-len(frame) * 8 // WIDTH) for frame in came) > 4 * DEPTH

    def count(dut):
        async def process(ctx):
            while True:
                _, _, pulse = await ctx.tick("rx").sample(dut.lost)
                lost.append(pulse)

        return process

    cross(
        [
            lambda dut: offer(dut.mac_rx, list(beats(came, WIDTH, errors=())), "rx", rng, gaps=0),
            lambda dut: take(dut.core_rx, taken, "sync", rng, stall=0.7),
            count,
        ],
        cycles=3000,
    )
    ends = [beat for beat in taken if beat.last]
    whole = [frame for frame, end in zip(frames(taken), ends, strict=True) if not end.error]
    source = iter(came)
    assert all(frame in source for frame in whole)
    assert whole[0] == came[0], "an empty crossing holds a frame"
    assert len(whole) < len(came)
    assert len(whole) + sum(lost) == len(came)


PORTS = AXI4LiteSignature(address_width=12), memory_signature(data_width=64, address_width=32)


@pytest.mark.parametrize("port", PORTS)
def test_a_slice_passes_each_channel_on_a_cycle_later(port):
    dut, rng, seen = AxiSlice(port=port), random.Random(new_seed()), []
    flows = {name: member.flow for name, member in port.members.items()}
    source = lambda name: dut.i if flows[name] == Out else dut.o  # noqa: E731
    target = lambda name: dut.o if flows[name] == Out else dut.i  # noqa: E731

    async def drive(ctx):
        for _ in range(60):
            values = {}
            for name in flows:
                signal = Value.cast(getattr(source(name), name))
                control = name.endswith(("valid", "ready"))
                values[name] = 1 if control else rng.getrandbits(len(signal))
                ctx.set(signal, values[name])
            await ctx.tick()
            seen.append({name: ctx.get(Value.cast(getattr(target(name), name))) for name in flows} == values)

    simulate(dut, processes=[drive], idle=70)
    assert seen == [True] * 60
