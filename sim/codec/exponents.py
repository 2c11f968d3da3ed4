"""Cost of narrow BFP exponents on real gradients.

``python -m fanin.sim.codec.exponents`` prints the table of docs/systems/codec.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import EXPONENT_BIAS, Bfp
from fanin.codec.golden import bfp
from fanin.sim.codec.gradients import gradients

Float32 = npt.NDArray[np.float32]

#: Exponent and offset of each row.
FORMATS = ((8, 0), (6, 0), (5, 0), (5, 8), (4, 0), (4, 7), (3, 0), (3, 8), (2, 8), (1, 8))
SMALL_BLOCK = 4


def cost(values: Float32, config: Bfp) -> tuple[float, float]:
    """Return the root mean square error relative to the values', and the share of values that become zero."""
    received = bfp.roundtrip(values, config)
    exact = values.astype(np.float64)
    error = np.square(received - exact).sum() / np.square(exact).sum()
    return float(np.sqrt(error)), float(((received == 0) & (values != 0)).mean())


def table(gradients_by_name: Mapping[str, Float32]) -> Iterator[str]:
    """Yield a Markdown table: a row per format, with the costs on each of the gradients."""
    head = [f"error: {', '.join(gradients_by_name)}", f"to zero: {', '.join(gradients_by_name)}"]
    ratio = f"ratio, blocks of {Bfp().block} (of {SMALL_BLOCK})"
    yield f"| {' | '.join(['exponent, offset', 'scales', ratio, *head])} |"
    yield "|" + "---|" * 5
    for exponent, offset in FORMATS:
        config = Bfp(exponent=exponent, offset=offset)
        small = Bfp(block=SMALL_BLOCK, exponent=exponent, offset=offset)
        scales = (f"2^{limit - EXPONENT_BIAS}" for limit in (config.lowest, config.highest))
        costs = [cost(values, config) for values in gradients_by_name.values()]
        errors = ", ".join(f"{100 * error:.3g} %" for error, _ in costs)
        zeros = ", ".join(f"{share:.0%}".replace("%", " %") for _, share in costs)
        ratio = f"{config.ratio:.2f} ({small.ratio:.2f})"
        yield f"| {exponent}, {offset} | {'…'.join(scales)} | {ratio} | {errors} | {zeros} |"


if __name__ == "__main__":
    print(*table(gradients()), sep="\n")
