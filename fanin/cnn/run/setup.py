"""From the options of ``fanin cluster run`` to a run: build, images, hyper-parameters, first state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fanin.base.errors import InputError
from fanin.cnn.facts import Network
from fanin.cnn.golden.network import initial_state
from fanin.cnn.run.build import PLAN_FOLDER, Build, default_build, open_build, write_build
from fanin.cnn.run.checkpoint import About, Checkpoint, load_checkpoint
from fanin.cnn.run.conditions import LOSSLESS, Conditions, conditions_of
from fanin.cnn.run.folder import BUILD, Metrics, Run, Used, state_file, training_json
from fanin.cnn.run.measures import Tally
from fanin.cnn.run.options import ClusterOptions
from fanin.cnn.training import Place, Schedule, Training
from fanin.sim.learning.images import ImageSet, load_images


@dataclass(frozen=True)
class Earlier:
    """What a run had, up to the state that it goes on from; a new one has nothing.

    ``epochs`` and ``hardware`` are as run.json has them.
    """

    states: tuple[str, ...] = ()
    epochs: tuple[Metrics, ...] = ()
    hardware: Metrics | None = None


@dataclass(frozen=True)
class Setup:
    """A run as it was asked for. ``builds``: all that it has used, its own the last. ``on``: rtl or golden."""

    builds: tuple[Used, ...]
    data: ImageSet
    training: Training
    initial: Checkpoint
    on: str
    earlier: Earlier = Earlier()
    conditions: Conditions = LOSSLESS

    @property
    def build(self) -> Build:
        """What trains."""
        return self.builds[-1].build

    @property
    def network(self) -> Network:
        """What is trained."""
        return self.build.planned.network

    @property
    def beside(self) -> bool:
        """Whether the network in binary64 may train beside: from the first state on, or not at all."""
        return not self.earlier.states or self.initial.binary64 is not None

    def about(self, place: Place, tallies: Mapping[str, Tally]) -> About:
        """What a state is of, at a place behind the first one."""
        return replace(
            self.initial.about,
            network=self.network.digest,
            epoch=place.epoch,
            frame=place.frame,
            tallies=dict(tallies),
        )


def training_of(options: ClusterOptions) -> Training:
    """The hyper-parameters. Raises InputError of one line."""
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
    """What the options say; the build is made in, or copied to, a folder. Raises InputError of one line."""
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
    builds = (Used(BUILD, state_file(Place()), build),)
    initial = _initial(options, network, data, training)
    return Setup(builds, data, training, initial, options.on, conditions=conditions)


def images_of(data: str, network: Network) -> ImageSet:
    """Images that the network takes. Raises InputError."""
    shape, labels = (network.stages[n].layer.output for n in (network.images, network.labels))
    return load_images(data, shape, labels.words)


def images_again(run: Run) -> ImageSet:
    """The images that a run was trained on. Raises InputError where they are not what they were."""
    data = images_of(run.data, run.network)
    if data.digest != run.data_digest:
        raise InputError(f"{run.data}: is not what {run.folder} was trained on")
    return data


def _initial(options: ClusterOptions, network: Network, data: ImageSet, training: Training) -> Checkpoint:
    drawn = About(network.name, network.model_digest, seed=training.seed)
    first = (
        load_checkpoint(options.init, network)
        if options.init
        else Checkpoint(drawn, tuple(initial_state(network, training.seed)))
    )
    about = replace(
        first.about,
        network=network.digest,
        data=data.digest,
        epoch=0,
        frame=0,
        training=training_json(training),
        tallies={},
    )
    return Checkpoint(about, first.states)
