# amaranth: UnusedElaboratable=no
"""Node of one-sided writes as RTL in Verilator, at a Linux interface, with a control socket."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence

from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.rdma.node import COMPLETIONS, RdmaNode
from fanin.hdl.rdma.queue_pair import TAG_BITS
from fanin.host.driver import Batch
from fanin.link import LinkConfig
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import Connection, Ending, RdmaConfig, Region, Write
from fanin.sim.cosim.cluster import Cluster, check_identities
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, Progress
from fanin.sim.cosim.simulator import Group
from fanin.sim.nic.address import Address
from fanin.sim.nic.control import ControlServer
from fanin.sim.nic.hosts import OutsideHosts
from fanin.sim.nic.outside import InterfaceSwitch
from fanin.sim.nic.pace import Pace
from fanin.sim.nic.rdma_control import RdmaControl
from fanin.sim.nic.rdma_settings import RdmaSettings
from fanin.sim.nic.served import NicResult
from fanin.sim.nic.stopping import Stop
from fanin.sim.rdma.cosim import post
from fanin.wire.ethernet import Endpoint

LINK = LinkConfig(delay_ns=100.0, gbps=100.0)  #: between the node and the interface
_ARRIVAL_POLL_CYCLES = 20_000  # cycles after a frame in which the node is polled for a message that it ended


class RdmaHosts(OutsideHosts):
    """The node's host: carries out requests from the control socket, and takes completions and messages."""

    def __init__(self, board: Board, settings: RdmaSettings, address: Address, pace: Pace, stop: Stop):
        super().__init__(board, RdmaDriver(settings.config), nodes=1, stop=stop)
        self._driver: RdmaDriver = self.driver  # type: ignore[assignment]
        self._limit = settings.config.descriptors
        self._address = address
        self._control = RdmaControl(self, settings, address, kind="rtl")
        self._server = ControlServer(settings.control, self._control.handle) if settings.control else None
        if self._server:
            pace.watch(self._server.fileno())
        self._posted: list[deque[Callable[[Ending], object]]] = [
            deque() for _ in range(settings.config.queue_pairs)
        ]
        # A write is None after its queue pair was reconnected: it ends in its turn, flushed.
        self._unposted: deque[tuple[int, Write | None, Callable[[Ending], object]]] = deque()
        self._programs = 0  # unfinished programs
        self._frames_seen = 0  # frames passed to the node until the last poll
        self._poll_until = 0  # cycle until which the node is polled
        self._tag = 0

    # ---- requests of the control socket ----

    def connect(
        self, index: int, connection: Connection, peer: Endpoint, on_done: Callable[[], object]
    ) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        program = HostProgram().extend(self._driver.connect(index, connection, peer).operations)
        program.poll_field(self._driver.registers, "status", "connecting", 0)
        self._unposted = deque(
            (pair, None if pair == index else write, on_end) for pair, write, on_end in self._unposted
        )
        self._run(program, lambda reads: on_done())

    def set_regions(self, regions: Sequence[Region], on_done: Callable[[], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        program = HostProgram().extend(self._driver.set_regions(regions).operations)
        self._run(program, lambda reads: on_done())

    def post(self, index: int, write: Write, on_done: Callable[[Ending], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`; the write is queued while the node has no free slot."""
        self._unposted.append((index, write, on_done))
        self._post_more()

    def read_counters(self, on_done: Callable[[dict[str, int]], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        batch = self._driver.counters()
        program = HostProgram().extend(batch.operations)
        self._run(program, lambda reads: on_done(self._driver.counters_of(batch.results(reads))))

    # ---- interface of live hosts ----

    def begin(self) -> None:
        """Set the regions and peers of the settings."""
        self._control.begin()

    def poll(self) -> bool:
        """Serve requests; then poll the node for completions and messages while any may come."""
        had_requests = self._server.serve() if self._server else False
        self._control.serve()
        self.progress = 1 + self._address.passed
        if self._address.passed != self._frames_seen:
            self._frames_seen = self._address.passed
            self._poll_until = self.board.cycle + _ARRIVAL_POLL_CYCLES
        expected = self._outstanding > 0 or self.board.cycle < self._poll_until
        if expected and not self._programs:
            self._poll_node()
        return expected or had_requests

    def may_skip(self) -> bool:
        """Return whether no write is unfinished, so that no timeout may expire."""
        return not self._outstanding and not self._unposted

    def waiting(self) -> str:
        """Return what the host waits for."""
        return f"for requests and frames; {self._outstanding} writes are unfinished"

    def result(self) -> dict[str, int]:
        """Return the counters."""
        if self._server:
            self._server.close()
        return self.counters[0]

    # ---- programs ----

    @property
    def _outstanding(self) -> int:
        return sum(map(len, self._posted))

    def _run(self, program: HostProgram, on_done: Callable[[list[int]], object]) -> None:
        def finish(reads: list[int]) -> None:
            self._programs -= 1
            on_done(reads)

        self._programs += 1
        self.board.run(0, program, finish)

    def _post_more(self) -> None:
        """Post as many writes as the node has free slots, in order, so that no program waits for a slot."""
        while self._unposted and self._outstanding < COMPLETIONS:
            index, write, on_done = self._unposted[0]
            posted = self._posted[index]
            if len(posted) == self._limit or (write is None and posted):
                return
            self._unposted.popleft()
            if write is None:
                on_done(Ending.FLUSHED)
                continue
            self._tag = (self._tag + 1) % (1 << TAG_BITS)
            program = HostProgram()
            post(self._driver, program, index, Write(**{**vars(write), "tag": self._tag}))
            posted.append(on_done)
            self._run(program, lambda reads: None)

    def _poll_node(self) -> None:
        """Read whether a completion or a message waits; take both, and read again."""
        batch = self._driver.batch().read("completion").read("arrival")

        def take(reads: list[int]) -> None:
            completion, arrival = batch.results(reads)
            assert isinstance(completion, dict)
            assert isinstance(arrival, dict)
            if completion["completed"]:
                self._take(self._driver.take_completion(), self._end_write)
            if arrival["arrived"]:
                self._take(self._driver.take_arrival(), self._add_arrival)
            if completion["completed"] or arrival["arrived"]:
                self._poll_node()

        self._run(HostProgram().extend(batch.operations), take)

    def _take(self, batch: Batch, on_done: Callable[[Batch, list[int]], None]) -> None:
        self._run(HostProgram().extend(batch.operations), functools.partial(on_done, batch))

    def _end_write(self, batch: Batch, reads: list[int]) -> None:
        completed = self._driver.completion_of(batch.results(reads))
        self._posted[completed.index].popleft()(completed.ending)
        self._post_more()

    def _add_arrival(self, batch: Batch, reads: list[int]) -> None:
        self._control.add_arrival(self._driver.arrival_of(batch.results(reads)))


class RdmaNicCosim:
    """RTL node at an interface, built once; each run starts from reset. Raises InputError without its tools."""

    def __init__(self, config: RdmaConfig, *, clock_mhz: float = CLOCK_MHZ, quiet: bool = False):
        self.driver = RdmaDriver(config)
        self._cluster = Cluster(lambda: [Group(RdmaNode(config=config), 1)], clock_mhz=clock_mhz, quiet=quiet)

    def serve(
        self,
        settings: RdmaSettings,
        *,
        slowdown: float,
        stop: Stop,
        progress: Callable[[Progress], None] | None = None,
    ) -> NicResult:
        """Serve writes in both directions until ``stop`` is requested.

        A simulated second takes at least ``slowdown`` seconds. ``progress`` is called a few times a second; its
        ``operations`` are 1 plus the frames passed to the node. Raises SimulationFailed.
        """
        pace, address = Pace(slowdown), Address(settings.endpoint)
        driver = self.driver
        configure = HostProgram().extend(driver.identify().operations)
        configure.extend(driver.configure(settings.endpoint).operations)
        raw = self._cluster.run(
            memories=[[settings.checked_memory or settings.memory]],
            phases=[Phase("configure", [configure])],
            longest_wait=0,
            switch=functools.partial(InterfaceSwitch, 1, names=[settings.port], pace=pace, address=address),
            hosts=functools.partial(RdmaHosts, settings=settings, address=address, pace=pace, stop=stop),
            endless=True,
            link=LINK,
            switch_ns=0.0,
            progress=progress,
        )
        check_identities(driver, raw.phases[0].reads)
        simulated = (raw.cycles * self._cluster.period_ps + raw.skipped_ps) * 1e-12
        return NicResult(raw.hosts, 0, raw.switch["lost"], raw.seconds, simulated)
