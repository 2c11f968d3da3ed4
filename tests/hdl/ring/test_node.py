# amaranth: UnusedElaboratable=no
"""Whole rings of small nodes against the golden model: memories, links, registers and hosts included."""

from dataclasses import replace

import pytest

from fanin.codec import Bfp, Inceptionn
from fanin.hdl.ring.driver import RingDriver
from fanin.hdl.ring.node import RingNode
from fanin.hdl.ring.registers import Failure
from fanin.ring import RingConfig
from tests.hdl.ring.bench import BYTES, Ring, mac_of, vectors
from tests.support import new_seed

SMALL = RingConfig(lanes=8, frame_words=2, slice_frames=2, buffer_frames=3, replay_frames=2)
WORD_BYTES = SMALL.width // 8
DATA = 0x10  # version and kind of a DATA frame


def ring(counts, nodes, *, config=SMALL, **options):
    seed = new_seed()
    return Ring(config, nodes, vectors(counts, nodes, config, seed), seed, **options)


def test_three_nodes_reduce_what_they_can_refuse_what_they_cannot_and_survive_a_lost_frame():
    """Of the posts two are bad and one is too many; the other three are reduced."""
    lost = []

    def lose(sender, frame):
        if sender == 1 and frame[14] == DATA and len(lost) < 1:
            lost.append(frame)
            return True
        return False

    async def script(run):
        await run.start()
        good = [(v.address, v.count) for v in run.vectors]
        bad = [(0x20, 0), (0x24, 1), (BYTES, 1), (BYTES - WORD_BYTES, SMALL.lanes + 1)]
        await run.post([good[0], *bad[:2], good[1], *bad[2:], good[2], good[2]])
        await run.wait()
        await run.count()

    whole = SMALL.lanes * SMALL.slice_words * 3
    run = ring([whole + 5, 1, 8 * 3 + 3], 3, lose=lose, script=script, queue=3).run()
    for status, counters in zip(run.status, run.counters, strict=True):
        assert not status.failed
        assert (status.posted, status.completed, status.refused) == (3, 3, 5)
        assert counters["added"] == 2 * counters["stored"] // 3 + counters["added"] % 1
    assert len(lost) == 1
    assert run.counters[1]["retransmitted"] >= 1
    run.check()
