"""What lies where in a device's memory: parameters, saved feature maps, images, labels, results.

Words of a frame lie one behind the other, four bytes each, least significant byte first. Every frame, and
every layer's words of the parameter image, begins at a multiple of a beat.
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
    """Beats that so many words take, from the beginning of one."""
    return -(-words // BEAT_WORDS)


@dataclass(frozen=True)
class Frames:
    """Frames of a stream: ``words`` each, of which ``lanes`` come in a transfer."""

    words: int
    lanes: int

    def __post_init__(self) -> None:
        if self.words < 1 or self.lanes < 1 or self.words % self.lanes:
            raise ValueError(f"frames of {self.words} words do not come {self.lanes} at a time")

    @property
    def beats(self) -> int:
        """Of a frame in memory."""
        return beats(self.words)


@dataclass(frozen=True)
class Ring:
    """Saved frames on their way to the layer's replay: at most ``capacity`` of them, from ``address`` on."""

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
    """Of a layer that has them in memory: ``frames`` of weights and velocities, from these bytes on.

    ``gradient``: its way back reads the weights, too.
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
        """Bursts that read the velocities once."""
        first = self.velocities // BEAT_BYTES
        return (first + self.frames.beats - 1) // BURST - first // BURST + 1


@dataclass(frozen=True)
class StoreConfig:
    """What a device's store moves: streams from memory, streams to it, rings, and layers' words.

    ``sections`` are the words of each layer that has state on chip, in the order of the parameter image.
    """

    readers: tuple[Frames, ...] = ()
    writers: tuple[Frames, ...] = ()
    rings: tuple[Ring, ...] = ()
    spilled: tuple[SpilledParameters, ...] = ()
    sections: tuple[int, ...] = ()


@dataclass(frozen=True)
class Region:
    """Bytes of memory for one thing."""

    name: str
    address: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.address + self.size


@dataclass(frozen=True)
class MemoryMap:
    """The memory of a device that trains ``network``, or a part of one, with jobs of up to ``frames`` frames.

    Parameter image and rings come first, so that their places do not depend on ``frames``. ``rings``: frames
    that are kept for each stage that saves, by its index; the flow model's unless given. Raises ValueError
    for a map that exceeds ``size`` bytes, and for rings that are not those of the stages that save.
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
        """Everything that memory holds, in order of addresses."""
        found: list[Region] = []
        for name, size in self._sizes():
            found.append(Region(name, found[-1].end if found else 0, size))
        return tuple(found)

    def region(self, name: str) -> Region:
        """``parameters``, ``images``, ``labels``, ``results``; or one of a stage, with its index.

        These are ``ring``, ``weights`` and ``velocities``.
        """
        return next(region for region in self.regions if region.name == name)

    @property
    def end(self) -> int:
        """Bytes that are used."""
        return self.regions[-1].end

    @cached_property
    def store(self) -> StoreConfig:
        """What the device's store is made from; it does not depend on ``frames``."""
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
        """Where the words of a stage's state lie, in order: region, first word there, number of words."""
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
        """What the output writes."""
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
    """Indices of the stages that keep a feature map of every frame."""
    return tuple(i for i, stage in enumerate(network.stages) if stage.layer.saved)


def state_stages(network: Network) -> tuple[int, ...]:
    """Indices of the stages that have state, wherever it lies."""
    return tuple(i for i, stage in enumerate(network.stages) if stage.layer.state_words)


def image_stages(network: Network) -> tuple[int, ...]:
    """Indices of the stages that have their state on chip, and words in the parameter image, in its order."""
    return tuple(i for i in state_stages(network) if network.stages[i].storage is Storage.CHIP)


def spilled_stages(network: Network) -> tuple[int, ...]:
    """Indices of the stages that have their parameters in memory."""
    return tuple(i for i in state_stages(network) if network.stages[i].storage is Storage.DRAM)


def saved_frames(network: Network, stage: int) -> Frames:
    """What a stage saves of every frame."""
    layer, parallelism = network.stages[stage].layer, network.stages[stage].parallelism
    return Frames(layer.saved, layer.save_lanes(parallelism))


def stage_bytes(stage: Stage, ring: int, frames: int) -> int:
    """What a stage keeps in memory: its state, ``ring`` saved frames, ``frames`` from or for the host."""
    layer = stage.layer
    spilled = stage.storage is Storage.DRAM
    state = 2 * beats(layer.parameters) if spilled else beats(layer.state_words)
    host = beats(layer.output.words) if isinstance(layer, (Input, Output)) else 0
    return BEAT_BYTES * (state + ring * beats(layer.saved) + frames * host)


def pack(frames: Iterable[Words], words: int) -> Words:
    """Frames of so many words as memory holds them: each filled up with zeros to whole beats."""
    rows = np.asarray(list(frames) if not isinstance(frames, np.ndarray) else frames).reshape(-1, words)
    packed = np.zeros((len(rows), beats(words) * BEAT_WORDS), np.uint32)
    packed[:, :words] = rows.view(np.uint32)
    return packed.reshape(-1)


def unpack(memory: Words, words: int) -> Words:
    """The other way: a row of so many words for each frame."""
    return memory.reshape(-1, beats(words) * BEAT_WORDS)[:, :words]
