"""The training itself: stretch by stretch, on one machine or on several side by side, a state after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fanin.cli.cluster.checkpoint import flat
from fanin.cli.cluster.machine import GOLDEN, RTL, Labels, Machine, NotFinite, Outputs, Progress, quiet
from fanin.cli.cluster.setup import Setup
from fanin.cnn import Network
from fanin.cnn_training import Stretch
from fanin.errors import CheckFailed
from fanin.golden.cnn.state import State
from fanin.sim.learning.mlp import Samples

_LEAST = 2.0**-126  # of a class in the loss: below that, binary32 has nothing but 0

#: Takes the state behind so many epochs, and frames of the next one.
Keep = Callable[[int, int, tuple[State, ...]], None]


@dataclass(frozen=True)
class Measures:
    """Mean cross-entropy and share of right guesses of an epoch's frames, each when it was trained on.

    ``accuracy``: the share of held-out frames behind the epoch.
    """

    loss: float
    train_accuracy: float
    accuracy: float


@dataclass(frozen=True)
class Epoch:
    """An epoch, counted from 1, and what each machine made of it."""

    number: int
    rate: float
    measures: Mapping[str, Measures]


@dataclass
class Loop:
    """A run. ``machines`` by name: the states of the first are kept; RTL is compared with the golden model.

    ``frames`` have been trained, ``exact`` of them compared bit by bit; ``progress`` gets their number.
    """

    setup: Setup
    machines: Mapping[str, Machine]
    keep: Keep
    progress: Progress
    frames: int = 0
    exact: int = 0
    epochs: list[Epoch] = field(default_factory=list)

    def run(self) -> None:
        """Train to the end. Raises CheckFailed of one line where a bit differs, or a NaN turns up."""
        data = self.setup.data.train
        for machine in self.machines.values():
            machine.load(self.setup.initial.states)
        self.keep(0, 0, self.setup.initial.states)
        outputs: dict[str, list[Outputs]] = {name: [] for name in self.machines}
        for stretch in self.setup.training.stretches(len(data)):
            order = self.setup.training.order(stretch.epoch, len(data))
            self._stretch(stretch, data[order[stretch.first : stretch.end]], outputs)
            ends, states = stretch.end == len(data), self._primary.dump()
            _check_finite(self.setup.network, states, stretch)
            self.keep(stretch.epoch + ends, 0 if ends else stretch.end, states)
            if ends:
                self._end(stretch.epoch, data.digits[order], outputs)
                outputs = {name: [] for name in self.machines}

    @property
    def _primary(self) -> Machine:
        return next(iter(self.machines.values()))

    def _stretch(self, stretch: Stretch, frames: Samples, outputs: Mapping[str, list[Outputs]]) -> None:
        """Train on the frames, and compare."""

        def count(frames: int) -> None:
            self.progress(self.frames + frames)

        for name, machine in self.machines.items():
            progress = count if machine is self._primary else quiet
            try:
                found = machine.train(frames.images, frames.digits, stretch.job, progress)
            except NotFinite as error:
                if name == RTL:
                    self._same_in_golden(error, stretch, frames)
                raise CheckFailed(sentence(error, stretch)) from None
            outputs[name].append(found)
        self.frames += len(frames)
        count(0)
        if RTL in self.machines:
            where = f"epoch {stretch.epoch + 1}"
            _compare_outputs(where, stretch.first, outputs[RTL][-1], outputs[GOLDEN][-1])
            compare_states(where, self.setup.network, self.machines[RTL].dump(), self.machines[GOLDEN].dump())
            self.exact += len(frames)

    def _same_in_golden(self, found: NotFinite, stretch: Stretch, frames: Samples) -> None:
        """Raise CheckFailed where the golden model does not meet what RTL met: then RTL is wrong."""
        try:
            self.machines[GOLDEN].train(frames.images, frames.digits, stretch.job, quiet)
        except NotFinite as golden:
            if (golden.layer, golden.part, golden.frame) == (found.layer, found.part, found.frame):
                return
            other = sentence(golden, stretch)
        else:
            other = "all is finite"
        raise CheckFailed(f"in RTL {sentence(found, stretch)}; in the golden model {other}") from None

    def _end(self, epoch: int, labels: Labels, outputs: Mapping[str, list[Outputs]]) -> None:
        """Measure an epoch."""
        training, test = self.setup.training, self.setup.data.test
        found = {}
        tested = {}
        for name, machine in self.machines.items():
            trained, tested[name] = np.concatenate(outputs[name]), machine.evaluate(test.images)
            found[name] = Measures(
                loss=_loss(trained, labels),
                train_accuracy=_accuracy(trained, labels),
                accuracy=_accuracy(tested[name], test.digits),
            )
        if RTL in self.machines:
            _compare_outputs(f"evaluation behind epoch {epoch + 1}", 0, tested[RTL], tested[GOLDEN])
        rate = training.rate * training.schedule.share(epoch, training.epochs)
        self.epochs.append(Epoch(epoch + 1, rate, found))


def _check_finite(network: Network, states: tuple[State, ...], stretch: Stretch) -> None:
    """Raise CheckFailed for a state that is of no use any more."""
    for name, values in flat(network, states).items():
        if not np.isfinite(values).all():
            where = f"behind frame {stretch.end:,} of epoch {stretch.epoch + 1}"
            raise CheckFailed(f"{name}: infinity or NaN {where}")


def sentence(found: NotFinite, stretch: Stretch) -> str:
    """In words. Frames count from 0, epochs from 1."""
    return (
        f"{found.layer}: first infinity or NaN in the {found.part} of frame {stretch.first + found.frame:,} "
        f"of epoch {stretch.epoch + 1}"
    )


def compare_states(where: str, network: Network, found: tuple[State, ...], golden: tuple[State, ...]) -> None:
    """Raise CheckFailed for the first word that differs, with its place."""
    right = flat(network, golden)
    for name, values in flat(network, found).items():
        wrong = np.flatnonzero(values.view(np.uint32) != right[name].view(np.uint32))
        if len(wrong):
            word, right_word = (array.reshape(-1).view(np.uint32)[wrong[0]] for array in (values, right[name]))
            count = f"{len(wrong):,} of {values.size:,} words differ"
            raise CheckFailed(
                f"{where}: {name}: {count}; word {wrong[0]} is {word:#010x}, not {right_word:#010x}"
            )


def _compare_outputs(where: str, first: int, found: Outputs, golden: Outputs) -> None:
    wrong = np.flatnonzero((found.view(np.uint32) != golden.view(np.uint32)).any(axis=1))
    if len(wrong):
        count = f"outputs of {len(wrong):,} of {len(found):,} frames are not the golden model's"
        raise CheckFailed(f"{where}: {count}, the first of them frame {first + wrong[0]:,}")


def _loss(outputs: Outputs, labels: Labels) -> float:
    chosen = outputs[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(np.maximum(chosen, _LEAST)).mean())


def _accuracy(outputs: Outputs, labels: Labels) -> float:
    return float((outputs.argmax(axis=1) == labels).mean())
