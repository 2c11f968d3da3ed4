# amaranth: UnusedElaboratable=no
"""BlockMemory: a host loads it word by word, a master reads it in bursts, both at once."""

import random
from collections import deque
from itertools import pairwise

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp
from fanin.hdl.bus.axi_reader import AxiReader, command_layout
from fanin.hdl.bus.block_memory import BlockMemory
from fanin.hdl.stream.connect import connect_typed
from fanin.sim.rtl.stalls import Side, Stalls
from tests.hdl.bus.test_registers import Host
from tests.support import new_seed, simulate, slow

SHAPES = [(16, 72), (256, 512), *slow((8, 64), (32, 256), (64, 192))]  # beat in bits, memory in bytes


class Bursts:
    """Master of the read port: ``requests`` of (first beat, beats) once the memory is ``loaded``."""

    def __init__(self, port, requests, stall, seed):
        self.port, self.requests = port, requests
        self.stalls = {"ar": Stalls(stall, seed), "r": Stalls(stall, seed + 1)}
        self.loaded = False
        self.taken, self.beats = [], []  # cycle; (cycle, beat's index, data, response)

    async def ask(self, ctx):
        port, unit, cycle = self.port, len(self.port.rdata) // 8, 0
        await self._until_loaded(ctx)
        for number, (first, beats) in enumerate(self.requests):
            while self.stalls["ar"].pauses("ar", Side.SOURCE, cycle):
                await ctx.tick()
                cycle += 1
            for name, value in {"addr": first * unit, "len": beats - 1, "id": number & 1, "valid": 1}.items():
                ctx.set(getattr(port, f"ar{name}"), value)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(port.arready)
                cycle += 1
            self.taken.append(cycle - 1)
            ctx.set(port.arvalid, 0)

    async def take(self, ctx):
        port, cycle, waiting = self.port, 0, None
        due = deque(
            (first + n, [n == beats - 1, number & 1])
            for number, (first, beats) in enumerate(self.requests)
            for n in range(beats)
        )
        signals = [getattr(port, name) for name in ("rlast", "rid", "rdata", "rresp")]
        await self._until_loaded(ctx)
        while due:
            ctx.set(port.rready, not self.stalls["r"].pauses("r", Side.SINK, cycle))
            _, _, valid, ready, *beat = await ctx.tick().sample(port.rvalid, port.rready, *signals)
            assert waiting is None or (valid and beat == waiting), "a beat changed while it waited"
            waiting = beat if valid and not ready else None
            if valid and ready:
                index, expected = due.popleft()
                assert beat[:2] == expected
                self.beats.append((cycle, index, *beat[2:]))
            cycle += 1
        ctx.set(port.rready, 1)
        for _ in range(20):
            _, _, valid = await ctx.tick().sample(port.rvalid)
            assert not valid, "a beat too many"

    async def _until_loaded(self, ctx):
        while not self.loaded:
            await ctx.tick()


async def nothing(host):
    """What the host does beside the bursts, by default."""


def run(dut, requests=(), *, host_does=nothing, stall=0.0, patience=0.0, limit=30_000):
    """Load memory with random bytes, then ask for ``requests`` while the host does something; the bursts, the
    memory's bytes.
    """
    seed = new_seed()
    rng = random.Random(seed)
    content = rng.randbytes(dut.size)
    bursts = Bursts(dut.axi, list(requests), stall, seed)

    async def main(ctx):
        host = Host(ctx, dut.axil, rng, patience=patience)
        for address in range(0, dut.size, 4):
            word = int.from_bytes(content[address : address + 4], "little")
            assert await host.write(address, word) == Resp.OKAY
        bursts.loaded = True
        await host_does(host)

    async def watchdog(ctx):
        for _ in range(limit):
            await ctx.tick()
        raise AssertionError(f"no end after {limit} cycles")

    sim = Simulator(dut)
    sim.add_clock(4e-9)
    for process in main, bursts.take:
        sim.add_testbench(process)
    for process in bursts.ask, watchdog:
        sim.add_testbench(process, background=True)
    sim.run()
    return bursts, content


def beat_of(content, index, width):
    step = width // 8
    return int.from_bytes(content[index * step : (index + 1) * step], "little")


