# amaranth: UnusedElaboratable=no
"""Comparison of one layer's RTL with its golden model on given streams (docs/systems/cluster.md).

The bench replaces all that surrounds the layer in a node: sources and sinks of its streams, the ring of saved
words, and the memory of its parameters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.lib import wiring

from fanin.base.errors import CheckFailed
from fanin.cnn.facts import Stage
from fanin.cnn.golden import compiled
from fanin.cnn.golden.image import state_image, state_of_image
from fanin.cnn.golden.layers import backward, forward, update
from fanin.cnn.layers.arithmetic import Frames, State
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.layer import Storage
from fanin.hdl.layers.components import component_of
from fanin.hdl.layers.interface import Mode
from fanin.sim.cnn.dense_memory import DenseAndMemory, memory_loops
from fanin.sim.cnn.layer_bench import Job, JobResult, LayerBench
from fanin.sim.cosim.arrays import Arith

_STALLS = 0.4  # odds of ``LayerBench.run``: phases in which sources or sinks nearly stop
_RING = {"save": "replay"}
_OUTPUTS, _INPUT_GRADIENTS, _SAVE, _DUMP = "outputs", "input_gradients", "save", "dump"
_TITLES = {_OUTPUTS: "output", _SAVE: "saved word"}

UInt32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class LayerStreams:
    """Streams of a layer for one batch in the golden network, and its state before the batch."""

    features: tuple[Frames, ...]  #: frames of each input
    outputs: Frames  #: output, which is the input of the next layers
    gradient: Frames | None  #: gradient of the output; None if no gradient is sent to the layer
    state: State

    def for_groups(self, group: int) -> LayerStreams:
        """Return the streams of at least two groups of frames, for which frames are repeated."""
        times = -(-2 * group // len(self.outputs))
        if group == 1 or times == 1:
            return self
        features = tuple(np.tile(frames, (times, 1, 1, 1)) for frames in self.features)
        gradient = None if self.gradient is None else np.tile(self.gradient, (times, 1, 1, 1))
        return replace(
            self, features=features, outputs=np.tile(self.outputs, (times, 1, 1, 1)), gradient=gradient
        )


@dataclass(frozen=True)
class LayerCheck:
    """Result of a layer's check."""

    words: int  #: words compared in all runs
    cycles: int  #: cycles a frame without stalls; 0 if the runs ended at a difference
    difference: str | None  #: first difference, or failure of the RTL; None if all words are equal
    build_seconds: float  #: time to emit and build the simulator, or to find it in the cache
    seconds: float  #: time of the golden model and the runs


def planned_cycles(stage: Stage) -> int:
    """Return the plan's cycles a frame, except the limit by the memory port, which the bench does not model."""
    return stage.layer.cycles(stage.parallelism)


def layer_component(stage: Stage) -> wiring.Component:
    """Return the component that the bench runs: the layer, with a memory if its parameters are in DRAM."""
    if stage.storage is Storage.CHIP:
        return component_of(stage)
    assert isinstance(stage.layer, Dense)
    return DenseAndMemory(layer=stage.layer, parallelism=stage.parallelism)


def check_layer(
    stage: Stage, streams: LayerStreams, *, eta: float, momentum: float, seed: int, arith: str = Arith.C
) -> LayerCheck:
    """Run a batch through a layer's RTL, without stalls and with random ones, and compare all words.

    A run loads the state, trains on one batch, and dumps the state. ``eta``: −rate / frames of the batch.
    ``seed``: seed of the stalls.

    Raises InputError for a missing tool, and ToolFailed if the simulator does not build.
    """
    start = time.monotonic()
    streams = streams.for_groups(stage.parallelism.frames)
    bench = LayerBench({stage.name: layer_component(stage)}, arith=arith)
    built = time.monotonic()
    expected = _golden(stage, streams, eta, momentum)
    words, cycles, difference = 0, 0, None
    for odds in (0.0, _STALLS):
        stalls = f"with stalls of seed {seed}" if odds else "without stalls"
        try:
            results = _run(bench, stage, streams, expected, eta=eta, momentum=momentum, odds=odds, seed=seed)
        except CheckFailed as error:
            difference = f"{error}, {stalls}"
            break
        found = _difference(stage, expected, _streams(results))
        words += sum(array.size for array in expected.values())
        if found:
            difference = f"{stage.name}: {found}, {stalls}"
            break
        if not odds:
            frames, group = len(streams.features[0]), stage.parallelism.frames
            cycles = _cycles_a_frame(results[_train_job(stage)], frames, group)
    end = time.monotonic()
    return LayerCheck(words, cycles, difference, built - start, end - built)


def _golden(stage: Stage, streams: LayerStreams, eta: float, momentum: float) -> dict[str, Frames]:
    """Return the expected output streams, by name; frames are the first axis of all except ``dump``."""
    layer, p, kernels = stage.layer, stage.parallelism, compiled.KERNELS
    state = {name: array.copy() for name, array in streams.state.items()}
    _, saved = forward(layer, p, state, streams.features, kernels=kernels)
    gradient = np.empty(0, np.float32) if streams.gradient is None else streams.gradient
    gradients = backward(layer, p, state, saved, gradient, kernels=kernels) if layer.trains else ()
    update(layer, state, np.float32(eta), np.float32(momentum))
    expected = {_OUTPUTS: streams.outputs}
    expected |= {f"{_INPUT_GRADIENTS}{port}": frames for port, frames in enumerate(gradients)}
    if layer.saved_words:
        expected[_SAVE] = saved.view(np.float32)
    if layer.state_words:
        expected[_DUMP] = state_image(layer, p, state).view(np.float32)
    return expected


