# amaranth: UnusedElaboratable=no
"""Store: frames to memory and back, in turn, whatever memory and layers do."""

import random

import pytest

from fanin.cnn.memory import BEAT_BYTES, Frames, Ring, SpilledParameters, StoreConfig, beats
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.store import Store
from fanin.sim.rtl.memory import ReadMemory, WriteMemory
from tests.support import new_seed, simulate, slow

SMALL = StoreConfig(
    readers=(Frames(64, 4), Frames(10, 10)),
    writers=(Frames(10, 5),),
    rings=(Ring(Frames(48, 3), 3, 0x10C0), Ring(Frames(512, 32), 2, 0x2FC0)),
    sections=(40, 1, 16),
)
BASES = {"parameters": 0x40, "readers": [0x6000 // 64, 0x70C0 // 64], "writers": [0x8FC0 // 64]}


class Memory:
    """One memory behind both halves of the port, with known contents."""

    def __init__(self, port, *, latency, stall, seed, errors=()):
        self.initial = {}
        options = {"latency": latency, "stall": stall, "seed": seed, "errors": errors}
        self.writes = WriteMemory(port, **options)
        self.reads = ReadMemory(port, self._beat, **options)

    def put(self, address, words):
        for n, word in enumerate(words):
            for byte in range(4):
                self.initial[address + 4 * n + byte] = word >> 8 * byte & 0xFF

    def put_frames(self, address, frames, kind):
        for n, words in enumerate(frames):
            self.put(address + n * kind.beats * BEAT_BYTES, words)

    def words(self, address, count):
        return [
            sum(self.writes.content.get(address + 4 * n + byte, 0xEE) << 8 * byte for byte in range(4))
            for n in range(count)
        ]

    def _beat(self, address):
        """What was written last, else what was there at first."""
        content, initial = self.writes.content, self.initial
        return sum(
            content.get(at, initial.get(at, 0xDD)) << 8 * (at - address)
            for at in range(address, address + BEAT_BYTES)
        )


class Bench:
    """A store, its memory, and a job."""

    def __init__(self, config, *, latency=70, stall=0.0, errors=()):
        self.seed = new_seed()
        self.rng = random.Random(self.seed)
        self.config, self.stall = config, stall
        self.dut = Store(config=config)
        self.memory = Memory(self.dut.memory, latency=latency, stall=stall, seed=self.seed, errors=errors)
        self.finished = None  # the cycle in which ``done`` rose

    def frames(self, kind, count):
        return [[self.rng.getrandbits(32) for _ in range(kind.words)] for _ in range(count)]

    def run(self, mode, frames, *, drive, collect, bases=BASES, limit=60_000, idle=250, processes=()):
        async def job(ctx):
            for name, value in bases.items():
                ctx.set(self.dut.bases[name], value)
            ctx.set(self.dut.control, {"mode": mode, "frames": frames, "start": 1})
            await ctx.tick()
            ctx.set(self.dut.control.start, 0)
            await ctx.tick().repeat(2)
            cycle = 3
            while not ctx.get(self.dut.done):
                await ctx.tick()
                cycle += 1
            self.finished = cycle

        processes = [self.memory.reads.process, self.memory.writes.process, job, *processes]
        log = simulate(
            self.dut,
            drive=drive,
            collect=collect,
            stall=self.stall,
            seed=self.seed,
            limit=limit,
            idle=idle,
            processes=processes,
        )
        assert self.finished
        return log


def transfers(frames, lanes):
    return [words[at : at + lanes] for words in frames for at in range(0, len(words), lanes)]


def payloads(log, name):
    return [list(payload) for _, payload in log[name]]


def train(config, frames, *, latency=70, stall=0.0, bases=BASES, mode=Mode.TRAIN, errors=(), watch=None):
    """A job of all channels: what they had to carry, and what they did."""
    bench = Bench(config, latency=latency, stall=stall, errors=errors)
    images = [bench.frames(kind, frames) for kind in config.readers]
    results = [bench.frames(kind, frames) for kind in config.writers]
    saved = [bench.frames(ring.frames, frames) for ring in config.rings]
    for base, given, kind in zip(bases["readers"], images, config.readers, strict=True):
        bench.memory.put_frames(base * BEAT_BYTES, given, kind)
    drive = {
        f"writers.stream{n}": transfers(given, kind.lanes)
        for n, (given, kind) in enumerate(zip(results, config.writers, strict=True))
    }
    expected = {
        f"readers.stream{n}": transfers(given, kind.lanes)
        for n, (given, kind) in enumerate(zip(images, config.readers, strict=True))
    }
    for n, (given, ring) in enumerate(zip(saved, config.rings, strict=True)):
        words = transfers(given, ring.frames.lanes)
        drive[f"save.stream{n}"] = expected[f"replay.stream{n}"] = words
    collect = {name: len(words) for name, words in expected.items()}
    processes = [watch(bench)] if watch else []
    log = bench.run(mode, frames, drive=drive, collect=collect, bases=bases, processes=processes)
    for name, words in expected.items():
        assert payloads(log, name) == words, name
    for base, given, kind in zip(bases["writers"], results, config.writers, strict=True):
        for n, words in enumerate(given):
            assert bench.memory.words(base * BEAT_BYTES + n * kind.beats * BEAT_BYTES, kind.words) == words
    return bench, log


@pytest.mark.parametrize("latency", [1, 100])
@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
def test_everything_arrives_where_it_belongs(latency, stall):
    train(SMALL, 7, latency=latency, stall=stall)


def test_a_ring_is_read_only_after_memory_has_acknowledged_the_frame():
    ring = Ring(Frames(96, 8), 3, 0)
    config = StoreConfig(readers=(Frames(16, 16),), writers=(Frames(16, 16),), rings=(ring,))
    bases = {"readers": [0x9000 // 64], "writers": [0xA000 // 64]}
    bench, _ = train(config, 9, latency=40, bases=bases)
    writes, reads = bench.memory.writes, bench.memory.reads
    landed = dict.fromkeys(range(3), None)
    ends = []  # of each frame: the cycle of its last response
    for (_, address, count), response in zip(writes.requests, writes.responses, strict=True):
        if address + count * BEAT_BYTES in {(n + 1) * ring.frames.beats * BEAT_BYTES for n in landed}:
            ends.append(response)
    begins = [cycle for cycle, address, _ in reads.requests if address in (0, 384, 768)]
    assert len(ends) == len(begins) == 9
    assert all(end < begin for end, begin in zip(ends, begins, strict=True))
    # And a place is written again only after it has been read.
    again = [cycle for cycle, address, _ in writes.requests if address in (0, 384, 768)]
    assert all(begin + 40 < cycle for begin, cycle in zip(begins, again[3:], strict=False))


def test_levels_are_the_frames_in_memory_and_the_beats_on_their_way():
    """A layer saves four frames, larger than any queue, and only then takes them back."""
    ring = Ring(Frames(2048, 16), 2, 0)
    config = StoreConfig(readers=(Frames(16, 16),), writers=(Frames(16, 16),), rings=(ring,))
    bench, found = Bench(config, latency=20), []
    save, replay = bench.dut.save.stream0, bench.dut.replay.stream0

    async def layer(ctx):
        await ctx.tick().repeat(5)
        left, came = 4 * 128, 0
        for cycle in range(1_800):
            ctx.set(save.valid, left > 0)
            ctx.set(replay.ready, cycle >= 700)
            _, _, taken, back = await ctx.tick().sample(save.valid & save.ready, replay.valid & replay.ready)
            left, came = left - taken, came + back
            levels = ctx.get(bench.dut.levels)
            found.append((levels.ring0, levels.save0))
        assert (left, came) == (0, 4 * 128)

    bench.run(
        Mode.TRAIN,
        1,
        drive={"writers.stream0": [[1] * 16]},
        collect={"readers.stream0": 1},
        bases={"readers": [0x9000 // 64], "writers": [0xA000 // 64]},
        idle=2_000,
        processes=[layer],
    )
    held = [ring for ring, _ in found]
    changes = [held[n] for n in range(len(held)) if n == 0 or held[n] != held[n - 1]]
    assert changes[:3] == [0, 1, 2]
    assert found[699] == (2, 48)  # the ring is full, and so is the queue in front of it
    assert max(held) == 2
    assert found[-1] == (0, 0)


def test_bursts_are_as_long_as_they_can_be():
    bench, _ = train(SMALL, 3)
    for requests in bench.memory.reads.requests, bench.memory.writes.requests:
        ring = [(address, count) for _, address, count in requests if 0x2FC0 <= address < 0x3FC0]
        assert ring[:3] == [(0x2FC0, 1), (0x3000, 16), (0x3400, 15)]


@pytest.mark.parametrize("latency", [100, *slow(64)])
def test_98_percent_of_all_beats_are_used(latency):
    """Six rings of four words a cycle ask for one and a half times what the port has."""
    kind = Frames(512, 4)
    config = StoreConfig(
        readers=(Frames(2048, 16),),
        writers=(Frames(1024, 16),),
        rings=tuple(Ring(kind, 8, 0x10000 * (n + 1)) for n in range(6)),
    )
    bench, _ = train(config, 8, latency=latency, bases={"readers": [0], "writers": [0x100000 // 64]})
    words = bench.memory.writes.words
    begin, end = words[len(words) // 5], words[-len(words) // 5]
    written = sum(begin <= cycle < end for cycle in words)
    read = sum(count for cycle, _, count in bench.memory.reads.requests if begin <= cycle < end)
    assert min(written, read) >= 0.98 * (end - begin)


@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
def test_parameters_go_to_each_layer_in_order(stall):
    bench = Bench(SMALL, stall=stall)
    base = BASES["parameters"] * BEAT_BYTES
    expected = {}
    for n, words in enumerate(SMALL.sections):
        expected[f"load[{n}]"] = [bench.rng.getrandbits(32) for _ in range(words)]
        bench.memory.put(base, expected[f"load[{n}]"])
        base += beats(words) * BEAT_BYTES
    log = bench.run(Mode.LOAD, 0, drive={}, collect={name: len(words) for name, words in expected.items()})
    assert {name: [word for _, word in log[name]] for name in expected} == expected
    assert bench.memory.writes.requests == []


@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
def test_parameters_of_each_layer_go_to_memory_in_order(stall):
    bench = Bench(SMALL, stall=stall)
    given = [[bench.rng.getrandbits(32) for _ in range(words)] for words in SMALL.sections]
    bench.run(Mode.DUMP, 0, drive={f"dump[{n}]": words for n, words in enumerate(given)}, collect={})
    base = BASES["parameters"] * BEAT_BYTES
    for words in given:
        padded = beats(len(words)) * 16
        assert bench.memory.words(base, padded) == words + [0] * (padded - len(words))
        base += beats(len(words)) * BEAT_BYTES


@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
def test_a_pass_reads_what_the_one_before_it_wrote(stall):
    """Velocities of four bursts, read four times, come back one more each time."""
    kind, passes = SpilledParameters(Frames(640, 8), weights=0x100, velocities=0x2FC0, gradient=True), 4
    config = StoreConfig(readers=(Frames(16, 16),), writers=(Frames(16, 16),), spilled=(kind,))
    bench = Bench(config, latency=90, stall=stall)
    port = bench.dut.spilled.stream0
    (image,), (result,), (words,) = (
        bench.frames(frames, 1) for frames in (*config.readers, *config.writers, kind.frames)
    )
    bench.memory.put(0x6000, image)
    bench.memory.put(kind.velocities, words)

    async def layer(ctx):
        """Ask for all passes at once, and add one to each word that comes."""
        await ctx.tick().repeat(5)
        ctx.set(port.ask.velocities, 1)
        await ctx.tick().repeat(passes)
        ctx.set(port.ask.velocities, 0)
        assert not ctx.get(port.settled)
        came, new, waiting = port.velocities, port.new_velocities, []
        while True:
            _, _, taken, valid, ready, accepted = await ctx.tick().sample(
                came.payload, came.valid, came.ready, new.ready
            )
            if waiting and accepted:
                waiting.pop(0)
            if valid and ready:
                waiting.append([(word + 1) % 2**32 for word in taken])
            ctx.set(new.valid, bool(waiting))
            if waiting:
                ctx.set(new.payload, waiting[0])

    name = "spilled.stream0.velocities"
    log = bench.run(
        Mode.TRAIN,
        1,
        drive={"writers.stream0": [result]},
        collect={"readers.stream0": 1, name: passes * len(words) // 8},
        bases={"readers": [0x6000 // 64], "writers": [0x8000 // 64]},
        idle=1000,  # until the last burst is acknowledged, too
        processes=[layer],
    )
    expected = [[(word + n) % 2**32 for word in words] for n in range(passes + 1)]
    assert payloads(log, name) == transfers(expected[:passes], 8)
    assert bench.memory.words(kind.velocities, len(words)) == expected[passes]
    writes, reads = bench.memory.writes, bench.memory.reads
    begins = [cycle for cycle, address, _ in reads.requests if address == kind.velocities]
    requests = zip(writes.requests, writes.responses, strict=True)
    ends = [response for (_, address, _), response in requests if address == kind.velocities]
    assert len(begins) == len(ends) == passes
    assert all(end < begin for end, begin in zip(ends, begins[1:], strict=False))


@pytest.mark.parametrize("address", [0x40, 0x1000], ids=["read", "written"])
def test_an_error_of_memory_shows(address):
    config = StoreConfig(readers=(Frames(16, 4),), writers=(Frames(16, 4),))
    seen = []

    def watch(bench):
        async def process(ctx):
            for _ in range(400):
                _, _, error = await ctx.tick().sample(bench.dut.error)
                seen.append(error)

        return process

    bases = {"readers": [0], "writers": [0x1000 // 64]}
    train(config, 2, bases=bases, errors=[address], watch=watch)
    assert sum(seen) == 1


def test_evaluating_reads_images_and_writes_results():
    config = StoreConfig(readers=(Frames(16, 4),), writers=(Frames(16, 4),))
    bases = {"readers": [0], "writers": [0x1000 // 64]}
    bench, _ = train(config, 2, mode=Mode.EVALUATE, bases=bases)
    assert [request[1:] for request in bench.memory.reads.requests] == [(0, 1), (64, 1)]
