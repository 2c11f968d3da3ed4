"""Training loop of a run: stretch by stretch, with a comparison of the machines and a checkpoint after each.

A *machine* trains the network: RTL, the golden model, or a model in binary64. A *stretch* is the training
between two checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.checkpoint import Checkpoint, flatten_states
from fanin.cnn.run.machine import FLOAT64, GOLDEN, RTL, Machine, NotFinite, Outputs, Progress, ignore_progress
from fanin.cnn.run.measures import Epoch, Measures, Tally
from fanin.cnn.run.setup import Setup
from fanin.cnn.training import Place, Stretch
from fanin.sim.learning.mlp import Samples

#: Callback that stores a checkpoint of the run.
OnCheckpoint = Callable[[Checkpoint], None]


@dataclass
class Loop:
    """Training loop of a run.

    All machines train each stretch. The loop then compares RTL with the golden model, and takes a checkpoint.
    """

    setup: Setup
    machines: Mapping[str, Machine]  #: machines by name; checkpoints hold the first one's state
    on_checkpoint: OnCheckpoint
    progress: Progress  #: callback with the number of trained frames of the run
    frames: int = field(init=False)  #: trained frames of the run, including those before the initial checkpoint
    compared_frames: int = field(init=False)  #: frames of the run compared bit by bit; 0 without RTL
    epochs: list[Epoch] = field(default_factory=list)  #: epochs that this loop has measured
    _tallies: dict[str, Tally] = field(init=False)  #: tally of the current epoch, by machine

    def __post_init__(self) -> None:
        info = self.setup.initial.info
        self.frames = info.place.trained(len(self.setup.data.train))
        self.compared_frames = self.frames if RTL in self.machines else 0
        self._tallies = {name: tally for name, tally in info.tallies.items() if name in self.machines}

    def run(self) -> None:
        """Train to the end of the training. Raises CheckFailed if a bit differs or a value is not finite."""
        data, start = self.setup.data.train, self.setup.initial
        for name, machine in self.machines.items():
            machine.load(start.binary64 if name == FLOAT64 and start.binary64 else start.states)
        if not self.setup.earlier.states:
            self.on_checkpoint(self._checkpoint(start.info.place))
        elif len(self.setup.earlier.epochs) < start.info.epoch:  # the run stopped before this measurement
            self._measure_epoch(start.info.epoch - 1)
        for stretch in self.setup.training.stretches(len(data), start.info.place):
            if not stretch.first:
                self._tallies = dict.fromkeys(self.machines, Tally())
            order = self.setup.training.order(stretch.epoch, len(data))
            self._train_stretch(stretch, data[order[stretch.first : stretch.end]])
            checkpoint = self._checkpoint(stretch.end_place)
            _check_finite(self.setup.network, checkpoint.states, stretch)
            self.on_checkpoint(checkpoint)
            if stretch.ends_epoch:
                self._measure_epoch(stretch.epoch)

    def _checkpoint(self, place: Place) -> Checkpoint:
        """Return a checkpoint of the current state."""
        binary64 = self.machines.get(FLOAT64)
        info = self.setup.info(place, self._tallies)
        return Checkpoint(info, self._primary.dump(), binary64.dump() if binary64 else None)

    @property
    def _primary(self) -> Machine:
        """Machine of option ``--on``, whose progress is reported."""
        return next(iter(self.machines.values()))

    def _train_stretch(self, stretch: Stretch, frames: Samples) -> None:
        """Train all machines on ``frames``, and compare RTL with the golden model."""

        def report(trained_frames: int) -> None:
            self.progress(self.frames + trained_frames)

        outputs = {}
        for name, machine in self.machines.items():
            progress = report if machine is self._primary else ignore_progress
            try:
                outputs[name] = machine.train(frames.images, frames.digits, stretch.job, progress)
            except NotFinite as error:
                if name == RTL:
                    self._check_golden_raises(error, stretch, frames)
                raise CheckFailed(describe(error, stretch)) from None
            self._tallies[name] = self._tallies[name].plus(outputs[name], frames.digits)
        self.frames += len(frames)
        report(0)
        if RTL in self.machines:
            place = f"epoch {stretch.epoch + 1}"
            _compare_outputs(place, stretch.first, outputs[RTL], outputs[GOLDEN])
            compare_states(place, self.setup.network, self.machines[RTL].dump(), self.machines[GOLDEN].dump())
            self.compared_frames += len(frames)

    def _check_golden_raises(self, error: NotFinite, stretch: Stretch, frames: Samples) -> None:
        """Raise CheckFailed unless the golden model has its first non-finite value where RTL has."""
        try:
            self.machines[GOLDEN].train(frames.images, frames.digits, stretch.job, ignore_progress)
        except NotFinite as golden_error:
            if (golden_error.layer, golden_error.part, golden_error.frame) == (
                error.layer,
                error.part,
                error.frame,
            ):
                return
            description = describe(golden_error, stretch)
        else:
            description = "all is finite"
        raise CheckFailed(f"in RTL {describe(error, stretch)}; in the golden model {description}") from None

    def _measure_epoch(self, epoch: int) -> None:
        """Evaluate all machines on the held-out frames. Raises CheckFailed if RTL's outputs differ."""
        training, test = self.setup.training, self.setup.data.test
        test_outputs = {name: machine.evaluate(test.images) for name, machine in self.machines.items()}
        measures = {
            name: Measures.of(self._tallies[name], outputs, test.digits)
            for name, outputs in test_outputs.items()
        }
        if RTL in self.machines:
            _compare_outputs(f"evaluation after epoch {epoch + 1}", 0, test_outputs[RTL], test_outputs[GOLDEN])
        rate = training.rate * training.schedule.factor_at(epoch, training.epochs)
        self.epochs.append(Epoch(epoch + 1, rate, measures))


