"""The MAC between its three clocks: what it hands on, what it counts, what resets and slow cores do to it."""

import random
from collections import Counter

import pytest

from fanin.hdl.net.ethernet.gmii import Cause
from tests.hdl.net.ethernet.bench import LINE, MacBench
from tests.hdl.net.ethernet.line import carrier, enables, gap, odd_carrier, read, with_fcs
from tests.hdl.net.ethernet.test_mac_transmitter import carriers_of, on_the_line
from tests.support import new_seed, slow

SHAPES = pytest.mark.parametrize(
    ("width", "core"), [(32, 10_000), (64, 29_000), *slow((32, 29_000), (64, 7_000), (16, 8_000))]
)
EVENT = {
    Cause.GOOD: "received",
    Cause.BAD_FCS: "bad_fcs",
    Cause.RUNT: "runt",
    Cause.LONG: "long",
    Cause.ERROR: "damaged",
}


def some_carriers(rng, count, *, max_frame):
    symbols = gap(3, rng)
    for _ in range(count):
        symbols += odd_carrier(rng, max_frame=max_frame) + gap(rng.choice([1, 2, 3, 4, 12, 40]), rng)
    return symbols


def good_carriers(rng, frames, *, space=12):
    return [symbol for frame in frames for symbol in carrier(with_fcs(frame)) + gap(space, rng)]


def some_frames(rng, count, *, longest=296):
    return [rng.randbytes(rng.choice([60, 61, rng.randrange(60, longest + 1)])) for _ in range(count)]


def is_part(some, of):
    """Whether ``some`` are of ``of``, in their order."""
    rest = iter(of)
    return all(any(item == other for other in rest) for item in some)


@SHAPES
@pytest.mark.parametrize("count", [12, *slow(500)])
def test_good_frames_are_handed_on_and_all_others_counted(width, core, count):
    rng = random.Random(seed := new_seed())
    symbols = some_carriers(rng, count, max_frame=300)
    steps = enables(rng) if width == 64 else None
    bench = MacBench(symbols=symbols, seed=seed, core=core, stall=0, steps=steps, width=width, max_frame=300)
    expected = read(symbols, max_frame=300)
    assert bench.frames == [content for content, cause in expected if cause == Cause.GOOD]
    assert bench.events == Counter(EVENT[cause] for _, cause in expected)


@SHAPES
@pytest.mark.parametrize("count", [12, *slow(500)])
def test_what_the_core_sends_leaves_whole_however_it_pauses(width, core, count):
    rng = random.Random(seed := new_seed())
    sent = [*(rng.randbytes(rng.randrange(1, 80)) for _ in range(count)), rng.randbytes(297)]
    sent += [rng.randbytes(296), bytes(700), rng.randbytes(9)]
    steps = enables(rng) if width == 64 else None
    bench = MacBench(sent, seed=seed, core=core, steps=steps, ppm=250, width=width, max_frame=300, idle=800)
    carriers = carriers_of(bench.line)
    assert [(line, error) for line, error, _ in carriers] == [
        (on_the_line(frame), False) for frame in sent if len(frame) <= 296
    ]
    assert all(space >= 12 for _, _, space in carriers[1:])
    assert bench.events == {"sent": len(sent) - 2, "refused": 2}


@pytest.mark.parametrize("lengths", [[1, 60, 61, 200], *slow([*range(1, 70), *range(1510, 1520), 1995, 1996])])
def test_every_length_comes_back(lengths):
    rng = random.Random(seed := new_seed())
    sent = [rng.randbytes(length) for length in lengths]
    line = MacBench(sent, seed=seed, stall=0, idle=2500).line
    assert MacBench(symbols=line, seed=seed, stall=0, idle=2500).frames == [
        frame.ljust(60, b"\0") for frame in sent
    ]