def _train_job(stage: Stage) -> int:
    """Return the index of the training job in a run."""
    return int(stage.layer.state_words > 0)


def _run(
    bench: LayerBench,
    stage: Stage,
    streams: LayerStreams,
    expected: Mapping[str, Frames],
    *,
    eta: float,
    momentum: float,
    odds: float,
    seed: int,
) -> list[JobResult]:
    """Load the state, train on the batch, and dump the state. A layer without state only trains."""
    layer, frames = stage.layer, len(streams.features[0])
    feeds = {f"features{port}": _bits(words) for port, words in enumerate(streams.features)}
    if streams.gradient is not None:
        feeds["gradients"] = _bits(streams.gradient)
    expect = {name: array.size for name, array in expected.items() if name not in (_SAVE, _DUMP)}
    job = Job(Mode.TRAIN, frames, frames, eta, eta, momentum, feeds, expect)  # type: ignore[arg-type]
    jobs = [job]
    if layer.state_words:
        image = state_image(layer, stage.parallelism, streams.state)
        jobs = [
            Job(Mode.LOAD, feeds={"load": image}),  # type: ignore[arg-type]
            job,
            Job(Mode.DUMP, expect={_DUMP: layer.state_words}),  # type: ignore[arg-type]
        ]
    # A gradient depends on all of its frame's outputs, so it never comes before them.
    gates = {} if streams.gradient is None else {"gradients": _OUTPUTS}
    loops = dict(_RING) if layer.saved_words else {}
    if stage.storage is Storage.DRAM:
        assert isinstance(layer, Dense)
        loops |= memory_loops(layer)
    patience = 10_000 + 2 * (planned_cycles(stage) + layer.state_words)
    return bench.run(stage.name, jobs, loops=loops, gates=gates, odds=odds, seed=seed, patience=patience)


def _streams(results: Sequence[JobResult]) -> dict[str, UInt32]:
    """Return the words of each output stream over all jobs."""
    return {name: np.concatenate([result.words[name] for result in results]) for name in results[0].words}


def _difference(stage: Stage, expected: Mapping[str, Frames], actual: Mapping[str, UInt32]) -> str | None:
    """Return the first difference of a stream, with its place and both words; None if all words are equal."""
    for name, array in expected.items():
        wanted, found = _bits(array), actual[name]
        if len(found) != len(wanted):
            return f"{_title(name)}: {len(found):,} words instead of {len(wanted):,}"
        places = np.flatnonzero(wanted != found)
        if len(places):
            first, more = int(places[0]), len(places) - 1
            place = _state_place(stage, first) if name == _DUMP else _frame_place(name, array, first)
            others = f"; {more:,} more words differ" if more else ""
            return f"{place}: expected 0x{wanted[first]:08x}, got 0x{found[first]:08x}{others}"
    return None


def _title(name: str) -> str:
    return _TITLES.get(name) or (
        "state" if name == _DUMP else f"gradient of input {name.removeprefix(_INPUT_GRADIENTS)}"
    )


def _frame_place(name: str, array: Frames, position: int) -> str:
    """Return stream, frame, and row, column and channel of a word, in words."""
    frame, *place = (int(index) for index in np.unravel_index(position, array.shape))
    names = ("row", "column", "channel") if len(place) == 3 else ("word",)
    text = ", ".join(f"{axis} {index}" for axis, index in zip(names, place, strict=True))
    return f"{_title(name)}, frame {frame}, {text}"


def _state_place(stage: Stage, position: int) -> str:
    """Return array and index of a word of the state's image, in words."""
    layer, p = stage.layer, stage.parallelism
    marked = np.zeros(layer.state_words, np.uint32)
    marked[position] = 1
    for name, array in state_of_image(layer, p, marked).items():
        index: Any = np.argwhere(array.view(np.uint32))
        if len(index):
            return f"state after the update, {name}[{', '.join(map(str, index[0]))}]"
    raise ValueError(f"{stage.name} has no word {position} of state")


def _cycles_a_frame(result: JobResult, frames: int, group: int) -> int:
    """Return the cycles between the last words of the last two frames or groups of frames, of the slowest way.

    Those of a group are divided by its frames.

    The inputs do not count, since the layer buffers them. Without input gradients, the backward way is measured
    where the gradients enter.
    """
    ends = [name for name in result.cycles_of if name.startswith(_INPUT_GRADIENTS)] or ["gradients"]
    cycles = [result.cycles_of[name] for name in (_OUTPUTS, *ends) if name in result.cycles_of]
    ends_of_groups = [ways.reshape(frames, -1)[::-group, -1] for ways in cycles if len(ways)]
    return max(-(-int(ends[0] - ends[1]) // group) for ends in ends_of_groups)


def _bits(array: Frames) -> UInt32:
    return np.ascontiguousarray(array).ravel().view(np.uint32)
