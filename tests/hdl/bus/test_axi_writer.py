# amaranth: UnusedElaboratable=no
"""AxiWriter against a memory that stalls, answers late, and checks every burst."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.bus.axi_writer import AxiWriter
from fanin.sim.rtl.memory import Order, WriteMemory
from tests.support import new_seed, simulate


def small(**changes):
    return AxiWriter(**{"data_width": 64, "address_width": 16, "burst": 8} | changes)


def words(rng, dut, count):
    """Random words; most of them whole."""
    size = dut.data_width // 8
    strobe = lambda: rng.choice([-1, -1, rng.getrandbits(size)]) & (1 << size) - 1  # noqa: E731
    return [{"data": rng.getrandbits(dut.data_width), "strobe": strobe()} for _ in range(count)]


def stored(dut, commands, payloads):
    """The bytes that memory must have after ``(address, beats)``."""
    step, content, source = dut.data_width // 8, {}, iter(payloads)
    for address, beats in commands:
        for n in range(beats):
            word = next(source)
            for byte in range(step):
                if word["strobe"] >> byte & 1:
                    content[address // step * step + n * step + byte] = word["data"] >> 8 * byte & 0xFF
    return content


def write(dut, commands, *, stall=0.0, memory_stall=0.0, latency=1, idle=None, watched=(), **options):
    """Run commands, check what is stored; the log, the memory, and in each cycle the ``watched`` outputs."""
    seed = new_seed()
    rng = random.Random(seed)
    memory = WriteMemory(dut.axi, stall=memory_stall, latency=latency, seed=seed, **options)
    payloads = words(rng, dut, sum(beats for _, beats in commands))
    seen = []

    async def watch(ctx):
        async for _, _, *levels in ctx.tick().sample(*(getattr(dut, name) for name in watched)):
            seen.append(tuple(levels))

    log = simulate(
        dut,
        drive={"command": [{"address": a, "beats": b} for a, b in commands], "i": payloads},
        stall=stall,
        seed=seed,
        idle=idle or 60 + 4 * latency,
        processes=[memory.process, *([watch] if watched else [])],
    )
    assert memory.content == stored(dut, commands, payloads)
    return log, memory, seen


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
@pytest.mark.parametrize("shape", [(64, 1), (64, 8), (8, 256), (256, 4)])
def test_memory_ends_as_the_words_say_whatever_the_slave_waits_for(shape, stall, order):
    width, burst = shape
    rng = random.Random(new_seed())
    dut = small(data_width=width, burst=burst)
    commands = [(rng.randrange(0x8000), rng.randrange(40)) for _ in range(5)]
    write(dut, commands, stall=stall, memory_stall=stall, latency=rng.randrange(1, 30), order=order)


def test_bursts_end_at_their_boundaries_and_never_cross_4_kib():
    _, memory, _ = write(small(), [(0x0FE8, 13), (0, 1), (0x40, 8)])
    assert [request[1:] for request in memory.requests] == [
        (0x0FE8, 3),
        (0x1000, 8),
        (0x1040, 2),
        (0, 1),
        (0x40, 8),
    ]
    _, memory, _ = write(small(burst=256), [(0x0F00, 100)])
    assert [request[1:] for request in memory.requests] == [(0x0F00, 32), (0x1000, 68)]


def test_a_command_of_nothing_writes_nothing():
    _, memory, seen = write(small(), [(0, 0), (0x100, 1), (0x200, 0)], watched=["done"])
    assert [request[1:] for request in memory.requests] == [(0x100, 1)]
    assert sum(done for (done,) in seen) == 1


@pytest.mark.parametrize(
    ("burst", "commands"), [(8, [(0x18, 300)]), (1, [(0, 200)]), (8, [(0x18, 6), (0x80, 5)] * 20)]
)
def test_one_word_a_cycle_across_bursts_and_commands(burst, commands):
    """Commands of two bursts take 5 cycles."""
    _, memory, _ = write(small(burst=burst), commands, latency=20)
    assert memory.words == list(range(memory.words[0], memory.words[0] + len(memory.words)))


def test_latency_is_as_documented():
    log, memory, _ = write(small(), [(0, 8)])
    assert memory.requests[0][0] - log["command"][0][0] == 6
    assert memory.words[0] - memory.requests[0][0] == 1
    log, memory, _ = write(small(), [(0, 60)], stall={"i": 0.5})
    gaps = [there - came for (came, _), there in zip(log["i"], memory.words, strict=True)]
    assert set(gaps) == {1}


def test_between_commands_three_cycles_pass_without_a_request():
    _, memory, _ = write(small(), [(0, 8), (0x100, 8), (0x200, 8)])
    assert [b - a for (a, *_), (b, *_) in pairwise(memory.requests)] == [4, 4]


@pytest.mark.parametrize("outstanding", [1, 3])
def test_no_more_bursts_await_their_response_than_allowed(outstanding):
    _, memory, _ = write(small(outstanding=outstanding), [(0, 100)], latency=50, idle=600)
    starts = [cycle for cycle, *_ in memory.requests]
    for begun, ended in zip(starts[outstanding:], memory.responses, strict=False):
        assert begun > ended


def test_busy_lasts_until_the_last_response_and_done_counts_commands():
    commands = [(0, 20), (0x100, 3), (0x208, 9)]
    log, memory, seen = write(small(), commands, latency=9, stall={"i": 0.3}, watched=["busy", "done"])
    start, end = log["command"][0][0] + 1, memory.responses[-1]
    busy = [level for level, _ in seen]
    assert busy[start : end + 2] == [1] * (end + 2 - start)
    assert not any(busy[:start])
    assert not any(busy[end + 2 :])
    last = [2, 3, 5]  # of the bursts, per command
    assert [cycle for cycle, (_, done) in enumerate(seen) if done] == [memory.responses[n] + 1 for n in last]


def test_landed_counts_the_words_that_each_response_is_for():
    commands = [(0, 20), (0x100, 3), (0x208, 9)]
    _, memory, seen = write(small(), commands, latency=9, stall={"i": 0.3}, watched=["landed"])
    assert [landed for (landed,) in seen if landed] == [length for *_, length in memory.requests]
    assert [cycle for cycle, (landed,) in enumerate(seen) if landed] == [r + 1 for r in memory.responses]


def test_an_error_response_sticks_until_the_next_command_when_idle():
    dut = small()
    _, memory, seen = write(dut, [(0, 30)], errors={0x48}, latency=5, idle=100, watched=["error", "busy"])
    bad = memory.responses[1]
    assert [error for error, _ in seen[: bad + 1]] == [0] * (bad + 1)
    assert all(error for error, _ in seen[bad + 1 :])


def test_an_error_is_cleared_by_a_command_when_idle_and_kept_by_one_that_comes_while_busy():
    dut, seen = small(), []
    memory = WriteMemory(dut.axi, errors={0x08}, latency=2)
    commands = {5: (0, 4), 16: (0x100, 100), 60: (0x800, 1), 200: (0x900, 1)}  # the first one's response is bad

    async def host(ctx):
        ctx.set(dut.i.valid, 1)
        for cycle in range(240):
            address, beats = commands.get(cycle, (0, 0))
            ctx.set(dut.command.valid, cycle in commands)
            ctx.set(dut.command.payload, {"address": address, "beats": beats})
            await ctx.tick()
            seen.append((ctx.get(dut.error), ctx.get(dut.busy)))

    simulate(dut, processes=[memory.process, host], idle=241, seed=1)
    assert sum(words for *_, words in memory.requests) == 106
    assert seen[59:62] == [(1, 1)] * 3
    assert seen[199:202] == [(1, 0), (0, 1), (0, 1)]


def test_addresses_run_ahead_of_the_words_by_16_bursts_or_one_more():
    _, memory, seen = write(small(burst=1), [(0, 60)], stall={"i": 0.8}, idle=100, watched=["busy", "done"])
    ahead = [
        n + 1 - sum(word < cycle for word in memory.words) for n, (cycle, *_) in enumerate(memory.requests)
    ]
    assert max(ahead) in (16, 17)
    assert sum(done for _, done in seen) == 1
    assert seen[-1] == (0, 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"data_width": 48}, "data_width must be a power of two from 8 to 1024, not 48"),
        ({"address_width": 11}, "address_width must be from 12 to 64, not 11"),
        ({"burst": 12}, "burst must be a power of two from 1 to 256 words, not 12"),
        ({"data_width": 512, "burst": 128}, "burst must be a power of two from 1 to 64 words, not 128"),
        ({"outstanding": 0}, "outstanding must be at least 1, not 0"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters)
