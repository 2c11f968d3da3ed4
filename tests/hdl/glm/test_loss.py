# amaranth: UnusedElaboratable=no
"""The loss unit against ``fanin.fixed``, bit for bit."""

import numpy as np
import pytest

from fanin import fixed
from fanin.fixed import INT32_MAX, INT32_MIN, Loss
from fanin.hdl.glm.loss import LossUnit
from fanin.hdl.glm.loss_sequence import LossSequence
from tests.support import new_seed, simulate, slow

BANKS = 4


def _special(frac: int) -> list[int]:
    """Edges of int32, of the table's range and of its steps, and of the hinge."""
    one = 1 << frac
    centres = [0, one, -one, 8 * one, -8 * one, 1 << frac - 6, 3 << frac - 6, INT32_MIN, INT32_MAX]
    values = {centre + offset for centre in centres for offset in (-1, 0, 1)}
    return sorted(v for v in values if INT32_MIN <= v <= INT32_MAX)


def _activations(rng: np.random.Generator, frac: int, count: int) -> np.ndarray:
    """Special values first, then numbers of every size."""
    special = np.array(_special(frac), dtype=np.int64)
    rest = rng.integers(INT32_MIN, INT32_MAX + 1, count - len(special)) >> rng.integers(
        0, 32, count - len(special)
    )
    return np.concatenate([special, rest])


def _labels(rng: np.random.Generator, frac: int, loss: Loss, count: int) -> np.ndarray:
    if loss is Loss.LINEAR:
        return rng.integers(INT32_MIN, INT32_MAX + 1, count) >> rng.integers(0, 32, count)
    return fixed.labels(rng.integers(0, 2, count), loss, frac).astype(np.int64)


def _vectors(values: np.ndarray, banks: int = BANKS) -> list[list[int]]:
    return values.reshape(-1, banks).tolist()


def _unit(frac: int = 24, lanes: int = BANKS):
    return (
        LossUnit(banks=BANKS, frac=frac)
        if lanes == BANKS
        else LossSequence(banks=BANKS, at_once=lanes, frac=frac)
    )


def _run(dut, fa, labels, loss, mantissa, shift, **options):
    settings = {"loss": loss, "mantissa": mantissa, "shift": shift}
    return simulate(
        dut,
        drive={"fa": _vectors(fa), "labels": _vectors(labels, len(dut.labels.payload))},
        collect={"scale": len(fa) // BANKS},
        settings=settings,
        **options,
    )


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize(
    ("frac", "lanes"), [(24, BANKS), (24, 1), *slow((24, 2), *((n, BANKS) for n in (6, 7, 16, 28)))]
)
def test_scale_equals_the_number_format_bit_for_bit(loss, frac, lanes):
    seed = new_seed()
    rng = np.random.default_rng(seed)
    fa = _activations(rng, frac, 400)
    fa, labels = np.tile(fa, 2), _labels(rng, frac, loss, 2 * len(fa))
    for half, label_order in enumerate((1, -1)):  # every special activation meets both classes
        if loss is not Loss.LINEAR:
            special = slice(400 * half, 400 * half + 60)
            labels[special] = labels[0] * label_order if loss is Loss.HINGE else (label_order > 0) << frac
    mantissa, shift = int(rng.integers(1 << 15, 1 << 16)), int(rng.choice([0, 1, 16, 22, 39]))
    log = _run(_unit(frac, lanes), fa, labels, loss, mantissa, shift, seed=seed)
    got = [list(payload) for _, payload in log["scale"]]
    want = fixed.scale(fixed.df(fa, labels, loss, frac), mantissa, shift)
    assert got == _vectors(want)


@pytest.mark.parametrize("shift", [39, *slow(0, 15, 16, 17, 32, 38)])
def test_scale_saturates_and_rounds_down_at_every_shift(shift):
    fa = np.array([INT32_MAX, INT32_MIN, 1, -1, 0, 12345, -12345, INT32_MAX], dtype=np.int64)
    labels = np.array([INT32_MIN, INT32_MAX, 0, 0, 0, 1, 1, 0], dtype=np.int64)
    for mantissa in (1 << 15, (1 << 16) - 1):
        log = _run(LossUnit(banks=BANKS, frac=24), fa, labels, Loss.LINEAR, mantissa, shift)
        got = [list(payload) for _, payload in log["scale"]]
        assert got == _vectors(fixed.scale(fa - labels, mantissa, shift))


@pytest.mark.parametrize("loss", Loss)
def test_eight_cycles_and_one_micro_batch_a_cycle(loss):
    fa = np.arange(40 * BANKS, dtype=np.int64)
    log = _run(LossUnit(banks=BANKS, frac=24), fa, fa, loss, 1 << 15, 15, stall=0)
    first_in, first_out = log["fa"][0][0], log["scale"][0][0]
    assert first_out - first_in == 8
    assert first_out - log["labels"][0][0] == 7
    assert [cycle for cycle, _ in log["scale"]] == list(range(first_out, first_out + 40))


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_sequence_takes_a_cycle_a_step_and_that_much_longer(lanes):
    fa, dut = np.arange(40 * BANKS, dtype=np.int64), _unit(lanes=lanes)
    steps = BANKS // lanes
    log = _run(dut, fa, fa, Loss.LOGISTIC, 1 << 15, 15, stall=0)
    last_in, first_out = log["fa"][0][0], log["scale"][0][0]
    assert (last_in, first_out) == (steps, dut.latency)
    assert dut.latency == 7 + steps
    every = steps + 1
    assert [cycle for cycle, _ in log["scale"]] == list(range(first_out, first_out + 40 * every, every))


@pytest.mark.parametrize("lanes", [BANKS, 1])
def test_an_activation_waits_for_its_label(lanes):
    fa = np.arange(20 * BANKS, dtype=np.int64)
    log = _run(_unit(lanes=lanes), fa, 2 * fa, Loss.LINEAR, 1 << 15, 15, stall={"labels": 0.8, "fa": 0})
    assert [list(payload) for _, payload in log["scale"]] == _vectors(-fa)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"banks": 0, "frac": 24}, "banks must be at least 1, not 0"),
        ({"banks": 8, "frac": 5}, "frac must be in 6…28, not 5"),
        ({"banks": 8, "frac": 29}, "frac must be in 6…28, not 29"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        LossUnit(**parameters)


@pytest.mark.parametrize("lanes", [0, 3, 4, 8])
def test_a_sequence_has_a_divisor_of_the_banks_for_lanes(lanes):
    with pytest.raises(ValueError, match=f"at_once must be a divisor of 4 banks and smaller, not {lanes}"):
        LossSequence(banks=BANKS, at_once=lanes, frac=24)
