"""Setup of a run from the options of ``fanin cluster run``: build, images, hyper-parameters, initial state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fanin.base.errors import InputError
from fanin.cnn.facts import Network
from fanin.cnn.golden.network import initial_state
from fanin.cnn.run.build import PLAN_FOLDER, Build, default_build, open_build, write_build
from fanin.cnn.run.checkpoint import Checkpoint, CheckpointInfo, load_checkpoint
from fanin.cnn.run.conditions import LOSSLESS, Conditions, conditions_of
from fanin.cnn.run.folder import BUILD, Metrics, Run, UsedBuild, state_file, training_json
from fanin.cnn.run.measures import Tally
from fanin.cnn.run.options import ClusterOptions
from fanin.cnn.training import Place, Schedule, Training
from fanin.sim.learning.images import ImageSet, load_images


@dataclass(frozen=True)
class Earlier:
    """Results of a run up to the checkpoint from which it resumes; empty for a new run."""

    states: tuple[str, ...] = ()  #: file names of the checkpoints
    epochs: tuple[Metrics, ...] = ()  #: ``epochs`` of run.json
    hardware: Metrics | None = None  #: ``hardware`` of run.json


@dataclass(frozen=True)
class Setup:
    """Setup of a run: everything that training needs."""

    builds: tuple[UsedBuild, ...]  #: all builds that the run has used, the current one last
    data: ImageSet
    training: Training
    initial: Checkpoint  #: checkpoint from which training starts
    on: str  #: machine that trains: RTL or GOLDEN
    earlier: Earlier = Earlier()
    conditions: Conditions = LOSSLESS

    @property
    def build(self) -> Build:
        """Build in use: the last of ``builds``."""
        return self.builds[-1].build

    @property
    def network(self) -> Network:
        """Network to train, as built."""
        return self.build.planned.network

    @property
    def trains_binary64(self) -> bool:
        """True if a binary64 machine can train too: the run is new, or its checkpoint has binary64 state."""
        return not self.earlier.states or self.initial.binary64 is not None

    def info(self, place: Place, tallies: Mapping[str, Tally]) -> CheckpointInfo:
        """Return the description of a checkpoint at a place of the run."""
        return replace(
            self.initial.info,
            network=self.network.digest,
            epoch=place.epoch,
            frame=place.frame,
            tallies=dict(tallies),
        )


def training_of(options: ClusterOptions) -> Training:
    """Return the hyper-parameters of a run's options. Raises InputError of one line."""
    try:
        return Training(
            epochs=options.epochs,
            batch=options.batch,
            rate=options.lr,
            momentum=options.momentum,
            schedule=Schedule.parse(options.schedule),
            seed=options.seed,
            checkpoint=options.checkpoint,
        )
    except ValueError as error:
        raise InputError(f"--{error}") from None


def setup_of(options: ClusterOptions, folder: Path) -> Setup:
    """Return the setup of a run's options, and write its build to ``folder``. Raises InputError."""
    training = training_of(options)
    if options.build is None:
        build = default_build(folder)
    else:
        build = open_build(options.build)
        write_build(folder, build, options.build / PLAN_FOLDER)
    network = build.planned.network
    data = images_of(options.data, network)
    if training.batch > len(data.train):
        raise InputError(
            f"--batch must be at most {len(data.train):,}, the frames of {options.data}, not {options.batch:,}"
        )
    conditions = conditions_of(options, build.planned.placement, training, len(data.train))
    builds = (UsedBuild(BUILD, state_file(Place()), build),)
    initial = _initial(options, network, data, training)
    return Setup(builds, data, training, initial, options.on, conditions=conditions)


def images_of(data: str, network: Network) -> ImageSet:
    """Load the images called ``data``, for the network's input shape and classes. Raises InputError."""
    shape, labels = (network.stages[n].layer.output for n in (network.images, network.labels))
    return load_images(data, shape, labels.words)


def reload_images(run: Run) -> ImageSet:
    """Load the images of a run again. Raises InputError if their digest has changed."""
    data = images_of(run.data, run.network)
    if data.digest != run.data_digest:
        raise InputError(f"{run.data}: is not what {run.folder} was trained on")
    return data


def _initial(options: ClusterOptions, network: Network, data: ImageSet, training: Training) -> Checkpoint:
    initial_info = CheckpointInfo(network.name, network.model_digest, seed=training.seed)
    checkpoint = (
        load_checkpoint(options.init, network)
        if options.init
        else Checkpoint(initial_info, tuple(initial_state(network, training.seed)))
    )
    info = replace(
        checkpoint.info,
        network=network.digest,
        data=data.digest,
        epoch=0,
        frame=0,
        training=training_json(training),
        tallies={},
    )
    return Checkpoint(info, checkpoint.states)
