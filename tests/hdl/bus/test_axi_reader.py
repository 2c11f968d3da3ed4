# amaranth: UnusedElaboratable=no
"""AxiReader against a memory that stalls, answers late, and checks every request."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.bus.axi_reader import AxiReader
from fanin.sim.rtl.memory import ReadMemory
from tests.support import new_seed, simulate


def content(address):
    return address * 0x9E3779B97F4A7C15 & (1 << 64) - 1


def read(dut, commands, *, latency=1, stall=0.0, memory_stall=0.0, errors=(), processes=(), limit=20_000):
    """Run commands ``(address, beats, repeats)``; the log, the memory, and the words that must come."""
    step = dut.data_width // 8
    seed = new_seed()
    memory = ReadMemory(dut.axi, content, latency=latency, stall=memory_stall, seed=seed, errors=errors)
    expected = [
        content(address // step * step + step * n)
        for address, beats, repeats in commands
        for _ in range(repeats)
        for n in range(beats)
    ]
    log = simulate(
        dut,
        drive={"command": [{"address": a, "beats": b, "repeats": r} for a, b, r in commands]},
        collect={"o": len(expected)},
        stall=stall,
        seed=seed,
        limit=limit,
        idle=20,
        processes=[memory.process, *processes],
    )
    return log, memory, expected


def small(**changes):
    return AxiReader(**{"data_width": 64, "address_width": 16, "burst": 8, "fifo_depth": 32} | changes)


@pytest.mark.parametrize("latency", [1, 2, 30])
@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
@pytest.mark.parametrize("shape", [(64, 1, 4), (64, 8, 16), (64, 8, 32), (8, 256, 600), (256, 4, 9)])
def test_every_word_comes_once_and_in_order(shape, stall, latency):
    width, burst, depth = shape
    rng = random.Random(new_seed())
    dut = small(data_width=width, burst=burst, fifo_depth=depth)
    commands = [(rng.randrange(0x8000), rng.randrange(1, 40), rng.randrange(1, 4)) for _ in range(6)]
    log, _, expected = read(dut, commands, stall=stall, memory_stall=stall, latency=latency)
    assert [word for _, word in log["o"]] == [word & (1 << width) - 1 for word in expected]


def test_bursts_end_at_their_boundaries():
    _, memory, _ = read(small(), [(0x0FE8, 13, 2), (0, 1, 2), (0x40, 8, 1)])
    once = [(0x0FE8, 3), (0x1000, 8), (0x1040, 2)]
    assert [request[1:] for request in memory.requests] == [*once, *once, (0, 1), (0, 1), (0x40, 8)]


def test_a_command_of_nothing_reads_nothing():
    log, memory, _ = read(small(), [(0, 0, 3), (0, 3, 0), (0x100, 1, 1)])
    assert [word for _, word in log["o"]] == [content(0x100)]
    assert len(memory.requests) == 1


@pytest.mark.parametrize("beats", [1, 3, 64, 100])
def test_one_word_a_cycle_across_bursts_and_repeats(beats):
    """With one-word runs every burst is one word: the request channel must give one a cycle, too."""
    log, _, expected = read(small(fifo_depth=64), [(0x18, beats, 600 // beats)], latency=20)
    cycles = [cycle for cycle, _ in log["o"]]
    assert cycles == list(range(cycles[0], cycles[0] + len(expected)))


def test_the_defaults_hide_a_latency_of_128_cycles():
    log, _, _ = read(AxiReader(), [(0x1230, 2000, 1)], latency=128)
    cycles = [cycle for cycle, _ in log["o"]]
    assert cycles == list(range(cycles[0], cycles[0] + 2000))


def test_a_latency_up_to_the_documented_bound_is_hidden_and_not_much_more():
    def gap(latency):
        log, _, _ = read(small(fifo_depth=64), [(0, 400, 1)], latency=latency)
        cycles = [cycle for cycle, _ in log["o"]]
        return cycles[-1] - cycles[0] - 399

    bound = 64 - 2 * 8 - 4
    assert gap(bound) == 0
    assert gap(bound + 2) > 0


def test_latency_is_as_documented():
    log, memory, _ = read(small(), [(0, 8, 1)], latency=7)
    taken, requested = log["command"][0][0], memory.requests[0][0]
    assert requested - taken == 6
    assert log["o"][0][0] - requested == 7 + 1


def test_between_commands_three_cycles_pass_without_a_request():
    _, memory, _ = read(small(), [(0, 8, 1), (0x100, 8, 1), (0x200, 8, 1)])
    cycles = [cycle for cycle, *_ in memory.requests]
    assert [b - a for a, b in pairwise(cycles)] == [4, 4]


@pytest.mark.parametrize("outstanding", [1, 3])
def test_no_more_bursts_are_in_flight_than_allowed(outstanding):
    """The memory answers 50 cycles after a burst: in no 50 cycles may there be more requests."""
    _, memory, _ = read(small(outstanding=outstanding), [(0, 300, 1)], latency=50)
    cycles = [cycle for cycle, *_ in memory.requests]
    for earlier, later in zip(cycles, cycles[outstanding:], strict=False):
        assert later - earlier >= 50
    assert cycles[outstanding - 1] - cycles[0] < 10


def test_a_stalled_consumer_is_never_sent_more_than_the_fifo_takes():
    dut = small()

    memory = ReadMemory(dut.axi, content, latency=3)
    command = {"address": 0, "beats": 500, "repeats": 1}
    simulate(dut, drive={"command": [command]}, processes=[memory.process], idle=200, seed=1)

    assert sum(words for _, _, words in memory.requests) == 32


def test_busy_lasts_from_the_command_to_the_last_word():
    dut = small()
    busy = []

    async def watch(ctx):
        async for _, _, level in ctx.tick().sample(dut.busy):
            busy.append(level)

    log, _, _ = read(dut, [(0, 20, 2)], stall={"o": 0.5}, latency=9, processes=[watch])
    start, end = log["command"][0][0] + 1, log["o"][-1][0]
    assert busy[:start] == [0] * start
    assert busy[start : end + 3] == [1] * (end + 3 - start)
    assert not any(busy[end + 3 :])


def test_stop_ends_a_command_with_the_bursts_under_way_and_the_next_one_follows():
    dut = small()
    memory = ReadMemory(dut.axi, content, latency=9, seed=0)
    words = []

    async def stop(ctx):
        await ctx.tick().repeat(40)
        ctx.set(dut.stop, 1)
        await ctx.tick()
        ctx.set(dut.stop, 0)

    async def take(ctx):
        ctx.set(dut.o.ready, 1)
        async for _, _, valid, word in ctx.tick().sample(dut.o.valid, dut.o.payload):
            words.extend([word] if valid else [])

    commands = [{"address": 0, "beats": 1000, "repeats": 5}, {"address": 0x4000, "beats": 3, "repeats": 1}]
    simulate(dut, drive={"command": commands}, stall=0, idle=60, processes=[memory.process, stop, take])
    requested = [a + 8 * n for _, a, length in memory.requests for n in range(length)]
    assert requested[-3:] == [0x4000, 0x4008, 0x4010]
    assert requested[:-3] == [8 * n for n in range(len(requested) - 3)]
    assert 8 <= len(requested) < 80
    assert words == [content(address) for address in requested]


def test_an_error_response_sticks_until_the_next_command_when_idle():
    dut = small()
    seen = []

    async def watch(ctx):
        async for _, _, level in ctx.tick().sample(dut.error):
            seen.append(level)

    async def again(ctx):
        await ctx.tick().repeat(60)
        ctx.set(dut.command.payload, {"address": 0x100, "beats": 1, "repeats": 1})
        ctx.set(dut.command.valid, 1)
        await ctx.tick()
        ctx.set(dut.command.valid, 0)

    memory = ReadMemory(dut.axi, content, errors={0x20})
    command = {"address": 0, "beats": 10, "repeats": 1}
    drive = {"command": [command]}
    simulate(dut, drive=drive, collect={"o": 11}, stall=0, idle=30, processes=[memory.process, watch, again])
    assert seen[5] == 0
    assert seen[59] == 1
    assert not any(seen[62:])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"data_width": 48}, "data_width must be a power of two from 8 to 1024, not 48"),
        ({"address_width": 11}, "address_width must be from 12 to 64, not 11"),
        ({"burst": 12}, "burst must be a power of two from 1 to 256 words, not 12"),
        ({"data_width": 512, "burst": 128}, "burst must be a power of two from 1 to 64 words, not 128"),
        ({"outstanding": 0}, "outstanding must be at least 1, not 0"),
        ({"fifo_depth": 15}, "fifo_depth must be at least two bursts, 16 words, not 15"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters)
