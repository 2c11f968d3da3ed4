"""The link's RTL does nothing that its model does not permit."""

import random

import pytest

from tests.hdl.net.link.bench import Wires, as_frame, faulty, job, payloads, straight
from tests.hdl.net.link.lockstep import Lockstep, OpenLinks
from tests.support import new_seed, simulate, slow

BEATS, FRAMES, WIDTH = 3, 40, 256


def follow(seed, *, odds=0.1, cycles=6000, published=False, patch=lambda link: None, **settings):
    """Two links over a bad network, each in lockstep with its model; the two that followed."""
    rng = random.Random(seed)
    sizes = {
        "frame_beats": BEATS,
        "buffer_frames": rng.randint(2, 4),
        "replay_frames": rng.choice([2, 4]),
        "first_sequence": rng.choice([0, 2**32 - 10]),
        "published": published,
    }
    times = {
        "timeout": rng.choice([40, 60, 90, 150]),
        "retries": 1000,
        "ack_frames": rng.randint(1, 3),
        "ack_delay": rng.choice([2, 10, 40]),
    } | settings
    print(sizes, times)
    dut = OpenLinks(2, data_width=WIDTH, **sizes)
    for part in dut.parts:
        patch(part)
    wires = Wires(dut, straight, rng, start=[3, 9 + rng.randrange(60)], pause=0.2, stall=0.1)
    wires.route = faulty(rng, odds, wires, FRAMES)
    streams = [payloads(rng, [rng.randint(1, BEATS) for _ in range(FRAMES)], WIDTH) for _ in range(2)]
    steps = [
        Lockstep(
            wires,
            k,
            [as_frame(frame, 0, WIDTH).payload for frame in streams[k]],
            sizes,
            times["ack_frames"],
            times["retries"],
        )
        for k in range(2)
    ]
    simulate(
        dut,
        drive={f"link[{k}].tx": [beat for frame in streams[k] for beat in frame] for k in range(2)},
        collect={f"link[{k}].rx": sum(map(len, streams[1 - k])) for k in range(2)},
        stall=0.3,
        settings={f"link[{k}].job": job(k, **times) for k in range(2)},
        processes=[wires.process, *(step.process for step in steps)],
        seed=seed,
        idle=300,
        limit=cycles,
    )
    return steps


@pytest.mark.parametrize("run", [0, *slow(*range(1, 12))])
def test_a_link_does_what_its_model_permits(run):
    steps = follow(new_seed() + run)
    print([step.events for step in steps])
    for step in steps:
        assert step.events["offer"] == step.events["received"] == step.events["consume"] == FRAMES
        assert step.events["send"] > FRAMES
    for event in ("timeout", "ACK", "NAK", "PROBE", "answer", "probe", "duplicate", "ahead", "dropped"):
        assert sum(step.events.get(event, 0) for step in steps) > 0, event
