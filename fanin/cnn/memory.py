"""Memory map of a device: parameters, saved feature maps, images, labels, results.

Words of a frame are consecutive, four bytes each, least significant byte first. Every frame, and every
layer's section of the parameter image, starts at a multiple of a beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Storage
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.port import BEAT_BITS, BEAT_WORDS, BURST

BEAT_BYTES = BEAT_BITS // 8
WORD_BYTES = WORD_BITS // 8
ADDRESS_BITS = 40

Words = npt.NDArray[np.uint32]


def beats(words: int) -> int:
    """Return the beats that ``words`` take, from the start of a beat."""
    return -(-words // BEAT_WORDS)


@dataclass(frozen=True)
class Frames:
    """Frames of a stream. ``words``: words of a frame; ``lanes``: words of a transfer."""

    words: int
    lanes: int

    def __post_init__(self) -> None:
        if self.words < 1 or self.lanes < 1 or self.words % self.lanes:
            raise ValueError(f"frames of {self.words} words do not come {self.lanes} at a time")

    @property
    def beats(self) -> int:
        """Beats of a frame in memory."""
        return beats(self.words)


@dataclass(frozen=True)
class Ring:
    """Ring buffer of saved frames until the layer's replay. ``capacity`` in frames; ``address`` in bytes."""

    frames: Frames
    capacity: int
    address: int

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity of a ring must be at least 1 frame, not {self.capacity!r}")
        if self.address % BEAT_BYTES:
            raise ValueError(f"address of a ring must be a multiple of {BEAT_BYTES}, not {self.address!r}")


@dataclass(frozen=True)
class SpilledParameters:
    """Parameters of a layer that has them in memory.

    ``frames``: size of the weights, and of the velocities.
    ``weights``, ``velocities``: address of each, in bytes.
    ``gradient``: true if the backward pass reads the weights too.
    """

    frames: Frames
    weights: int
    velocities: int
    gradient: bool

    def __post_init__(self) -> None:
        for address in self.weights, self.velocities:
            if address % BEAT_BYTES:
                raise ValueError(f"addresses of parameters must be multiples of {BEAT_BYTES}, not {address!r}")

    @property
    def velocity_bursts(self) -> int:
        """Number of bursts of one read of all velocities."""
        first = self.velocities // BEAT_BYTES
        return (first + self.frames.beats - 1) // BURST - first // BURST + 1


@dataclass(frozen=True)
class StoreConfig:
    """Parameters of a device's store.

    ``readers``: streams from memory.
    ``writers``: streams to memory.
    ``rings``: rings of saved frames.
    ``spilled``: parameters in memory.
    ``sections``: words of each layer that has state on chip, in the order of the parameter image.
    """

    readers: tuple[Frames, ...] = ()
    writers: tuple[Frames, ...] = ()
    rings: tuple[Ring, ...] = ()
    spilled: tuple[SpilledParameters, ...] = ()
    sections: tuple[int, ...] = ()


@dataclass(frozen=True)
class Region:
    """Named range of memory. ``address`` and ``size`` in bytes."""

    name: str
    address: int
    size: int

    @property
    def end(self) -> int:
        """Address of the first byte after the region."""
        return self.address + self.size


