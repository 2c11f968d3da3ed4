# amaranth: UnusedElaboratable=no
"""FrameCollector: bytes and verdicts of frames of every length, whatever came before and between."""

import random

import pytest

from fanin.hdl.aggregation.receive import FrameCollector
from fanin.wire.aggregation import Encap
from tests.hdl.aggregation.bench import beats_of
from tests.support import new_seed, simulate

HEADERS = {Encap.L2: 14, Encap.UDP: 42}  # Ethernet; IPv4 and UDP
VERDICTS = ["mac_error", "headless", "short", "long"]
SHAPES = [(64, 8), (512, 8), (512, 1), (64, 3), (8, 2), (256, 1), (512, 40)]  # width, values


def limits(encap, values):
    """Bytes in front of the aggregation header, up to the last value, and of the whole frame."""
    needed = HEADERS[encap] + 12 + 4 * values
    return HEADERS[encap], needed, max(needed, 60)


def verdicts(length, error, *, encap, values):
    headers, needed, size = limits(encap, values)
    return [error, length < headers, length < needed, length > size]


def lengths_of_interest(encap, values, width):
    step = width // 8
    edges = {0, 1, 14, 42, 60, *limits(encap, values)}
    edges |= {-(-edge // step) * step + beat * step for edge in edges for beat in (-1, 0, 1, 2)}
    return sorted({edge + by for edge in edges for by in (-1, 0, 1) if edge + by >= 0})


def collect(frames, *, width, encap, values, stall, seed=0):
    """Send ``(bytes, error)``; per frame ``(cycle of done, verdicts, bytes)``, and the last beats' cycles.

    ``error`` is random on all beats but the last.
    """
    dut = FrameCollector(mac_width=width, encap=encap, values=values)
    rng = random.Random(seed)
    beats = [beat for frame, error in frames for beat in beats_of(frame, width, error=error)]
    for beat in beats:
        if not beat["last"]:
            beat["error"] = rng.getrandbits(1)
    seen = []

    async def note(ctx):
        outputs = [dut.done, dut.i.ready, dut.frame, *(getattr(dut, name) for name in VERDICTS)]
        cycle = 0
        async for _, _, done, ready, frame, *flags in ctx.tick().sample(*outputs):
            assert ready
            if done:
                seen.append((cycle, flags, frame.to_bytes(len(dut.frame) // 8, "little")))
            cycle += 1

    log = simulate(dut, drive={"i": beats}, stall=stall, processes=[note], seed=seed)
    return seen, [cycle for cycle, beat in log["i"] if beat["last"]]


def check(frames, *, width, encap, values, stall, seed=0):
    """Every frame's verdicts and bytes, one cycle after its last beat, and never ``done`` but then."""
    seen, ends = collect(frames, width=width, encap=encap, values=values, stall=stall, seed=seed)
    assert [cycle for cycle, *_ in seen] == [end + 1 for end in ends]
    size = limits(encap, values)[2]
    for (frame, error), (_, flags, data) in zip(frames, seen, strict=True):
        assert flags == verdicts(len(frame), error, encap=encap, values=values), len(frame)
        assert data[: len(frame)] == frame[:size], len(frame)
    return ends


@pytest.mark.parametrize("stall", [0, 0.4], ids=["back to back", "gaps"])
@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize(("width", "values"), SHAPES)
def test_a_frame_of_any_length_is_judged_and_kept(width, values, encap, stall):
    seed = new_seed()
    rng = random.Random(seed)
    lengths = lengths_of_interest(encap, values, width)
    rng.shuffle(lengths)
    frames = [(rng.randbytes(length), rng.random() < 0.3) for length in lengths]
    check(frames, width=width, encap=encap, values=values, stall=stall, seed=seed)


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("width", [64, 512])
def test_every_length_up_to_two_beats_beyond_the_frame(width, encap):
    size = limits(encap, 8)[2]
    lengths = range(size + 2 * width // 8 + 2)
    if width == 64:
        lengths = [n for n in lengths if abs(n - HEADERS[encap]) < 9 or n > size - 12]
    check([(bytes([n % 255 + 1] * n), False) for n in lengths], width=width, encap=encap, values=8, stall=0)


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("width", [64, 512])
def test_no_frame_leaves_anything_to_the_next(width, encap):
    """A short, empty or headless frame behind a whole, long or bad one, and the other way round."""
    headers, needed, size = limits(encap, 8)
    kinds = [
        (0, False),
        (headers - 1, False),
        (needed - 1, False),
        (size, False),
        (size, True),
        (size + 200, False),
    ]
    rng = random.Random(new_seed())
    pairs = [frame for first in kinds for second in kinds for frame in (first, second)]
    check([(rng.randbytes(n), error) for n, error in pairs], width=width, encap=encap, values=8, stall=0)


@pytest.mark.parametrize(("width", "beats"), [(64, 8), (512, 1)])
def test_one_beat_a_cycle_frames_back_to_back(width, beats):
    frames = [(bytes([k] * 62), k % 2 == 0) for k in range(1, 30)]
    ends = check(frames, width=width, encap=Encap.L2, values=8, stall=0)
    assert ends == [ends[0] + beats * k for k in range(29)]


@pytest.mark.parametrize(("values", "padding"), [(7, 6), (8, 2), (9, 0)])
def test_padding_may_be_missing_and_nothing_may_follow_it(values, padding):
    """Of an L2 frame, in the widths of which a beat ends at 64 bytes."""
    end = 26 + 4 * values
    for width in (64, 512):
        frames = [(bytes(n), False) for n in (end - 1, end, end + padding, end + padding + 1)]
        seen, _ = collect(frames, width=width, encap=Encap.L2, values=values, stall=0)
        judged = [[name for name, flag in zip(VERDICTS, flags, strict=True) if flag] for _, flags, _ in seen]
        assert judged == [["short"], [], [], ["long"]]


def test_long_pauses_inside_and_between_frames_change_nothing():
    seed = new_seed()
    frames = [(random.Random(seed).randbytes(n), False) for n in (62, 64, 8, 62, 63)]
    check(frames, width=64, encap=Encap.L2, values=8, stall=0.95, seed=seed)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mac_width": 24}, "mac_width must be a power of two from 8 to 512, not 24"),
        ({"mac_width": 1024}, "mac_width must be a power of two from 8 to 512, not 1024"),
        ({"values": 0}, "values must be 1 to 256, not 0"),
        ({"values": 257}, "values must be 1 to 256, not 257"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        FrameCollector(**{"mac_width": 64, "encap": Encap.L2, "values": 8} | parameters)
