"""Training loop: trains all machines stretch by stretch, compares them, and keeps a checkpoint after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.checkpoint import Checkpoint, flat
from fanin.cnn.run.machine import FLOAT64, GOLDEN, RTL, Machine, NotFinite, Outputs, Progress, quiet
from fanin.cnn.run.measures import Epoch, Measures, Tally
from fanin.cnn.run.setup import Setup
from fanin.cnn.training import Place, Stretch
from fanin.sim.learning.mlp import Samples

#: Callback that keeps a checkpoint of the run.
Keep = Callable[[Checkpoint], None]


@dataclass
class Loop:
    """Training loop of a run.

    ``machines``: machines by name. Checkpoints hold the first one's state; RTL is compared with GOLDEN.
    ``keep``: callback with each checkpoint.
    ``progress``: callback with the number of trained frames.
    ``frames``: trained frames of the run, including those before the initial checkpoint.
    ``exact``: frames of the run that were compared bit by bit; 0 without RTL.
    ``epochs``: epochs that this loop has measured.
    """

    setup: Setup
    machines: Mapping[str, Machine]
    keep: Keep
    progress: Progress
    frames: int = field(init=False)
    exact: int = field(init=False)
    epochs: list[Epoch] = field(default_factory=list)
    _tallies: dict[str, Tally] = field(init=False)

    def __post_init__(self) -> None:
        about = self.setup.initial.about
        self.frames = about.place.trained(len(self.setup.data.train))
        self.exact = self.frames if RTL in self.machines else 0
        self._tallies = {name: tally for name, tally in about.tallies.items() if name in self.machines}

    def run(self) -> None:
        """Train to the end. Raises CheckFailed of one line if a bit differs or a value is not finite."""
        data, start = self.setup.data.train, self.setup.initial
        for name, machine in self.machines.items():
            machine.load(start.binary64 if name == FLOAT64 and start.binary64 else start.states)
        if not self.setup.earlier.states:
            self.keep(self._checkpoint(start.about.place))
        elif len(self.setup.earlier.epochs) < start.about.epoch:  # the run stopped before this measurement
            self._end(start.about.epoch - 1)
        for stretch in self.setup.training.stretches(len(data), start.about.place):
            if not stretch.first:
                self._tallies = dict.fromkeys(self.machines, Tally())
            order = self.setup.training.order(stretch.epoch, len(data))
            self._stretch(stretch, data[order[stretch.first : stretch.end]])
            found = self._checkpoint(stretch.behind)
            _check_finite(self.setup.network, found.states, stretch)
            self.keep(found)
            if stretch.ends:
                self._end(stretch.epoch)

    def _checkpoint(self, place: Place) -> Checkpoint:
        """Return a checkpoint of the current state."""
        beside = self.machines.get(FLOAT64)
        about = self.setup.about(place, self._tallies)
        return Checkpoint(about, self._primary.dump(), beside.dump() if beside else None)

    @property
    def _primary(self) -> Machine:
        return next(iter(self.machines.values()))

    def _stretch(self, stretch: Stretch, frames: Samples) -> None:
        """Train all machines on the frames, and compare RTL with the golden model."""

        def count(frames: int) -> None:
            self.progress(self.frames + frames)

        outputs = {}
        for name, machine in self.machines.items():
            progress = count if machine is self._primary else quiet
            try:
                outputs[name] = machine.train(frames.images, frames.digits, stretch.job, progress)
            except NotFinite as error:
                if name == RTL:
                    self._same_in_golden(error, stretch, frames)
                raise CheckFailed(sentence(error, stretch)) from None
            self._tallies[name] = self._tallies[name].plus(outputs[name], frames.digits)
        self.frames += len(frames)
        count(0)
        if RTL in self.machines:
            where = f"epoch {stretch.epoch + 1}"
            _compare_outputs(where, stretch.first, outputs[RTL], outputs[GOLDEN])
            compare_states(where, self.setup.network, self.machines[RTL].dump(), self.machines[GOLDEN].dump())
            self.exact += len(frames)

    def _same_in_golden(self, found: NotFinite, stretch: Stretch, frames: Samples) -> None:
        """Raise CheckFailed unless the golden model meets the same non-finite value as RTL."""
        try:
            self.machines[GOLDEN].train(frames.images, frames.digits, stretch.job, quiet)
        except NotFinite as golden:
            if (golden.layer, golden.part, golden.frame) == (found.layer, found.part, found.frame):
                return
            other = sentence(golden, stretch)
        else:
            other = "all is finite"
        raise CheckFailed(f"in RTL {sentence(found, stretch)}; in the golden model {other}") from None

    def _end(self, epoch: int) -> None:
        """Measure an epoch on the held-out frames; raise CheckFailed if RTL's outputs differ."""
        training, test = self.setup.training, self.setup.data.test
        tested = {name: machine.evaluate(test.images) for name, machine in self.machines.items()}
        found = {
            name: Measures.of(self._tallies[name], outputs, test.digits) for name, outputs in tested.items()
        }
        if RTL in self.machines:
            _compare_outputs(f"evaluation behind epoch {epoch + 1}", 0, tested[RTL], tested[GOLDEN])
        rate = training.rate * training.schedule.share(epoch, training.epochs)
        self.epochs.append(Epoch(epoch + 1, rate, found))


def _check_finite(network: Network, states: tuple[State, ...], stretch: Stretch) -> None:
    """Raise CheckFailed for an infinity or a NaN in a state."""
    for name, values in flat(network, states).items():
        if not np.isfinite(values).all():
            where = f"behind frame {stretch.end:,} of epoch {stretch.epoch + 1}"
            raise CheckFailed(f"{name}: infinity or NaN {where}")


def sentence(found: NotFinite, stretch: Stretch) -> str:
    """Return a sentence on the first non-finite value. Frames count from 0, epochs from 1."""
    return (
        f"{found.layer}: first infinity or NaN in the {found.part} of frame {stretch.first + found.frame:,} "
        f"of epoch {stretch.epoch + 1}"
    )


def compare_states(where: str, network: Network, found: tuple[State, ...], golden: tuple[State, ...]) -> None:
    """Raise CheckFailed, with its place, for the first word that differs."""
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
