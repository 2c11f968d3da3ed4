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
    """Return the beats that ``words`` words take, from the start of a beat."""
    return -(-words // BEAT_WORDS)


@dataclass(frozen=True)
class Frames:
    """Size of a stream's frames."""

    words: int  #: words of a frame
    lanes: int  #: words of a transfer

    def __post_init__(self) -> None:
        if self.words < 1 or self.lanes < 1 or self.words % self.lanes:
            raise ValueError(f"frames of {self.words} words do not come {self.lanes} at a time")

    @property
    def beats(self) -> int:
        """Beats of a frame in memory."""
        return beats(self.words)


@dataclass(frozen=True)
class Ring:
    """Ring buffer of a layer's saved frames, from the forward to the backward pass."""

    frames: Frames
    capacity: int  #: frames
    address: int  #: byte address; a multiple of a beat

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity of a ring must be at least 1 frame, not {self.capacity!r}")
        if self.address % BEAT_BYTES:
            raise ValueError(f"address of a ring must be a multiple of {BEAT_BYTES}, not {self.address!r}")


@dataclass(frozen=True)
class SpilledParameters:
    """Places in memory of the parameters of a layer that has them there, not on chip."""

    frames: Frames  #: size of the weights, and of the velocities
    weights: int  #: byte address of the weights
    velocities: int  #: byte address of the velocities
    gradient: bool  #: true if the backward pass reads the weights too

    def __post_init__(self) -> None:
        for address in self.weights, self.velocities:
            if address % BEAT_BYTES:
                raise ValueError(f"addresses of parameters must be multiples of {BEAT_BYTES}, not {address!r}")

    @property
    def velocity_bursts(self) -> int:
        """Number of bursts in which all velocities are read once."""
        first = self.velocities // BEAT_BYTES
        return (first + self.frames.beats - 1) // BURST - first // BURST + 1


@dataclass(frozen=True)
class StoreConfig:
    """Streams of a device's store, the part between layers and memory."""

    readers: tuple[Frames, ...] = ()  #: streams of the host's frames from memory
    writers: tuple[Frames, ...] = ()  #: streams of results to memory
    rings: tuple[Ring, ...] = ()  #: rings of saved frames
    spilled: tuple[SpilledParameters, ...] = ()  #: parameters in memory
    sections: tuple[int, ...] = ()  #: words of each layer with state on chip, in the parameter image's order


@dataclass(frozen=True)
class Region:
    """Named range of memory."""

    name: str
    address: int  #: byte address
    size: int  #: bytes

    @property
    def end(self) -> int:
        """Address of the first byte after the region."""
        return self.address + self.size


@dataclass(frozen=True)
class MemoryMap:
    """Memory map of a device that trains ``network``, or a part of one, with jobs of up to ``frames`` frames.

    Parameter image and rings come first, so that their addresses do not depend on ``frames``.
    Raises ValueError for a map that exceeds ``size``, and if ``rings`` has other stages than ``saving_stages``.
    """

    network: Network
    frames: int  #: maximum frames of a job
    rings: Mapping[int, int] | None = None  #: capacity of each ring in frames, by stage; default: flow model's
    size: int = 1 << ADDRESS_BITS  #: bytes of the device's memory

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ValueError(f"frames must be at least 1, not {self.frames!r}")
        if self.rings is None:
            object.__setattr__(self, "rings", Flow(self.network).rings)
        saving, stages = set(saving_stages(self.network)), set(self.rings or {})
        if saving != stages:
            raise ValueError(f"rings must be those of the stages {sorted(saving)}, not of {sorted(stages)}")
        if self.end > self.size:
            largest = max(self.regions, key=lambda region: region.size)
            raise ValueError(
                f"{self.network.name} needs {self.end} bytes of memory, and the device has {self.size}; "
                f"most of it, {largest.size}, is {largest.name}"
            )

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions in order of addresses."""
        regions: list[Region] = []
        for name, size in self._sizes():
            regions.append(Region(name, regions[-1].end if regions else 0, size))
        return tuple(regions)

    def region(self, name: str) -> Region:
        """Return the region called ``name``.

        Names are ``parameters``, ``images``, ``labels``, ``results``, and ``ring N``, ``weights N`` and
        ``velocities N`` of the stage with index N.
        """
        return next(region for region in self.regions if region.name == name)

    @property
    def end(self) -> int:
        """Address of the first byte after the last region."""
        return self.regions[-1].end

    @cached_property
    def store(self) -> StoreConfig:
        """Configuration of the device's store; it does not depend on ``frames``."""
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
        earlier_stages = (i for i in image_stages(self.network) if i < stage)
        first = BEAT_WORDS * sum(beats(stages[i].layer.state_words) for i in earlier_stages)
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
        """Size of the frames of results, which the output stage writes."""
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
    """Return the indices of the stages that save words of every frame for the backward pass."""
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
    """Return the size of what a stage saves of a frame."""
    layer, parallelism = network.stages[stage].layer, network.stages[stage].parallelism
    return Frames(layer.saved_words, layer.save_lanes(parallelism))


def stage_bytes(stage: Stage, ring: int, frames: int) -> int:
    """Return the bytes of a stage in memory: its state, ``ring`` saved frames, and ``frames`` host frames."""
    layer = stage.layer
    spilled = stage.storage is Storage.DRAM
    state = 2 * beats(layer.parameters) if spilled else beats(layer.state_words)
    host = beats(layer.output.words) if isinstance(layer, (Input, Output)) else 0
    return BEAT_BYTES * (state + ring * beats(layer.saved_words) + frames * host)


def pack(frames: Iterable[Words], words: int) -> Words:
    """Return frames in memory's format: each padded with zeros to whole beats. ``words``: words of a frame."""
    rows = np.asarray(list(frames) if not isinstance(frames, np.ndarray) else frames).reshape(-1, words)
    packed = np.zeros((len(rows), beats(words) * BEAT_WORDS), np.uint32)
    packed[:, :words] = rows.view(np.uint32)
    return packed.reshape(-1)


def unpack(memory: Words, words: int) -> Words:
    """Return the frames of memory's format as rows of ``words`` words, the inverse of :func:`pack`."""
    return memory.reshape(-1, beats(words) * BEAT_WORDS)[:, :words]