@dataclass(frozen=True)
class MemoryMap:
    """Memory map of a device that trains ``network``, or a part of one, with jobs of up to ``frames`` frames.

    Parameter image and rings come first, so that their addresses do not depend on ``frames``.

    ``rings``: capacity in frames of each saving stage's ring, by the stage's index; default: the flow model's.
    ``size``: bytes of the device's memory.

    Raises ValueError for a map that exceeds ``size``, and for rings of other stages than the saving ones.
    """

    network: Network
    frames: int
    rings: Mapping[int, int] | None = None
    size: int = 1 << ADDRESS_BITS

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ValueError(f"frames must be at least 1, not {self.frames!r}")
        if self.rings is None:
            object.__setattr__(self, "rings", Flow(self.network).rings)
        saving, given = set(saving_stages(self.network)), set(self.rings or {})
        if saving != given:
            raise ValueError(f"rings must be those of the stages {sorted(saving)}, not of {sorted(given)}")
        if self.end > self.size:
            what = max(self.regions, key=lambda region: region.size)
            raise ValueError(
                f"{self.network.name} needs {self.end} bytes of memory, and the device has {self.size}; "
                f"most of it, {what.size}, is {what.name}"
            )

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions in order of addresses."""
        found: list[Region] = []
        for name, size in self._sizes():
            found.append(Region(name, found[-1].end if found else 0, size))
        return tuple(found)

    def region(self, name: str) -> Region:
        """Return the region of that name.

        Names are ``parameters``, ``images``, ``labels``, ``results``, and ``ring N``, ``weights N`` and
        ``velocities N`` of the stage with index N.
        """
        return next(region for region in self.regions if region.name == name)

    @property
    def end(self) -> int:
        """Number of bytes in use."""
        return self.regions[-1].end

    @cached_property
    def store(self) -> StoreConfig:
        """Parameters of the device's store; they do not depend on ``frames``."""
        network, stages = self.network, self.network.stages
        rings = self.rings or {}
        return StoreConfig(
            readers=tuple(
                Frames(stages[i].layer.output.words, stages[i].parallelism.po)
                for i in ((network.images, network.labels) if network.at_host else ())
            ),
            writers=(self.results,) if network.at_host else (),
            rings=tuple(
                Ring(saved_frames(network, stage), rings[stage], self.region(f"ring {stage}").address)
                for stage in saving_stages(network)
            ),
            spilled=tuple(self._spilled(stage) for stage in spilled_stages(network)),
            sections=tuple(stages[i].layer.state_words for i in image_stages(network)),
        )

    def state_words(self, stage: int) -> tuple[tuple[str, int, int], ...]:
        """Return the places of a stage's state in order: region, first word in the region, number of words."""
        stages = self.network.stages
        if stages[stage].storage is Storage.DRAM:
            words = stages[stage].layer.parameters
            return (f"weights {stage}", 0, words), (f"velocities {stage}", 0, words)
        before = (i for i in image_stages(self.network) if i < stage)
        first = BEAT_WORDS * sum(beats(stages[i].layer.state_words) for i in before)
        return (("parameters", first, stages[stage].layer.state_words),)

    def _spilled(self, stage: int) -> SpilledParameters:
        layer, p = self.network.stages[stage].layer, self.network.stages[stage].parallelism
        return SpilledParameters(
            frames=Frames(layer.parameters, layer.parameter_width(p)),
            weights=self.region(f"weights {stage}").address,
            velocities=self.region(f"velocities {stage}").address,
            gradient=layer.gradient,
        )

    @property
    def results(self) -> Frames:
        """Frames that the output writes."""
        output = self.network.stages[self.network.output]
        return Frames(output.layer.input.words, output.parallelism.pi)

    def _sizes(self) -> Iterator[tuple[str, int]]:
        network, stages, rings = self.network, self.network.stages, self.rings or {}
        sections = [stages[i].layer.state_words for i in image_stages(network)]
        yield "parameters", BEAT_BYTES * sum(map(beats, sections))
        for stage in spilled_stages(network):
            for name in "weights", "velocities":
                yield f"{name} {stage}", BEAT_BYTES * beats(stages[stage].layer.parameters)
        for stage in saving_stages(network):
            yield f"ring {stage}", BEAT_BYTES * saved_frames(network, stage).beats * rings[stage]
        if not network.at_host:
            return
        for name, words in (
            ("images", stages[network.images].layer.output.words),
            ("labels", stages[network.labels].layer.output.words),
            ("results", self.results.words),
        ):
            yield name, BEAT_BYTES * beats(words) * self.frames


def saving_stages(network: Network) -> tuple[int, ...]:
    """Return the indices of the stages that save a feature map of every frame."""
    return tuple(i for i, stage in enumerate(network.stages) if stage.layer.saved_words)


def state_stages(network: Network) -> tuple[int, ...]:
    """Return the indices of the stages that have state, on chip or in memory."""
    return tuple(i for i, stage in enumerate(network.stages) if stage.layer.state_words)


def image_stages(network: Network) -> tuple[int, ...]:
    """Return the indices of the stages with state on chip, in the order of the parameter image."""
    return tuple(i for i in state_stages(network) if network.stages[i].storage is Storage.CHIP)


def spilled_stages(network: Network) -> tuple[int, ...]:
    """Return the indices of the stages with parameters in memory."""
    return tuple(i for i in state_stages(network) if network.stages[i].storage is Storage.DRAM)


def saved_frames(network: Network, stage: int) -> Frames:
    """Return the size of the feature map that a stage saves of every frame."""
    layer, parallelism = network.stages[stage].layer, network.stages[stage].parallelism
    return Frames(layer.saved_words, layer.save_lanes(parallelism))


def stage_bytes(stage: Stage, ring: int, frames: int) -> int:
    """Return the bytes of a stage in memory: state, ``ring`` saved frames, ``frames`` of the host's data."""
    layer = stage.layer
    spilled = stage.storage is Storage.DRAM
    state = 2 * beats(layer.parameters) if spilled else beats(layer.state_words)
    host = beats(layer.output.words) if isinstance(layer, (Input, Output)) else 0
    return BEAT_BYTES * (state + ring * beats(layer.saved_words) + frames * host)


def pack(frames: Iterable[Words], words: int) -> Words:
    """Return frames in memory's format, each padded with zeros to whole beats. ``words``: words of a frame."""
    rows = np.asarray(list(frames) if not isinstance(frames, np.ndarray) else frames).reshape(-1, words)
    packed = np.zeros((len(rows), beats(words) * BEAT_WORDS), np.uint32)
    packed[:, :words] = rows.view(np.uint32)
    return packed.reshape(-1)


def unpack(memory: Words, words: int) -> Words:
    """Return frames from memory's format, a row of ``words`` for each frame."""
    return memory.reshape(-1, beats(words) * BEAT_WORDS)[:, :words]
