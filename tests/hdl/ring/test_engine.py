# amaranth: UnusedElaboratable=no
"""Rings of engines without links, a queue from each to the next: sums, codecs, rate and latency."""

import functools
from dataclasses import replace

import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out

from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.hdl.ring.engine import RingEngine, RingEvents
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.ring.facts import RingConfig
from fanin.ring.golden.random_bits import RandomBits
from tests.hdl.ring.bench import ADDRESS_WIDTH, HALTED, Memory, vectors
from tests.support import new_seed, simulate, slow

SMALL = {"lanes": 8, "frame_words": 2, "slice_frames": 2, "buffer_frames": 4, "replay_frames": 2}
WIDE = {"lanes": 8, "frame_words": 8, "slice_frames": 6, "buffer_frames": 8, "replay_frames": 2}


class EngineRing(wiring.Component):
    """Engines in a ring; ``done`` once all have finished ``descriptors``."""

    def __init__(self, config, nodes, descriptors):
        self.config, self.nodes, self.descriptors = config, nodes, descriptors
        self.engine = [RingEngine(config=replace(config, address_width=ADDRESS_WIDTH)) for _ in range(nodes)]
        super().__init__({"done": Out(stream.Signature(1))})

    def elaborate(self, platform):
        m = Module()
        ready = []
        for n, engine in enumerate(self.engine):
            queue = StreamFIFO(
                shape=engine.rx.payload.shape(), depth=self.config.buffer_frames * self.config.frame_beats
            )
            m.submodules[f"engine_{n}"], m.submodules[f"queue_{n}"] = engine, queue
            connect_typed(m, self.engine[n - 1].tx, queue.i)
            connect_typed(m, queue.o, engine.rx)
            finished = Signal(range(self.descriptors + 1), name=f"finished_{n}")
            m.d.sync += finished.eq(finished + engine.events.finished)
            m.d.comb += [engine.nodes.eq(self.nodes), engine.rank.eq(n)]
            ready.append(finished == self.descriptors)
        told = Signal()
        m.d.sync += told.eq(told | self.done.valid & self.done.ready)
        m.d.comb += self.done.valid.eq((sum(ready) == self.nodes) & ~told)
        return m


class Port:
    """An engine's two directions of memory as one port."""

    def __init__(self, engine):
        self._read, self._write = engine.read, engine.write

    def __getattr__(self, name):
        return getattr(self._read if name in self._read.signature.members else self._write, name)


def run(parameters, nodes, counts, *, codec=None, tensor=None, stall=0.2, latency=5):
    """Reduce random vectors and check all memory; engine 0's events with the cycles in which they came."""
    seed, config = new_seed(), RingConfig(**parameters, codec=codec, tensor=tensor)
    ring, posts = EngineRing(config, nodes, len(counts)), vectors(counts, nodes, config, seed)
    log = {name: [] for name in RingEvents.as_shape().members}
    memories = [Memory(Port(e), seed + n, stall=stall, latency=latency) for n, e in enumerate(ring.engine)]
    processes = [process for memory in memories for process in memory.processes]
    for n, memory in enumerate(memories):
        memory.fill(n, posts)

    async def host(ctx):
        settings = {"bound": getattr(codec, "bound", 0), "mode": getattr(codec, "mode", 0)}
        for n, engine in enumerate(ring.engine):
            ctx.set(engine.settings, settings | {"seed": RandomBits().node_seed(n)})
        for vector in posts:
            for valid in 1, 0:
                for engine in ring.engine:
                    ctx.set(engine.post.payload, {"address": vector.address, "count": vector.count})
                    ctx.set(engine.post.valid, valid)
                await ctx.tick().repeat(1 if valid else 3)

    async def watch(ctx):
        cycle = 0
        async for _, _, events in ctx.tick().sample(ring.engine[0].events):
            for name, cycles in log.items():
                cycles += [cycle] * events[name]
            cycle += 1

    simulate(
        ring, collect={"done": 1}, stall=0.0, processes=[*processes, host, watch], seed=seed, limit=4000, idle=1
    )
    for memory in memories:
        memory.check(posts, config)
    return log


@pytest.mark.parametrize(
    ("nodes", "codec"),
    [
        pytest.param(2, None, marks=pytest.mark.slow),  # quickly, in co-simulation
        pytest.param(2, Inceptionn(bound=6), marks=pytest.mark.slow),
        pytest.param(3, Bfp(), marks=pytest.mark.slow),
        pytest.param(3, Bfp(4, 7, 5, 8), marks=pytest.mark.slow),
        pytest.param(3, Inceptionn(bound=10, mode=Mode.PUBLISHED), marks=pytest.mark.slow),
        pytest.param(4, Bfp(block=4, mantissa=3), marks=pytest.mark.slow),
        pytest.param(5, None, marks=pytest.mark.slow),
        pytest.param(2, Bf16(Rounding.STOCHASTIC), marks=pytest.mark.slow),
        pytest.param(4, Mx(Element.E2M1, 16, Rounding.STOCHASTIC), marks=pytest.mark.slow),
    ],
)
def test_every_engine_ends_with_the_golden_sum_and_touches_nothing_else(nodes, codec):
    whole = SMALL["lanes"] * SMALL["frame_words"] * SMALL["slice_frames"] * nodes
    log = run(SMALL, nodes, [whole + 5, 1, 8 * nodes + 3], codec=codec)
    assert len(log["accepted"]) == len(log["finished"]) == 3


