# amaranth: UnusedElaboratable=no
"""The NIC stages do to frames, byte for byte, what the golden model does, at the stated pace."""

import random
from pathlib import Path

import pytest

from fanin.hdl.codec.nic.nic import InceptionnNic
from fanin.hdl.codec.nic.receiver import InceptionnReceiver
from fanin.hdl.codec.nic.registers import nic_registers
from fanin.hdl.codec.nic.shapes import MAX_MAX_FRAME, MIN_MAX_FRAME
from fanin.hdl.codec.nic.transmitter import InceptionnTransmitter
from tests.fanin.codec.golden.packets import frame_of, gradients
from tests.hdl.codec.nic_traffic import CONFIG, MAX_FRAME, host_frames, received, sent, wire_frames
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate, slow

WIDTH = 256
SETTINGS = {"enable": 1, "bound": CONFIG.bound, "mode": CONFIG.mode}


def count_beats(made):
    return sum(-(-len(frame) // 32) for frame in made)


def through_transmitter(traffic, *, stall=0.3, seed=None):
    """The frames that left, and the log of all transfers."""
    expected = sent(traffic)
    log = simulate(
        InceptionnTransmitter(max_frame=MAX_FRAME),
        drive={"i": list(beats(traffic, WIDTH, errors=None))},
        collect={"o": count_beats(expected)},
        settings=SETTINGS,
        stall=stall,
        seed=seed,
    )
    return expected, frames(payload for _, payload in log["o"]), log


def through_receiver(traffic, *, errors=(), stall=0.3, seed=None):
    """Likewise, for the receiver."""
    expected = received(traffic, errors=errors)
    log = simulate(
        InceptionnReceiver(max_frame=MAX_FRAME),
        drive={"i": list(beats(traffic, WIDTH, errors=errors))},
        collect={"o": count_beats(expected)},
        settings={"enable": 1},
        stall=stall,
        seed=seed,
    )
    return expected, frames(payload for _, payload in log["o"]), log


def every_length(rng, share):
    """Payloads of 0 to 100 bytes, or of so many of these lengths, and some long ones."""
    lengths = [*rng.sample(range(101), share), *(rng.randrange(101, 400) for _ in range(5))]
    rng.shuffle(lengths)
    return lengths


some_lengths = pytest.mark.parametrize("share", [30, *slow(101)])


@some_lengths
def test_the_transmitter_does_what_the_golden_model_does(share):
    seed = new_seed()
    rng = random.Random(seed)
    expected, made, _ = through_transmitter(list(host_frames(rng, every_length(rng, share))), seed=seed)
    assert made == expected


@some_lengths
def test_the_receiver_does_what_the_golden_model_does(share):
    seed = new_seed()
    rng = random.Random(seed)
    traffic = list(wire_frames(rng, every_length(rng, share)))
    errors = {k for k in range(len(traffic)) if rng.random() < 0.1}
    expected, made, _ = through_receiver(traffic, errors=errors, seed=seed)
    assert made == expected


def edges(log, name):
    """Cycles of the first and the last beat of every frame, checked to follow one another without a pause."""
    cycles, start, count = [], None, 0
    for cycle, payload in log[name]:
        start = cycle if start is None else start
        count += 1
        if payload["last"]:
            assert cycle - start + 1 == count, "a pause inside a frame"
            cycles.append((start, cycle))
            start, count = None, 0
    return cycles


def check_pace(log, *, cycles, latency):
    """Frames leave ``cycles`` apart, without a pause inside; the first one ``latency`` behind its end."""
    left = edges(log, "o")
    ended = next(cycle for cycle, payload in log["i"] if payload["last"])
    assert left[0][0] - ended <= latency
    assert (left[-1][0] - left[0][0]) / (len(left) - 1) <= cycles


SMALL = [frame_of(gradients(18))] * 6
NOISE = b"\xff" * 1900
SHRINKING = [frame_of(gradients(1900, k)) for k in range(3)]
PACE = {
    # frames from the host; cycles per frame; from a frame's last beat in to its first beat out
    "compressed": (SHRINKING, 61 + 4, 48),
    "barely": ([frame_of(NOISE[:1700] + gradients(200))] * 3, 61 + 6, 48),
    "raw": ([frame_of(NOISE)] * 3, 61 + 61 / 16 + 4, 48),
    "bypassed": ([frame_of(NOISE, tos=0)] * 3, 61 + 4, 25),
    "small": (SMALL, 10, 48),
}


@pytest.mark.parametrize("kind", ["small", *slow("raw", "bypassed")])
def test_the_transmitter_keeps_its_pace_and_never_pauses_inside_a_frame(kind):
    traffic, cycles, latency = PACE[kind]
    expected, made, log = through_transmitter(traffic, stall=0)
    assert made == expected
    check_pace(log, cycles=cycles, latency=latency)


@pytest.mark.parametrize("kind", ["barely", *slow("compressed", "small")])
def test_the_receiver_keeps_its_pace_and_never_pauses_inside_a_frame(kind):
    traffic, cycles, latency = PACE[kind]
    compressed = sent(traffic)
    expected, made, log = through_receiver(compressed, stall=0)
    assert made == expected
    grown = count_beats(traffic[:1]) - count_beats(compressed[:1])
    check_pace(log, cycles=cycles, latency=latency + grown)


@pytest.mark.parametrize("component", [InceptionnTransmitter, InceptionnReceiver, InceptionnNic])
@pytest.mark.parametrize("max_frame", [MIN_MAX_FRAME - 1, MAX_MAX_FRAME + 1, 1500.0])
def test_a_longest_frame_that_cannot_be_held_is_refused(component, max_frame):
    with pytest.raises(ValueError, match="max_frame must be 128 to 16384 bytes, not"):
        component(max_frame=max_frame)


def test_the_registers_in_the_docs_are_those_of_the_map():
    page = Path(__file__).parents[3] / "docs/systems/inceptionn-nic.md"
    assert nic_registers().markdown() in page.read_text()
