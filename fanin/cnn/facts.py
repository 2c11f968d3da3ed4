"""Network that trains on a cluster: stages, which are layers with parallelism.

A network has a plan's facts of a model without devices. Golden model, RTL, driver and simulation use it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Parallelism, Storage
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.soft_cross_loss import LABELS_PORT, SoftCrossLoss


@dataclass(frozen=True)
class Stage:
    """Layer of a network. ``sources``: indices of the stages that feed it, in the order of its inputs."""

    name: str
    layer: Layer
    parallelism: Parallelism
    sources: tuple[int, ...] = ()
    storage: Storage = Storage.CHIP


@dataclass(frozen=True)
class Consumer:
    """Consumer of a stage's output. ``stage``: index of the stage; ``port``: its input."""

    stage: int
    port: int


@dataclass(frozen=True)
class Network:
    """Network of stages in topological order: each stage comes after its sources."""

    name: str
    stages: tuple[Stage, ...]

    @cached_property
    def consumers(self) -> tuple[tuple[Consumer, ...], ...]:
        """Consumers of each stage, ordered by consuming stage, then by port."""
        found: list[list[Consumer]] = [[] for _ in self.stages]
        for index, stage in enumerate(self.stages):
            for port, source in enumerate(stage.sources):
                found[source].append(Consumer(index, port))
        return tuple(map(tuple, found))

    @cached_property
    def loss(self) -> int:
        """Index of the loss. Raises ValueError unless there is exactly one."""
        return self._only(SoftCrossLoss, "loss")

    @cached_property
    def output(self) -> int:
        """Index of the output stage. Raises ValueError unless there is exactly one."""
        return self._only(Output, "output")

    @cached_property
    def labels(self) -> int:
        """Index of the input that carries the labels."""
        return self.stages[self.loss].sources[LABELS_PORT]

    @cached_property
    def images(self) -> int:
        """Index of the input that carries the images. Raises ValueError unless there is exactly one."""
        found = [i for i, s in enumerate(self.stages) if isinstance(s.layer, Input) and i != self.labels]
        if len(found) != 1:
            raise ValueError(f"{self.name} has {len(found)} inputs besides the labels; training needs one")
        return found[0]

    @cached_property
    def at_host(self) -> bool:
        """True if the host's images, labels and results are here; false for any other part of a network."""
        return any(isinstance(stage.layer, Input) for stage in self.stages)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that determines the bits of training, and of the streams' widths."""
        text = [
            [s.name, s.layer.kind, asdict(s.layer), asdict(s.parallelism), s.sources, s.storage]
            for s in self.stages
        ]
        return _sha256(text)

    @cached_property
    def model_digest(self) -> str:
        """SHA-256 of the layers and their connections; it does not depend on the build."""
        return _sha256([[s.name, s.layer.kind, asdict(s.layer), s.sources] for s in self.stages])

    def _only(self, kind: type[Layer], title: str) -> int:
        found = [i for i, stage in enumerate(self.stages) if isinstance(stage.layer, kind)]
        if len(found) != 1:
            raise ValueError(f"{self.name} has {len(found)} layers of kind {title}; training needs one")
        return found[0]


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
