"""Build the run of ``fanin ps train`` from its options: job, learner and backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fanin.base.errors import CheckFailed, InputError
from fanin.evaluation.models.rdma_wild import PAPER, cluster
from fanin.link import LinkConfig
from fanin.param_server.facts import Algorithm, ParamServerConfig, PushAfter
from fanin.param_server.run.options import BUNDLED, RANDOM_FEATURES, RTL, ParamServerOptions
from fanin.param_server.run.stragglers import parse_stragglers
from fanin.runs.call import Call
from fanin.runs.option import Trait, options_of
from fanin.runs.pairs import parse_stops
from fanin.runs.ranks import check_nodes, refuse_ranks
from fanin.sim.learning.learner import Learner, Shards, Training
from fanin.sim.learning.workloads import Workload, build, load, source_of
from fanin.sim.param_server import events, training
from fanin.sim.param_server.costs import DESIGN, WORD_BITS, Compute
from fanin.sim.param_server.recipes import recipes_of

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.run import RunResult
    from fanin.sim.cosim.waves import Waveform

_FEATURE_BYTES = 3 * 8  # float64, and the temporaries of its computation
_JOB_OPTIONS = (
    *("algorithm", "push_after", "receivers", "workers", "slots", "servers", "warm_up"),
    *("lr", "batch", "epochs", "seed"),
)


class Backend(Protocol):
    """Platform that runs a training: the event model, or RTL.

    Raises CheckFailed of one line if the run cannot finish. The line names the workers without which Sync-DSGD
    cannot continue, or the failure of the simulation.
    """

    def __call__(
        self, job: training.TrainingJob, learner: Learner, *, progress: training.Progress
    ) -> training.Outcome:
        """Run the job, and call ``progress`` during the run."""


@dataclass(frozen=True)
class Setup:
    """Inputs of a run, from its options.

    - ``options``: options, with the defaults of model and data filled in.
    - ``data``: folder or archive with MNIST; None for the bundled digits.
    - ``job``: training job for the simulator or the event model.
    - ``link``: links of the simulated network.
    """

    options: ParamServerOptions
    data: Path | None
    job: training.TrainingJob
    link: LinkConfig

    @property
    def configuration(self) -> dict[str, Any]:
        """Options of the training as JSON; a repeatable option is one text."""
        values = self.options.as_json()
        return {
            option.name: ",".join(values[option.name] or ()) if option.repeatable else values[option.name]
            for option in options_of(ParamServerOptions)
            if option.training
        }


def setup_of(options: ParamServerOptions, call: Call) -> Setup:
    """Return the requested run, as far as it is known without the data. Raises InputError."""
    _refuse(options, call)
    data = source_of(options.data)
    options = _fill_in(options, data)
    stragglers = parse_stragglers(",".join(options.stragglers or ()), options.workers)
    try:
        job = training.TrainingJob(
            compute=Compute(
                per_sample=options.sample_seconds or 0.0,
                jitter=options.jitter,
                straggle_probability=stragglers.probability,
                straggle_factor=stragglers.factor,
                slowdowns=stragglers.worker_factors,
            ),
            stops=parse_stops(",".join(options.stop or ()), options.workers),
            **{name: getattr(options, name) for name in _JOB_OPTIONS},
            **_costs(options),
        )
        link = LinkConfig(**{name: getattr(options, name) for name in ("drop", "duplicate", "reorder")})
    except ValueError as error:  # these name parameter, value and limit
        raise InputError(str(error)) from error
    if options.algorithm is Algorithm.WILD:
        push_after = PushAfter.SCAN if job.pushes_after_scan else PushAfter.GRADIENT
        options = replace(options, push_after=push_after)
    return Setup(options, data, job, link)


def _refuse(options: ParamServerOptions, call: Call) -> None:
    """Raise InputError for options that contradict one another."""
    if options.on == "model":
        refuse_ranks(call, "--on model")
        if options.width != WORD_BITS:
            raise InputError(
                f"--width {options.width}: needs --on rtl; the event model has words of {WORD_BITS} bits"
            )
    else:
        check_nodes(call, options.workers + options.servers)
        if options.costs != "design":
            raise InputError(f"--costs {options.costs}: needs --on model")
    options.refuse(lacking(options))


def lacking(options: ParamServerOptions) -> Mapping[Trait, str]:
    """Return the traits that such a run lacks, each with the reason for users."""
    reasons = {}
    if options.model != "lr-rff":
        reasons[RANDOM_FEATURES] = f"applies to lr-rff, not to {options.model}"
    if options.on == "model":
        reasons[RTL] = "needs --on rtl"
    return reasons


def _costs(options: ParamServerOptions) -> dict[str, Any]:
    """Return the fields of a job that ``--costs`` sets.

    ``costs``: times of links and servers. ``model_bytes``: bytes of w on links, if the paper's cluster replaces
    those of the workload.
    """
    if options.costs == "design":
        return {"costs": DESIGN}
    row = PAPER[options.model]
    return {"costs": cluster(row, options.jitter), "model_bytes": row.bytes}


def _fill_in(options: ParamServerOptions, data: Path | None) -> ParamServerOptions:
    """Fill in options that were not given from model and data. Raises InputError."""
    recipe = recipes_of(data)[options.model]
    names = ("lr", "decay", "epochs", "warm_up", *_feature_options(options))
    defaults = {name: getattr(recipe, name) for name in names}
    defaults |= {"sample_seconds": PAPER[options.model].per_sample, "optimum": data is None}
    defaults = {name: value for name, value in defaults.items() if name not in options.given}
    options = replace(options, **defaults, data=str(data or BUNDLED))
    has_unique_optimum = options.model != "fcnn" and options.decay  # a convex model, strictly so by its decay
    if has_unique_optimum:
        return options
    if options.optimum and "optimum" in options.given:
        raise InputError("--optimum: only lr and lr-rff with a --decay above 0 have a unique w*")
    return replace(options, optimum=False)


def _feature_options(options: ParamServerOptions) -> tuple[str, ...]:
    """Return the names of the options of random features; none for a model without."""
    return ("features", "gamma") if options.model == "lr-rff" else ()


def learner_of(setup: Setup) -> Training:
    """Return the learner of a run, with w* if the options request it. Raises InputError."""
    options = setup.options
    samples = load(setup.data, options.seed)
    _check_memory(sum(map(len, samples)), options.features)
    names = ("decay", "dtype", "seed", *_feature_options(options))
    try:
        workload = build(options.model, samples, **{name: getattr(options, name) for name in names})
    except ValueError as error:  # these name parameter, value and limit
        raise InputError(str(error)) from error
    batches_per_epoch(setup, workload)  # only to refuse impossible sizes
    return Training(workload, **_sizes(options), convergence=bool(options.optimum))


def batches_per_epoch(setup: Setup, workload: Workload) -> int:
    """Return the mini-batches of each worker in an epoch.

    Raises InputError unless the workload's samples and w can be divided among workers and servers.
    """
    options = setup.options
    try:
        shards = Shards(workload.train, **_sizes(options))
        ParamServerConfig(  # raises ValueError
            parameters=workload.network.count,
            workers=options.workers,
            slots=options.slots,
            servers=options.servers,
            width=options.width,
        )
    except ValueError as error:  # these name parameter, value and limit
        raise InputError(str(error)) from error
    return shards.batches


def _sizes(options: ParamServerOptions) -> dict[str, int]:
    return {"workers": options.workers, "batch": options.batch, "seed": options.seed}


def _check_memory(samples: int, features: int | None) -> None:
    """Raise InputError if the random features do not fit in memory, before the OS kills us."""
    required = _FEATURE_BYTES * samples * (features or 0)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if required > available:
        requirement = f"{features:,} features of {samples:,} samples take {required / 2**30:,.0f} GiB"
        raise InputError(f"{requirement}; this machine has {available / 2**30:,.0f} GiB")


def backend_of(
    setup: Setup,
    *,
    pcap: Path | None = None,
    link_log: Path | None = None,
    wave: Waveform | None = None,
    finished: Callable[[RunResult], None] | None = None,
) -> Backend:
    """Return the backend of the run; all frames go to ``pcap``, link events to ``link_log``, signals to
    ``wave``.

    ``finished`` is called with the result of a run in RTL.
    """
    if setup.options.on == "model":
        return events.run
    return partial(
        _in_rtl,
        width=setup.options.width,
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