@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
@pytest.mark.parametrize(("width", "size"), SHAPES)
def test_bursts_and_host_see_the_same_bytes(width, size, stall):
    """While bursts are under way, the host reads all words in any order."""
    rng = random.Random(new_seed())
    count = 8 * size // width
    requests = [(first, rng.randint(1, count - first)) for first in (rng.randrange(count) for _ in range(20))]
    seen = {}

    async def read_all(host):
        for address in rng.sample(range(0, size, 4), size // 4):
            seen[address] = await host.read(address)

    bursts, content = run(
        BlockMemory(size=size, data_width=width), requests, host_does=read_all, stall=stall, patience=stall
    )
    for _, index, data, response in bursts.beats:
        assert (data, response) == (beat_of(content, index, width), Resp.OKAY)
    for address, answer in seen.items():
        assert answer == [int.from_bytes(content[address : address + 4], "little"), Resp.OKAY]


@pytest.mark.parametrize(("width", "size"), [(16, 64), (64, 192)], ids=["a power of two", "not"])
def test_beyond_the_end_every_beat_and_access_is_an_error(width, size):
    """Whether a burst runs over the end, begins behind it, is far away, or as long as the memory."""
    count, answers = 8 * size // width, []

    async def access(host):
        for address in (size, size + 4, 1 << 20):
            answers.append(await host.write(address, 1))
            answers.append((await host.read(address))[1])
        for address in (1, 2, 7):  # no word's
            answers.append((await host.read(address))[1])

    bursts, content = run(
        BlockMemory(size=size, data_width=width),
        [(count - 2, 4), (count, 1), (count << 20, 2), (2 * count - 1, 2 * count), (0, count)],
        host_does=access,
    )
    assert answers == [Resp.SLVERR] * 9
    responses = [response for *_, response in bursts.beats]
    assert responses == [Resp.OKAY] * 2 + [Resp.SLVERR] * (5 + 2 * count) + [Resp.OKAY] * count
    assert [data for _, _, data, _ in bursts.beats[-count:]] == [
        beat_of(content, index, width) for index in range(count)
    ]


def test_only_whole_words_are_written():
    answers = []

    async def access(host):
        answers.append([await host.write(0, 1, strobes) for strobes in (0, 7, 14)])
        answers.append([await host.write(address, 1) for address in (1, 2, 3)])
        answers.append(await host.read(0))

    _, content = run(BlockMemory(size=64, data_width=32), host_does=access)
    assert answers == [[Resp.SLVERR] * 3, [Resp.SLVERR] * 3, [beat_of(content, 0, 32), Resp.OKAY]]


@pytest.mark.parametrize("beats", [2, 3, 16])
def test_the_first_beat_after_three_cycles_then_one_a_cycle_across_bursts(beats):
    bursts, _ = run(BlockMemory(size=256, data_width=32), [(n, beats) for n in range(0, 48, 3)])
    cycles = [cycle for cycle, *_ in bursts.beats]
    assert cycles == list(range(bursts.taken[0] + 3, bursts.taken[0] + 3 + 16 * beats))


def test_a_read_of_the_host_costs_one_beat_and_accesses_come_every_three_cycles():
    cycles = {"r": [], "b": []}

    async def access(host):
        ctx, axil = host.ctx, host.axil
        for name in "arvalid", "rready", "bready", "awvalid", "wvalid":
            ctx.set(getattr(axil, name), 1)
        ctx.set(axil.wstrb, 15)
        for cycle in range(40):
            _, _, *valid = await ctx.tick().sample(axil.rvalid, axil.bvalid)
            for name, now in zip(cycles, valid, strict=True):
                if now:
                    cycles[name].append(cycle)
        ctx.set(axil.arvalid, 0)

    bursts, _ = run(BlockMemory(size=256, data_width=32), [(0, 60)], host_does=access)
    for times in cycles.values():
        assert times[0] == 2
        assert {b - a for a, b in pairwise(times)} == {3}
    assert bursts.beats[-1][0] - bursts.beats[0][0] == 59 + 13  # reads in cycles 3, 6, … 39


@pytest.mark.parametrize("width", [16, 32])
def test_a_reader_of_16_words_in_bursts_of_4_takes_one_a_cycle(width):
    """As a node on a board has them (``GlmConfig.read_ahead``)."""
    size = 256

    class Joined(wiring.Component):
        command: In(stream.Signature(command_layout(32)))
        o: Out(stream.Signature(width))
        axil: In(AXI4LiteSignature(address_width=24))

        def elaborate(self, platform):
            m = Module()
            m.submodules.memory = memory = BlockMemory(size=size, data_width=width, address_width=32)
            m.submodules.reader = reader = AxiReader(
                data_width=width, address_width=32, burst=4, outstanding=8, fifo_depth=16
            )
            connect_typed(m, reader.axi, memory.axi)
            for name in "command", "o":
                inner, outer = getattr(reader, name), wiring.flipped(getattr(self, name))
                connect_typed(m, *((outer, inner) if name == "command" else (inner, outer)))
            return m

    beats = 8 * size // width
    log = simulate(
        Joined(),
        drive={"command": [{"address": 0, "beats": beats, "repeats": 3}]},
        collect={"o": 3 * beats},
        stall=0,
    )
    cycles = [cycle for cycle, _ in log["o"]]
    assert cycles == list(range(cycles[0], cycles[0] + 3 * beats))


@pytest.mark.parametrize(
    "changes",
    [
        {"data_width": 24},
        {"data_width": 512},
        {"size": 30},
        {"size": 8},
        {"address_width": 7},
        {"host_address_width": 65},
    ],
)
def test_bad_parameters_are_named(changes):
    (name, value), *_ = changes.items()
    with pytest.raises(ValueError, match=f"{name} .* not {value}"):
        BlockMemory(**{"size": 256, "data_width": 64} | changes)
