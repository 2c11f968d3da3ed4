"""What worker and node tests share: random jobs with the golden answer, and a bench of several parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from scipy import sparse

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.driver import NodeList
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.glm.golden import layout
from fanin.glm.golden.list_entries import decode_entries
from fanin.glm.golden.train import Epoch, train
from fanin.sim.glm.memories import node_lists, port_contents


@dataclass(frozen=True, kw_only=True)
class Job:
    """A data set of random numbers on some workers, and what training has to make of it."""

    seed: int
    node: GlmConfig
    workers: int = 1
    samples: int = 36
    columns: int = 22
    batch: int = 16
    precision: int = 3
    loss: Loss = Loss.LOGISTIC
    epochs: int = 2
    rate: float = 0.7
    decay: fixed.Decay = fixed.NO_DECAY
    vanilla: bool = False

    @cached_property
    def shape(self) -> TrainShape:
        return TrainShape(
            node=self.node,
            workers=self.workers,
            samples=self.samples,
            columns=self.columns,
            batch=self.batch,
            precision=self.precision,
            vanilla=self.vanilla,
        )

    @cached_property
    def learning_rate(self) -> fixed.LearningRate:
        return fixed.learning_rate(self.rate / self.batch)

    @cached_property
    def features(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        features = rng.integers(0, 1 << self.precision, (self.samples, self.columns)).astype(np.uint8)
        if self.node.sparse:
            features *= rng.random(features.shape) < rng.choice([0.0, 0.03, 0.3, 1.0])
        return features

    def contents(self, worker: int) -> list[np.ndarray]:
        """Contents of a node's memories: samples, labels, lists."""
        features = sparse.csr_matrix(self.features) if self.node.sparse else self.features
        return list(port_contents(self.shape, features, self.labels, worker))

    def lists(self, worker: int) -> list[NodeList]:
        """The lists of a sparse node, at address 0."""
        return node_lists(self.shape, sparse.csr_matrix(self.features), worker)

    @cached_property
    def labels(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed + 1)
        targets = (
            rng.normal(size=self.samples) if self.loss is Loss.LINEAR else rng.integers(0, 2, self.samples)
        )
        return fixed.labels(targets, self.loss, self.node.frac)

    @cached_property
    def golden(self) -> Epoch:
        """The end of the last epoch; ``clamps`` of all epochs."""
        ends = list(
            train(
                self.features,
                self.labels,
                self.shape,
                loss=self.loss,
                rate=self.learning_rate,
                epochs=self.epochs,
                decay=self.decay,
            )
        )
        return Epoch(ends[-1].model, sum(end.clamps for end in ends))

    def words(self, worker: int, engine: int) -> list[int]:
        """An engine's sample words of one epoch."""
        if self.node.sparse:
            halves = self.contents(worker)[2 * engine : 2 * engine + 2]
            words = np.concatenate([half.reshape(-1, self.node.port_bits // 8) for half in halves], axis=1)
        else:
            words = layout.pack_samples(self.features, self.shape, worker)[engine]
        return [int.from_bytes(word.tobytes(), "little") for word in words.reshape(-1, words.shape[-1])]

    def entries(self, worker: int, engine: int) -> list[dict[str, int]]:
        """A sparse engine's list of one epoch."""
        fields = decode_entries(self.contents(worker)[self.node.sample_ports + 1 + engine])._asdict()
        return [dict(zip(fields, map(int, entry), strict=True)) for entry in zip(*fields.values(), strict=True)]

    def label_vectors(self, worker: int) -> list[list[int]]:
        """As the worker takes them: those of a micro-batch in one or in several."""
        labels = layout.pack_labels(self.labels, self.shape, worker)
        return labels.reshape(-1, self.node.loss_lanes).tolist()

    def join(self, parts: Sequence[Any]) -> list[int]:
        """The model in column order from every worker's [engine][chunk][lane]."""
        return layout.join_model([np.asarray(part, dtype=np.int32) for part in parts], self.shape).tolist()


class Bench(wiring.Component):
    """Equal parts side by side, and a stream ``done`` with which a test process ends the test."""

    def __init__(self, *parts: wiring.Component):
        super().__init__(
            {
                "part": Out(parts[0].signature).array(len(parts)),
                "finish": In(1),
                "done": Out(stream.Signature(1)),
            }
        )
        self.part = list(parts)  # their own ports are the bench's

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.done.valid.eq(self.finish)
        for number, part in enumerate(self.part):
            m.submodules[f"part_{number}"] = part
        return m

    async def end(self, ctx):
        """Let ``done`` transfer once."""
        ctx.set(self.finish, 1)
        await ctx.tick().until(self.done.ready)
        ctx.set(self.finish, 0)
