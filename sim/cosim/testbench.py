"""The simulator's process: cocotb starts here. It wakes when the top changes ``wake``, once per frame."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ValueChange

from fanin.errors import CheckFailed, InputError, ToolFailed
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange, Step
from fanin.sim.cosim.library import Library
from fanin.sim.cosim.live import Board, LiveHosts, LiveRun, SimulationError
from fanin.sim.cosim.run import Phase, PhaseResult, RunRequest, RunResult
from fanin.sim.link_log import LinkLogWriter
from fanin.sim.network import Network
from fanin.sim.pcap import PcapWriter

REQUEST = "FANIN_COSIM_REQUEST"  # pickle of a RunRequest
RESULT = "FANIN_COSIM_RESULT"  # where the pickle of the RunResult goes
PROGRESS = "FANIN_COSIM_PROGRESS"  # file descriptor that gets lines of a Progress' numbers
_REPORT_SECONDS = 0.2
_SETTLE_CYCLES = 64  # after which the MACs are asked again whether they hold a frame


class Session:
    """One run: the phases, then the live hosts, with the network."""

    def __init__(self, request: RunRequest, library: Library, wake: Callable[[], Awaitable[Any]]):
        self.request, self.library, self._wake = request, library, wake
        self.result = RunResult()
        self._reported = time.monotonic()
        self._hosts: LiveHosts | None = None
        self._pcap = PcapWriter(request.pcap) if request.pcap else None
        self._link_log = LinkLogWriter(request.link_log) if request.link_log else None
        self.switch = request.switch()
        for job in request.jobs:
            self.switch.add_job(job)
        self.network = Network(
            switch=self.switch,
            ports=request.nodes,
            link=request.link,
            switch_ns=request.switch_ns,
            seed=request.seed,
            capture=self._pcap.write if self._pcap else None,
            log=self._link_log,
        )
        self.clock = Clock(request.period_ps)
        self.exchange = Exchange(library, self.network, self.clock, nodes=request.nodes)

    async def run(self) -> None:
        """Carry out all phases, then let the live hosts drive. Raises SimulationError."""
        for phase in self.request.phases:
            self.result.phases.append(await self._phase(phase))
            self._report()
        if self.request.hosts:
            await self._live(self.request.hosts)

    async def _phase(self, phase: Phase) -> PhaseResult:
        library = self.library
        if phase.settled:
            await self._settle()
        start = library.cycle()
        for node, program in enumerate(phase.programs):
            library.run_host(node, program)
        while library.hosts_busy():
            await self._step()
        for steps in self.exchange.steps:
            steps.setdefault(Step.CONFIGURED, library.cycle())
        reads = [library.reads(node) for node in range(len(phase.programs))]
        return PhaseResult(phase.name, start, library.cycle(), reads)

    async def _settle(self) -> None:
        """Await that no frame is in flight."""
        while self.exchange.carries:
            alarm = self.exchange.alarm
            heartbeat = self.library.cycle() + _SETTLE_CYCLES
            self.library.set_alarm(heartbeat if alarm is None else min(alarm, heartbeat))
            await self._step()

    async def _step(self) -> None:
        """As ``_next``; raises SimulationError if the top has found an error."""
        await self._next()
        if text := self.library.error():
            raise SimulationError(text)

    async def _live(self, hosts_of: Callable[[Board], LiveHosts]) -> None:
        library, request = self.library, self.request
        board = Board(library, self.exchange, self.clock, request.memories, request.host_ports)
        hosts = self._hosts = hosts_of(board)
        live = LiveRun(
            hosts,
            board,
            library,
            self.exchange,
            self.clock,
            quiet_cycles=request.quiet_cycles,
            endless=request.endless,
        )
        live.start()
        while not live.done:
            alarms = (live.alarm, self.exchange.alarm)
            library.set_alarm(min(alarm for alarm in alarms if alarm is not None))
            await self._next()
            if text := library.error():
                raise SimulationError(f"{text}; {live.waiting()}")
            live.serve()
        self.result.hosts = hosts.result()

    async def _next(self) -> None:
        """Await that the top wakes Python, and carry frames."""
        await self._wake()
        self.exchange.serve(self.library.cycle())
        if time.monotonic() > self._reported + _REPORT_SECONDS:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        operations = self._hosts.progress if self._hosts else len(self.exchange.allreduce_cycles)
        frames = self.exchange.sent.total()
        numbers = (self.library.cycle(), len(self.result.phases), operations, frames)
        os.write(int(os.environ[PROGRESS]), (" ".join(map(str, numbers)) + "\n").encode())

    def finish(self) -> None:
        """Close files and collect what was counted."""
        result, exchange, request = self.result, self.exchange, self.request
        self.network.close()
        self.library.close_trace()
        result.recorded = self.library.close_wave()
        if self._pcap:
            self._pcap.close()
        if self._link_log:
            self._link_log.close()
        result.cycles = self.library.cycle()
        result.skipped_ps = self.clock.skipped_ps
        result.allreduce_cycles = exchange.allreduce_cycles
        result.frames = dict(exchange.sent)
        result.links = self.network.statistics()
        result.first_packet = exchange.first_packets()
        result.failed_check = self.library.failed_check()
        result.last_reads = [self.library.reads(node) for node in range(request.nodes)]
        ports = [(node, range(len(files))) for node, files in enumerate(request.memories)]
        result.bytes_read = [[self.library.bytes_read(node, port) for port in own] for node, own in ports]
        result.bytes_written = [[self.library.bytes_written(node, port) for port in own] for node, own in ports]
        ended = np.uint64(result.cycles)
        result.occupied = [np.minimum(self.library.occupied(node), ended) for node in range(request.nodes)]
        with contextlib.suppress(ToolFailed, InputError):  # what ended the run may be the switch
            result.switch = self.switch.counters().as_dict()
            result.jobs = {job.id: self.switch.job_counters(job.id).as_dict() for job in request.jobs}


def _prepare(request: RunRequest) -> Library:
    library = Library()
    library.setup(
        nodes=request.nodes,
        period_ps=request.period_ps,
        latency=request.memory_latency,
        watchdog=request.watchdog,
        mac_bytes_per_cycle=request.mac_bytes_per_cycle,
        memory_bytes_per_cycle=request.memory_bytes_per_cycle,
    )
    for node, files in enumerate(request.memories):
        for path, writable in zip(files, request.writable[node], strict=True):
            library.map_memory(node, path, writable=writable, repeats=request.memory_repeats)
    if request.trace:
        library.open_trace(request.trace, mask=request.event_mask, limit=request.event_limit)
    if request.wave:
        window, path = request.wave
        library.open_wave(window, path, nodes=request.nodes, period_ps=request.period_ps)
    return library


if REQUEST in os.environ:  # cocotb imports this module before the first evaluation of the top
    _request: RunRequest = pickle.loads(Path(os.environ[REQUEST]).read_bytes())
    _library = _prepare(_request)

    @cocotb.test()
    async def run(dut: Any) -> None:
        """Carry out the request; the result is written whatever happens."""
        started, cpu_started = time.monotonic(), time.process_time()
        change = ValueChange(dut.wake)

        async def wake() -> None:
            await change

        try:
            session = Session(_request, _library, wake)
        except (ToolFailed, InputError) as error:  # the switch did not start
            Path(os.environ[RESULT]).write_bytes(pickle.dumps(RunResult(error=str(error))))
            return
        try:
            await session.run()
        except (SimulationError, CheckFailed, ToolFailed, InputError) as error:
            session.result.error = str(error)
        except Exception as error:
            session.result.error = f"{type(error).__name__} in the simulator's process: {error}"
            raise
        finally:
            session.finish()
            session.result.seconds = time.monotonic() - started
            session.result.cpu_seconds = time.process_time() - cpu_started
            Path(os.environ[RESULT]).write_bytes(pickle.dumps(session.result))