@pytest.mark.parametrize(
    ("nodes", "tensor", "codec"),
    [
        pytest.param(2, Bf16(), None, marks=pytest.mark.slow),
        pytest.param(3, Fp16(), None, marks=pytest.mark.slow),
        pytest.param(5, Bf16(), None, marks=pytest.mark.slow),
        pytest.param(3, Fp16(), Bfp(), marks=pytest.mark.slow),
    ],
)
def test_vectors_of_16_bit_values_are_added_in_binary32_and_rounded_once(nodes, tensor, codec):
    whole = SMALL["lanes"] * SMALL["frame_words"] * SMALL["slice_frames"] * nodes
    log = run(SMALL, nodes, [whole + 5, 1, 8 * nodes + 3], codec=codec, tensor=tensor)
    assert len(log["accepted"]) == len(log["finished"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [2, 4])
def test_an_engine_of_few_lanes_does_the_same(lanes):
    log = run(SMALL | {"lanes": lanes}, 3, [13 * lanes + 1, 1, 9])
    assert len(log["accepted"]) == len(log["finished"]) == 3


@pytest.mark.slow
def test_a_beat_is_sent_in_every_cycle_across_steps_segments_and_descriptors():
    words = WIDE["frame_words"] * WIDE["slice_frames"]
    log = run(WIDE, 2, [2 * 2 * words * 8, 2 * words * 8], stall=0.0)
    sent = log["sent"]
    assert len(sent) == 3 * 2 * words
    assert sent == list(range(sent[0], sent[0] + len(sent)))


@pytest.mark.parametrize("latency", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_latency_is_as_documented(latency):
    """Two frames: LOCAL, then TOTAL of what the other engine sent in the same cycle."""
    words = WIDE["frame_words"]
    log = run(WIDE, 2, [2 * words * 8], stall=0.0, latency=latency)
    assert log["sent"][0] - log["accepted"][0] == RingEngine.FIRST_BEAT + latency
    assert log["sent"][words] - log["received"][0] == RingEngine.HOP
    assert log["finished"][0] - log["stored"][-1] == RingEngine.LAST_WORD + words + latency


def alone(*, rx=(), read_errors=(), write_errors=(), halt=200, latency=5):
    """Engine 0 of two reduces two words; per cycle what it says, and its memory's requests and answers.

    ``rx`` changes the beats of the node before; the engine is halted in cycle ``halt``.
    """
    config = RingConfig(**SMALL)
    dut, seen = RingEngine(config=replace(config, address_width=ADDRESS_WIDTH)), []
    memory = Memory(
        Port(dut), seed=1, latency=latency, read_errors={*read_errors}, write_errors={*write_errors}
    )
    beat = {"data": 1, "last": 1, "operation": 0, "count": 2 * config.lanes, "length": 1}
    frames = [beat | {"slice": 1, "complete": 0}, beat | {"slice": 0, "complete": 1}]  # TOTAL, STORE
    handshakes = {
        name: getattr(port, f"{name}valid") & getattr(port, f"{name}ready") for name, port in ports_of(dut)
    }
    says = {"mismatch": dut.differs.as_value().any(), "memory_error": dut.memory_error, "moving": dut.moving}
    says |= {"finished": dut.events.finished} | handshakes

    async def watch(ctx):
        async for _, _, *values in ctx.tick().sample(*says.values()):
            seen.append(dict(zip(says, values, strict=True)))

    async def host(ctx):
        ctx.set(dut.post.payload, {"address": 0x100, "count": beat["count"]})
        for cycle in range(200):
            ctx.set(dut.post.valid, cycle == 3)
            ctx.set(dut.halt, cycle >= halt)
            await ctx.tick()

    simulate(
        dut,
        drive={"rx": [frame | change for frame, change in zip(frames, rx or ({}, {}), strict=True)]},
        stall=0.0,
        settings={"nodes": 2, "tx.ready": 1},
        processes=[*memory.processes, watch, host],
        idle=200,
        excused=HALTED,
    )
    return {name: [cycle for cycle, values in enumerate(seen) if values[name]] for name in says}


@functools.cache
def never_halted():
    return alone(latency=20)


def ports_of(engine):
    return [("ar", engine.read), ("r", engine.read), ("aw", engine.write), ("b", engine.write)]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, set()),
        ({"rx": ({"operation": 1}, {})}, {"mismatch"}),
        ({"rx": ({"last": 0}, {})}, {"mismatch"}),
        *slow(({"rx": ({}, {"last": 0})}, {"mismatch"})),
        ({"read_errors": [0x120]}, {"memory_error"}),
        ({"write_errors": [0x100]}, {"memory_error"}),
    ],
)
def test_an_engine_says_what_goes_wrong_and_with_whom(what, expected):
    log = alone(**what)
    assert {name for name in ("mismatch", "memory_error") if log[name]} == expected
    if not expected:
        assert len(log["finished"]) == 1
        assert log["moving"][-1] >= log["b"][-1]


@pytest.mark.parametrize(("port", "before"), [("ar", 0), ("aw", 4)])
def test_a_halted_engine_asks_nothing_more_of_memory_and_waits_for_what_it_has_asked(port, before):
    """Halted as the first of two commands is with the port; its answer takes longer than the halt."""
    free = never_halted()
    halt = free[port][0] - before
    log = alone(latency=20, halt=halt)
    assert len(free[port]) == 2
    assert log[port] == free[port][:1]
    assert len(log["r"]) == len(log["ar"])
    assert len(log["b"]) == len(log["aw"])
    answered = max(log["r"] + log["b"])
    assert answered > halt
    assert log["moving"][-1] in range(answered, answered + 5)