def _check_finite(network: Network, states: tuple[State, ...], stretch: Stretch) -> None:
    """Raise CheckFailed for an infinity or a NaN in a state."""
    for name, values in flatten_states(network, states).items():
        if not np.isfinite(values).all():
            place = f"after frame {stretch.end:,} of epoch {stretch.epoch + 1}"
            raise CheckFailed(f"{name}: infinity or NaN {place}")


def describe(error: NotFinite, stretch: Stretch) -> str:
    """Return a clause that names the place of a non-finite value. Frames count from 0, epochs from 1."""
    return (
        f"{error.layer}: first infinity or NaN in the {error.part} of frame {stretch.first + error.frame:,} "
        f"of epoch {stretch.epoch + 1}"
    )


def compare_states(place: str, network: Network, states: tuple[State, ...], golden: tuple[State, ...]) -> None:
    """Raise CheckFailed if a word differs from the golden model's. ``place``: start of the message."""
    golden_arrays = flatten_states(network, golden)
    for name, values in flatten_states(network, states).items():
        differing = np.flatnonzero(values.view(np.uint32) != golden_arrays[name].view(np.uint32))
        if len(differing):
            word, golden_word = (
                array.reshape(-1).view(np.uint32)[differing[0]] for array in (values, golden_arrays[name])
            )
            count = f"{len(differing):,} of {values.size:,} words differ"
            raise CheckFailed(
                f"{place}: {name}: {count}; word {differing[0]} is {word:#010x}, not {golden_word:#010x}"
            )


def _compare_outputs(place: str, first: int, outputs: Outputs, golden: Outputs) -> None:
    """Raise CheckFailed if a frame's outputs differ from the golden model's. ``first``: index of frame 0."""
    differing = np.flatnonzero((outputs.view(np.uint32) != golden.view(np.uint32)).any(axis=1))
    if len(differing):
        count = f"outputs of {len(differing):,} of {len(outputs):,} frames are not the golden model's"
        raise CheckFailed(f"{place}: {count}, the first of them frame {first + differing[0]:,}")
