# amaranth: UnusedElaboratable=no
"""Which received frames are the ring's, and which the host's."""

import random

import pytest

from fanin.hdl.ring.steering import ReceiveSteering
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

RING = b"\x88\xb6"


@pytest.mark.parametrize("width", [256, 512])
def test_the_ethertype_says_whose_a_frame_is(width):
    rng = random.Random(seed := new_seed())
    types = [RING, b"\x08\x00", b"\xb6\x88", b"\x88\xb5", b"\x89\xb6"]
    sent = []
    for size in [14, 15, 60, 64, 65, 1500] * 10:
        frame = bytearray(rng.randbytes(size))
        frame[12:14] = rng.choice(types)
        sent.append(bytes(frame))
    sent.append(rng.randbytes(12) + RING[:1])  # ends before its type does
    offered = list(beats(sent, width, errors={n for n in range(len(sent)) if rng.random() < 0.2}))
    offered[-1]["data"] |= RING[1] << 8 * 13  # what stands behind its end is no type
    parts = {"ring": [f for f in sent if f[12:14] == RING], "host": [f for f in sent if f[12:14] != RING]}
    counts = {name: len(list(beats(own, width))) for name, own in parts.items()}
    dut = ReceiveSteering(width=width)
    # nothing waits: a MAC does not
    log = simulate(dut, drive={"i": offered}, collect=counts, stall={"i": 0.3}, seed=seed)
    for name, own in parts.items():
        assert frames(payload for _, payload in log[name]) == own
    errors = sum(payload.error for name in parts for _, payload in log[name])
    assert errors == sum(beat["error"] for beat in offered)


def test_a_frame_passes_in_a_cycle():
    frame = bytes(12) + RING + bytes(50)
    log = simulate(
        ReceiveSteering(width=512), drive={"i": list(beats([frame], 512))}, collect={"ring": 1}, stall=0
    )
    assert log["ring"][0][0] - log["i"][0][0] == 1


def test_a_header_lies_in_one_beat():
    with pytest.raises(ValueError, match="width must be at least 112 bits, not 64"):
        ReceiveSteering(width=64)
