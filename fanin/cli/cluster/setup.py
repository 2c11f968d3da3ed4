"""From the options of ``fanin cluster run`` to a run: build, images, hyper-parameters, first state."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fanin.cli.cluster.builds import Build, copy_build, default_build, open_build
from fanin.cli.cluster.checkpoint import About, Checkpoint, load_checkpoint
from fanin.cli.cluster.conditions import LOSSLESS, Conditions, conditions_of
from fanin.cnn import Network
from fanin.cnn_training import Schedule, Training
from fanin.errors import InputError
from fanin.golden.cnn.network import initial_state
from fanin.sim.learning.images import ImageSet, load_images


@dataclass(frozen=True)
class Setup:
    """A run as it was asked for. ``on``: rtl or golden."""

    build: Build
    data: ImageSet
    training: Training
    initial: Checkpoint
    on: str
    conditions: Conditions = LOSSLESS

    @property
    def network(self) -> Network:
        """What is trained."""
        return self.build.planned.network

    def about(self, epoch: int, frame: int) -> About:
        """What a state is of, so many epochs and frames behind the first one."""
        return replace(self.initial.about, epoch=epoch, frame=frame)


def training_of(args: argparse.Namespace) -> Training:
    """The hyper-parameters. Raises InputError of one line."""
    try:
        return Training(
            epochs=args.epochs,
            batch=args.batch,
            rate=args.lr,
            momentum=args.momentum,
            schedule=Schedule.parse(args.schedule),
            seed=args.seed,
            checkpoint=args.checkpoint,
        )
    except ValueError as error:
        raise InputError(f"--{error}") from None


def setup_of(args: argparse.Namespace, folder: Path) -> Setup:
    """What the options say; the build is made in, or copied to, a folder. Raises InputError of one line."""
    training = training_of(args)
    if args.build is None:
        build = default_build(folder)
    else:
        build = open_build(args.build)
        copy_build(args.build, folder)
    network = build.planned.network
    data = images_of(args.data, network)
    if training.batch > len(data.train):
        raise InputError(
            f"--batch must be at most {len(data.train):,}, the frames of {args.data}, not {args.batch:,}"
        )
    conditions = conditions_of(args, build.planned.placement, training, len(data.train))
    return Setup(build, data, training, _initial(args, network, data, training), args.on, conditions)


def images_of(data: str, network: Network) -> ImageSet:
    """Images that the network takes. Raises InputError."""
    shape, labels = (network.stages[n].layer.output for n in (network.images, network.labels))
    return load_images(data, shape, labels.words)


def _initial(args: argparse.Namespace, network: Network, data: ImageSet, training: Training) -> Checkpoint:
    drawn = About(network.name, network.model_digest, seed=training.seed)
    first = (
        load_checkpoint(args.init, network)
        if args.init
        else Checkpoint(drawn, tuple(initial_state(network, training.seed)))
    )
    about = replace(
        first.about,
        network=network.digest,
        data=data.digest,
        epoch=0,
        frame=0,
        training=training_json(training),
    )
    return Checkpoint(about, first.states)


def training_json(training: Training) -> dict[str, Any]:
    """The hyper-parameters as JSON."""
    return asdict(training) | {"schedule": str(training.schedule)}
