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
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import Connection, Ending, RdmaConfig, Region, Write
from fanin.sim.cosim.cluster import Cluster, check_identities
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, Progress
from fanin.sim.cosim.simulator import Group
from fanin.sim.network import LinkConfig
from fanin.sim.nic.address import Address
from fanin.sim.nic.control import ControlServer
from fanin.sim.nic.hosts import OutsideHosts
from fanin.sim.nic.outside import InterfaceSwitch
from fanin.sim.nic.pace import Pace
from fanin.sim.nic.rdma_control import RdmaControl
from fanin.sim.nic.rdma_settings import RdmaSettings
from fanin.sim.nic.served import Served
from fanin.sim.nic.stopping import Stop
from fanin.sim.rdma.cosim import post
from fanin.wire.ethernet import Endpoint

LINK = LinkConfig(delay_ns=100.0, gbps=100.0)  #: between the node and the interface
_ARRIVES_CYCLES = 20_000  # cycles after a frame in which the node is polled for a message that the frame ended


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
        self._seen = 0  # frames passed at the last look
        self._look_until = 0  # cycle until which the node is polled
        self._tag = 0

    # ---- requests of the control socket ----

    def connect(self, index: int, connection: Connection, peer: Endpoint, then: Callable[[], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        program = HostProgram().extend(self._driver.connect(index, connection, peer).operations)
        program.poll_field(self._driver.registers, "status", "connecting", 0)
        self._unposted = deque(
            (pair, None if pair == index else write, ended) for pair, write, ended in self._unposted
        )
        self._run(program, lambda reads: then())

    def set_regions(self, regions: Sequence[Region], then: Callable[[], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        program = HostProgram().extend(self._driver.set_regions(regions).operations)
        self._run(program, lambda reads: then())

    def post(self, index: int, write: Write, then: Callable[[Ending], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`; the write waits here while the node has no room."""
        self._unposted.append((index, write, then))
        self._post_more()

    def read_counters(self, then: Callable[[dict[str, int]], object]) -> None:
        """See :class:`fanin.sim.nic.rdma_control.Node`."""
        batch = self._driver.counters()
        program = HostProgram().extend(batch.operations)
        self._run(program, lambda reads: then(self._driver.counters_of(batch.results(reads))))

    # ---- interface of live hosts ----

    def begin(self) -> None:
        """Set the regions and peers of the settings."""
        self._control.begin()

    def look(self) -> bool:
        """Serve requests; then poll for completions and messages while any may come."""
        asked = self._server.serve() if self._server else False
        self._control.serve()
        self.progress = 1 + self._address.passed
        if self._address.passed != self._seen:
            self._seen = self._address.passed
            self._look_until = self.board.cycle + _ARRIVES_CYCLES
        expected = self._outstanding > 0 or self.board.cycle < self._look_until
        if expected and not self._programs:
            self._poll()
        return expected or asked

    def may_skip(self) -> bool:
        """Return whether no timeout may be needed."""
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

    def _run(self, program: HostProgram, then: Callable[[list[int]], object]) -> None:
        def ended(reads: list[int]) -> None:
            self._programs -= 1
            then(reads)

        self._programs += 1
        self.board.run(0, program, ended)

    def _post_more(self) -> None:
        """Post as many writes as the node has room for, in order, so that no program waits for room."""
        while self._unposted and self._outstanding < COMPLETIONS:
            index, write, then = self._unposted[0]
            posted = self._posted[index]
            if len(posted) == self._limit or (write is None and posted):
                return
            self._unposted.popleft()
            if write is None:
                then(Ending.FLUSHED)
                continue
            self._tag = (self._tag + 1) % (1 << TAG_BITS)
            program = HostProgram()
            post(self._driver, program, index, Write(**{**vars(write), "tag": self._tag}))
            posted.append(then)
            self._run(program, lambda reads: None)

    def _poll(self) -> None:
        """Poll for a completion or a message; take what is found, and poll again."""
        batch = self._driver.batch().read("completion").read("arrival")

        def found(reads: list[int]) -> None:
            completion, arrival = batch.results(reads)
            assert isinstance(completion, dict)
            assert isinstance(arrival, dict)
            if completion["completed"]:
                self._take(self._driver.take_completion(), self._completed)
            if arrival["arrived"]:
                self._take(self._driver.take_arrival(), self._arrived)
            if completion["completed"] or arrival["arrived"]:
                self._poll()

        self._run(HostProgram().extend(batch.operations), found)

    def _take(self, batch: Batch, then: Callable[[Batch, list[int]], None]) -> None:
        self._run(HostProgram().extend(batch.operations), functools.partial(then, batch))

    def _completed(self, batch: Batch, reads: list[int]) -> None:
        completed = self._driver.completion_of(batch.results(reads))
        self._posted[completed.index].popleft()(completed.ending)
        self._post_more()

    def _arrived(self, batch: Batch, reads: list[int]) -> None:
        self._control.arrived(self._driver.arrival_of(batch.results(reads)))


class RdmaNicCosim:
    """A node, built once; each run starts from reset. Raises InputError for a missing tool."""

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
    ) -> Served:
        """Serve writes in both directions until ``stop`` is requested; time runs as for INCEPTIONN's NIC.

        ``progress`` counts, as operations, frames and one for the start. Raises SimulationFailed.
        """
        pace, address = Pace(slowdown), Address(settings.own)
        driver = self.driver
        configure = HostProgram().extend(driver.identify().operations)
        configure.extend(driver.configure(settings.own).operations)
        raw = self._cluster.run(
            memories=[[settings.opened or settings.memory]],
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
        return Served(raw.hosts, 0, raw.switch["lost"], raw.seconds, simulated)
