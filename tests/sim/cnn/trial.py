"""Small networks on several devices, with data and what the golden model makes of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.memory import state_stages
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.training import Job
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import unplanned
from fanin.sim.cnn.cosim import ClusterCosim
from fanin.sim.cnn.epochs import Epoch

FRAMES = 11


@dataclass(frozen=True)
class Trial:
    """A network, and the device of each of its stages; its two epochs, and an evaluation between them."""

    name: str
    devices: str
    frames: int = FRAMES

    @cached_property
    def network(self):
        return EXAMPLES.get(self.name) or unplanned(load_model(self.name))

    @property
    def jobs(self):
        job = Job.of(self.frames, 4, 0.5, 0.9)
        return job, None, job

    @cached_property
    def placement(self):
        return PlacedNetwork(self.network, tuple(self.devices))

    @cached_property
    def cosim(self):
        return ClusterCosim(self.placement.parts, quiet=True)

    @cached_property
    def data(self):
        rng = np.random.default_rng(5)
        shape = self.network.stages[self.network.images].layer.output
        classes = self.network.stages[self.network.labels].layer.output.words
        images = rng.standard_normal((self.frames, shape.h, shape.w, shape.c)).astype(np.float32)
        return images, np.eye(classes, dtype=np.float32)[rng.integers(0, classes, self.frames)]

    def words(self, states):
        stages = self.network.stages
        return [
            state_image(stages[i].layer, stages[i].parallelism, states[i]) for i in state_stages(self.network)
        ]

    @cached_property
    def states(self):
        return initial_state(self.network, 1)

    @cached_property
    def expected(self):
        """Results and states behind each epoch of ``run``, by the golden model."""
        golden, found = GoldenNetwork(self.network, self.states), []
        for job in self.jobs:
            results = golden.train(*self.data, job) if job else golden.evaluate(self.data[0])
            found.append((results.reshape(self.frames, -1), self.words(golden.states)))
        return found

    def run(self, **settings):
        epochs = [Epoch(job, *self.data, dump=True) for job in self.jobs]
        return self.cosim.run(self.words(self.states), epochs, **{"timeout": 200_000} | settings)

    def check(self, **settings):
        """All bits are the golden model's. Returns the epochs."""
        epochs = self.run(**settings).epochs
        for epoch, (results, states) in zip(epochs, self.expected, strict=True):
            assert np.array_equal(epoch.results.view(np.uint32), results.view(np.uint32))
            assert all(map(np.array_equal, epoch.states, states))
        return epochs


THREE = Trial("tiny", "aaabcaaaaa")  # conv at the host's, then bias, then relu
