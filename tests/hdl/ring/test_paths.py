# amaranth: UnusedElaboratable=no
"""The receive and the store path on their own: what they check, and how long they take."""

from dataclasses import replace

import pytest

from fanin.hdl.ring.link_job import Difference
from fanin.hdl.ring.orders import Step
from fanin.hdl.ring.receive import ReceivePath
from fanin.hdl.ring.store import StorePath
from fanin.ring.facts import PRESETS
from tests.hdl.ring.bench import Memory
from tests.support import simulate

TINY = PRESETS["tiny"]
WORD_BYTES = TINY.width // 8


def order(step, words, **others):
    return {"step": step, "words": words, "operation": 3, "count": 100, "slice": 1} | others


def complete(step):
    """Whether the frames that a step receives are complete sums."""
    return int(step in (Step.FORWARD, Step.STORE))


def beats(words, **others):
    header = {"operation": 3, "count": 100, "length": words, "slice": 1, "complete": 0} | others
    return [{"data": n + 1, "last": n == words - 1} | header for n in range(words)]


@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_received_frames_go_where_their_step_says(stall):
    steps = {Step.ADD: 2, Step.FORWARD: 4, Step.TOTAL: 1, Step.STORE: 3}
    log = simulate(
        ReceivePath(config=TINY),
        drive={
            "orders": [order(step, words) for step, words in steps.items()],
            "i": [beat for step, words in steps.items() for beat in beats(words, complete=complete(step))],
        },
        collect={"added": 3, "stored": 7, "verbatim": 4},
        stall=stall,
    )
    for port, frames in {"added": (2, 1), "stored": (4, 3), "verbatim": (4,)}.items():
        expected = [(n + 1, n == words - 1) for words in frames for n in range(words)]
        assert [(word.data, word.last) for _, word in log[port]] == expected
    if not stall:
        cycles = [cycle for cycle, _ in log["i"]]
        assert cycles == list(range(cycles[0], cycles[0] + 10))
        assert log["added"][0][0] - cycles[0] == 3
        assert log["verbatim"][0][0] - cycles[2] == 3
        assert log["stored"][0][0] - cycles[2] == 4


def test_a_sender_that_waits_loses_no_beat_of_what_is_forwarded_and_decoded():
    words = TINY.frame_words
    log = simulate(
        ReceivePath(config=TINY),
        drive={"orders": [order(Step.FORWARD, words)] * 6, "i": beats(words, complete=1) * 6},
        collect={"stored": 6 * words, "verbatim": 6 * words},
        stall={"verbatim": 0.7},
    )
    for port in "stored", "verbatim":
        assert [word.data for _, word in log[port]] == [n + 1 for n in range(words)] * 6


WRONG = [
    *({"operation": 2}, {"count": 99}, {"count": 100 + (1 << 31)}, {"length": 2}),
    *({"slice": 2}, {"slice": 255}, {"complete": 1}, {"slice": 0, "complete": 1}),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_frame_that_is_not_the_one_to_come_stops_the_path_and_says_what_differs(wrong):
    dut, seen = ReceivePath(config=TINY), []
    names = list(Difference.as_shape().members)

    async def watch(ctx):
        async for _, _, differs in ctx.tick().sample(dut.differs.as_value()):
            seen.append({name for bit, name in enumerate(names) if differs >> bit & 1})

    simulate(
        dut,
        drive={
            "orders": [order(Step.ADD, words) for words in (2, 1)],
            "i": [*beats(2), *beats(1, **wrong)],
        },
        collect={"added": 2},
        processes=[watch],
        idle=20,
    )
    assert seen[-1] == wrong.keys()


def test_frames_are_written_when_they_are_whole_and_reported_in_order():
    """Five frames: 3 words; one whose last lane is cut off; nothing inside, final; a total; and a last one."""
    dut, finished, requested = StorePath(config=replace(TINY, address_width=16)), [], []
    memory = Memory(dut.axi, seed=1, latency=4)
    base = {"inside": 2, "lanes": 0, "final": 0}
    orders = [
        {"step": Step.FORWARD, "words": 3, "address": 10} | base | {"inside": 3},
        {"step": Step.STORE, "words": 4, "address": 20} | base | {"lanes": 1},
        {"step": Step.STORE, "words": 2, "address": 30} | base | {"inside": 0, "final": 1},
        {"step": Step.TOTAL, "words": 2, "address": 40} | base,
        {"step": Step.STORE, "words": 2, "address": 50} | base | {"final": 1},
    ]
    words = [
        {"data": (1 << 256) - 1 - n, "last": last} for n, last in enumerate([0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1])
    ]
    totals = [{"data": (1 << 256) - 101 - n, "last": n} for n in range(2)]

    async def watch(ctx):
        cycle = 0
        names = (dut.finished, dut.axi.awvalid, dut.axi.awready)
        async for _, _, done, valid, ready in ctx.tick().sample(*names):
            finished.extend([cycle] * done)
            requested.extend([cycle] * (valid and ready))
            cycle += 1

    log = simulate(
        dut,
        drive={"orders": orders, "received": words, "totals": totals},
        stall=0.0,
        idle=60,
        processes=[memory._write, watch],
    )
    expected = bytearray(len(memory.content))

    def put(address, values):
        for n, value in enumerate(values):
            at = WORD_BYTES * (address + n)
            expected[at : at + WORD_BYTES] = value["data"].to_bytes(WORD_BYTES, "little")

    put(10, words[:3])
    put(20, words[3:5])
    expected[WORD_BYTES * 21 + 4 : WORD_BYTES * 22] = bytes(WORD_BYTES - 4)
    put(40, totals)
    put(50, words[9:])
    assert memory.content == expected
    assert len(finished) == 2
    assert requested[0] - log["received"][2][0] == 8


@pytest.mark.parametrize("slices", [0, 5])
def test_frames_of_a_word_wait_for_a_memory_that_takes_long(slices):
    """As many frames are whole as the path holds, 13 and 3 more: a count of 4 bits would come round."""
    config = replace(TINY, address_width=16, memory_words=slices * TINY.frame_words)
    dut, frames, finished = StorePath(config=config), 60, []
    memory = Memory(dut.axi, seed=1)

    async def late(ctx):
        await ctx.tick().repeat(300)
        await memory._write(ctx)

    async def watch(ctx):
        async for _, _, done in ctx.tick().sample(dut.finished):
            finished.append(done)

    base = {"step": Step.TOTAL, "words": 1, "inside": 1, "lanes": 0, "final": 1}
    simulate(
        dut,
        drive={
            "orders": [base | {"address": n} for n in range(frames)],
            "totals": [{"data": n + 1, "last": 1} for n in range(frames)],
        },
        idle=300,
        processes=[late, watch],
    )
    assert sum(finished) == frames
    for n in range(frames):
        assert memory.content[n * WORD_BYTES] == n + 1
