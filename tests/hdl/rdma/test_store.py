# amaranth: UnusedElaboratable=no
"""PayloadStore against a memory that stalls, answers late, and checks every burst."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.rdma.store import PayloadStore
from fanin.sim.rtl.memory import Order, WriteMemory
from tests.hdl.rdma.payloads import bursts_of, places, words_of
from tests.peers import run_cocotb
from tests.support import new_seed, simulate, slow

SPACE = 1 << 16


def small(**changes):
    return PayloadStore(**{"width": 128, "address_width": 16} | changes)


def traffic(rng, commands, step):
    """The words that come in for ``(address, size, lane, keep)``, and the bytes that memory must have then."""
    words, content = [], {}
    for address, size, lane, keep in commands:
        payload = rng.randbytes(size)
        count = words_of(lane, size, step) if size else 0
        run = rng.randbytes(lane) + payload + rng.randbytes(step)
        words += [int.from_bytes(run[n * step :][:step], "little") for n in range(count)]
        if keep:
            content.update(enumerate(payload, address))
    return words, content


def kept(commands):
    return [command[:3] for command in commands if command[3]]


class Run:
    """Run commands, check what is stored and when each is done; the log, the memory, and the error pulses."""

    def __init__(
        self, dut, commands, *, stall=0.0, memory_stall=0.0, latency=1, limit=60_000, idle=None, **options
    ):
        step, seed = dut.width // 8, new_seed()
        self.memory = WriteMemory(dut.axi, stall=memory_stall, latency=latency, seed=seed, **options)
        self.done, self.errors, cycles = [], [], iter(range(limit))
        words, content = traffic(random.Random(seed), commands, step)

        async def watch(ctx):
            async for _, _, done, error in ctx.tick().sample(dut.done, dut.error):
                cycle = next(cycles)
                self.done += [cycle] * done
                self.errors += [cycle] * error

        items = [{"address": a, "size": s, "lane": at, "keep": keep} for a, s, at, keep in commands]
        self.log = simulate(
            dut,
            drive={"command": items, "i": words},
            stall=stall,
            seed=seed,
            limit=limit,
            idle=idle or 2000 + 4 * latency,  # the slowest phase of a stall ends meanwhile
            processes=[self.memory.process, watch],
        )
        self.bursts = [bursts_of(*command[:2], step) if command[1] else [] for command in kept(commands)]
        assert self.memory.content == content  # every byte of it, and no other
        assert [request[1:] for request in self.memory.requests] == [
            b for bursts in self.bursts for b in bursts
        ]
        self._check_done([cycle for cycle, item in self.log["command"] if item["keep"]])

    def _check_done(self, taken):
        """A cycle behind the last response, two behind the command, one behind what was in front of it.

        A response is used in each cycle.
        """
        expected, responses, before = [], iter(self.memory.responses), -1
        for cycle, bursts in zip(taken, self.bursts, strict=True):
            before = max(cycle + 1, before) + 1
            for n, _ in enumerate(bursts):
                before = max(before + (n > 0), next(responses) + 1)
            expected.append(before)
        assert self.done == expected


QUICK = [(128, 0.4, order) for order in Order]
REST = [(width, stall, order) for width in (128, 256, 512) for stall in (0.0, 0.4) for order in Order]


@pytest.mark.parametrize(
    ("width", "stall", "order"), [*QUICK, *slow(*(case for case in REST if case not in QUICK))]
)
def test_the_bytes_of_a_payload_are_written_and_no_others(width, stall, order):
    rng = random.Random(new_seed())
    commands = [(*place, rng.random() < 0.8) for place in places(rng, 24, width // 8, space=SPACE)]
    for _ in range(4):
        commands.insert(rng.randrange(len(commands)), (rng.randrange(SPACE), 0, 1, rng.random() < 0.7))
    latency = rng.choice([1, 2, 30])
    Run(small(width=width), commands, stall=stall, memory_stall=stall, latency=latency, order=order)


def test_any_lane_goes_to_any_byte_of_memory():
    rng = random.Random(new_seed())
    pairs = [(place, lane) for place in range(16) for lane in range(16)]
    rng.shuffle(pairs)
    commands = [(rng.randrange(0, SPACE // 2, 16) + p, rng.randrange(1, 60), lane, 1) for p, lane in pairs]
    Run(small(), commands, stall=0.1, memory_stall=0.1, latency=3)


def test_a_stream_stalls_alone():
    rng = random.Random(new_seed())
    for stall in {"i": 0.7}, {"command": 0.9}:
        Run(small(), [(*place, 1) for place in places(rng, 20, 16, space=SPACE)], stall=stall)


@pytest.mark.parametrize(
    ("place", "lane", "size", "cycles"),
    [(0, 0, 4096, 4), (6, 20, 1, 5), *slow((9, 9, 1, 4), (20, 6, 4096, 4), (20, 6, 1, 4), (6, 20, 4096, 5))],
)
def test_latency_is_as_documented(place, lane, size, cycles):
    commands = [(0x3F00, 0, 0, 1), (0x1000 + place, size, lane, 1)]  # the words wait while the first is taken
    run = Run(small(width=512), commands, stall={"command": 0.9})
    taken = run.log["command"][1][0]
    assert run.log["i"][0][0] < taken
    assert run.memory.requests[0][0] - taken == 4
    assert run.memory.words[0] - taken == cycles


def length_of(commands, step):
    """Cycles from the first word to the last that the docstring allows."""
    total, flushed = 0, False  # the payload before ended with what was held
    for address, size, lane, keep in commands:
        place = address % step
        comes, leaves, lower = words_of(lane, size, step), words_of(place, size, step), place < lane
        flushes = bool(keep) and leaves == comes + (not lower)
        total += comes + flushes - (flushed and (lower or not keep))
        flushed = flushes
    return total


@pytest.mark.parametrize("width", [*slow(256), 512])
@pytest.mark.parametrize(
    ("place", "lane", "cycles"),
    [(0, 0, 0), (6, 10, 1), *slow((10, 0, 1), (0, 10, 1), (10, 10, 1), (10, 6, 1))],
)
def test_a_word_a_cycle_across_payloads_of_any_alignment(width, place, lane, cycles):
    commands = [(0x1000 * n + place, 4096, lane, 1) for n in range(1, 4)]
    memory = Run(small(width=width), commands, latency=20).memory
    gaps = [later - earlier for earlier, later in pairwise(memory.words)]
    if place or not lane:
        assert set(gaps) == {1}
        assert len(memory.words) == 3 * (4096 * 8 // width + cycles)
    else:  # a word more comes than leaves
        assert gaps.count(2) == 2
        assert max(gaps) == 2


def test_payloads_take_no_more_cycles_than_documented():
    rng = random.Random(new_seed())
    commands = [
        (at, 1 + size % 700, lane, rng.random() < 0.8) for at, size, lane in places(rng, 60, 64, space=SPACE)
    ]
    # behind a long one, so that commands wait: one that crosses a boundary takes two cycles, whatever its words
    commands = [(0x2000, 4096, 0, 1), *commands, (0x2000, 64, 0, 1)]
    memory = Run(small(width=512), commands).memory
    assert memory.words[-1] - memory.words[0] + 1 == length_of(commands, 64)


def test_a_command_a_cycle():
    memory = Run(small(), [(0x100 * n + 5, 8, 2, 1) for n in range(30)]).memory
    assert memory.words == list(range(memory.words[0], memory.words[0] + 30))
    assert [cycle for cycle, *_ in memory.requests] == memory.words


def test_words_are_thrown_away_one_a_cycle():
    commands = [(0x1005, 4096, 7, 0), (0, 3, 3, 0), (0x2003, 900, 9, 0), (0x3000, 40, 0, 1), (0, 0, 0, 0)]
    run = Run(small(width=512), commands)
    _, *comes = (cycle for cycle, _ in run.log["i"])  # the first one waits for its command
    assert comes[-1] - comes[0] == len(comes) - 1
    assert len(run.memory.words) == 1
    assert len(run.done) == 1


def test_a_payload_of_nothing_is_done_behind_those_before_it_and_no_later():
    nothing = [(0x200, 0, 3, 1)]
    commands = [
        *nothing,
        (0x0FF0, 60, 1, 1),
        *nothing * 5,
        (0x100, 3, 0, 1),
        *nothing,
        (0x200, 60, 9, 0),
        *nothing,
    ]
    run = Run(small(), commands, latency=20)
    assert len(run.done) == 10
    assert run.done[0] < run.memory.responses[0]


@pytest.mark.parametrize("outstanding", [3, *slow(4)])
def test_no_more_payloads_await_their_response_than_allowed(outstanding):
    commands = [(0x100 * n + 3, 20, 7, 1) for n in range(12)]
    run = Run(small(outstanding=outstanding), commands, latency=50, idle=1200)
    begun = [cycle for cycle, *_ in run.memory.requests]
    for later, earlier in zip(begun[outstanding:], run.memory.responses, strict=False):
        assert later > earlier


def test_an_error_is_told_of_once_for_every_response():
    run = Run(
        small(), [(0x0FF3, 60, 1, 1), (0x100, 3, 0, 1), (0x208, 3, 0, 1)], errors={0x1010, 0x100}, latency=5
    )
    assert run.errors == [run.memory.responses[1] + 1, run.memory.responses[2] + 1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 64}, "width must be one of 128, 256, 512, not 64"),
        ({"address_width": 11}, "address_width must be from 12 to 47, not 11"),
        ({"outstanding": 2}, "outstanding must be at least 3, not 2"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters)


@pytest.mark.verilator
def test_cocotbext_axi_stores_it(tmp_path):
    run_cocotb(small(width=256), "tests.hdl.rdma.cocotb_store", tmp_path, seed=new_seed())
