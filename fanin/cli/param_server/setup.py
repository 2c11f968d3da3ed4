"""From the options of ``fanin ps train`` to a run: its job, its learner and what it runs on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fanin.cli.param_server.stragglers import parse_stragglers
from fanin.cli.ranges import Ranges, check_ranges
from fanin.cli.ranks import check_nodes, refuse_ranks
from fanin.cli.stops import parse_stops
from fanin.errors import CheckFailed, InputError
from fanin.param_server import ParamServerConfig
from fanin.rdma import MAX_QUEUE_PAIRS
from fanin.seed import MAX_SEED
from fanin.sim.learning.learner import Learner, Shards, Training
from fanin.sim.learning.workloads import Workload, build, load, source_of
from fanin.sim.network import LinkConfig
from fanin.sim.param_server import events, training
from fanin.sim.param_server.costs import DESIGN, WORD_BITS, Compute
from fanin.sim.param_server.paper import PAPER, cluster
from fanin.sim.param_server.recipes import recipes_of

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.run import RunResult
    from fanin.sim.cosim.waves import Waveform

_OF_RANDOM_FEATURES = ("features", "gamma")
_FEATURE_BYTES = 3 * 8  # float64, and what stands beside it while it is made
_FAULTS = ("drop", "duplicate", "reorder")
_RANGES: Ranges = {
    "epochs": (1, 10**6),
    "warm_up": (0, 10**6),
    "rate": (1e-9, 1e9),
    "decay": (0, 1e9),
    "features": (1, 10**6),
    "gamma": (1e-9, 1e9),
    "seed": (0, MAX_SEED),
    "sample_seconds": (0, 3600),
    "jitter": (0, 10),
}
#: Of the options, what belongs to the run and not to where it is written.
_CONFIGURATION = (
    *("model", "epochs", "batch", "rate", "decay", "features", "gamma", "dtype", "seed", "optimum"),
    *("algorithm", "push_after", "receivers", "workers", "slots", "warm_up", "servers", "width"),
    *("costs", "sample_seconds", "jitter", "stragglers", "stop", *_FAULTS),
)


class Backend(Protocol):
    """What carries a run out: the event model, or RTL.

    Raises CheckFailed of one line where the run cannot be ended: with the names of the workers without which
    Sync-DSGD cannot go on, or with what went wrong in the simulation.
    """

    def __call__(
        self, job: training.TrainingJob, learner: Learner, *, progress: training.Progress
    ) -> training.Outcome:
        """Carry the job out, and call ``progress`` on the way."""


@dataclass(frozen=True)
class Setup:
    """A run as it was asked for. ``configuration`` has the options by name, defaults filled in.

    ``data`` is a folder with MNIST, an archive, or None for the bundled digits.
    """

    configuration: dict[str, Any]
    data: Path | None
    on: str
    job: training.TrainingJob
    link: LinkConfig


def setup_of(args: argparse.Namespace) -> Setup:
    """What the options say, as far as it can be known without the data. Raises InputError."""
    if args.on == "model":
        refuse_ranks(args, "--on model")
    else:
        check_nodes(args, args.workers + args.servers)
    data = source_of(args.data)
    values = _filled(args, data)
    check_ranges(values, _RANGES)
    if not 1 <= args.workers <= MAX_QUEUE_PAIRS:
        reason = f"a server has a queue pair for each, and a NIC {MAX_QUEUE_PAIRS} at most"
        raise InputError(f"workers must be 1 to {MAX_QUEUE_PAIRS}, not {args.workers}: {reason}")
    convex = args.model != "fcnn" and values["decay"] > 0
    if args.optimum and not convex:
        raise InputError("--optimum: only lr and lr-rff with a --decay above 0 have one w*")
    values["optimum"] = values["optimum"] and convex
    link = _link(args)
    stragglers = parse_stragglers(values["stragglers"], args.workers)
    compute = Compute(
        per_sample=values["sample_seconds"],
        jitter=args.jitter,
        straggle_odds=stragglers.odds,
        straggle_factor=stragglers.factor,
        slow=stragglers.slow,
    )
    stops = parse_stops(values["stop"], args.workers)
    sizes = ("workers", "slots", "servers", "warm_up", "rate", "batch", "epochs", "seed")
    try:
        job = training.TrainingJob(
            algorithm=training.Algorithm(args.algorithm),
            push_after=training.PushAfter(args.push_after) if args.push_after else None,
            receivers=training.Receivers(args.receivers),
            compute=compute,
            stops=stops,
            **{name: values[name] for name in sizes},
            **_costs(args),
        )
    except ValueError as error:  # these name parameter, value and limit
        raise InputError(str(error)) from error
    if args.algorithm == "wild":
        values["push_after"] = "scan" if job.pushes_after_scan else "gradient"
    return Setup({name: values[name] for name in _CONFIGURATION}, data, args.on, job, link)


def _costs(args: argparse.Namespace) -> dict[str, Any]:
    """Of a job: what takes how long, and the size of w on links where that is not its own."""
    if args.costs == "design":
        return {"costs": DESIGN}
    row = PAPER[args.model]
    return {"costs": cluster(row, args.jitter), "model_bytes": row.bytes}


def _filled(args: argparse.Namespace, data: Path | None) -> dict[str, Any]:
    """The options by name, with what the model has for those that were not given."""
    recipe = recipes_of(data)[args.model]
    defaults = {name: getattr(recipe, name) for name in ("rate", "decay", "epochs", "warm_up")}
    defaults |= {"sample_seconds": PAPER[args.model].per_sample, "optimum": data is None}
    if args.model == "lr-rff":
        defaults |= {"features": recipe.features, "gamma": recipe.gamma}
    elif strange := [name for name in _OF_RANDOM_FEATURES if getattr(args, name) is not None]:
        raise InputError(f"--{strange[0]}: only lr-rff has random features, not {args.model}")
    given = {name: value for name, value in vars(args).items() if value is not None}
    absent = dict.fromkeys((*_OF_RANDOM_FEATURES, "push_after"))
    lists = {name: ",".join(getattr(args, name) or ()) for name in ("stragglers", "stop")}
    return absent | defaults | given | lists


def _link(args: argparse.Namespace) -> LinkConfig:
    faults = {name: getattr(args, name) for name in _FAULTS}
    packets = [f"--{name}" for name, given in {**faults, "pcap": args.pcap}.items() if given]
    if args.on == "model" and packets:
        raise InputError(f"{', '.join(packets)}: faults and packets need --on rtl")
    if args.on == "rtl" and args.costs != "design":
        raise InputError("--costs: of the event model alone; add --on model")
    if args.on == "model" and args.width != WORD_BITS:
        raise InputError(f"--width: the model is one of {WORD_BITS} bits; {args.width} need --on rtl")
    try:
        return LinkConfig(**faults)
    except ValueError as error:
        raise InputError(str(error)) from error


def learner_of(setup: Setup) -> Training:
    """Who trains on what, and with a w* where one is asked for. Raises InputError."""
    values = setup.configuration
    special = {name: values[name] for name in _OF_RANDOM_FEATURES if values[name] is not None}
    shared = {name: values[name] for name in ("decay", "dtype", "seed")}
    samples = load(setup.data, values["seed"])
    _check_memory(sum(map(len, samples)), values["features"])
    try:
        workload = build(values["model"], samples, **special, **shared)
    except ValueError as error:  # these name parameter, value and limit
        raise InputError(str(error)) from error
    check_sizes(setup, workload)
    return Training(workload, **_sizes(setup), convergence=values["optimum"])


def check_sizes(setup: Setup, workload: Workload) -> int:
    """Mini-batches of a worker and epoch.

    Raises InputError unless a workload's samples and w can be shared out.
    """
    values = setup.configuration
    try:
        shards = Shards(workload.train, **_sizes(setup))
        ParamServerConfig(
            parameters=workload.network.count,
            **{name: values[name] for name in ("workers", "slots", "servers", "width")},
        )
    except ValueError as error:  # these name parameter, value and limit
        raise InputError(str(error)) from error
    return shards.batches


def _sizes(setup: Setup) -> dict[str, int]:
    return {name: setup.configuration[name] for name in ("workers", "batch", "seed")}


def _check_memory(samples: int, features: int | None) -> None:
    """Raise InputError for more random features than memory has room for, before the system ends us."""
    need = _FEATURE_BYTES * samples * (features or 0)
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        what = f"{features:,} features of {samples:,} samples take {need / 2**30:,.0f} GiB"
        raise InputError(f"{what}; this machine has {have / 2**30:,.0f} GiB")


def backend_of(
    setup: Setup,
    *,
    pcap: Path | None = None,
    link_log: Path | None = None,
    wave: Waveform | None = None,
    finished: Callable[[RunResult], None] | None = None,
) -> Backend:
    """What the run runs on; all frames go to ``pcap``, what links do to ``link_log``, signals to ``wave``.

    ``finished`` gets the result of a run in RTL.
    """
    if setup.on == "model":
        return events.run
    width = setup.configuration["width"]
    return partial(
        _in_rtl,
        width=width,
        link=setup.link,
        pcap=pcap,
        link_log=link_log,
        wave=wave,
        finished=finished,
    )


def _in_rtl(
    job: training.TrainingJob,
    learner: Learner,
    *,
    progress: training.Progress,
    **settings: Any,
) -> training.Outcome:
    from fanin.sim.cosim.simulator import SimulationFailed
    from fanin.sim.param_server.cosim import run_rtl  # Amaranth takes a second to load

    try:
        return run_rtl(job, learner, progress=progress, quiet=False, **settings)
    except SimulationFailed as failure:
        raise CheckFailed(str(failure)) from failure
