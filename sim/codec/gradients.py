"""Gradients of a trained network, to try codecs on: ``python -m fanin.sim.codec.gradients DIR``.

INCEPTIONN's classifier is trained by four workers (``trainers``). A stage's gradient is the first worker's, as
computed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.base.scratch import write_file
from fanin.codec.facts import Inceptionn, Mode
from fanin.sim.codec import tags
from fanin.sim.codec.exchanges import WorkerAggregator
from fanin.sim.codec.trainers import Training
from fanin.sim.codec.wire import Traffic

Float32 = npt.NDArray[np.float32]

STAGES = {"early": 0.05, "middle": 0.5, "final": 1.0}  # share of the training that is done
BINS = 64  # bins of the histogram, from -1 to 1


def gradients(
    stages: Sequence[str] = tuple(STAGES), seed: int = 0, training: Training | None = None
) -> dict[str, Float32]:
    """Return the flat gradient of each stage, by its name in ``STAGES``; the same seed gives the same bits.

    ``training`` replaces the default training; ``seed`` is then ignored. Raises KeyError for an unknown stage.
    """
    run = training or Training(seed=seed)
    first_worker = 0
    step_gradients = [step.gradients[first_worker] for step in run.steps(WorkerAggregator(), Traffic())]
    last_step = len(step_gradients) - 1
    return {stage: step_gradients[round(STAGES[stage] * last_step)] for stage in stages}


def histogram(values: Float32) -> list[tuple[float, float]]:
    """Return INCEPTIONN's figure 5: the middle of each non-empty bin, and its share of the values in %."""
    counts, edges = np.histogram(values, BINS, (-1, 1))
    middles = (edges[:-1] + edges[1:]) / 2
    shares = 100 * counts / values.size
    return [(float(middle), float(share)) for middle, share in zip(middles, shares, strict=True) if share]


def save(gradients_by_stage: Mapping[str, Float32], folder: Path) -> list[Path]:
    """Write each gradient as little-endian float32 to ``gradient-STAGE.f32``; return the paths."""
    paths = []
    for stage, values in gradients_by_stage.items():
        paths.append(folder / f"gradient-{stage}.f32")
        write_file(paths[-1], values.astype("<f4").tobytes())
    return paths


def table(gradients_by_stage: Mapping[str, Float32]) -> list[str]:
    """Return a Markdown table: the share of values in each form of the codec, by its bits.

    Rows: each bound of the paper, stage and mode, and after each bound the shares of the paper's table III.
    """
    lines = ["| gradient | bound | mode | 2 bits | 10 bits | 18 bits | 34 bits | bits/value |"]
    lines.append("|" + "---|" * 8)
    for row, bound in enumerate(tags.BOUNDS):
        for stage, values in gradients_by_stage.items():
            for mode in Mode:
                config = Inceptionn(bound, mode)
                lines.append(_line(stage, bound, mode.name.lower(), tags.shares(values, config)))
        lines.append(_line("the paper's HDC", bound, "published", tags.TABLE_III["HDC"][row]))
    return lines


def _line(stage: str, bound: int, mode: str, form_shares: Sequence[float]) -> str:
    cells = " | ".join(f"{share:.1f} %" for share in form_shares)
    return f"| {stage} | 2^-{bound} | {mode} | {cells} | {tags.bits(form_shares):.2f} |"


def main() -> None:
    """Train, write the gradients to the folder of the command line, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m fanin.sim.codec.gradients", description=__doc__)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()  # before the training, so that a wrong command line costs no time
    gradients_by_stage = gradients()
    print(*save(gradients_by_stage, args.folder), *table(gradients_by_stage), sep="\n")


if __name__ == "__main__":
    main()
