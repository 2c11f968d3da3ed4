"""From the options of ``fanin ring train`` to a run: what carries it out, its data, where it begins."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fanin.cli.codec.options import PARAMETERS, as_options, configuration, parse_bound
from fanin.cli.ranges import Ranges, check_ranges
from fanin.cli.ranks import refuse_ranks
from fanin.cli.ring.backend import Backend
from fanin.cli.ring.defaults import (
    AGGREGATOR,
    DEFAULTS,
    GBPS,
    OF_MODEL,
    OF_REDUCING_NIC,
    OF_SMART_NIC,
    SIZES,
    SMART_NIC,
)
from fanin.cli.ring.inceptionn import InceptionnRtl
from fanin.cli.ring.layers import parse_layers
from fanin.cli.ring.resume import Earlier, open_run
from fanin.cli.ring.smart_nic import Rtl, cores, nic_model
from fanin.cli.stops import parse_stops
from fanin.cli.wave import NO_RTL
from fanin.codec import Codec, CodecConfig, Inceptionn
from fanin.errors import InputError
from fanin.golden.mlp import Mlp
from fanin.inceptionn import Topology
from fanin.ring import MAX_NODES, MIN_NODES
from fanin.ring_groups import Groups
from fanin.scheme import Scheme
from fanin.seed import MAX_SEED
from fanin.sim.inceptionn.hosts import Plan
from fanin.sim.learning.mlp import Samples, classes_of
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.learning.workloads import load, source_of
from fanin.sim.network import FAULTS, LinkConfig
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import MAX_OUTSTANDING, Overlap, Schedule
from fanin.sim.ring.training import RingTraining

HIDDEN = 128  # units, unless layers are given
_COPIES = 5  # of a node's values: weights, velocities, gradient, what is compared, the NIC's memory
_VALUE_BYTES = 4
_RANGES: Ranges = {
    "nodes": (MIN_NODES, MAX_NODES),
    "epochs": (1, 10**6),
    "rate": (1e-9, 1e9),
    "decay": (0.0, 1e9),
    "seed": (0, MAX_SEED),
    "outstanding": (1, MAX_OUTSTANDING),
    "flops": (1e6, 1e21),
    "memory_bandwidth": (1e6, 1e18),
    "pcie": (1e8, 1e15),
}
_TRAINING = ("nodes", "batch", "epochs", "rate", "momentum", "decay", "seed")
_PROFILE = ("flops", "memory_bandwidth", "pcie")


@dataclass(frozen=True)
class Setup:
    """A run as it was asked for. ``configuration`` has the options by name, defaults filled in.

    ``resumed`` is the folder whose last state, ``state``, it begins with.
    """

    configuration: dict[str, Any]
    backend: Backend
    data: Dataset
    state: State
    resumed: Path | None = None

    @property
    def steps(self) -> int:
        """Of the run."""
        return self.backend.training.epochs * self.data.steps - self.state.step


def setup_of(args: argparse.Namespace) -> Setup:
    """What the options say. Raises InputError of one line for what cannot be run."""
    earlier = open_run(args.resume) if args.resume else None
    try:
        values = _filled(args, earlier)
        check_ranges(values, _RANGES)
        _check_ranks(args, values)
        return _setup(values, earlier)
    except ValueError as error:  # the configurations name parameter, value and limit
        raise InputError(str(error)) from error


def _check_ranks(args: argparse.Namespace, values: Mapping[str, Any]) -> None:
    """Raise InputError for what has no nodes' hosts to spread, and for a model of them."""
    if values["system"] != SMART_NIC:
        refuse_ranks(args, f"--system {values['system']}")
    if values["on"] == "model":
        refuse_ranks(args, "--on model")


