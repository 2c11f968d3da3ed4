"""Network of a run at rank 0: switch, links, capture and link log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError, ToolFailed
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange
from fanin.sim.cosim.run import RunRequest, RunResult
from fanin.sim.link_log import LinkLogWriter
from fanin.sim.network import Network
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.base import OutsideSwitch
from fanin.sim.tree import Capture, SwitchTree, TreeNetwork


class Fabric:
    """Switch, links and log files of one run, made in the process of rank 0.

    Raises ToolFailed and InputError if the switch does not start, or cannot serve several ranks.
    """

    def __init__(self, request: RunRequest, clock: Clock):
        self._request = request
        self._pcaps: list[PcapWriter] = []
        self._link_log = LinkLogWriter(request.link_log) if request.link_log else None
        self._switch = request.switch()
        if len(request.shares) > 1 and isinstance(self._switch, OutsideSwitch):
            raise InputError("several ranks: the switch must be in the simulation, not outside")
        settings: dict[str, Any] = {
            "link": request.link,
            "switch_ns": request.switch_ns,
            "seed": request.seed,
            "log": self._link_log,
            "cuts": dict(request.cuts),  # names only for a tree
        }
        self._network: Network
        if isinstance(self._switch, SwitchTree):
            captures = self._captures_of(self._switch)
            self._network = TreeNetwork(tree=self._switch, captures=captures, **settings)
        else:
            for job in request.jobs:
                self._switch.add_job(job)
            capture = self._open_capture(request.pcap) if request.pcap else None
            self._network = Network(switch=self._switch, ports=request.nodes, capture=capture, **settings)
        self.exchange = Exchange(self._network, clock, request.watch(request.nodes))

    def _open_capture(self, path: Path) -> Capture:
        self._pcaps.append(PcapWriter(path))
        return self._pcaps[-1].write

    def _captures_of(self, tree: SwitchTree) -> list[Capture]:
        """Open a capture for each switch: the root's in the request's file, others' beside it by name."""
        pcap = self._request.pcap
        if not pcap:
            return []
        paths = [pcap, *(pcap.with_stem(f"{pcap.stem}-{part.name}") for part in tree.tree.switches[1:])]
        return [self._open_capture(path) for path in paths]

    def finish(self, result: RunResult) -> None:
        """Close files, and collect counters."""
        self._network.close()
        for pcap in self._pcaps:
            pcap.close()
        if self._link_log:
            self._link_log.close()
        self.count(result)

    def count(self, result: RunResult) -> None:
        """Collect the counters so far."""
        exchange = self.exchange
        result.frames = dict(exchange.watch.sent)
        result.links = self._network.statistics()
        result.watched = exchange.watched(result.cycles)
        if isinstance(self._switch, SwitchTree):
            assert isinstance(self._network, TreeNetwork)
            result.switches, result.trunks = self._switch.counters(), self._network.trunk_statistics()
            return
        with contextlib.suppress(ToolFailed, InputError):  # the switch itself may have failed
            result.switch = self._switch.counters().as_dict()
            result.jobs = {job.id: self._switch.job_counters(job.id).as_dict() for job in self._request.jobs}
