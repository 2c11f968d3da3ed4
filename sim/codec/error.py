"""Plot of INCEPTIONN's error by magnitude: ``python -m fanin.sim.codec.error docs/images/codec-error.png``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.base.scratch import output_file
from fanin.codec.facts import Inceptionn, Mode
from fanin.codec.golden import inceptionn

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

BOUNDS = (10, 6)
SMALLEST = 13  # magnitudes from 2^-13 to 1
BINS = 32  # bins per octave; each bin's largest error is drawn
SAMPLES = 64  # samples per bin


def largest_errors(config: Inceptionn) -> tuple[Float64, Float64]:
    """Return magnitudes, and the largest |decoded - value| in the interval from each to the next."""
    magnitudes = np.exp2(np.arange(-SMALLEST, 0, 1 / (BINS * SAMPLES)))
    values = magnitudes.astype(np.float32)
    errors = np.abs(inceptionn.roundtrip(values, config).astype(np.float64) - values.astype(np.float64))
    return magnitudes[::SAMPLES], errors.reshape(-1, SAMPLES).max(axis=1)


def draw(path: Path) -> None:
    """Draw both modes at 2^-10 and 2^-6, with the bound, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")  # needs no display
    from matplotlib import pyplot

    drawing = pyplot.figure(figsize=(10, 4), layout="constrained")
    for axes, bound in zip(drawing.subplots(1, len(BOUNDS), sharey=True), BOUNDS, strict=True):
        for mode, colour in ((Mode.PUBLISHED, "tab:orange"), (Mode.STRICT, "tab:blue")):
            magnitudes, errors = largest_errors(Inceptionn(bound, mode))
            axes.plot(magnitudes, errors, color=colour, label=mode.name.lower(), linewidth=1.3)
        axes.axhline(2.0**-bound, color="black", linestyle=":", label="bound")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2, nonpositive="clip")
        axes.set(title=f"bound $2^{{-{bound}}}$", xlabel="|value|", ylim=(2.0**-17, 2.0**-3))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left")
    drawing.axes[0].set_ylabel("largest |decoded − value|")
    with output_file(path) as file:
        drawing.savefig(file, format="png", dpi=120)
    pyplot.close(drawing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m fanin.sim.codec.error", description=__doc__)
    parser.add_argument("image", type=Path)
    draw(parser.parse_args().image)
