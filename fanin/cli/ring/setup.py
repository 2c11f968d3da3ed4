"""From the options of ``fanin ring train`` to a run: its job, its data, where it begins, what it runs on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fanin.cli.codec.options import PARAMETERS, as_options, configuration, parse_bound
from fanin.cli.ranges import Ranges, check_ranges
from fanin.cli.ring.backend import Backend, Cores, NicModel, Rtl
from fanin.cli.ring.layers import parse_layers
from fanin.cli.ring.resume import Earlier, open_run
from fanin.cli.ring.train import DEFAULTS
from fanin.cli.stops import parse_stops
from fanin.codec import Codec, CodecConfig, Inceptionn
from fanin.errors import InputError
from fanin.golden.mlp import Mlp
from fanin.ring import MAX_NODES, MIN_NODES, PRESETS
from fanin.seed import MAX_SEED
from fanin.sim.learning.mlp import Samples, classes_of
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.learning.workloads import load, source_of
from fanin.sim.network import FAULTS, LinkConfig
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import MAX_OUTSTANDING, Overlap, Schedule
from fanin.sim.ring.training import RingTraining

HIDDEN = 128  # units, unless layers are given
_SIZES = {8: PRESETS["prototype"], 16: PRESETS["u280"]}  # of a node, by its lanes
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
#: Of the options, what belongs to the run and not to where it is written; a codec's parameters are added.
CONFIGURATION = (
    *("data", "layers", *_TRAINING, "lanes", "codec"),
    *("all_reduce", "on", "overlap", "outstanding", *_PROFILE, "gbps", *FAULTS, "stop"),
)


@dataclass(frozen=True)
class Setup:
    """A run as it was asked for. ``configuration`` has the options by name, defaults filled in.

    ``job`` is as the backend carries it out. ``resumed`` is the folder whose last state, ``state``, it begins
    with.
    """

    configuration: dict[str, Any]
    job: RingTraining
    data: Dataset
    state: State
    backend: Backend
    resumed: Path | None = None

    @property
    def steps(self) -> int:
        """Of the run."""
        return self.job.training.epochs * self.data.steps - self.state.step


def setup_of(args: argparse.Namespace) -> Setup:
    """What the options say. Raises InputError of one line for what cannot be run."""
    earlier = open_run(args.resume) if args.resume else None
    values = _filled(args, earlier)
    check_ranges(values, _RANGES)
    try:
        return _setup(values, earlier)
    except ValueError as error:  # the configurations name parameter, value and limit
        raise InputError(str(error)) from error


def _filled(args: argparse.Namespace, earlier: Earlier | None) -> dict[str, Any]:
    """The options by name. Raises InputError where one contradicts what is resumed."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    if args.layers is not None:
        given["layers"] = _text(parse_layers(args.layers))
    if args.bound is not None:
        given["bound"] = f"2^-{parse_bound(args.bound)}"
    values = vars(args) | DEFAULTS | given
    if earlier:
        for name in given.keys() & {*DEFAULTS, "layers", *PARAMETERS} - {"epochs"}:
            before = earlier.options.get(name, "none")
            if given[name] != before:
                option = "DATA" if name == "data" else f"--{name}"
                raise InputError(f"{option} {given[name]}: {earlier.folder} was trained with {before}")
        values |= earlier.options
    values["on"] = args.on or ("model" if args.all_reduce == "host" else "rtl")
    values["stop"] = ",".join(args.stop or ())
    return values


def _text(widths: tuple[int, ...]) -> str:
    return ",".join(map(str, widths))


def _setup(values: dict[str, Any], earlier: Earlier | None) -> Setup:
    source, codec = source_of(values["data"]), _codec(values)
    link = LinkConfig(gbps=values["gbps"], **{fault: values[fault] for fault in FAULTS})
    backend = _backend(values, link)
    stops = parse_stops(values["stop"], values["nodes"], "node")
    config = replace(_SIZES[values["lanes"]], codec=codec)
    schedule = Schedule(Overlap(values["overlap"]), values["outstanding"])
    profile = WorkerProfile(**{name: values[name] for name in _PROFILE})
    samples = load(source, values["seed"])
    network = _network(values, samples)
    training = DataParallel(network=network, **{name: values[name] for name in _TRAINING})
    data = Dataset(training, *samples)
    state = earlier.state(network) if earlier else State.initial(training)
    if earlier:
        _check_epochs(training, data, state, earlier)
    job = RingTraining(training=training, config=config, schedule=schedule, profile=profile, stops=stops)
    shown = {name: values[name] for name in CONFIGURATION} | {"layers": _text(network.widths)}
    if codec:
        shown |= as_options(codec)
    return Setup(shown, backend.job(job), data, state, backend, earlier.folder if earlier else None)


def _codec(values: Mapping[str, Any]) -> CodecConfig | None:
    """The codec with its parameters; a group is a word where INCEPTIONN's is not given."""
    args = argparse.Namespace(**values)
    if args.codec == Inceptionn.kind and args.group is None:
        args.group = args.lanes
    if args.codec == Codec.NONE:
        if strange := [name for name in PARAMETERS if values[name] is not None]:
            raise InputError(f"--{strange[0]}: needs a --codec")
        return None
    return configuration(args)


def _backend(values: Mapping[str, Any], link: LinkConfig) -> Backend:
    """What the run runs on. Raises InputError for options that it does not have."""
    of_frames = [f"--{name}" for name in (*FAULTS, "stop", "pcap") if values[name]]
    if values["on"] == "model" and of_frames:
        raise InputError(f"{', '.join(of_frames)}: faults and frames need --on rtl")
    if values["all_reduce"] == "nic":
        return Rtl(link) if values["on"] == "rtl" else NicModel(link)
    if values["on"] == "rtl":
        raise InputError("--on rtl: no RTL is in hosts that reduce themselves, of --all-reduce host")
    if values["codec"] != Codec.NONE:
        raise InputError(
            f"--codec {values['codec']}: a NIC has a codec, and hosts of --all-reduce host have none"
        )
    if values["outstanding"] != 1:
        raise InputError("--outstanding: of a NIC's queue, which --all-reduce host does not use")
    return Cores()


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
