# amaranth: UnusedElaboratable=no
"""Co-simulated nodes as a machine that trains a network."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fanin.base.errors import CheckFailed, InputError
from fanin.base.scratch import write_file
from fanin.cnn.driver import CnnDriver
from fanin.cnn.golden.image import state_image, state_of_image
from fanin.cnn.layers.arithmetic import Frames, State
from fanin.cnn.memory import BEAT_BYTES, state_stages
from fanin.cnn.page.trace import ClusterTrace
from fanin.cnn.parts import Part
from fanin.cnn.run.conditions import LOSSLESS, RELIABLE_L2, Conditions, Wires
from fanin.cnn.run.machine import Labels, NotFinite, Outputs, Progress, one_hot
from fanin.cnn.run.options import PUBLISHED
from fanin.cnn.training import Job
from fanin.hdl.emission import kept_verilog
from fanin.hdl.layers.components import ENDS, component_class
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.registers import Direction
from fanin.link import LinkConfig
from fanin.planner.plan.network import PlannedNetwork
from fanin.runs.output import DISSECTOR_FILE, LINK_LOG, PCAP_FILE
from fanin.runs.ranks import MeetingTimes
from fanin.sim.cnn.cosim import ClusterCosim, JobFailed, NodeRun
from fanin.sim.cnn.epochs import DeviceCounters, Epoch, EpochResult
from fanin.sim.cnn.hosts import Cut
from fanin.sim.cosim.arrays import Arith
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.dissector import link_dissector
from fanin.sim.link_log import read_link_log
from fanin.sim.pcap import append_capture
from fanin.wire.ethernet import Encap

HZ_PER_MHZ, BITS_PER_GBIT = 1e6, 1e9
_PORT_BITS = 8 * BEAT_BYTES  # bits per cycle of a memory port, in each direction
_JOB_BITS = 20  # bits of the job number in a seed
_PREFIX = "FANIN_CLUSTER_NODE"  # prefix of names in C headers


def parts_of(planned: PlannedNetwork) -> tuple[Part, ...]:
    """Return the part of the network on each device. Raises InputError for a network without hardware."""
    try:
        for stage in planned.network.stages:
            if not isinstance(stage.layer, ENDS):
                component_class(stage)
        return planned.placement.parts
    except ValueError as error:
        raise InputError(f"{planned.network.name}: {error}") from None


def write_verilog(folder: Path, nodes: Mapping[str, ClusterNode]) -> None:
    """Write the Verilog of each node, and a C header of its registers, as DEVICE.v and DEVICE.h."""
    folder.mkdir()
    for device, node in nodes.items():
        (folder / f"{device}.v").write_text(kept_verilog(node))
        (folder / f"{device}.h").write_text(node.register_map.c_header(_PREFIX))


class Rtl:
    """Co-simulated nodes as a ``Machine``. Each job loads the state into the nodes; training reads it back.

    All links have the rate of the plan's slowest link, and all memories that of its slowest memory.

    ``trained``: result of the last training job; None before it.
    ``traffic``: link counters of the last training job by device, as in ``RunResult.links``.
    ``trace``: timeline of all jobs.
    ``meetings``: meetings of the ranks in all jobs.
    ``links``: counters of each connection summed over all jobs, per device, by the connection's number.

    Raises InputError for a missing tool or a network without hardware, ToolFailed if the simulator does not
    build, and CheckFailed if a node fails.
    """

    def __init__(
        self,
        planned: PlannedNetwork,
        arithmetic: str,
        wires: Wires = RELIABLE_L2,
        conditions: Conditions = LOSSLESS,
    ):
        self._network = planned.network
        self.cosim = ClusterCosim(
            parts_of(planned),
            arith=Arith(arithmetic),
            clock_mhz=planned.clock / HZ_PER_MHZ,
            encap=Encap(wires.encap),
            published=wires.link == PUBLISHED,
            wave=conditions.wave,
        )
        self.link, self.memory_gbps = link_of(planned, conditions), memory_gbps_of(planned)
        self._conditions = conditions
        self._names = planned.placement.names
        self._jobs, self._frames, self._time = 0, 0, 0  # finished jobs, trained frames, simulated ps
        self.trace = ClusterTrace(planned.placement, self.cosim.period_ps)
        self.meetings = MeetingTimes()
        self._words: list[np.ndarray] = []
        self.trained: EpochResult | None = None
        self.traffic: list[dict[str, dict[str, int]]] = []
        self.links: list[dict[int, Counter[str]]] = [{} for _ in self._names]

    def load(self, states: tuple[State, ...]) -> None:
        """Set the network's state."""
        stages = self._network.stages
        self._words = [
            state_image(stages[i].layer, stages[i].parallelism, states[i]) for i in state_stages(self._network)
        ]

    def dump(self) -> tuple[State, ...]:
        """Return the network's state."""
        stages = self._network.stages
        states = [stage.layer.zero_state() for stage in stages]
        for index, words in zip(state_stages(self._network), self._words, strict=True):
            states[index] = state_of_image(stages[index].layer, stages[index].parallelism, words)
        return tuple(states)

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train in a single job."""
        result = self._carry_out(Epoch(job, images, one_hot(self._network, labels), dump=True))
        first = CnnDriver.first_nonfinite(result.streams)
        if first is not None and first.nonfinite is not None:
            part = "gradient" if first.stream.direction is Direction.BACKWARD else "output"
            raise NotFinite(self._network.stages[first.stream.stage].name, part, first.nonfinite)
        assert result.states is not None  # since ``dump`` is set
        self._words, self.trained = result.states, result
        self._frames += len(images)
        progress(len(images))
        return result.results

    def evaluate(self, images: Frames) -> Outputs:
        """Return the softmax of each frame; the state does not change."""
        labels = np.zeros(len(images), np.int64)  # ignored by evaluation
        return self._carry_out(Epoch(None, images, one_hot(self._network, labels))).results

    def _carry_out(self, epoch: Epoch) -> EpochResult:
        """Run a job in a new simulation, and add its counters and timeline to those of the run."""
        try:
            run = self._simulate(epoch)
        except JobFailed as error:
            self._count(error.devices)
            raise CheckFailed(str(error)) from error
        except SimulationFailed as error:
            raise CheckFailed(str(error)) from error
        (result,) = run.epochs
        if epoch.job:
            self.traffic = run.raw.links
        self.meetings.add(run.raw)
        self.trace.add_job(self._time, result)
        self._time += run.raw.cycles * self.cosim.period_ps
        self._count(result.devices)
        self._jobs += 1
        return result

    def _simulate(self, epoch: Epoch) -> NodeRun:
        """Simulate a job with the run's faults, and append its frames to the timeline and the capture."""
        settings: dict[str, Any] = {"link": self.link, "memory_gbps": self.memory_gbps, "cut": self._cut(epoch)}
        settings["seed"] = self._conditions.seed << _JOB_BITS | self._jobs
        capture = self._conditions.capture
        with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
            frames, links = Path(temporary) / PCAP_FILE, Path(temporary) / LINK_LOG
            settings |= {"pcap": frames if capture else None, "link_log": links}
            try:
                return self.cosim.run(self._words, [epoch], **settings)
            finally:
                self.trace.add_frames(self._time, read_link_log(links))
                if capture and frames.exists():
                    append_capture(capture, frames, start=self._time)
                    write_file(capture.parent / DISSECTOR_FILE, link_dissector())

    def _cut(self, epoch: Epoch) -> Cut | None:
        """Return the cut with results counted from this job's first; None if the job ends before the cut."""
        cut = self._conditions.cut
        if cut is None:
            return None
        frames_before = cut.frames - self._frames  # frames of this job before the cut
        if frames_before >= (epoch.job.frames if epoch.job else 0):
            return None
        device, *peer = (self._names.index(name) for name in cut.devices)
        return Cut(device, max(frames_before + 1, 0), *peer)

    def _count(self, devices: Sequence[DeviceCounters]) -> None:
        for totals, device in zip(self.links, devices, strict=True):
            for number, counters in device.links.items():
                totals.setdefault(number, Counter()).update(counters)


def link_of(planned: PlannedNetwork, conditions: Conditions) -> LinkConfig:
    """Return the configuration of a plan's links, at the slowest device's rate; the default for one device."""
    rates = [rates.network for rates in planned.rates.values() if rates.network]
    return conditions.link(min(rates) / BITS_PER_GBIT) if rates else LinkConfig()


def memory_gbps_of(planned: PlannedNetwork) -> float | None:
    """Return the slowest memory's rate per direction in Gbit/s; None if no memory is slower than its port."""
    rates = [rates.dram for rates in planned.rates.values() if rates.dram]
    slowest = min(rates, default=0)
    return slowest / BITS_PER_GBIT if 0 < slowest < planned.clock * _PORT_BITS else None
