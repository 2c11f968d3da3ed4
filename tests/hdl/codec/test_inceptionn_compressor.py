# amaranth: UnusedElaboratable=no
"""InceptionnCompressor: the golden model's bytes, a group a cycle, in the cycles that it states."""

import random
from itertools import pairwise

import pytest

from fanin.codec.facts import GROUPS, Inceptionn, Mode
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.emit import emit_verilog
from tests.hdl.codec.inceptionn_bench import compressed, frames_of, incompressible, zeros
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate, slow

LATENCY = {8: 6, 16: 7}
STALLS = {"full rate": 0.0, "idle": {"i": 0.6}, "backpressure": {"o": 0.6}, "both": 0.4}
every_group = pytest.mark.parametrize("group", GROUPS)
slow_16 = pytest.mark.parametrize("group", [8, pytest.param(16, marks=pytest.mark.slow)])


def compress(sent, config, *, stall=0.0, seed=0):
    """The log of a run, and the frames that came out."""
    dut = InceptionnCompressor(group=config.group)
    width = 32 * config.group
    expected = [compressed(frame, config) for frame in sent]
    log = simulate(
        dut,
        drive={"i": list(beats(sent, width, errors=None))},
        collect={"o": sum(-(-len(frame) * 8 // width) for frame in expected)},
        settings={"bound": config.bound, "mode": config.mode},
        stall=stall,
        seed=seed,
    )
    return log, frames(beat for _, beat in log["o"]), expected


@pytest.mark.parametrize(
    ("group", "bound", "mode"),
    [
        *((8, bound, Mode.STRICT) for bound in (1, 8)),
        *slow((8, 7, Mode.STRICT), (8, 15, Mode.STRICT), (16, 10, Mode.STRICT)),
        (8, 10, Mode.PUBLISHED),
        *slow((8, 1, Mode.PUBLISHED), (8, 15, Mode.PUBLISHED)),
        pytest.param(16, 13, Mode.PUBLISHED, marks=pytest.mark.slow),
    ],
)
def test_frames_are_the_golden_models(group, bound, mode):
    seed = new_seed()
    rng = random.Random(seed)
    sent = frames_of([rng.randrange(1, 300) for _ in range(5)] + [900], rng)
    config = Inceptionn(bound=bound, mode=mode, group=group)
    _, got, expected = compress(sent, config, stall=rng.choice([0.0, 0.4]), seed=seed)
    assert got == expected


@pytest.mark.parametrize(
    ("group", "stall"),
    [*((8, stall) for stall in STALLS), *(pytest.param(16, stall, marks=pytest.mark.slow) for stall in STALLS)],
)
def test_every_length_up_to_200_bytes(group, stall):
    seed = new_seed()
    rng = random.Random(seed)
    sent = frames_of(rng.sample(range(1, 201), 200 if stall == "full rate" else 50), rng)
    _, got, expected = compress(sent, Inceptionn(group=group), stall=STALLS[stall], seed=seed)
    assert got == expected


@slow_16
def test_the_bytes_of_a_value_that_is_cut_short_travel_as_they_are(group):
    config = Inceptionn(group=group)
    sent = [bytes(4 * k) + b"\1\2\3\4"[:tail] for k in (0, 1, group // 2, group - 1) for tail in (1, 2, 3)]
    _, got, _ = compress(sent, config)
    for frame, one in zip(sent, got, strict=True):
        tail = frame.lstrip(b"\0")
        assert one[config.tag_bytes :] == tail.ljust(4, b"\0")


@slow_16
def test_what_does_not_shrink_stalls_the_input_one_cycle_in_17(group):
    """17 words for 16 beats: the output never pauses, and the input waits for it in one cycle of 17."""
    log, _, _ = compress([incompressible(6 * 16 * 4 * group, random.Random(1))], Inceptionn(group=group))
    taken, given = ([cycle for cycle, _ in log[name]] for name in ("i", "o"))
    assert [b - a for a, b in pairwise(given)] == [1] * (6 * 17 - 1)
    waits = [b for a, b in pairwise(taken) if b > a + 1]
    assert [b - a for a, b in pairwise(waits)] == [17] * (len(waits) - 1)
    assert taken[-1] - taken[0] == len(taken) - 1 + len(waits)
    assert len(waits) >= 5


@slow_16
def test_what_shrinks_never_stalls_the_input(group):
    """Frames of one group and of many, back to back; three values of four take two bytes at most."""
    rng = random.Random(new_seed())
    size = 4 * group
    sent = [zeros(size * n, rng) for n in (1, 1, 1, 40, 1, 7)] + [bytes(size - 4) + incompressible(4, rng)] * 30
    log, got, expected = compress(sent, Inceptionn(group=group))
    assert got == expected
    taken = [cycle for cycle, _ in log["i"]]
    assert taken == list(range(taken[0], taken[0] + len(taken)))


@slow_16
def test_latency_is_as_documented(group):
    """A beat that ends its frame; beats that do not shrink, each of which completes a word."""
    log, _, _ = compress([b"1", incompressible(10 * 4 * group, random.Random(1))], Inceptionn(group=group))
    latencies = [out - into for (into, _), (out, _) in zip(log["i"], log["o"], strict=False)]
    assert latencies == [LATENCY[group]] * 11
    assert log["o"][11][0] == log["o"][10][0] + 1


@pytest.mark.slow
@every_group
def test_verilog_comes_out(group):
    assert "module inceptionn_compressor(" in emit_verilog(InceptionnCompressor(group=group))


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="group must be 8 or 16 values, not 4"):
        InceptionnCompressor(group=4)
