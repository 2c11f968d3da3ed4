# amaranth: UnusedElaboratable=no
"""Damaged frames through the RTL of INCEPTIONN's NIC, from both sides: byte for byte as in the golden model."""

import pytest

from tests.fuzzing import Length, Mutator, new_random
from tests.hdl.codec.nic_traffic import MAX_FRAME, host_frames, wire_frames
from tests.hdl.codec.test_nic import through_receiver, through_transmitter

FRAMES = 12  # of a round
HEADER = 14  # bytes, without which no interface hands over a frame


@pytest.mark.slow
@pytest.mark.parametrize("side", ["host", "wire"])
@pytest.mark.parametrize("length", [pytest.param(Length(), id="minute")])
def test_damaged_frames_become_what_the_golden_model_makes_of_them(side, length):
    rng = new_random()
    make, through = {
        "host": (host_frames, through_transmitter),
        "wire": (wire_frames, through_receiver),
    }[side]
    frames = Mutator(rng, list(make(rng, range(0, 120, 7))), longest=MAX_FRAME + 40)
    for _ in length.each():
        sent = [frames.message().ljust(HEADER, b"\0") for _ in range(FRAMES)]
        expected, left, _ = through(sent, seed=rng.getrandbits(32))
        assert left == expected
