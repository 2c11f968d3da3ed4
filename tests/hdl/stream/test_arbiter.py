# amaranth: UnusedElaboratable=no
"""PacketArbiter: whole frames, its priorities, no bubble."""

import random

import pytest

from fanin.hdl.stream.arbiter import PacketArbiter
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate, slow

STALLS = {"full rate": 0.0, "idle": 0.6, "backpressure": {"o": 0.7}}


def merge(sent, *, stall=0.0, width=16, **parameters):
    """Send a list of frames into each input; the first byte of a frame should tell its input."""
    dut = PacketArbiter(width=width, inputs=len(sent), error=True, **parameters)
    drive = {f"i[{n}]": list(beats(items, width)) for n, items in enumerate(sent)}
    return simulate(dut, drive=drive, collect={"o": sum(map(len, drive.values()))}, stall=stall)


def merged(log):
    return frames([payload for _, payload in log["o"]])


@pytest.mark.parametrize("round_robin", [False, True])
@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
@pytest.mark.parametrize("inputs", [1, 3, *slow(2, 8)])
def test_frames_are_never_interleaved_lost_or_reordered(inputs, stall, round_robin):
    rng = random.Random(new_seed())
    sent = [[bytes([n]) + rng.randbytes(rng.randrange(9)) for _ in range(12)] for n in range(inputs)]
    if isinstance(stall, float):
        stall = {f"i[{n}]": stall for n in range(inputs)} | {"o": stall / 3}
    came = merged(merge(sent, stall=stall, round_robin=round_robin))
    for n in range(inputs):
        assert [frame for frame in came if frame[0] == n] == sent[n]


def test_lowest_index_first_while_it_has_frames():
    sent = [[bytes([n, k, 0]) for k in range(4)] for n in range(3)]
    assert [frame[0] for frame in merged(merge(sent))] == [0] * 4 + [1] * 4 + [2] * 4


def test_round_robin_takes_turns():
    sent = [[bytes([n, k, 0]) for k in range(4)] for n in range(3)]
    assert [frame[0] for frame in merged(merge(sent, round_robin=True))] == [1, 2, 0] * 4


@pytest.mark.parametrize("round_robin", [True, *slow(False)])
def test_no_pause_between_frames_or_inputs_and_one_cycle_of_latency(round_robin):
    sent = [[bytes([n] * size) for size in (1, 2, 5, 4)] for n in range(4)]
    log = merge(sent, round_robin=round_robin)
    cycles = [cycle for cycle, _ in log["o"]]
    assert cycles == list(range(1, 1 + len(cycles)))
    assert min(cycle for name in log if name != "o" for cycle, _ in log[name]) == 0


@pytest.mark.parametrize("inputs", [0, 9])
def test_a_bad_number_of_inputs_is_refused(inputs):
    with pytest.raises(ValueError, match=f"inputs must be from 1 to 8, not {inputs}"):
        PacketArbiter(width=8, inputs=inputs)
