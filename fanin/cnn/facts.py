"""Network that trains on a cluster: a graph of stages, which are layers with parallelism.

Golden model, RTL, driver and simulation are built from it. Devices are assigned by ``fanin.cnn.parts``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Parallelism, Storage
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.soft_cross_loss import LABELS_PORT, SoftCrossLoss


@dataclass(frozen=True)
class Stage:
    """Layer of a network, with its parallelism and its place in the graph."""

    name: str
    layer: Layer
    parallelism: Parallelism
    sources: tuple[int, ...] = ()  #: index of the stage that feeds each input
    storage: Storage = Storage.CHIP  #: memory of the layer's parameters

    def __post_init__(self) -> None:
        """Raise ValueError for groups of frames with parameters on chip."""
        if self.parallelism.frames > 1 and self.storage is Storage.CHIP:
            raise ValueError(f"{self.name}: frames must be 1, since its parameters are on chip")


@dataclass(frozen=True)
class Consumer:
    """Consumer of a stage's output: an input of another stage."""

    stage: int  #: index of the consuming stage
    port: int  #: index of its input


@dataclass(frozen=True)
class Network:
    """Network of stages in topological order: each stage comes after its sources."""

    name: str
    stages: tuple[Stage, ...]

    @cached_property
    def consumers(self) -> tuple[tuple[Consumer, ...], ...]:
        """Consumers of each stage, ordered by consuming stage, then by port."""
        consumers: list[list[Consumer]] = [[] for _ in self.stages]
        for index, stage in enumerate(self.stages):
            for port, source in enumerate(stage.sources):
                consumers[source].append(Consumer(index, port))
        return tuple(map(tuple, consumers))

    @cached_property
    def loss(self) -> int:
        """Index of the loss stage. Raises ValueError unless there is exactly one."""
        return self._index_of_kind(SoftCrossLoss, "loss")

    @cached_property
    def output(self) -> int:
        """Index of the output stage. Raises ValueError unless there is exactly one."""
        return self._index_of_kind(Output, "output")

    @cached_property
    def labels(self) -> int:
        """Index of the input stage that gives the labels."""
        return self.stages[self.loss].sources[LABELS_PORT]

    @cached_property
    def images(self) -> int:
        """Index of the input stage that gives the images. Raises ValueError unless there is exactly one."""
        indices = [i for i, s in enumerate(self.stages) if isinstance(s.layer, Input) and i != self.labels]
        if len(indices) != 1:
            raise ValueError(f"{self.name} has {len(indices)} inputs besides the labels; training needs one")
        return indices[0]

    @cached_property
    def at_host(self) -> bool:
        """True if the host's images and labels enter this network, which may be a part of a whole one."""
        return any(isinstance(stage.layer, Input) for stage in self.stages)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all stages: layers and edges, and their parallelism and storage.

        Parallelism determines the order of sums, so the bits of training, and the widths of streams.
        """
        text = [
            [s.name, s.layer.kind, asdict(s.layer), asdict(s.parallelism), s.sources, s.storage]
            for s in self.stages
        ]
        return _sha256(text)

    @cached_property
    def model_digest(self) -> str:
        """SHA-256 of the layers and their edges, independent of parallelism, storage and saved words."""

        def fields(layer: Layer) -> dict[str, Any]:
            return {name: value for name, value in asdict(layer).items() if name not in layer.build_fields}

        return _sha256([[s.name, s.layer.kind, fields(s.layer), s.sources] for s in self.stages])

    def _index_of_kind(self, kind: type[Layer], title: str) -> int:
        """Return the index of the only stage of a kind. Raises ValueError unless there is exactly one."""
        indices = [i for i, stage in enumerate(self.stages) if isinstance(stage.layer, kind)]
        if len(indices) != 1:
            raise ValueError(f"{self.name} has {len(indices)} layers of kind {title}; training needs one")
        return indices[0]


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
