"""The default learning rate: 1 over a bound of the curvature, as a power of two."""

import math

import numpy as np
import pytest
from scipy import sparse

from fanin.fixed import Loss
from fanin.glm.golden.rate import default_rate
from tests.support import new_seed


@pytest.mark.parametrize(("loss", "most"), [(Loss.LINEAR, 1.0), (Loss.LOGISTIC, 0.25), (Loss.HINGE, 1.0)])
def test_it_is_within_root_two_of_one_over_the_hessians_trace(loss, most):
    rng = np.random.default_rng(new_seed())
    for precision in (1, 4, 8):
        codes = rng.integers(0, 1 << precision, (int(rng.integers(1, 50)), int(rng.integers(1, 30))), np.uint8)
        codes[0, 0] = 1  # not all 0
        x = codes / 2.0**precision
        trace = most * np.trace(x.T @ x) / len(x)
        rate = default_rate(codes, precision, loss)
        assert math.frexp(rate)[0] == 0.5
        assert 2**-0.5 * (1 - 1e-9) <= rate * max(trace, most * 2.0**-8) <= 2**0.5 * (1 + 1e-9)
        assert default_rate(sparse.csr_matrix(codes), precision, loss) == rate


def test_samples_of_zeros_have_a_finite_one():
    assert default_rate(np.zeros((3, 2), np.uint8), 4, Loss.LINEAR) == 256
