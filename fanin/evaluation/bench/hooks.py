"""Effect of DDP's communication hooks on training: accuracy, bytes, and time of a step on the ring NIC."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.evaluation.bench.page import table
from fanin.evaluation.bench.result import Result
from fanin.runs.output import check_writable
from fanin.runs.progress import progress_bar
from fanin.sim.codec.effects import spread

if TYPE_CHECKING:
    from fanin.torch.hook_trial import TrainingResult

PAGE = "hooks.md"
MAX_LOST = 1.0  # points that each of LIMITED may lose
LIMITED = ("fp16", "BFP, 7 bits", "INCEPTIONN 2^-10", "top 1 %, error feedback", "PowerSGD, rank 2")


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures hook by hook; write them as a table into ``args.output``.

    Raises InputError for less than one seed or epoch, without PyTorch, or for a folder that cannot be written;
    ToolFailed when a rank of a training fails.
    """
    for option in ("seeds", "epochs"):
        if getattr(args, option) < 1:
            raise InputError(f"--{option} {getattr(args, option)}: must be at least 1")
    page = args.output / PAGE
    check_writable(page)
    try:
        from fanin.torch import hook_trial
    except ImportError as error:
        raise InputError(f"bench hooks: {error}") from error

    rows: list[Sequence[object]] = []
    base: list[TrainingResult] = []
    total = len(hook_trial.SCHEMES) * args.seeds
    with progress_bar(total=total, unit=" trainings") as bar:
        for name, outcomes in hook_trial.trials(list(hook_trial.SCHEMES), args.seeds, args.epochs, bar.update):
            base = base or outcomes
            measured = _Measured(name, outcomes, base)
            yield from measured.results()
            rows.append(measured.row())
    rates = [f"{rate:g} Gb/s, µs" for rate in base[0].seconds]
    columns = ("hook", "accuracy, %", "lost, points", "kB a step", "× smaller", *rates)
    write_file(page, "\n".join(table("Hooks", columns, rows)))


class _Measured:
    """The outcomes of a hook's trainings, and of those without a hook, seed by seed."""

    def __init__(self, name: str, outcomes: list[TrainingResult], base: list[TrainingResult]):
        self._name = name
        self._accuracy = spread(100 * one.accuracy for one in outcomes)
        self._lost = spread(100 * (b.accuracy - o.accuracy) for o, b in zip(outcomes, base, strict=True))
        self._size = spread(one.wire_bytes for one in outcomes).mean
        self._smaller = spread(one.wire_bytes for one in base).mean / self._size
        self._microseconds = {
            rate: 1e6 * spread(one.seconds[rate] for one in outcomes).mean for rate in outcomes[0].seconds
        }

    def results(self) -> Iterator[Result]:
        """Yield the measurements as figures."""
        name, lost, accuracy = self._name, self._lost, self._accuracy
        yield Result(f"{name}: accuracy", accuracy.mean, "%", note=f"± {accuracy.deviation:.1f}")
        limit = MAX_LOST if name in LIMITED else None
        yield Result(f"{name}: lost", lost.mean, "points", limit=limit, note=f"± {lost.deviation:.1f}")
        yield Result(f"{name}: a node sends in a step", self._size, "bytes")
        for rate, microseconds in self._microseconds.items():
            yield Result(f"{name}: collectives of a step, {rate:g} Gb/s", microseconds, "µs")

    def row(self) -> Sequence[object]:
        """Return the measurements as a row of the page's table."""
        size, smaller = f"{self._size / 1e3:.1f}", f"{self._smaller:.1f}"
        times = [f"{microseconds:.1f}" for microseconds in self._microseconds.values()]
        return (self._name, self._accuracy, self._lost, size, smaller, *times)
