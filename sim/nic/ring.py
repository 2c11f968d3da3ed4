# amaranth: UnusedElaboratable=no
"""One node of a ring as RTL in Verilator, at a Linux interface; the other nodes are outside."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.net.link.job import RETRY_BITS
from fanin.hdl.ring.node import RingNode
from fanin.link import LinkConfig
from fanin.ring.driver import RingDriver, RingFindings, RingMember, RingStatus
from fanin.ring.facts import RingConfig
from fanin.sim.cosim.cluster import Cluster, Reads, check_identities
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, Progress
from fanin.sim.cosim.simulator import Group
from fanin.sim.nic.hosts import OutsideHosts
from fanin.sim.nic.outside import InterfaceSwitch
from fanin.sim.nic.pace import Pace
from fanin.sim.nic.stopping import Stop
from fanin.wire.ethernet import ETHERNET, Encap
from fanin.wire.fields import byte_length
from fanin.wire.link import LinkKind
from fanin.wire.ring import RING_LINK

Float32 = npt.NDArray[np.float32]

LINK = LinkConfig(delay_ns=100.0, gbps=100.0)  #: between the node and the interface
TIMEOUT = 20_000  #: cycles
#: The node's maximum: the host decides by the wall clock when to give up.
RETRIES = (1 << RETRY_BITS) - 1
_QUIET_CYCLES = 3 * TIMEOUT  # cycles without frames after which neighbours need no more answers
_PROGRESS = ("sent", "received", "stored")  # counters that grow with the all-reduce, not with waiting


def min_mtu(config: RingConfig) -> int:
    """Return the interface's least MTU in bytes: the longest frame without its Ethernet header."""
    beat_bytes = config.width // 8
    payload = config.frame_beats * beat_bytes
    size = RING_LINK.frame_bytes(LinkKind.DATA, payload, encap=Encap.L2, beat_bytes=beat_bytes)
    return size - byte_length(ETHERNET)


@dataclass(frozen=True)
class Reduced:
    """Result of a node; ``sum`` is None if the all-reduce did not end.

    - ``stuck``: the host gave up for lack of progress.
    - ``lost``: frames that the interface dropped.
    - ``seconds``: seconds of the wall clock.
    - ``findings``: the node's knowledge of its neighbours.
    """

    sum: Float32 | None
    status: RingStatus | None
    findings: RingFindings | None
    stuck: bool
    counters: dict[str, int]
    lost: int
    seconds: float
    simulated_seconds: float


class RingHosts(OutsideHosts):
    """Host of the node: waits for the sum, and then until the neighbours need no more answers.

    ``wait``: seconds of the wall clock without progress after which the host gives up.
    """

    def __init__(self, board: Board, driver: RingDriver, wait: float, stop: Stop):
        super().__init__(board, driver, nodes=1, stop=stop)
        self._status_batch, self._findings_batch = driver.wait(), driver.findings()
        self._counters_batch = driver.counters()
        self._reading = False
        self._wait, self._last_progress = wait, time.monotonic()
        self._quiet_since = 0
        self._last_counters: dict[str, int] = {}
        self.status: RingStatus | None = None
        self.findings: RingFindings | None = None
        self.stuck = False

    def begin(self) -> None:
        """Do nothing: the node already has its descriptor."""

    def poll(self) -> bool:
        """Read the node's progress."""
        if not self._reading:
            self._reading = True
            program = (
                HostProgram().extend(self._status_batch.operations).extend(self._findings_batch.operations)
            )
            program.extend(self._counters_batch.operations)
            self.board.run(0, program, self._take_reads)
        return False

    def _take_reads(self, reads: list[int]) -> None:
        self._reading = False
        words = Reads(np.array(reads))
        status = self.status = RingDriver.status_of(words.take(self._status_batch))
        self.findings = RingDriver.findings_of(words.take(self._findings_batch))
        counters = self.driver.counters_of(words.take(self._counters_batch))
        counters.pop("cycles")
        if any(counters[name] != self._last_counters.get(name) for name in _PROGRESS):
            self._last_progress = time.monotonic()
        if status.busy or counters != self._last_counters:
            self._last_counters, self._quiet_since = counters, self.board.cycle
        self.stuck = time.monotonic() > self._last_progress + self._wait
        is_quiet = self.board.cycle - self._quiet_since > _QUIET_CYCLES
        if self.stuck or is_quiet or not status.running:
            self.end()

    def may_skip(self) -> bool:
        """Return False: a timeout may be needed."""
        return False

    def waiting(self) -> str:
        """Return what the host waits for."""
        return f"for the sum, with {self.status}"

    def result(self) -> tuple[RingStatus | None, RingFindings | None, bool, dict[str, int]]:
        """Return status, findings, whether the host gave up for lack of progress, and counters."""
        return self.status, self.findings, self.stuck, self.counters[0]


class RingNodeCosim:
    """RTL node of a ring, built once; each run starts from reset. Raises InputError for a missing tool."""

    def __init__(self, config: RingConfig, *, clock_mhz: float = CLOCK_MHZ, quiet: bool = False):
        self.config, self.driver = config, RingDriver(config)
        self._cluster = Cluster(lambda: [Group(RingNode(config=config), 1)], clock_mhz=clock_mhz, quiet=quiet)

    def reduce(
        self,
        member: RingMember,
        vector: Float32,
        *,
        port: str,
        slowdown: float,
        wait: float,
        stop: Stop,
        progress: Callable[[Progress], None] | None = None,
    ) -> Reduced:
        """Add the vector to those of the other nodes, which are reached by the interface ``port``.

        Afterwards the node answers its neighbours until no frame has passed for several timeouts. It ends early
        if ``stop`` is requested, if the node has failed, and after ``wait`` seconds of the wall clock without
        progress. Raises SimulationFailed.
        """
        driver, pace = self.driver, Pace(slowdown)
        start = HostProgram().extend(driver.identify().operations)
        for batch in driver.configure(member), driver.start(), driver.post(0, vector.size):
            start.extend(batch.operations)
        memory = np.zeros(self.config.words(vector.size) * self.config.width // 8, np.uint8)
        memory[: vector.nbytes] = vector.view(np.uint8)
        raw = self._cluster.run(
            memories=[[memory]],
            phases=[Phase("start", [start])],
            longest_wait=0,
            switch=functools.partial(InterfaceSwitch, 1, names=[port], pace=pace),
            hosts=functools.partial(RingHosts, driver=driver, wait=wait, stop=stop),
            endless=True,
            link=LINK,
            switch_ns=0.0,
            progress=progress,
        )
        check_identities(driver, raw.phases[0].reads)
        status, findings, stuck, counters = raw.hosts
        ((final_memory,),) = raw.memories
        done = status is not None and status.completed == 1
        return Reduced(
            sum=final_memory[: vector.nbytes].view("<f4") if done else None,
            status=status,
            findings=findings,
            stuck=stuck,
            counters=counters,
            lost=raw.switch["lost"],
            seconds=raw.seconds,
            simulated_seconds=(raw.cycles * self._cluster.period_ps + raw.skipped_ps) * 1e-12,
        )
