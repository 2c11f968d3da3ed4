# amaranth: UnusedElaboratable=no
"""WidthConverter: the same bytes, the fewest beats, no bubble on the narrow side."""

import random

import pytest

from fanin.hdl.stream.width import WidthConverter
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

WIDTHS = [(8, 8), (8, 16), (8, 64), (64, 512), (32, 64), (16, 8), (64, 8), (512, 64), (64, 32), (24, 48)]
STALLS = {"full rate": 0.0, "idle": {"i": 0.7}, "backpressure": {"o": 0.7}, "both": 0.4}


def convert(widths, sent, *, stall, errors=()):
    dut = WidthConverter(input_width=widths[0], output_width=widths[1], error=errors is not None)
    expected = sum(-(-len(frame) * 8 // widths[1]) for frame in sent)
    drive = {"i": list(beats(sent, widths[0], errors=errors))}
    return simulate(dut, drive=drive, collect={"o": expected}, stall=stall)


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_frames_arrive_whole_in_the_fewest_beats(widths, stall):
    rng = random.Random(new_seed())
    longest = 3 * max(widths) // 8
    sent = [rng.randbytes(n) for n in (1, 2, longest - 1, longest, longest + 1)]
    sent += [rng.randbytes(rng.randrange(1, longest)) for _ in range(10)]
    errors = {2, 5, 6}
    log = convert(widths, sent, stall=stall, errors=errors)
    payloads = [payload for _, payload in log["o"]]
    assert frames(payloads) == sent
    assert {n for n, last in enumerate(p for p in payloads if p.last) if last.error} == errors


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_the_narrow_side_never_pauses(widths):
    narrow = "i" if widths[0] <= widths[1] else "o"
    sent = [bytes(range(n)) for n in (64, 1, 130, 3, 64, 192)]
    cycles = [cycle for cycle, _ in convert(widths, sent, stall=0, errors=None)[narrow]]
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_latency_is_one_cycle(widths):
    log = convert(widths, [bytes(max(widths) // 8)], stall=0)
    assert log["o"][0][0] - log["i"][-1][0] == 1


@pytest.mark.parametrize("output_width", [24, 96, 100, 4])
def test_a_ratio_that_is_no_power_of_two_is_refused(output_width):
    with pytest.raises(ValueError, match="width must be a"):
        WidthConverter(input_width=64, output_width=output_width)