def _filled(args: argparse.Namespace, earlier: Earlier | None) -> dict[str, Any]:
    """The options by name. Raises InputError where one contradicts what is resumed, or the system."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    if args.layers is not None:
        given["layers"] = _text(parse_layers(args.layers))
    if args.bound is not None:
        given["bound"] = f"2^-{parse_bound(args.bound)}"
    if args.stop is not None:
        given["stop"] = ",".join(args.stop)
    before = dict(earlier.options) if earlier else {}
    for name in OF_MODEL if earlier else ():
        if name in given and given[name] != before.get(name):
            was = "none" if before.get(name) is None else before[name]
            raise InputError(f"{_option(name)} {given[name]}: {args.resume} was trained with {was}")
    values: dict[str, Any] = dict.fromkeys(PARAMETERS) | vars(args) | DEFAULTS | before | given
    if values["groups"]:
        values["above"] = values["above"] or values["exchange"]
        if "nodes" not in given | before:
            values["nodes"] = _groups(values).workers
    elif values["above"]:
        raise InputError(f"--above {values['above']}: needs --groups")
    values["gbps"] = GBPS[values["system"]] if values["gbps"] is None else values["gbps"]
    unused, owner = _unused(values)
    if strange := [name for name in unused if name in given and name not in before]:
        raise InputError(f"{_option(strange[0])}: of {owner}")
    if values["system"] != SMART_NIC:
        return values | {"on": "rtl"}
    values["on"] = values["on"] or ("model" if values["all_reduce"] == "host" else "rtl")
    return values


def _unused(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """The options that such a run has no use for, and what they are of."""
    if values["system"] != SMART_NIC:
        return OF_SMART_NIC, f"smart NICs, not of --system {values['system']}"
    if values["all_reduce"] == "host":
        return OF_REDUCING_NIC, "nodes whose NICs add up, not of --all-reduce host"
    return (), ""


def _option(name: str) -> str:
    return "DATA" if name == "data" else f"--{name.replace('_', '-')}"


def _groups(values: Mapping[str, Any]) -> Groups:
    return Groups.parse(values["groups"], below=values["exchange"], above=values["above"])


def _text(widths: tuple[int, ...]) -> str:
    return ",".join(map(str, widths))


def _setup(values: dict[str, Any], earlier: Earlier | None) -> Setup:
    make = _smart_nic if values["system"] == SMART_NIC else _inceptionn
    source, codec = source_of(values["data"]), _codec(values)
    link = LinkConfig(gbps=values["gbps"], **{fault: values[fault] for fault in FAULTS})
    profile = WorkerProfile(**{name: values[name] for name in _PROFILE})
    _check_frames(values)
    samples = load(source, values["seed"])
    network = _network(values, samples)
    training = DataParallel(network=network, **{name: values[name] for name in _TRAINING})
    backend = make(values, training, codec, link, profile)
    data = Dataset(training, *samples)
    state = earlier.state(network) if earlier else State.initial(training)
    if earlier:
        _check_epochs(training, data, state, earlier)
    shown = {name: values[name] for name in DEFAULTS} | dict.fromkeys(_unused(values)[0])
    shown |= {"layers": _text(network.widths), "on": values["on"]}
    if codec:
        shown |= as_options(codec)
    return Setup(shown, backend, data, state, earlier.folder if earlier else None)


def _codec(values: Mapping[str, Any]) -> CodecConfig | None:
    """The codec with its parameters; a group is a smart NIC's word where INCEPTIONN's is not given."""
    args = argparse.Namespace(**values)
    if args.codec == Codec.INCEPTIONN and args.group is None and args.system == SMART_NIC:
        args.group = args.lanes
    if args.codec == Codec.NONE:
        if strange := [name for name in PARAMETERS if values[name] is not None]:
            raise InputError(f"--{strange[0]}: needs a --codec")
        return None
    return configuration(args)


def _check_frames(values: Mapping[str, Any]) -> None:
    """Raise InputError for faults, captures and waveforms of a model."""
    of_frames = [f"--{name}" for name in (*FAULTS, "stop", "pcap") if values[name]]
    if values["on"] == "model" and of_frames:
        raise InputError(f"{', '.join(of_frames)}: faults and frames need --on rtl")
    if values["on"] == "model" and values["wave"]:
        raise InputError(NO_RTL)


def _smart_nic(
    values: Mapping[str, Any],
    training: DataParallel,
    codec: CodecConfig | None,
    link: LinkConfig,
    profile: WorkerProfile,
) -> Backend:
    """Raises InputError for options that what is asked for does not have."""
    if values["exchange"] == AGGREGATOR and not values["groups"]:
        raise InputError(
            "--exchange aggregator: smart NICs are in a ring; --groups of them may have aggregators"
        )
    config = replace(SIZES[values["lanes"]], codec=codec)
    groups = _groups(values) if values["groups"] else None
    schedule = Schedule(Overlap(values["overlap"]), values["outstanding"])
    job = RingTraining(training=training, config=config, schedule=schedule, profile=profile, groups=groups)
    job = replace(job, stops=parse_stops(values["stop"], job.nodes, "node"))
    if values["all_reduce"] == "nic":
        return Rtl(job, link) if values["on"] == "rtl" else nic_model(job, link)
    if values["on"] == "rtl":
        raise InputError("--on rtl: no RTL is in hosts that reduce themselves, of --all-reduce host")
    if codec:
        raise InputError(
            f"--codec {values['codec']}: a NIC has a codec, and hosts of --all-reduce host have none"
        )
    return cores(job)


def _inceptionn(
    values: Mapping[str, Any],
    training: DataParallel,
    codec: CodecConfig | None,
    link: LinkConfig,
    profile: WorkerProfile,
) -> Backend:
    """All cores of a host compute; the rate at which they add up is the paper's."""
    from fanin.sim.inceptionn.training import costs_of  # Amaranth takes a second to load

    if codec is not None and not isinstance(codec, Inceptionn):
        raise InputError(f"--codec {values['codec']}: INCEPTIONN's NIC has its own codec, or none")
    groups = _groups(values) if values["groups"] else None
    if groups:
        groups.check_workers(training.nodes)
    above = Scheme(values["above"]) if groups else None
    topology = Topology(training.nodes, Scheme(values["exchange"]), groups.groups if groups else 1, above)
    stops = parse_stops(values["stop"], topology.nodes, "node")
    plan = Plan(topology, codec, costs=costs_of(training, profile), stops=stops)
    _ = plan.packets  # which knows the codecs that the NIC does not have
    return InceptionnRtl(training, plan, link)


def _network(values: Mapping[str, Any], samples: tuple[Samples, Samples]) -> Mlp:
    """Raises InputError for one that the machine has no memory for, before the system ends us."""
    features, classes = samples[0].images.shape[1], classes_of(*samples)
    network = Mlp(parse_layers(values["layers"]) if values["layers"] else (features, HIDDEN, classes))
    need = _COPIES * _VALUE_BYTES * sum(network.counts) * values["nodes"]
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        what = f"{sum(network.counts):,} weights on {values['nodes']} nodes take {need / 2**30:,.0f} GiB"
        raise InputError(f"{what}; this machine has {have / 2**30:,.0f} GiB")
    return network


def _check_epochs(training: DataParallel, data: Dataset, state: State, earlier: Earlier) -> None:
    """Raise InputError unless the run has epochs left, from the end of one on."""
    done, rest = divmod(state.step, data.steps)
    if rest:
        raise InputError(f"{earlier.folder}: step {state.step} ends no epoch of {data.steps} steps")
    if done >= training.epochs:
        raise InputError(
            f"epochs must be more than the {done} that {earlier.folder} has, not {training.epochs}"
        )
