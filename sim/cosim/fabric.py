"""Network of a run at rank 0: switch, links, capture and link log."""

from __future__ import annotations

import contextlib

from fanin.base.errors import InputError, ToolFailed
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange
from fanin.sim.cosim.run import RunRequest, RunResult
from fanin.sim.link_log import LinkLogWriter
from fanin.sim.network import Network
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.base import OutsideSwitch


class Fabric:
    """Switch, links and log files of one run, made in the process of rank 0.

    Raises ToolFailed and InputError if the switch does not start, or cannot serve several ranks.
    """

    def __init__(self, request: RunRequest, clock: Clock):
        self._request = request
        self._pcap = PcapWriter(request.pcap) if request.pcap else None
        self._link_log = LinkLogWriter(request.link_log) if request.link_log else None
        self._switch = request.switch()
        if len(request.shares) > 1 and isinstance(self._switch, OutsideSwitch):
            raise InputError("several ranks: the switch must be in the simulation, not outside")
        for job in request.jobs:
            self._switch.add_job(job)
        self._network = Network(
            switch=self._switch,
            ports=request.nodes,
            link=request.link,
            switch_ns=request.switch_ns,
            seed=request.seed,
            capture=self._pcap.write if self._pcap else None,
            log=self._link_log,
            cuts=dict(request.cuts),
        )
        self.exchange = Exchange(self._network, clock, request.watch(request.nodes))

    def finish(self, result: RunResult) -> None:
        """Close files, and collect counters."""
        self._network.close()
        if self._pcap:
            self._pcap.close()
        if self._link_log:
            self._link_log.close()
        self.count(result)

    def count(self, result: RunResult) -> None:
        """Collect the counters so far."""
        exchange = self.exchange
        result.frames = dict(exchange.watch.sent)
        result.links = self._network.statistics()
        result.watched = exchange.watched(result.cycles)
        with contextlib.suppress(ToolFailed, InputError):  # the switch itself may have failed
            result.switch = self._switch.counters().as_dict()
            result.jobs = {job.id: self._switch.job_counters(job.id).as_dict() for job in self._request.jobs}
