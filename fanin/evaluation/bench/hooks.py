"""Benchmark of DDP's communication hooks: accuracy, bytes, and time of a step on the ring NIC."""

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
    base_results: list[TrainingResult] = []
    total = len(hook_trial.HOOK_SETUPS) * args.seeds
    with progress_bar(total=total, unit=" trainings") as bar:
        for name, results in hook_trial.trials(
            list(hook_trial.HOOK_SETUPS), args.seeds, args.epochs, bar.update
        ):
            base_results = base_results or results
            statistics = _HookStatistics(name, results, base_results)
            yield from statistics.results()
            rows.append(statistics.row())
    rates = [f"{rate:g} Gb/s, µs" for rate in base_results[0].seconds]
    columns = ("hook", "accuracy, %", "lost, points", "kB a step", "× smaller", *rates)
    write_file(page, "\n".join(table("Hooks", columns, rows)))


class _HookStatistics:
    """Statistics of a hook's trainings, relative to the trainings without compression, seed by seed."""

    def __init__(self, name: str, results: list[TrainingResult], base_results: list[TrainingResult]):
        self._name = name
        self._accuracy = spread(100 * result.accuracy for result in results)
        self._lost = spread(
            100 * (base_result.accuracy - result.accuracy)
            for result, base_result in zip(results, base_results, strict=True)
        )
        self._size = spread(result.wire_bytes for result in results).mean
        self._smaller = spread(result.wire_bytes for result in base_results).mean / self._size
        self._microseconds = {
            rate: 1e6 * spread(result.seconds[rate] for result in results).mean for rate in results[0].seconds
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
