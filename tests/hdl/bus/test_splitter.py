# amaranth: UnusedElaboratable=no
"""BurstSplitter against a walk over the run, cut where a block ends."""

import random
from itertools import islice

import pytest
from amaranth import Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi_reader import BurstSplitter
from tests.support import new_seed, simulate, slow

SHAPES = [(8, 16), (32, 16), (1, 256), (16, 256), (128, 32), (4, 1), (1, 1), (2, 2)]  # word_bytes, burst
COUNT_MAX = 2**32 - 1


def splitter(word_bytes=8, burst=16, address_width=20):
    return BurstSplitter(word_bytes=word_bytes, address_width=address_width, burst=burst)


def run_once(address, beats, *, word_bytes, burst):
    """``(address, length)`` of each burst of one run, from one multiple of the block to the next."""
    word, end = address // word_bytes, address // word_bytes + beats
    while word < end:
        after = min((word // burst + 1) * burst, end)
        yield word * word_bytes, after - word - 1
        word = after


def runs(command, **shape):
    address, beats, repeats = command
    if beats:
        for _ in range(repeats):
            yield from run_once(address, beats, **shape)


def payload(command):
    return dict(zip(("address", "beats", "repeats"), command, strict=True))


def split(commands, *, word_bytes=8, burst=16, stall=0.0, address_width=20, limit=20_000):
    """Run commands; check the bursts, return the cycles of commands, of bursts, and of ``busy``."""
    seed = new_seed()
    dut = splitter(word_bytes, burst, address_width)
    expected = [b for command in commands for b in runs(command, word_bytes=word_bytes, burst=burst)]
    busy = []

    async def note(ctx):
        async for _, _, flag in ctx.tick().sample(dut.busy):
            busy.append(flag)

    log = simulate(
        dut,
        drive={"command": [payload(command) for command in commands]},
        collect={"o": len(expected)},
        stall=stall,
        processes=[note],
        seed=seed,
        limit=limit,
    )
    bursts = [(burst.address, burst.length) for _, burst in log["o"]]
    assert bursts == expected
    for address, length in bursts:
        last = address + (length + 1) * word_bytes - 1
        assert address // (word_bytes * burst) == last // (word_bytes * burst)
        assert address // 4096 == last // 4096
    return [cycle for cycle, _ in log["command"]], [cycle for cycle, _ in log["o"]], busy


def command(rng, *, word_bytes, burst):
    beats = rng.choice([0, 1, 2, burst - 1, burst, burst + 1, 2 * burst, rng.randint(1, 4 * burst)])
    start = rng.choice([0, 1, burst - 1, burst // 2, rng.randrange(4 * burst)])
    return start * word_bytes + rng.randrange(word_bytes), beats, rng.choice([0, 1, 1, 2, 3])


@pytest.mark.parametrize(
    "stall",
    [0.0, 0.5, {"o": 0.9}, {"command": 0.9}],
    ids=["full rate", "stalls", "slow bursts", "slow commands"],
)
@pytest.mark.parametrize(("word_bytes", "burst"), SHAPES)
def test_bursts_are_the_words_of_the_runs_cut_at_blocks(word_bytes, burst, stall):
    rng = random.Random(new_seed())
    commands = [command(rng, word_bytes=word_bytes, burst=burst) for _ in range(25)]
    split([*commands, (0, 1, 1)], word_bytes=word_bytes, burst=burst, stall=stall)


@pytest.mark.parametrize(("word_bytes", "burst"), [(8, 16), (16, 4), (1, 4)])
def test_every_start_and_every_length_of_a_short_run(word_bytes, burst):
    lengths = [1, 2, burst - 1, burst, burst + 1, 2 * burst - 1, 2 * burst, 2 * burst + 1]
    starts = range(burst) if burst < 16 else (0, 1, 7, 14, 15)
    commands = [(start * word_bytes, beats, 1) for start in starts for beats in lengths]
    split(commands, word_bytes=word_bytes, burst=burst)


@pytest.mark.parametrize(
    ("command", "bursts"),
    [
        ((0x0FE8, 13, 1), [(0x0FE8, 2), (0x1000, 9)]),
        ((0x0F80, 16, 1), [(0x0F80, 15)]),
        ((0x0F80, 17, 1), [(0x0F80, 15), (0x1000, 0)]),
        ((0x0FF8, 1, 1), [(0x0FF8, 0)]),
        ((0x0FF8, 2, 2), [(0x0FF8, 0), (0x1000, 0)] * 2),
        ((0x0088, 32, 1), [(0x0088, 14), (0x0100, 15), (0x0180, 0)]),
        ((0x0088, 15, 3), [(0x0088, 14)] * 3),
        ((0x0007, 1, 1), [(0x0000, 0)]),
    ],
)
def test_a_run_is_cut_like_this(command, bursts):
    assert list(runs(command, word_bytes=8, burst=16)) == bursts
    split([command])


@pytest.mark.parametrize(("word_bytes", "burst"), [(16, 256), (128, 32), (32, 128)])
def test_the_largest_bursts_fill_4_kib_and_do_not_cross_it(word_bytes, burst):
    for address in (0, 4096 - word_bytes, 4096 + word_bytes):
        _, cycles, _ = split([(address, 3 * burst, 2)], word_bytes=word_bytes, burst=burst)
        assert len(cycles) == (6 if address == 0 else 8)


def test_a_run_may_end_at_the_end_of_the_addresses():
    for beats in (1, 5, 16, 17, 40):
        split([(2**20 - 8 * beats, beats, 2)])
    split([(2**40 - 8 * 20, 20, 2), (2**40 - 8, 1, 1)], address_width=40)


class Stoppable(wiring.Component):
    """A splitter as AxiReader has it: ``stop`` resets it. What it withdraws is no stream."""

    def __init__(self, part):
        self.part = part
        shape = part.o.payload.shape()
        command = part.signature.members["command"]
        super().__init__(
            {
                "command": command,
                "stop": In(1),
                "busy": Out(1),
                "valid": Out(1),
                "ready": In(1),
                "burst": Out(shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.part = ResetInserter(self.stop)(self.part)
        wiring.connect(m, wiring.flipped(self.command), self.part.command)
        m.d.comb += [
            self.busy.eq(self.part.busy),
            self.valid.eq(self.part.o.valid),
            self.burst.eq(self.part.o.payload),
            self.part.o.ready.eq(self.ready),
        ]
        return m


def stopped(commands, *, word_bytes=8, burst=16, stall=0.0):
    """Run ``(command, cycles)``, each stopped after so many cycles; the bursts of each, with their cycles.

    Cycles count from the one in which the command is taken; at the stop all must end, and stay ended.
    """
    dut = Stoppable(splitter(word_bytes, burst, 20))
    rng = random.Random(new_seed())
    seen = []

    async def process(ctx):
        for command, cycles in commands:
            ctx.set(dut.command.payload, payload(command))
            ctx.set(dut.command.valid, 1)
            bursts = []
            for cycle in range(cycles + 5):
                ctx.set(dut.ready, rng.random() >= stall)
                ctx.set(dut.stop, cycle == cycles)
                _, _, valid, ready, busy, burst, free = await ctx.tick().sample(
                    dut.valid, dut.ready, dut.busy, dut.burst, dut.command.ready
                )
                assert free != busy
                assert free or cycle
                if cycle > cycles:
                    assert not valid
                    assert not busy
                elif valid and ready:
                    bursts.append((cycle, (burst.address, burst.length)))
                ctx.set(dut.command.valid, 0)
            seen.append(bursts)

    simulate(dut, processes=[process], idle=sum(cycles + 5 for _, cycles in commands) + 2)
    assert len(seen) == len(commands)
    return seen


@pytest.mark.parametrize("stall", [*slow(0.0), 0.6])
@pytest.mark.parametrize(("word_bytes", "burst"), [(8, 16), (4, 4), (1, 1)])
def test_a_stop_ends_a_command_in_any_cycle_and_the_next_is_whole(word_bytes, burst, stall):
    rng = random.Random(new_seed())
    shape = {"word_bytes": word_bytes, "burst": burst}
    commands = []
    for cycles in range(1, 30):
        commands.append(((rng.randrange(4096), rng.randint(1, 9 * burst), rng.randint(2, 9)), cycles))
        whole = (rng.randrange(4096), rng.randint(1, 2 * burst), 2)
        commands.append((whole, 100))
    seen = stopped(commands, stall=stall, **shape)
    for (command, cycles), bursts in zip(commands, seen, strict=True):
        expected = list(runs(command, **shape))
        assert [burst for _, burst in bursts] == expected[: len(bursts)]
        assert cycles != 100 or len(bursts) == len(expected)
        if not stall:
            assert [cycle for cycle, _ in bursts] == list(range(4, min(cycles + 1, 4 + len(expected))))


@pytest.mark.parametrize("start", [0, 1, 255])
@pytest.mark.parametrize("beats", [COUNT_MAX, COUNT_MAX - 255, 2**31, 2**24 + 3, 2**16 + 1])
def test_a_long_run_does_not_end_early(start, beats):
    command, shape = (start, beats, COUNT_MAX), {"word_bytes": 1, "burst": 256}
    (bursts,) = stopped([(command, 203)], **shape)
    assert [burst for _, burst in bursts] == list(islice(runs(command, **shape), 200))


@pytest.mark.parametrize("repeats", [COUNT_MAX, 2**31, 2**16 + 1, 2**8])
def test_many_repeats_do_not_end_early(repeats):
    (bursts,) = stopped([((0x78, 18, repeats), 303)])
    assert [burst for _, burst in bursts] == [(0x78, 0), (0x80, 15), (0x100, 0)] * 100


@pytest.mark.parametrize("command", [(0x78, 1, 1), (0x78, 18, 1), (0x78, 18, 7), (0, 16, 9), (0x40, 3, 1)])
def test_latency_and_rate_are_those_of_the_docstring(command):
    """The last burst is put on ``o`` at the edge after which the next command is taken."""
    count = len(list(runs(command, word_bytes=8, burst=16)))
    commands, bursts, busy = split([command] * 3)
    first = commands[0]
    assert commands == [first + k * (count + 3) for k in range(3)]
    assert bursts == [taken + 4 + k for taken in commands for k in range(count)]
    under_way = [cycle for taken in commands for cycle in range(taken + 1, taken + count + 3)]
    assert [cycle for cycle, flag in enumerate(busy) if flag] == under_way


@pytest.mark.parametrize(
    "nothing", [(0x78, 0, 3), (0x78, 3, 0), (0x78, 0, 0), (0, 0, COUNT_MAX), (0, COUNT_MAX, 0)]
)
def test_a_command_of_nothing_gives_no_burst_and_holds_up_nothing(nothing):
    commands, bursts, busy = split([nothing, (0x78, 1, 1), nothing, nothing, (0, 1, 1)])
    assert bursts == [commands[1] + 4, commands[4] + 4]
    assert len(busy) > commands[4] + 4


def test_busy_ends_while_the_last_burst_still_waits():
    dut = Stoppable(splitter())
    seen = []

    async def process(ctx):
        ctx.set(dut.command.payload, payload((0x40, 3, 1)))
        ctx.set(dut.command.valid, 1)
        await ctx.tick()
        ctx.set(dut.command.valid, 0)
        async for _, _, *flags in ctx.tick().sample(dut.busy, dut.valid, dut.command.ready):
            seen.append(tuple(flags))

    simulate(dut, processes=[process], idle=30)
    assert seen[:3] == [(1, 0, 0)] * 3
    assert set(seen[3:]) == {(0, 1, 1)}
    assert len(seen) > 20


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"word_bytes": 0}, "word_bytes must be a power of two, not 0"),
        ({"word_bytes": 12}, "word_bytes must be a power of two, not 12"),
        ({"burst": 3}, "burst must be a power of two, not 3"),
        ({"burst": -4}, "burst must be a power of two, not -4"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        splitter(**parameters)