def test_a_core_that_does_not_take_frames_loses_whole_ones_and_is_told():
    rng = random.Random(seed := new_seed())
    frames = some_frames(rng, 24)
    symbols = good_carriers(rng, frames)
    bench = MacBench(symbols=symbols, seed=seed, stall={"rx": 0.9}, max_frame=300, idle=4000)
    assert is_part(bench.frames, frames)
    assert 6 < len(bench.frames) < 24
    assert bench.events == {"received": len(bench.frames), "dropped": 24 - len(bench.frames)}


def test_a_core_too_slow_for_the_line_loses_whole_frames_both_ways_and_is_told():
    rng = random.Random(seed := new_seed())
    frames = some_frames(rng, 14)
    symbols = good_carriers(rng, frames)
    bench = MacBench(frames, symbols, seed=seed, core=70_000, stall=0, max_frame=300, idle=3000)
    assert is_part(bench.frames, frames)
    assert bench.frames
    assert bench.events["received"] == len(bench.frames)
    # Frames that end while another one's end waits for room count as one.
    assert 14 - len(bench.frames) - 3 <= bench.events["dropped"] <= 14 - len(bench.frames)
    carriers = carriers_of(bench.line)
    whole = [line for line, error, _ in carriers if not error]
    assert is_part(whole, map(on_the_line, frames))
    assert bench.events["underrun"] == len(carriers) - len(whole) > 0
    assert bench.events["sent"] == 14


@pytest.mark.parametrize("core", [100_000, 400_000])
def test_a_frame_whose_end_found_no_room_is_never_joined_to_another(core):
    rng = random.Random(seed := new_seed())
    frames = [*some_frames(rng, 49, longest=80), rng.randbytes(60)]  # at 2.5 MHz, the queue holds just the last
    symbols = good_carriers(rng, frames[:-1], space=4) + gap(2500, rng) + good_carriers(rng, frames[-1:])
    bench = MacBench(symbols=symbols, seed=seed, core=core, stall=0, idle=2500)
    assert is_part(bench.frames, frames)
    assert bench.frames[-1] == frames[-1]  # when there is room again
    assert bench.events["received"] == len(bench.frames)
    assert 0 < bench.events["dropped"] <= 50 - len(bench.frames)


@pytest.mark.parametrize("domain", ["rx", "sync", "tx"])
@pytest.mark.parametrize("tries", [1, *slow(60)])
def test_a_reset_of_any_domain_never_mends_two_parts_to_a_frame(domain, tries):
    rng = random.Random(seed := new_seed())
    for _ in range(tries):
        frames = some_frames(rng, 12, longest=120)
        symbols = good_carriers(rng, frames, space=rng.choice([12, 30]))
        resets = [(domain, rng.randrange(10, 100) if domain == "sync" else rng.randrange(30, 700))]
        stall = rng.choice([0, 0.3])
        bench = MacBench(
            frames, symbols, seed=seed, core=20_000, stall={"tx": stall}, max_frame=300, resets=resets
        )
        assert is_part(bench.frames, frames)
        whole = [content for content, cause in read(bench.line) if cause == Cause.GOOD]
        assert is_part(whole, frames)
        if domain != "sync":
            assert len(bench.frames) >= 12 - 2 * (domain == "rx")
            # The frame that is cut, one of 15 words that passes in as many cycles of reset, one that has begun.
            assert len(whole) >= 12 - 3 * (domain == "tx")
        assert bench.frames[-1:] == frames[-1:]
        assert whole[-1:] == frames[-1:]


@pytest.mark.parametrize("core", [10_000, 29_000])
def test_latency_is_what_the_docstring_says(core):
    rng = random.Random(seed := new_seed())
    for n in range(2):  # phases
        came = MacBench(symbols=good_carriers(rng, [bytes(60)]), seed=seed + n, core=core, stall=0).marks
        assert came["handed on"] - came["came"] <= 7 * LINE + 5 * core
        left = MacBench([bytes(60)], seed=seed + n, core=core, stall=0).marks
        assert left["sent"] - left["offered"] <= 3 * core + 7 * LINE
