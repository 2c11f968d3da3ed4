# amaranth: UnusedElaboratable=no
"""The nodes in co-simulation, as a machine that trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fanin.cli.cluster.machine import Labels, NotFinite, Outputs, Progress, one_hot
from fanin.cnn_memory import state_stages
from fanin.cnn_parts import Part
from fanin.cnn_training import Job
from fanin.errors import CheckFailed, InputError
from fanin.golden.cnn.image import state_image, state_of_image
from fanin.golden.cnn.state import Frames, State, zero_state
from fanin.hdl.emission import kept_verilog
from fanin.hdl.layers.components import ENDS, component_class
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.registers import Way
from fanin.host.cnn import CnnDriver
from fanin.planner.plan.network import PlannedNetwork
from fanin.sim.cnn.cosim import ClusterCosim
from fanin.sim.cnn.hosts import Epoch, EpochResult
from fanin.sim.cosim.arrays import Arith
from fanin.sim.cosim.simulator import SimulationFailed

HZ_PER_MHZ = 1e6
_PREFIX = "FANIN_CLUSTER_NODE"  # of names in C


def parts_of(planned: PlannedNetwork) -> tuple[Part, ...]:
    """What each device has of a network. Raises InputError for one that there is no hardware for."""
    try:
        for stage in planned.network.stages:
            if not isinstance(stage.layer, ENDS):
                component_class(stage)
        return planned.placement.parts
    except ValueError as error:
        raise InputError(f"{planned.network.name}: {error}") from None


def write_verilog(folder: Path, nodes: Mapping[str, ClusterNode]) -> None:
    """Nodes and their registers for C programs, as files called after the devices."""
    folder.mkdir()
    for device, node in nodes.items():
        (folder / f"{device}.v").write_text(kept_verilog(node))
        (folder / f"{device}.h").write_text(node.register_map.c_header(_PREFIX))


class Rtl:
    """The nodes in co-simulation, as a ``Machine``. Every call loads the state into them and reads it back.

    ``trained``: what came out of the last job that trained. Raises InputError for a missing tool and for a
    network without hardware, ToolFailed where the simulator cannot be built, CheckFailed where the node fails.
    """

    def __init__(self, planned: PlannedNetwork, arithmetic: str):
        self._network = planned.network
        clock_mhz = planned.clock / HZ_PER_MHZ
        self.cosim = ClusterCosim(parts_of(planned), arith=Arith(arithmetic), clock_mhz=clock_mhz)
        self._words: list[np.ndarray] = []
        self.trained: EpochResult | None = None

    def load(self, states: tuple[State, ...]) -> None:
        """Go on from a state."""
        stages = self._network.stages
        self._words = [
            state_image(stages[i].layer, stages[i].parallelism, states[i]) for i in state_stages(self._network)
        ]

    def dump(self) -> tuple[State, ...]:
        """The state now."""
        stages = self._network.stages
        found = [zero_state(stage.layer) for stage in stages]
        for index, words in zip(state_stages(self._network), self._words, strict=True):
            found[index] = state_of_image(stages[index].layer, stages[index].parallelism, words)
        return tuple(found)

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train: one job."""
        result = self._carry_out(Epoch(job, images, one_hot(self._network, labels), dump=True))
        first = CnnDriver.first_nonfinite(result.streams)
        if first is not None and first.nonfinite is not None:
            part = "gradient" if first.stream.way is Way.BACKWARD else "output"
            raise NotFinite(self._network.stages[first.stream.stage].name, part, first.nonfinite)
        assert result.states is not None  # they were asked for
        self._words, self.trained = result.states, result
        progress(len(images))
        return result.results

    def evaluate(self, images: Frames) -> Outputs:
        """Classify."""
        labels = np.zeros(len(images), np.int64)  # which evaluation takes no notice of
        return self._carry_out(Epoch(None, images, one_hot(self._network, labels))).results

    def _carry_out(self, epoch: Epoch) -> EpochResult:
        try:
            (result,) = self.cosim.run(self._words, [epoch]).epochs
        except SimulationFailed as error:
            raise CheckFailed(str(error)) from error
        return result
