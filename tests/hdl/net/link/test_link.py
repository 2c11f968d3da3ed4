"""Two links and a network between them: every frame once, in order, whatever becomes of it on the way."""

import random

import pytest

from fanin.wire.link import LinkKind
from tests.hdl.net.link.bench import Links, Wires, beats_as_dicts, faulty, job, payloads, straight
from tests.support import new_seed, simulate, slow

BEATS = 4
FRAMES = 16
SIZES = {"frame_beats": BEATS, "buffer_frames": 4, "replay_frames": 8}


def exchange(wires, lengths, rng, *, stall=0.0, jobs=None, seed=0, idle=150):
    """Both links send payloads of ``lengths`` to one another; the log, once all that arrived is compared."""
    frames = [payloads(rng, lengths, wires.width) for _ in wires.dut.link]
    beats = [[beat for frame in of_link for beat in frame] for of_link in frames]
    log = simulate(
        wires.dut,
        drive={f"link[{k}].tx": beats[k] for k in range(2)},
        collect={f"link[{k}].rx": len(beats[1 - k]) for k in range(2)},
        stall=stall,
        settings={f"link[{k}].job": value for k, value in enumerate(jobs or [job(0), job(1)])},
        processes=[wires.process],
        seed=seed,
        idle=idle,
    )
    for k in range(2):
        assert beats_as_dicts(log[f"link[{k}].rx"]) == beats[1 - k]
        assert wires.counts[k]["sent"] == wires.counts[k]["received"] == len(lengths)
        assert wires.counts[k]["foreign"] <= 1  # a frame that was arriving when the link started
    assert wires.failed == {}
    assert wires.idle == [1, 1]
    return log


@pytest.mark.parametrize(
    ("width", "first"),
    [
        (256, 2**32 - 10),
        *slow((512, 0), (256, 0)),
        *slow((512, 2**32 - 10), (128, 0), (32, 0)),
    ],
)
def test_every_frame_arrives_once_and_in_order_over_a_bad_network(width, first):
    seed = new_seed()
    rng = random.Random(seed)
    dut = Links(2, data_width=width, first_sequence=first, **SIZES)
    wires = Wires(dut, straight, rng, start=[3, 150], pause=0.2, stall=0.1)
    wires.route = faulty(rng, 0.1, wires, FRAMES)
    lengths = [rng.randint(1, BEATS) for _ in range(FRAMES)]
    exchange(wires, lengths, rng, stall=0.3, seed=seed, idle=450)
    faults = wires.counts[0] + wires.counts[1]
    assert faults["retransmitted"] > 0
    assert faults["bad_fcs"] + faults["out_of_order"] + faults["duplicates"] > 0


@pytest.mark.parametrize(
    ("lengths", "width"),
    [([1] * 30, 256), ([32] * 6, 512), *slow(([1] * 30, 512), ([32] * 6, 256))],
    ids=["short-256", "long-512", "short-512", "long-256"],
)
def test_both_directions_run_at_full_rate(width, lengths):
    """A beat leaves in every cycle: the exceptions are those that ReliableLink's docstring states."""
    rng = random.Random(width)
    dut = Links(2, data_width=width, frame_beats=max(lengths), buffer_frames=64, replay_frames=32)
    wires = Wires(dut, straight, rng, start=[3, 3])
    exchange(wires, lengths, rng, jobs=[job(k, ack_frames=8, timeout=2000) for k in range(2)])
    for link in range(2):
        kinds = wires.kinds(link)
        sent = [s for s in wires.sent if s.link == link]
        first = kinds.index(LinkKind.DATA)
        last = len(kinds) - 1 - kinds[::-1].index(LinkKind.DATA)
        beats = sum(len(s.frame) for s in sent[first : last + 1]) * 8 // width
        cycles = sent[last].last - sent[first].first + 1
        own = kinds[first:last].count(LinkKind.ACK) if width == 512 else 0
        others = wires.counts[1 - link]["acks"] if max(lengths) == 1 else 0
        assert cycles - beats <= own + others
        assert max(lengths) == 1 or beats >= 0.98 * cycles
        assert wires.counts[link]["retransmitted"] == 0


@pytest.mark.parametrize("width", [256, *slow(512)])
def test_a_mac_that_waits_between_frames_gets_whole_frames(width):
    """That no frame pauses inside is asserted wherever frames are carried."""
    rng = random.Random(width)
    wires = Wires(Links(2, data_width=width, **SIZES), straight, rng, start=[3, 9], pause=0.8)
    jobs = [job(k, timeout=2000) for k in range(2)]
    exchange(wires, [rng.randint(1, BEATS) for _ in range(12)], rng, jobs=jobs)
    assert wires.counts[0]["retransmitted"] == wires.counts[1]["retransmitted"] == 0


def test_a_slow_consumer_costs_no_retransmission():
    rng = random.Random(0)
    wires = Wires(Links(2, data_width=256, **SIZES), straight, rng, start=[3, 9])
    jobs = [job(k, retries=3) for k in range(2)]
    exchange(wires, [BEATS] * 8, rng, stall={"link[0].rx": 0.95}, jobs=jobs)
    assert wires.counts[1]["retransmitted"] == 0
