# amaranth: UnusedElaboratable=no
"""RingSequencer against the slices of ``fanin.ring.facts`` and the steps of docs/systems/ring.md."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.ring.orders import PATH_FIELDS, PATH_STEPS, Step
from fanin.hdl.ring.segments import RingSegments
from fanin.hdl.ring.sequencer import RingSequencer
from fanin.ring.facts import RingConfig
from tests.support import new_seed, simulate, slow

TINY = RingConfig(lanes=8, frame_words=3, slice_frames=2, buffer_frames=4)
WORD_BYTES = TINY.width // 8


def steps(nodes):
    return [Step.LOCAL, *[Step.ADD] * (nodes - 2), Step.TOTAL, *[Step.FORWARD] * (nodes - 2), Step.STORE]


def expected_orders(config, descriptors, nodes, rank):
    """All orders of each path."""
    orders = {path: [] for path in PATH_STEPS}
    for descriptor in descriptors:
        count, base = descriptor["count"], descriptor["address"] // (config.width // 8)
        segments = list(config.segments(count, nodes))
        for segment in segments:
            for t, step in enumerate(steps(nodes)):
                piece = segment[(rank - t) % nodes]
                for at in range(0, piece.words, config.frame_words):
                    first = piece.start + at
                    words = min(config.frame_words, piece.words - at)
                    inside = min(max(config.words(count) - first, 0), words)
                    is_end = inside > 0 and first + inside == config.words(count)
                    order = {
                        "step": step,
                        "words": words,
                        "inside": inside,
                        "lanes": count % config.lanes if is_end else 0,
                        "address": base + first,
                        "operation": descriptor["operation"],
                        "count": count,
                        "slice": (rank - t) % nodes,
                        "final": int(
                            segment is segments[-1] and step is Step.STORE and at + words == piece.words
                        ),
                    }
                    for path, taken in PATH_STEPS.items():
                        if step in taken:
                            orders[path].append({name: order[name] for name in PATH_FIELDS[path]})
    return orders


def run(dut, descriptors, nodes, rank, **options):
    expected = expected_orders(dut.config, descriptors, nodes, rank)
    log = simulate(
        dut,
        drive={"descriptor": descriptors},
        collect={path: len(orders) for path, orders in expected.items()},
        settings={"nodes": nodes, "rank": rank},
        **options,
    )
    found = {
        path: [{name: getattr(order, name) for name in PATH_FIELDS[path]} for _, order in log[path]]
        for path in PATH_STEPS
    }
    return log, found, expected


def vectors(counts):
    return [
        {"address": WORD_BYTES * (0x1000 + 0x100 * n), "count": count, "operation": 0xFE + n & 0xFF}
        for n, count in enumerate(counts)
    ]


@pytest.mark.parametrize("nodes", [2, 3, *slow(4, 7)])
def test_orders_are_the_slices_of_every_step(nodes):
    rng = random.Random(new_seed())
    whole = nodes * TINY.slice_words * TINY.lanes
    counts = [
        1,
        8,
        whole - 1,
        whole,
        whole + 1,
        2 * whole + 1,
        2 * whole + 8 * nodes + 3,
        rng.randrange(1, 2 * whole),
    ]
    _, found, expected = run(RingSequencer(config=TINY), vectors(counts), nodes, rng.randrange(nodes))
    assert found == expected


def test_255_nodes_and_the_largest_counts():
    """The first segment of a vector of 2^32 - 1 values; numbers of words need all their bits."""
    config = RingConfig(lanes=8, frame_words=128, slice_frames=255, buffer_frames=256)
    for nodes, rank in (255, 254), (2, 1):
        dut = RingSegments(config=config)
        drive = {"i": [{"address": (1 << 40) - WORD_BYTES, "count": (1 << 32) - 1, "operation": 0}]}
        settings = {"nodes": nodes, "rank": rank}
        log = simulate(dut, drive=drive, collect={"o": 3}, settings=settings, stall=0.0, idle=1)
        size = config.slice_words
        for k, (_, segment) in enumerate(log["o"][:3]):
            assert (segment.size, segment.own, segment.top) == (size, rank * size, (nodes - 1) * size)
            assert segment.rest == (1 << 29) - 1 - k * nodes * size
            assert segment.address == ((1 << 35) - 1 + k * nodes * size) % (1 << 35)
            assert (segment.lanes, segment.final) == (7, 0)


@pytest.mark.parametrize("lanes", [8, 16])
def test_latency_and_rate_are_as_documented(lanes):
    config = RingConfig(lanes=lanes, frame_words=2, slice_frames=2, buffer_frames=4)
    bits = 32 - (lanes - 1).bit_length()
    drive = vectors([lanes * config.slice_words * 2])
    log, _, _ = run(RingSequencer(config=config), drive, 2, 0, stall=0.0)
    assert log["local"][0][0] - log["descriptor"][0][0] == RingSequencer.LATENCY + bits
    cycles = [cycle for cycle, _ in log["tx"]]
    assert [b - a for a, b in pairwise(cycles)] == [3, 5, 3]


def test_a_store_that_waits_does_not_keep_the_next_segments_own_slice_back():
    config = RingConfig(lanes=8, frame_words=2, slice_frames=4, buffer_frames=8)
    descriptors = vectors([8 * config.slice_words * 3 * 2])
    log, _, _ = run(RingSequencer(config=config), descriptors, 3, 0, stall={"rx": 0.98, "store": 0.99})
    local = [cycle for cycle, order in log["local"] if order.step == Step.LOCAL]
    store = [cycle for cycle, order in log["store"]]
    assert local[config.slice_frames] < store[2 * config.slice_frames]
