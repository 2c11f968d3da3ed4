# amaranth: UnusedElaboratable=no
"""Training on W simulated GLM nodes: fills memories, writes registers, runs epochs, reads models back."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.fixed import NO_DECAY, Decay, LearningRate, Loss
from fanin.glm.driver import NodeDriver, NodeJob, NodeList, NodeMemories
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.glm.golden.layout import join_model, split_model
from fanin.glm.golden.lists import RowBlocks
from fanin.hbm import Hbm
from fanin.hdl.glm.node import GlmNode, NodeEvents, worker_class
from fanin.host.causes import explain
from fanin.job import SWITCH, Job, default_member
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import Deployment, default_deployment
from fanin.sim.cosim.cluster import Cluster, Reads, check_identities
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, PhaseResult, Progress, RunResult, Words
from fanin.sim.cosim.simulator import Group, SimulationFailed
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm.course import WHOLE_TRAINING, Course, Timeline, TrainRun
from fanin.sim.glm.memories import node_lists, port_contents
from fanin.sim.network import NetworkConfig
from fanin.sim.nic.outside import InterfaceSwitch
from fanin.sim.nic.pace import Pace
from fanin.sim.switch.base import Switch
from fanin.sim.switch.make import make_switch, make_tree
from fanin.sim.switch.operations import Operations, times_of
from fanin.sim.tree import SwitchTree
from fanin.tree import Tree
from fanin.wire.aggregation import AGGREGATION, Kind, header_length

Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

_EPOCH, _COUNT = "epoch ", "count"  # names of phases
MAX_JITTER_MEANS = 20  # longest delay of a host, in mean delays: one frame in 10^8 takes longer


class Cosim:
    """W nodes of ``config``, built once; each ``train`` is a separate run.

    - ``here``: workers whose nodes are simulated here; default: all.
    - ``hbm``: model of the memory with samples and labels; None: a constant latency.

    Raises InputError for a missing tool and for sizes that the nodes cannot hold.
    """

    def __init__(
        self,
        config: GlmConfig,
        *,
        workers: int,
        here: Sequence[int] = (),
        clock_mhz: float = CLOCK_MHZ,
        hbm: Hbm | None = None,
        wave: Waveform | None = None,
        quiet: bool = False,
    ):
        self.config = config
        self.workers = workers
        self.here = tuple(here) or tuple(range(workers))
        self.driver = NodeDriver(config)
        self._hbm = hbm
        engine = worker_class(config).engine_type.__name__
        separate_modules = (engine,) if config.engines > 1 else ()
        fields = ("kind", "job", "slot", "round")
        frames = FrameFormat(AGGREGATION, header_length(config.encap), fields, {"kind": Kind})
        self._cluster = Cluster(
            lambda: [Group(GlmNode(config=config), len(self.here), separate_modules, frames=frames)],
            clock_mhz=clock_mhz,
            wave=wave,
            quiet=quiet,
        )

    @property
    def verilog(self) -> str:
        """The simulated node's Verilog, as ``fanin verilog glm-node`` writes it."""
        return self._cluster.simulator.verilog[0]

    @property
    def digest(self) -> str:
        """SHA-256 of that Verilog."""
        return hashlib.sha256(self.verilog.encode()).hexdigest()

    def train(
        self,
        shape: TrainShape,
        features: Bytes | RowBlocks,
        labels: Int32,
        *,
        loss: Loss,
        rate: LearningRate,
        epochs: int,
        decay: Decay = NO_DECAY,
        network: NetworkConfig | None = None,
        course: Course = WHOLE_TRAINING,
        part: TrainShape | None = None,
        events: int = 20_000,
        models: bool = True,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> TrainRun:
        """Run ``epochs`` epochs from model 0; features are quantised, labels as by ``fanin.fixed.labels``.

        - ``course``: part of the training to run; of a course that begins later, only the remaining epochs run.
        - ``part``: smaller data set of features and labels, which memories repeat until they have as many
          micro-batches as ``shape``.
        - ``events``: greatest number of entries in the timeline.
        - ``models``: read models back, which takes about 5 cycles per weight.

        Raises SimulationFailed. Its message names the node that stopped, the cause, and the last step of each
        node's first packet. Its ``result`` is the result so far; see :meth:`partial`.
        """
        if shape.node != self.config or shape.workers != self.workers:
            raise ValueError("shape must be for these nodes and this number of workers")
        part = part or shape
        repeats, remainder = divmod(shape.micro_batches_per_epoch, part.micro_batches_per_epoch)
        if remainder:
            raise ValueError(f"part must be a whole share of {shape.micro_batches_per_epoch} micro-batches")
        network = network or NetworkConfig()
        deployment = deployment_of(self.program(network), course)
        (job,), program = deployment.jobs, deployment.program
        assert program is not None
        tree = tree_at(network, job)
        make: Callable[[], Switch | SwitchTree]
        if tree and not network.ports:
            make = functools.partial(make_tree, tree, kind=network.switch, config=program)
        else:
            make = functools.partial(self._switch(network, program), len(self.here))
        training = {"loss": loss, "rate": rate, "decay": decay}
        configure = [
            self._configure(
                shape,
                training,
                job,
                worker,
                network,
                course.model,
                tree,
                node_lists(shape, features, worker),
            )
            for worker in self.here
        ]
        phases: list[PhaseResult] = []

        def keep(raw: RunResult) -> None:
            phases.extend(raw.phases)
            if course.keep:
                course.keep(self._collect(replace(raw, phases=phases), shape))

        try:
            raw = self._cluster.run(
                memories=(port_contents(part, features, labels, worker) for worker in self.here),
                memory_repeats=repeats,
                hbm=self._hbm,
                phases=[
                    Phase("configure", configure),
                    *self._phases(self._epoch(shape, models), epochs, course),
                ],
                longest_wait=self._longest_wait(network),
                switch=make,
                jobs=[job],
                watch=Operations,
                paced=False,
                events=events,
                link=network.link,
                switch_ns=network.switch_ns,
                seed=network.seed,
                pcap=pcap,
                cuts=self._stop_times(network),
                progress=progress,
                keep=keep,
            )
        except SimulationFailed as failure:
            raise SimulationFailed(self._explain(failure), failure.result) from None
        return self._collect(raw, shape)

    def _phases(self, epoch: HostProgram, epochs: int, course: Course) -> Iterator[Phase]:
        """Yield the remaining epochs. At checkpoints and at the end no frame is in flight: counts add up."""
        nodes = len(self.here)
        count = HostProgram().extend(self.driver.counters().operations)
        for number in range(course.first + 1, epochs + 1):
            yield Phase(f"{_EPOCH}{number}", [epoch] * nodes)
            if number == epochs or course.is_checkpoint(number, epochs):
                yield Phase("end", [self._end()] * nodes)
                yield Phase(_COUNT, [count] * nodes, settled=True, kept=course.keep is not None)

    def _stop_times(self, network: NetworkConfig) -> tuple[tuple[int | str, int], ...]:
        """Return each link that stops, by worker or name of a switch, and its time in ps."""
        return tuple((name, round(seconds * 1e12)) for name, seconds in network.stops)

    def program(self, network: NetworkConfig) -> ProgramConfig:
        """Return the switch program for these nodes; its default deployment has the one job."""
        node = self.config
        slots = node.slots if network.slots is None else network.slots
        workers = network.tree.bits if network.tree else self.workers
        return ProgramConfig(
            protocol=node.protocol, workers=workers, slots=slots, values=node.values, encap=node.encap
        )

    def _switch(self, network: NetworkConfig, program: ProgramConfig) -> Callable[[int], Switch]:
        """Return the function that makes the switch from a number of ports."""
        if not network.ports:
            return network.make_switch or functools.partial(make_switch, kind=network.switch, config=program)
        if len(network.ports) != len(self.here):
            raise ValueError(f"ports must be {len(self.here)}, one for each node, not {len(network.ports)}")
        return functools.partial(InterfaceSwitch, names=network.ports, pace=Pace(network.slowdown))

    def _cycles(self, nanoseconds: float) -> int:
        return math.ceil(nanoseconds * 1000 / self._cluster.period_ps)

    def _longest_wait(self, network: NetworkConfig) -> int:
        """Return the longest wait of a healthy node, in cycles, if a packet is lost several times in a row."""
        trip = network.trip_ns(lambda link: link.late_ns + MAX_JITTER_MEANS * link.host_jitter_ns)
        return 4 * self._cycles(trip + network.ceiling_ns)

    def _configure(
        self,
        shape: TrainShape,
        training: dict[str, Any],
        job: Job,
        worker: int,
        network: NetworkConfig,
        model: Int32 | None,
        tree: Tree | None,
        lists: Sequence[NodeList],
    ) -> HostProgram:
        member, switch = default_member(worker), SWITCH
        if tree:
            member, switch = tree.workers[worker]
        node_job = NodeJob(
            id=job.id,
            base=job.base,
            slots=job.slots,
            member=member.bitmap,
            worker=worker,
            own=member.endpoint,
            switch=switch,
            timeout=self._cycles(network.ceiling_ns),
            adaptive=network.adaptive,
            retries=network.retries,
        )
        driver = self.driver
        memories = NodeMemories(samples=[0] * self.config.sample_ports, labels=0, lists=lists)
        program = HostProgram().extend(driver.identify().operations)
        settings = driver.configure(shape, **training, epochs=1, job=node_job, memories=memories)
        program.extend(settings.operations)
        program.extend(driver.command("clear_model", "clear_counters").operations)
        program.poll_field(driver.registers, "status", "busy", 0)
        if model is not None:
            program.extend(driver.write_model(split_model(model, shape, worker)).operations)
        return program

    def _epoch(self, shape: TrainShape, models: bool) -> HostProgram:
        driver = self.driver
        program = HostProgram().extend(driver.command("start").operations)
        program.poll_field(driver.registers, "status", "busy", 0)
        program.extend(driver.counters().operations)  # before the check, so that they are known if it fails
        program.check_field(driver.registers, "status", "failed", 0)
        return program.extend(driver.read_model(shape.chunks).operations) if models else program

    def _end(self) -> HostProgram:
        """Return a program that waits until the node has nothing in flight."""
        registers = self.driver.registers
        program = HostProgram().poll_field(registers, "status", "idle", 1)
        return program.check_field(registers, "status", "failed", 0)

    def _collect(self, raw: RunResult, shape: TrainShape) -> TrainRun:
        run = TrainRun(raw=raw, timeline=_timeline(raw))
        check_identities(self.driver, raw.phases[0].reads)
        old_cycles = [0] * len(self.here)
        for phase in raw.phases:
            if not phase.name.startswith(_EPOCH):
                continue
            parts = [self._read_back(words) for words in phase.reads]
            new_cycles = [counters["cycles"] for counters, _ in parts]
            run.cycles.append(max(b - a for a, b in zip(old_cycles, new_cycles, strict=True)))
            old_cycles = new_cycles
            weights = [part for _, part in parts]
            if not all(part.size for part in weights):
                continue  # models are not read back
            run.models.append(join_model(weights, shape, self.here))
            if shape.data_parallel:
                run.replicas_equal &= all(np.array_equal(weights[0], other) for other in weights[1:])
        run.counters = [self._read_back(words)[0] for words in raw.phases[-1].reads]
        run.allreduce_ns = np.array(times_of(raw).allreduce_cycles) * (self._cluster.period_ps / 1000)
        return run

    def partial(self, result: RunResult) -> TrainRun:
        """Return the result of a failed run; a node that had not read its counters has none."""

        def counters(reads: Reads) -> dict[str, int]:
            try:
                return self.driver.counters_of(reads.take(self.driver.counters()))
            except ValueError:
                return {}

        return TrainRun(raw=result, counters=[counters(Reads(words)) for words in result.last_reads])

    def _read_back(self, words: Words) -> tuple[dict[str, int], Int32]:
        """Return the counters and weights that an epoch's program has read."""
        reads = Reads(words)
        counters = self.driver.counters_of(reads.take(self.driver.counters()))
        return counters, self.driver.model_of(reads.remaining())

    def _explain(self, failure: SimulationFailed) -> str:
        """Return the node that stopped, the cause, and the last step of each node's first packet."""
        result = failure.result
        if result is None:
            return str(failure)
        cause = str(failure)
        check = result.failed_check
        if check is not None and check.address == self.driver.registers.offset("status"):
            status = self.driver.status_of(self.driver.status().results([check.value]))
            cause = f"node {self.here[check.node]} stopped at cycle {result.cycles}: {explain(status.cause)}"
        return "; ".join([cause, *first_packet_steps(result, self.here)])


def tree_at(network: NetworkConfig, job: Job) -> Tree | None:
    """Return the network's tree with id and slots of ``job``; None for a single switch."""
    return network.tree.with_job(job.id, job.base, job.slots) if network.tree else None


def deployment_of(program: ProgramConfig, course: Course) -> Deployment:
    """Return the deployment of a run: its course's job, with separate slots."""
    (job,) = default_deployment(program).jobs
    slots = 1 << (course.base + job.slots - 1).bit_length()
    deployment = default_deployment(replace(program, slots=max(program.slots, slots)))
    return replace(deployment, jobs=(replace(job, id=course.job, base=course.base),))


def first_packet_steps(result: RunResult, workers: Sequence[int]) -> list[str]:
    """Return a text for each of ``workers``: the last step that its node's first packet has reached."""
    return [
        f"node {worker}: {list(steps)[-1] if steps else 'not yet configured'}"
        for worker, steps in zip(workers, times_of(result).first_packet, strict=False)
    ]


def _timeline(raw: RunResult) -> Timeline:
    entries = raw.events
    layout = NodeEvents.as_shape()
    names = tuple(layout.members)
    cycle, node, event = [], [], []
    for index, name in enumerate(names):
        mask = entries["events"] >> np.uint64(layout[name].offset) & np.uint64(1) == 1
        cycle.append(entries["cycle"][mask])
        node.append(entries["node"][mask])
        event.append(np.full(mask.sum(), index, dtype=np.uint8))
    cycles, nodes, events = (np.concatenate(column) for column in (cycle, node, event))
    order = np.argsort(cycles, kind="stable")
    return Timeline(cycles[order], nodes[order], events[order], names)
