"""The table of what narrow exponents cost."""

import numpy as np
import pytest

from fanin.codec.facts import Bfp
from fanin.sim.codec.exponents import FORMATS, cost, table


def test_cost_is_relative_error_and_share_of_zeros():
    """In units of 2^-13, the lowest of 4 bits: 4 is exact, 1.5 becomes 2, 0.25 becomes 0, 0 stays."""
    values = np.array([4, 1.5, 0.25, 0], dtype=np.float32) * np.float32(2**-13)
    error, zeros = cost(values, Bfp(4, 7, 4))
    assert error == pytest.approx(np.sqrt((0.5**2 + 0.25**2) / (4**2 + 1.5**2 + 0.25**2)))
    assert zeros == 0.25


def test_the_table_has_a_row_for_each_format():
    rows = list(table({"one": np.full(16, 0.3, np.float32), "two": np.full(16, 2.0**-30, np.float32)}))
    assert len(rows) == 2 + len(FORMATS)
    assert rows[2].startswith("| 8, 0 | 2^-127…2^127 | 3.76 (3.20) | 0.26 %, 0 % | 0 %, 0 % |")
    assert rows[4].startswith("| 5, 0 | 2^-15…2^15 | 3.85 (3.46) | 0.26 %, 100 % | 0 %, 100 % |")
