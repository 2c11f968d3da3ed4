"""Build the run of ``fanin ring train`` from its options: backend, data, initial state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fanin.base.errors import InputError
from fanin.codec.facts import CodecConfig, Inceptionn
from fanin.codec.run.options import PARAMETERS, as_options, optional_configuration
from fanin.golden.mlp import Mlp
from fanin.inceptionn.facts import Topology
from fanin.link import FAULTS, LinkConfig
from fanin.ring.groups import Groups, Scheme
from fanin.ring.run.backend import Backend
from fanin.ring.run.inceptionn import InceptionnRtl
from fanin.ring.run.layers import parse_layers, widths_text
from fanin.ring.run.options import (
    ADDING,
    FRAMES,
    HIDDEN,
    PARTS,
    SIZES,
    SMART,
    Platform,
    Reducer,
    RingOptions,
    System,
)
from fanin.ring.run.resume import Earlier, open_run
from fanin.ring.run.smart_nic import Rtl, cores, nic_model
from fanin.runs.call import Call
from fanin.runs.option import Trait, options_of
from fanin.runs.pairs import parse_stops
from fanin.runs.ranks import refuse_ranks
from fanin.sim.inceptionn.hosts import Plan
from fanin.sim.learning.mlp import Samples, classes_of
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.learning.workloads import load, source_of
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import Schedule
from fanin.sim.ring.training import RingTraining

_COPIES = 5  # of a node's values: weights, velocities, gradient, reference, the NIC's memory
_VALUE_BYTES = 4
_TRAINING = ("nodes", "batch", "epochs", "momentum", "decay", "seed")
_PROFILE = ("flops", "memory_bandwidth", "pcie")


@dataclass(frozen=True)
class Setup:
    """Inputs of a run, from its options, and its initial state.

    ``configuration``: the options by name, as in ``run.json``.
    """

    options: RingOptions
    configuration: dict[str, Any]
    backend: Backend
    data: Dataset
    state: State

    @property
    def steps(self) -> int:
        """Steps of this run, from the initial state on."""
        return self.backend.training.epochs * self.data.steps - self.state.step


def resolve(options: RingOptions, call: Call) -> tuple[RingOptions, Earlier | None]:
    """Return complete options, with values implied by others or by a resumed run, and the resumed run.

    Raises InputError for an option that contradicts the resumed run or the system.
    """
    earlier = open_run(options.resume) if options.resume else None
    fixed = options.given
    if earlier:
        options, fixed = earlier.complete(options), fixed | earlier.options.keys()
    if options.groups:
        options = replace(options, above=options.above or options.exchange)
        if "nodes" not in fixed:
            options = replace(options, nodes=_groups(options).workers)
    elif options.above:
        raise InputError(f"--above {options.above}: needs --groups")
    options.refuse(_lacking(options))
    options = replace(options, gbps=options.link_gbps, on=_platform(options))
    if options.system is not System.SMART_NIC:
        refuse_ranks(call, f"--system {options.system}")
    if options.on is Platform.MODEL:
        refuse_ranks(call, "--on model")
    options.refuse(lacking(options))
    return options, earlier


def lacking(options: RingOptions) -> Mapping[Trait, str]:
    """Return the traits that a run of resolved options lacks, each with the reason for users."""
    frames = {FRAMES: "needs --on rtl"} if options.on is Platform.MODEL else {}
    return {**_lacking(options), **frames}


def _lacking(options: RingOptions) -> Mapping[Trait, str]:
    """Return the traits that the system of such a run lacks, each with the reason for users."""
    if options.system is not System.SMART_NIC:
        return dict.fromkeys((SMART, ADDING), f"applies to smart NICs, not to --system {options.system}")
    if options.all_reduce is Reducer.HOST:
        return dict.fromkeys((ADDING, PARTS), "does not apply to --all-reduce host")
    return {}


def _platform(options: RingOptions) -> Platform:
    by_host = options.system is System.SMART_NIC and options.all_reduce is Reducer.HOST
    return options.on or (Platform.MODEL if by_host else Platform.RTL)


def _groups(options: RingOptions) -> Groups:
    """Parse ``--groups``. Raises InputError."""
    try:
        return Groups.parse(
            options.groups or "", below=options.exchange, above=options.above or options.exchange
        )
    except ValueError as error:
        raise InputError(str(error)) from error


def setup_of(options: RingOptions, earlier: Earlier | None) -> Setup:
    """Build the run from resolved options. Raises InputError of one line for options that cannot be run."""
    try:
        return _setup(options, earlier)
    except ValueError as error:  # the configurations name parameter, value and limit
        raise InputError(str(error)) from error


def _setup(options: RingOptions, earlier: Earlier | None) -> Setup:
    is_smart = options.system is System.SMART_NIC
    source = source_of(options.data)
    codec = optional_configuration(options.codec, options, group=options.lanes if is_smart else None)
    link = LinkConfig(gbps=options.link_gbps, **{fault: getattr(options, fault) for fault in FAULTS})
    profile = WorkerProfile(**{name: getattr(options, name) for name in _PROFILE})
    samples = load(source, options.seed)
    network = _network(options, samples)
    training = DataParallel(
        network=network, rate=options.lr, **{name: getattr(options, name) for name in _TRAINING}
    )
    backend = (_smart_nic if is_smart else _inceptionn)(options, training, codec, link, profile)
    data = Dataset(training, *samples)
    state = earlier.state(network) if earlier else State.initial(training)
    if earlier:
        _check_epochs(training, data, state, earlier)
    return Setup(options, _configuration(options, network, codec), backend, data, state)


def _configuration(options: RingOptions, network: Mlp, codec: CodecConfig | None) -> dict[str, Any]:
    """Return the options that the run's page shows, by name; None for options that do not apply to such a run.

    ``pcap`` is a path, which does not describe the run. Of a codec, only its own parameters are present.
    """
    lacking, values = _lacking(options), options.as_json()
    configuration = {
        option.name: None if option.trait in lacking else values[option.name]
        for option in options_of(RingOptions)
        if option.group.shown and option.name != "pcap" and option.name not in PARAMETERS
    }
    configuration |= {
        "layers": widths_text(network.widths),
        "on": str(options.on),
        "stop": ",".join(options.stop or ()),
    }
    return configuration | (as_options(codec) if codec else {})


def _smart_nic(
    options: RingOptions,
    training: DataParallel,
    codec: CodecConfig | None,
    link: LinkConfig,
    profile: WorkerProfile,
) -> Backend:
    """Return the backend for smart NICs. Raises InputError for options that they do not support."""
    if options.exchange is Scheme.AGGREGATOR and not options.groups:
        raise InputError("--exchange aggregator: smart NICs need --groups")
    config = replace(SIZES[options.lanes], codec=codec)
    groups = _groups(options) if options.groups else None
    schedule = Schedule(options.overlap, options.outstanding)
    job = RingTraining(training=training, config=config, schedule=schedule, profile=profile, groups=groups)
    job = replace(job, stops=_stops(options, job.nodes))
    if options.all_reduce is Reducer.NIC:
        return Rtl(job, link) if options.on is Platform.RTL else nic_model(job, link)
    if options.on is Platform.RTL:
        raise InputError("--on rtl: hosts of --all-reduce host have no RTL")
    if codec:
        raise InputError(f"--codec {options.codec}: only NICs have a codec, not the hosts of --all-reduce host")
    return cores(job)


def _inceptionn(
    options: RingOptions,
    training: DataParallel,
    codec: CodecConfig | None,
    link: LinkConfig,
    profile: WorkerProfile,
) -> Backend:
    """Return the backend for INCEPTIONN: all cores of a host compute; their adding rate is the paper's."""
    from fanin.sim.inceptionn.training import costs_of  # Amaranth takes a second to load

    if codec is not None and not isinstance(codec, Inceptionn):
        raise InputError(f"--codec {options.codec}: INCEPTIONN's NIC has its own codec, or none")
    groups = _groups(options) if options.groups else None
    if groups:
        groups.check_workers(training.nodes)
    topology = Topology(training.nodes, options.exchange, groups.groups if groups else 1, options.above)
    stops = _stops(options, topology.nodes)
    plan = Plan(topology, codec, costs=costs_of(training, profile), stops=stops)
    _ = plan.packets  # raises for codecs that the NIC does not have
    return InceptionnRtl(training, plan, link)


