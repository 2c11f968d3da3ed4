"""A cluster node trains in co-simulation: RTL and its memory in the engine, a live host that runs jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fanin.clock import CLOCK_MHZ
from fanin.cnn_memory import BEAT_BYTES, WORD_BYTES, MemoryMap
from fanin.cnn_training import Job
from fanin.errors import CheckFailed
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.registers import TIMEOUT, Failure, StageFifo
from fanin.host.cnn import CnnDriver, HostMemory, StreamCounters
from fanin.host.driver import Batch
from fanin.sim.cosim.arrays import OPERATORS, Arith
from fanin.sim.cosim.cluster import Cluster, Reads
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import MEMORY_LATENCY, Progress, RunResult
from fanin.sim.cosim.simulator import Group

Words = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Epoch:
    """Frames, and what is done with them: they train as ``job`` says, or are evaluated.

    ``images`` and one-hot ``labels``: one each for each index of the first axis.
    """

    job: Job | None
    images: Float32
    labels: Float32
    dump: bool = False  #: whether the parameters are read back behind it


@dataclass(frozen=True)
class EpochResult:
    """What came out of an epoch, carried out as ``job`` says."""

    job: Job | None
    results: Float32  #: the loss's softmax, a row for each frame
    written: list[int]  #: of each frame, the cycle in which its result was in memory
    counters: dict[str, int]  #: of the node, in the job
    streams: list[StreamCounters]  #: likewise, of each stream that leaves a stage
    fifos: dict[StageFifo, int]  #: the most that each FIFO has held in the job
    states: list[Words] | None = None  #: of each stage that has state, if they were asked for


@dataclass
class NodeRun:
    """What came out of a run."""

    epochs: list[EpochResult] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)


class NodeCosim:
    """A node, built once; each ``run`` begins anew. Arrays are simulated as ``arith`` says.

    As RTL, each operator is an instance of one model: hundreds in the node's model are too many for a compiler.
    Raises InputError for a missing tool.
    """

    def __init__(
        self,
        node: ClusterNode,
        *,
        arith: Arith = Arith.C,
        clock_mhz: float = CLOCK_MHZ,
        quiet: bool = False,
    ):
        self._node = node
        group = Group(node, arith=arith, apart=OPERATORS if arith is Arith.RTL else ())
        self._cluster = Cluster(lambda: [group], clock_mhz=clock_mhz, quiet=quiet)

    def run(
        self,
        states: Sequence[Words],
        epochs: Sequence[Epoch],
        *,
        timeout: int = TIMEOUT,
        memory_latency: int = MEMORY_LATENCY,
        memory_gbps: float | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> NodeRun:
        """Load the words of each stage that has state, then carry out the epochs.

        ``timeout`` is the node's, in cycles; ``memory_gbps`` bounds the memory each way, if it is given;
        ``progress`` counts epochs. Raises SimulationFailed when the node fails a job, or the run cannot go on.
        """
        frames = max(len(epoch.images) for epoch in epochs)
        memory_map = MemoryMap(self._node.network, frames=frames, rings=self._node.rings)
        content = np.zeros(memory_map.end, np.uint8)
        HostMemory(memory_map, content).write_parameters(states)
        raw = self._cluster.run(
            memories=[[content]],
            phases=[],
            longest_wait=2 * timeout,
            hosts=functools.partial(_NodeHost, memory_map=memory_map, epochs=epochs, timeout=timeout),
            memory_latency=memory_latency,
            memory_gbps=memory_gbps,
            quiet_cycles=2 * memory_latency,
            progress=progress,
        )
        return NodeRun(raw.hosts, raw)


class _NodeHost:
    """The live host of one node: loads it, then carries out one epoch after the other."""

    def __init__(self, board: Board, *, memory_map: MemoryMap, epochs: Sequence[Epoch], timeout: int):
        self._board, self._epochs, self._timeout = board, epochs, timeout
        self._driver = CnnDriver(memory_map)
        self._memory = HostMemory(memory_map, board.memory(0))
        self._found: list[EpochResult] = []
        self._written: list[int] = []  # cycles in which the epoch's results came

    @property
    def done(self) -> bool:
        """Whether all epochs have been carried out."""
        return len(self._found) == len(self._epochs)

    @property
    def progress(self) -> int:
        """Epochs that have been carried out."""
        return len(self._found)

    def may_skip(self) -> bool:
        """Never: the node is always at work."""
        return False

    def waiting(self) -> str:
        """Which epoch is under way."""
        return f"epoch {len(self._found) + 1} of {len(self._epochs)} is under way"

    def result(self) -> list[EpochResult]:
        """What came out."""
        return self._found

    def start(self) -> None:
        """See that the node is the right one, and load it."""
        driver, memory_map = self._driver, self._driver.memory_map
        program = HostProgram().extend(driver.identify().operations)
        program.extend(driver.configure(timeout=self._timeout).operations)
        self._board.run(0, program, self._identified)
        results, size = memory_map.region("results").address, memory_map.results.beats * BEAT_BYTES
        for frame in range(memory_map.frames):
            last = results + frame * size + WORD_BYTES * memory_map.results.words - 1
            self._board.watch(0, last, lambda: self._written.append(self._board.cycle))

    def _identified(self, words: list[int]) -> None:
        self._driver.check_identity(self._driver.identify().results(words))
        self._carry_out(self._driver.load(), lambda reads: self._next())

    def _next(self) -> None:
        """Begin the next epoch, if there is one."""
        if not self.done:
            epoch, driver = self._epochs[len(self._found)], self._driver
            self._memory.write_frames(epoch.images, epoch.labels)
            self._written = []
            job = driver.train(epoch.job) if epoch.job else driver.evaluate(len(epoch.images))
            self._carry_out(job, functools.partial(self._ended, epoch))

    def _ended(self, epoch: Epoch, reads: Reads) -> None:
        """An epoch is over; what it has left is read, and dumped if that is asked for."""
        driver = self._driver
        result = EpochResult(
            job=epoch.job,
            results=self._memory.read_results(len(epoch.images)),
            written=self._written,
            counters=driver.counters_of(reads.take(driver.counters())),
            streams=driver.streams_of(reads.take(driver.streams())),
            fifos=driver.fifos_of(reads.take(driver.fifos())),
        )
        if epoch.dump:
            self._carry_out(driver.dump(), lambda reads: self._keep(result, self._memory.read_parameters()))
        else:
            self._keep(result, None)

    def _keep(self, result: EpochResult, states: list[Words] | None) -> None:
        self._found.append(replace(result, states=states))
        self._next()

    def _carry_out(self, job: Batch, then: Callable[[Reads], None]) -> None:
        """Have the node do a job; ``then`` gets what counters read. Raises CheckFailed if the node fails."""
        driver = self._driver
        program = HostProgram().extend(job.operations)
        program.poll_field(driver.registers, "status", "running", 0)
        for batch in driver.wait(), driver.counters(), driver.streams(), driver.fifos():
            program.extend(batch.operations)

        def ended(words: list[int]) -> None:
            reads = Reads(np.array(words, np.uint32))
            status = driver.status_of(reads.take(driver.wait()))
            if status.cause is not Failure.NONE:
                raise CheckFailed(f"the node failed by cycle {self._board.cycle}: {driver.explain(status)}")
            then(reads)

        self._board.run(0, program, ended)
