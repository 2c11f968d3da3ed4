# amaranth: UnusedElaboratable=no
"""The small parts of the ring engine: words of a frame, forks, adders, descriptors."""

import random
from dataclasses import replace

import numpy as np
import pytest

from fanin.golden import fp32
from fanin.hdl.ring.descriptors import DescriptorQueue
from fanin.hdl.ring.lanes import RingLanes
from fanin.hdl.ring.words import FrameWords
from fanin.hdl.stream.fork import StreamFork
from fanin.ring.facts import PRESETS
from tests.support import new_seed, simulate, slow

TINY = PRESETS["tiny"]
LANES = TINY.lanes


def frame(rng):
    words = rng.randint(1, TINY.frame_words)
    inside = rng.randint(0, words)
    return {
        "words": words,
        "inside": inside,
        "lanes": rng.randrange(LANES) if inside else 0,
        "tag": rng.randrange(2),
    }


def words_of(frame):
    for n in range(frame["words"]):
        is_end = n == frame["inside"] - 1 and frame["lanes"]
        lanes = frame["lanes"] if is_end else LANES if n < frame["inside"] else 0
        yield n < frame["inside"], (1 << lanes) - 1, n == frame["words"] - 1, frame["tag"]


@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_words_of_a_frame_know_what_lies_inside_the_vector(stall):
    rng = random.Random(new_seed())
    frames = [frame(rng) for _ in range(60)]
    expected = [word for each in frames for word in words_of(each)]
    log = simulate(FrameWords(config=TINY), drive={"i": frames}, collect={"o": len(expected)}, stall=stall)
    assert [(w.inside, w.mask, w.last, w.tag) for _, w in log["o"]] == expected
    if not stall:
        cycles = [cycle for cycle, _ in log["o"]]
        assert cycles == list(range(log["i"][0][0] + 3, log["i"][0][0] + 3 + len(expected)))


def test_a_fork_gives_every_payload_once_to_each_taker_at_its_own_pace():
    items = list(range(50))
    log = simulate(
        StreamFork(shape=8, outputs=3),
        drive={"i": items},
        collect={f"o[{n}]": len(items) for n in range(3)},
        stall={"o[0]": 0.2, "o[1]": 0.7},
    )
    assert all([value for _, value in log[f"o[{n}]"]] == items for n in range(3))


def pack(values):
    return int.from_bytes(np.asarray(values, dtype=np.uint32).tobytes(), "little")


@pytest.mark.parametrize("lanes", [2, *slow(LANES)])
@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_lanes_add_what_is_to_be_added_and_pass_the_rest_bit_for_bit(stall, lanes):
    seed = new_seed()
    rng, values = random.Random(seed), np.random.default_rng(seed)
    own, received, expected = [], [], []
    for _ in range(80):
        mine, theirs = values.integers(0, 2**32, (2, lanes), dtype=np.uint32)
        add, last = rng.randrange(2), rng.randrange(2)
        own.append({"data": pack(mine), "last": last, "add": add})
        if add:
            received.append({"data": pack(theirs), "last": last})
            mine = fp32.add(theirs.view(np.float32), mine.view(np.float32)).view(np.uint32)
        expected.append((pack(mine), last))
    drive = {"own": own, "received": received}
    log = simulate(RingLanes(lanes=lanes), drive=drive, collect={"o": len(own)}, stall=stall)
    assert [(word.data, word.last) for _, word in log["o"]] == expected
    if not stall:
        first = log["own"][0][0] + RingLanes.LATENCY
        assert [cycle for cycle, _ in log["o"]] == list(range(first, first + len(own)))


def test_words_of_frames_that_end_at_different_places_do_not_match():
    dut, seen = RingLanes(lanes=1), []

    async def watch(ctx):
        async for _, _, mismatch in ctx.tick().sample(dut.mismatch):
            seen.append(mismatch)

    own = [{"data": 0, "last": n % 2, "add": n < 3} for n in range(4)]
    received = [{"data": 0, "last": last} for last in (0, 1, 1)]
    drive = {"own": own, "received": received}
    simulate(dut, drive=drive, collect={"o": 4}, stall=0.0, processes=[watch])
    assert sum(seen) == 1


def decisions(posts, *, finish=(), queue=2, enable=1):
    """What becomes of posts 8 cycles apart; ``finish`` names those before which the oldest is done."""
    dut, log, taken = DescriptorQueue(config=replace(PRESETS["tiny"], address_width=16), queue=queue), [], []

    async def watch(ctx):
        names = (dut.accepted, dut.refused, dut.o.valid, dut.o.payload)
        async for _, _, accepted, refused, valid, descriptor in ctx.tick().sample(*names):
            log.extend(["accepted"] * accepted + ["refused"] * refused)
            taken.extend([(descriptor.address, descriptor.count, descriptor.operation)] if valid else [])

    async def post(ctx):
        ctx.set(dut.o.ready, 1)
        for n, (address, count) in enumerate(posts):
            ctx.set(dut.finished, n in finish)
            await ctx.tick()
            ctx.set(dut.finished, 0)
            ctx.set(dut.post.payload, {"address": address, "count": count})
            ctx.set(dut.post.valid, 1)
            await ctx.tick()
            ctx.set(dut.post.valid, 0)
            await ctx.tick().repeat(6)

    simulate(dut, processes=[watch, post], settings={"enable": enable}, idle=8 * len(posts) + 10)
    return log, taken


@pytest.mark.parametrize(
    ("address", "count", "good"),
    [
        (0x100, 1, True),
        (0x100, 0, False),
        (0x110, 1, False),
        (1 << 16, 1, False),
        (0x10_0000_0100, 1, False),
        (0xFF00, 64, True),
        (0xFF00, 65, False),
        (0, 1 << 14, True),
        (0, (1 << 14) + 1, False),
        (0x20, 1 << 14, False),
        (0x20, 1 << 30, False),
        (0x20, (1 << 32) - 1, False),
    ],
)
def test_a_vector_must_have_values_be_aligned_and_lie_in_the_address_space(address, count, good):
    log, taken = decisions([(address, count)])
    assert log == ["accepted" if good else "refused"]
    assert taken == ([(address, count, 0)] if good else [])


def test_one_descriptor_too_many_is_refused_and_a_finished_one_makes_room():
    log, taken = decisions([(0, 1), (32, 0), (32, 2), (64, 3), (96, 4)], finish={4})
    assert log == ["accepted", "refused", "accepted", "refused", "accepted"]
    assert taken == [(0, 1, 0), (32, 2, 1), (96, 4, 2)]


def test_without_a_job_every_descriptor_is_refused():
    assert decisions([(0, 1)], enable=0) == (["refused"], [])