def _stops(options: RingOptions, nodes: int) -> dict[int, float]:
    return parse_stops(",".join(options.stop or ()), nodes, "node")


def _network(options: RingOptions, samples: tuple[Samples, Samples]) -> Mlp:
    """Return the network. Raises InputError if the machine has too little memory, before the OS kills us."""
    features, classes = samples[0].images.shape[1], classes_of(*samples)
    network = Mlp(parse_layers(options.layers) if options.layers else (features, HIDDEN, classes))
    required = _COPIES * _VALUE_BYTES * sum(network.counts) * options.nodes
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if required > available:
        requirement = (
            f"{sum(network.counts):,} weights on {options.nodes} nodes take {required / 2**30:,.0f} GiB"
        )
        raise InputError(f"{requirement}; this machine has {available / 2**30:,.0f} GiB")
    return network


def _check_epochs(training: DataParallel, data: Dataset, state: State, earlier: Earlier) -> None:
    """Raise InputError unless the state ends an epoch and the run has epochs left."""
    done, remainder = divmod(state.step, data.steps)
    if remainder:
        raise InputError(f"{earlier.folder}: step {state.step} ends no epoch of {data.steps} steps")
    if done >= training.epochs:
        raise InputError(
            f"epochs must be more than the {done} that {earlier.folder} has, not {training.epochs}"
        )
