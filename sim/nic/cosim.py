# amaranth: UnusedElaboratable=no
"""INCEPTIONN's NIC as RTL in Verilator, between two Linux interfaces, one as host and one as wire."""

from __future__ import annotations

import functools
from collections.abc import Callable

from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import Inceptionn
from fanin.hdl.codec.nic.nic import InceptionnNic
from fanin.inceptionn.driver import InceptionnDriver
from fanin.link import LinkConfig
from fanin.sim.cosim.cluster import Cluster, check_identities
from fanin.sim.cosim.run import Phase, Progress
from fanin.sim.cosim.simulator import Group
from fanin.sim.inceptionn.cosim import QUIET_CYCLES, configuration
from fanin.sim.nic.outside import InterfaceHosts, InterfaceSwitch
from fanin.sim.nic.pace import Pace
from fanin.sim.nic.served import NicResult
from fanin.sim.nic.stopping import Stop

LINK = LinkConfig(delay_ns=100.0, gbps=100.0)  #: between the NIC and the interface


class InceptionnNicCosim:
    """INCEPTIONN's NIC in RTL, built once; each run starts from reset. Raises InputError for a missing tool."""

    def __init__(self, *, clock_mhz: float = CLOCK_MHZ, quiet: bool = False):
        self.driver = InceptionnDriver()
        self._cluster = Cluster(lambda: [Group(InceptionnNic(), 1)], clock_mhz=clock_mhz, quiet=quiet)

    def serve(
        self,
        codec: Inceptionn,
        *,
        host: str,
        wire: str,
        slowdown: float,
        stop: Stop,
        progress: Callable[[Progress], None] | None = None,
    ) -> NicResult:
        """Carry frames until ``stop`` is requested; a simulated second takes at least ``slowdown`` seconds.

        ``progress`` is called a few times a second. Raises SimulationFailed, also if an interface disappears.
        """
        pace = Pace(slowdown)
        # The NIC has no memory. Frames come from outside at any time, so a run without progress is no error
        # (``endless``), and no limit on waits applies. Time is skipped only once no frame is inside the NIC
        # (``QUIET_CYCLES``). The interface ``wire`` takes the switch's place, so no switch adds a delay.
        raw = self._cluster.run(
            memories=[],
            phases=[Phase("configure", [configuration(self.driver, codec)])],
            longest_wait=0,
            switch=functools.partial(InterfaceSwitch, 1, names=[wire], pace=pace),
            hosts=functools.partial(InterfaceHosts, names=[host], driver=self.driver, pace=pace, stop=stop),
            quiet_cycles=QUIET_CYCLES,
            endless=True,
            link=LINK,
            switch_ns=0.0,
            progress=progress,
        )
        check_identities(self.driver, raw.phases[0].reads)
        (host_side,) = raw.hosts  # one NIC
        simulated_ps = raw.cycles * self._cluster.period_ps + raw.skipped_ps
        return NicResult(
            counters=host_side.counters,
            unaligned=host_side.unaligned,
            lost=host_side.lost + raw.switch["lost"],
            seconds=raw.seconds,
            simulated_seconds=simulated_ps * 1e-12,
        )
