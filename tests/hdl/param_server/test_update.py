"""The lanes beside the golden update: every kind of value, latency, full rate."""

import random

import numpy as np
import pytest

from fanin.hdl.param_server.update import UpdateLanes
from fanin.param_server.golden import update
from tests.fp32_values import SPECIAL, close_pairs
from tests.support import new_seed, simulate

LANES = 2
ONE, THIRD, LEAST, NAN, INFINITY = 0x3F800000, 0x3EAAAAAB, 0x00800000, 0x7FC00000, 0xFF800000


def _values(rng, count):
    """Pairs of w and gradient: special ones with one another, then such as cancel, tie or are anything."""
    special = [(rng.choice(SPECIAL), rng.choice(SPECIAL)) for _ in range(count // 2)]
    return special + close_pairs(rng, count - len(special))


def _words(values):
    return [sum(v << 32 * n for n, v in enumerate(values[i : i + LANES])) for i in range(0, len(values), LANES)]


def _run(step, pairs, **options):
    """What comes out, as values; and the log."""
    w, gradient = zip(*pairs, strict=True)
    count = len(pairs) // LANES
    log = simulate(
        UpdateLanes(lanes=LANES),
        drive={"w": _words(w), "gradient": _words(gradient)},
        collect={"o": count},
        settings={"step": step},
        **options,
    )
    return [word >> 32 * n & 0xFFFFFFFF for _, word in log["o"] for n in range(LANES)], log


@pytest.mark.parametrize("step", [ONE, THIRD, LEAST, NAN, INFINITY, 0, 1], ids=hex)
def test_the_lanes_compute_what_the_golden_server_does(step):
    seed = new_seed()
    pairs = _values(random.Random(seed), 160)
    w, gradient = (np.array(side, np.uint32).view(np.float32) for side in zip(*pairs, strict=True))
    made, _ = _run(step, pairs, seed=seed)
    expected = update(w, gradient, np.uint32(step).view(np.float32)).view(np.uint32)
    assert made == expected.tolist()


def test_a_word_a_cycle_after_the_stated_latency():
    _, log = _run(ONE, [(ONE, ONE)] * 80, stall=0.0)
    cycles = {name: [cycle for cycle, _ in transfers] for name, transfers in log.items()}
    assert cycles["w"] == cycles["gradient"] == list(range(cycles["w"][0], cycles["w"][0] + 40))
    assert [there - here for here, there in zip(cycles["w"], cycles["o"], strict=True)] == [15] * 40
    assert UpdateLanes.LATENCY == 15
