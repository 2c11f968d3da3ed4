# amaranth: UnusedElaboratable=no
"""Streams of one width as streams of another."""

from math import lcm

import numpy as np
import pytest

from fanin.hdl.layers.resize import Resize
from tests.hdl.layers.frames import collected
from tests.support import new_seed, simulate

WIDTHS = [(1, 4), (4, 1), (2, 3), (6, 4), (4, 6), (2, 12), (12, 6), (3, 2), (12, 1)]
WORDS = 12
widths = pytest.mark.parametrize(("i", "o"), WIDTHS)


def run(i, o, frames, stall):
    seed = new_seed()
    words = np.random.default_rng(seed).integers(0, 1 << 32, frames * WORDS)
    log = simulate(
        Resize(words=WORDS, i=i, o=o),
        drive={"input": words.reshape(-1, i).tolist()},
        collect={"output": frames * WORDS // o},
        stall=stall,
        seed=seed,
    )
    assert collected(log, "output") == words.reshape(-1, o).tolist()
    return ([cycle for cycle, _ in log[name]] for name in ("input", "output"))


@widths
def test_words_stay_in_order_while_either_side_stalls(i, o):
    run(i, o, 60, 0.3)


@widths
def test_the_narrower_side_never_pauses_and_the_last_frame_leaves_without_another(i, o):
    entered, left = run(i, o, 10, 0)
    whole = lcm(i, o)
    assert left[0] == entered[whole // i - 1] + (1 if whole == o else 2)
    narrow = entered if i < o else left
    assert narrow == list(range(narrow[0], narrow[0] + len(narrow)))


@pytest.mark.parametrize(
    ("i", "o", "message"),
    [(5, 4, "i must divide the 12 words of a frame, not 5"), (4, 8, "o must"), (3, 3, "i and o must differ")],
)
def test_widths_that_do_not_fit_are_refused(i, o, message):
    with pytest.raises(ValueError, match=message):
        Resize(words=WORDS, i=i, o=o)
