# amaranth: UnusedElaboratable=no
"""PayloadFetch against a memory that stalls, answers late, and checks every request."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.bus.axi4 import MAX_BURST
from fanin.hdl.rdma.fetch import PayloadFetch
from fanin.sim.rtl.memory import ReadMemory
from tests.hdl.rdma.payloads import bursts_of, places, turned_words, windows
from tests.peers import run_cocotb
from tests.support import new_seed, simulate, slow

SPACE = 1 << 16
CONTENT = random.Random(1).randbytes(SPACE)


def small(**changes):
    return PayloadFetch(**{"width": 128, "address_width": 16, "depth": 300} | changes)


def memory_of(dut, **options):
    step = dut.width // 8
    return ReadMemory(dut.axi, lambda at: int.from_bytes(CONTENT[at : at + step], "little"), **options)


def items(commands):
    return [{"address": address, "size": size, "lane": lane} for address, size, lane in commands]


def fetch(dut, commands, *, stall=0.0, memory_stall=0.0, latency=1, errors=(), processes=(), limit=60_000):
    """Run commands and check words and packets; the log and the memory."""
    step, seed = dut.width // 8, new_seed()
    memory = memory_of(dut, latency=latency, stall=memory_stall, seed=seed, errors=errors)
    words = turned_words(CONTENT, commands, step)
    log = simulate(
        dut,
        drive={"command": items(commands)},
        collect={"o": len(words), "packet": len(commands)},
        stall=stall,
        seed=seed,
        limit=limit,
        idle=30,
        processes=[memory.process, *processes],
    )
    assert [word for _, word in log["o"]] == words
    expected = list(windows(commands, step))
    assert [{name: packet[name] for name in expected[0]} for _, packet in log["packet"]] == expected
    assert [r[1:] for r in memory.requests] == [b for a, s, _ in commands for b in bursts_of(a, s, step)]
    return log, memory


def cycles_of(log, name="o"):
    return [cycle for cycle, _ in log[name]]


QUICK = [(128, 0.4, 0), (128, 0.4, 3)]
REST = [(width, stall, words) for width in (128, 256, 512) for stall in (0.0, 0.4) for words in (0, 1, 3)]


@pytest.mark.parametrize(
    ("width", "stall", "start_words"), [*QUICK, *slow(*(case for case in REST if case not in QUICK))]
)
def test_every_payload_comes_turned_to_its_lane(width, stall, start_words):
    rng = random.Random(new_seed())
    commands = list(places(rng, 24, width // 8, space=SPACE))
    latency = rng.choice([1, 2, 30])
    dut = small(width=width, start_words=start_words)
    fetch(dut, commands, stall=stall, memory_stall=stall, latency=latency)


def test_any_byte_of_memory_comes_to_any_lane():
    rng = random.Random(new_seed())
    pairs = [(place, lane) for place in range(16) for lane in range(16)]
    rng.shuffle(pairs)
    commands = [(rng.randrange(0, SPACE // 2, 16) + place, rng.randrange(1, 60), lane) for place, lane in pairs]
    fetch(small(), commands, stall=0.1, memory_stall=0.1, latency=3)


def test_a_burst_may_reach_from_one_boundary_to_the_next():
    _, memory = fetch(small(), [(0x1000, 4096, 3), (0x2FFF, 4096, 0)])
    assert [request[1:] for request in memory.requests] == [(0x1000, MAX_BURST), (0x2FF0, 1), (0x3000, 256)]


@pytest.mark.parametrize("address", [0x2011, *slow(0x2000, 0x203F, 0x2FC7)])
@pytest.mark.parametrize("size", [1, 4096, *slow(20)])
def test_latency_is_as_documented(address, size):
    log, memory = fetch(small(width=512), [(address, size, 22)], latency=7)
    requested = memory.requests[0][0]
    assert requested - log["command"][0][0] == 2
    assert log["o"][0][0] - requested == 7 + 2
    assert log["packet"][0][0] == log["o"][-1][0]


@pytest.mark.parametrize("start_words", [1, 8, *slow(2, 65)])
def test_a_payload_is_told_of_with_the_word_that_allows_it(start_words):
    commands = [(0x2011, 4096, 22), (0x3000, 64, 0), (0x3040, 65, 0), (0x403F, 500, 63), (0x4000, 4096, 0)]
    log, _ = fetch(small(width=512, start_words=start_words), commands, latency=7)
    comes, first = cycles_of(log), 0
    for (told, _), packet in zip(log["packet"], windows(commands, 64), strict=True):
        assert told == comes[first + min(start_words, packet["words"]) - 1]
        first += packet["words"]


@pytest.mark.parametrize("start_words", [4, *slow(0)])
def test_what_is_told_of_can_be_taken_a_word_a_cycle(start_words):
    """The words are left alone until their payload is told of."""
    seed = new_seed()
    dut = small(width=256, depth=150, start_words=start_words)
    commands = list(places(random.Random(seed), 30, 32, space=SPACE))
    memory = memory_of(dut, latency=9, stall=0.3, seed=seed)
    taken = []

    async def sender(ctx):
        while True:
            ctx.set(dut.packet.ready, 1)
            _, _, told, words = await ctx.tick().sample(dut.packet.valid, dut.packet.payload.words)
            if not told:
                continue
            ctx.set(dut.packet.ready, 0)
            ctx.set(dut.o.ready, 1)
            for n in range(words):
                valid = 0
                while not valid:
                    _, _, valid, word = await ctx.tick().sample(dut.o.valid, dut.o.payload)
                    assert valid or n >= start_words > 0, f"word {n} of {words} is not there"
                taken.append(word)
            ctx.set(dut.o.ready, 0)

    processes = [memory.process, sender]
    simulate(dut, drive={"command": items(commands)}, stall=0.0, processes=processes, idle=1000, seed=seed)
    assert taken == turned_words(CONTENT, commands, 32)


@pytest.mark.parametrize("width", [256, *slow(512)])
@pytest.mark.parametrize(("place", "lane"), [(0, 0), (5, 0), (1, 14), (15, 3)])
def test_one_word_a_cycle_across_payloads(width, place, lane):
    """All of them cross a boundary but the aligned ones."""
    commands = [(0x1000 * n + place, 4096, lane) for n in range(1, 5)]
    log, _ = fetch(small(width=width, depth=512), commands, latency=20)
    comes = cycles_of(log)
    assert comes == list(range(comes[0], comes[0] + len(comes)))


def test_a_latency_up_to_the_documented_bound_is_hidden_and_not_much_more():
    def gap(latency):
        log, _ = fetch(
            PayloadFetch(address_width=16), [(0x1000 * n + 7, 4096, 1) for n in range(14)], latency=latency
        )
        comes = cycles_of(log)
        return comes[-1] - comes[0] + 1 - len(comes)

    bound = 512 - 65 - 6
    assert gap(bound) == 0
    assert gap(bound + 65) > 0


def test_a_payload_in_three_cycles():
    _, memory = fetch(small(), [(0x100 * n, 16, 0) for n in range(12)], latency=9)
    assert {b[0] - a[0] for a, b in pairwise(memory.requests)} == {3}


@pytest.mark.parametrize("outstanding", [1, 3])
def test_no_more_bursts_are_in_flight_than_allowed(outstanding):
    _, memory = fetch(small(outstanding=outstanding), [(0x100 * n, 16, 0) for n in range(20)], latency=50)
    requested = [cycle for cycle, *_ in memory.requests]
    for earlier, later in zip(requested, requested[outstanding:], strict=False):
        assert later - earlier >= 50
    assert requested[outstanding - 1] - requested[0] < 10


def test_no_more_payloads_are_asked_for_than_may_wait():
    dut = small(outstanding=3)
    memory = memory_of(dut)
    commands = [(0x100 * n, 16, 0) for n in range(4)]
    simulate(dut, drive={"command": items(commands)}, processes=[memory.process], idle=100)
    assert len(memory.requests) == 3


@pytest.mark.parametrize("size", [16, 700, 4096])
def test_a_stalled_consumer_is_never_sent_more_than_the_fifo_takes(size):
    dut = small(outstanding=300)
    memory = memory_of(dut, latency=3)

    async def host(ctx):
        ctx.set(dut.command.payload, {"address": 0x1000, "size": size, "lane": 0})
        ctx.set(dut.command.valid, 1)

    simulate(dut, processes=[memory.process, host], idle=800)
    assert 300 - 257 <= sum(words for *_, words in memory.requests) <= 300


def test_an_error_is_told_of_once_for_every_word_and_the_words_come():
    dut, seen = small(), []

    async def watch(ctx):
        async for _, _, error in ctx.tick().sample(dut.error):
            seen.append(error)

    log, _ = fetch(dut, [(0x100, 200, 0), (0x300, 16, 0)], errors={0x120, 0x150}, processes=[watch])
    first = cycles_of(log)[0]  # 2 cycles behind its response, the pulse 1 cycle behind
    assert [cycle for cycle, error in enumerate(seen) if error] == [first - 1 + 2, first - 1 + 5]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 64}, "width must be one of 128, 256, 512, not 64"),
        ({"address_width": 48}, "address_width must be from 12 to 47, not 48"),
        ({"depth": 256}, "depth must be at least a payload, 257 words, not 256"),
        ({"start_words": 258}, "start_words must be from 0 to 257, not 258"),
        ({"outstanding": 0}, "outstanding must be at least 1, not 0"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters)


@pytest.mark.verilator
def test_cocotbext_axi_serves_it(tmp_path):
    dut = PayloadFetch(width=256, address_width=16, depth=150)
    run_cocotb(dut, "tests.hdl.rdma.cocotb_fetch", tmp_path, seed=new_seed())
