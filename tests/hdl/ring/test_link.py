"""Two links and a network between them: every frame once, in order, whatever becomes of it on the way."""

import random

import pytest

from fanin.wire import RingKind, decode_ring
from tests.hdl.ring.link_bench import Delivery, Links, Wires, beats_as_dicts, job, payloads
from tests.support import new_seed, simulate

BEATS = 4
WIDTHS = (256, 512)
SIZES = {"frame_beats": BEATS, "buffer_frames": 4, "replay_frames": 8}


def exchange(wires, lengths, rng, *, stall=0.0, jobs=None, limit=30_000, idle=4, processes=(), seed=0):
    """Both links send payloads of ``lengths`` to one another; the log, after comparing what arrived."""
    frames = [payloads(rng, lengths, wires.width) for _ in wires.dut.link]
    beats = [[beat for frame in of_link for beat in frame] for of_link in frames]
    log = simulate(
        wires.dut,
        drive={f"link[{k}].tx": beats[k] for k in range(2)},
        collect={f"link[{k}].rx": len(beats[1 - k]) for k in range(2)},
        stall=stall,
        settings={f"link[{k}].job": value for k, value in enumerate(jobs or [job(0), job(1)])},
        processes=[wires.process, *processes],
        seed=seed,
        limit=limit,
        idle=idle,
    )
    for k in range(2):
        assert beats_as_dicts(log[f"link[{k}].rx"]) == beats[1 - k]
    return log


def straight(link, frame, cycle):
    return [Delivery(1 - link, frame, delay=20)]


def faulty(rng, odds):
    """Each frame is lost, spoilt, doubled or delayed with probability ``odds`` of each."""

    def route(link, frame, cycle):
        if rng.random() < odds:
            return []
        copies = [frame] + [frame] * (rng.random() < odds)
        out = []
        for copy in copies:
            delay = 20 + (rng.randrange(100) if rng.random() < odds else 0)
            error = rng.random() < odds
            if error:
                spoilt = bytearray(copy)
                spoilt[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
                copy = bytes(spoilt)
            out.append(Delivery(1 - link, copy, delay=delay, error=error))
        return out

    return route


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("first", [0, 2**32 - 10])
def test_every_frame_arrives_once_and_in_order_over_a_bad_network(width, first):
    seed = new_seed()
    rng = random.Random(seed)
    dut = Links(2, data_width=width, first_sequence=first, **SIZES)
    wires = Wires(dut, faulty(rng, 0.08), rng, start=[3, 150], pause=0.2, stall=0.1)
    exchange(wires, [rng.randint(1, BEATS) for _ in range(60)], rng, stall=0.3, seed=seed)
    for counts in wires.counts:
        assert counts["sent"] == counts["received"] == 60
        assert counts["retransmitted"] > 0
        assert counts["bad_fcs"] > 0
        assert counts["foreign"] == 0
    assert wires.failed == {}
