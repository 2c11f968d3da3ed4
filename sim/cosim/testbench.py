"""Main module of the simulator's process under cocotb. Python wakes when ``wake`` changes, per frame."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ValueChange

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import SentFrame, TakenFrame
from fanin.sim.cosim.fabric import Fabric
from fanin.sim.cosim.library import Library
from fanin.sim.cosim.live import Board, LiveHosts, LiveRun, SimulationError
from fanin.sim.cosim.meeting import (
    Centre,
    Channel,
    Meeting,
    Member,
    RankTimeout,
    Report,
    Stopped,
    window,
)
from fanin.sim.cosim.run import EVENT, Phase, PhaseResult, RunRequest, RunResult, in_order, kept_file
from fanin.sim.cosim.state import Decision, Fact, State, first_of
from fanin.sim.network import min_trip_ps

REQUEST = "FANIN_COSIM_REQUEST"  # pickle of a RunRequest
RESULT = "FANIN_COSIM_RESULT"  # path of the pickled RunResult
PROGRESS = "FANIN_COSIM_PROGRESS"  # file descriptor for lines with the numbers of a Progress
CHANNELS = "FANIN_COSIM_CHANNELS"  # file descriptors of the sockets to other ranks, if any
_REPORT_SECONDS = 0.2
_HEARTBEAT = 500  # most cycles between wake-ups of Python while live hosts run, to report progress


class Session:
    """A run, or a rank's part of it: first the phases, then the live hosts. Rank 0 has the network.

    No frame gets from one node to another within a *window* of cycles, so ranks simulate it independently. At
    its end all ranks hold a *meeting*: they exchange frames, facts and orders of live hosts, and states. All
    ranks then have the same state of all nodes, and take the same decisions at the same rising edges.
    """

    def __init__(self, request: RunRequest, library: Library, wake: Callable[[], Awaitable[Any]]):
        self.request, self.library, self._wake = request, library, wake
        self.result = RunResult()
        self.clock = Clock(request.period_ps)
        self._board: Board | None = None
        self._hosts: LiveRun | None = None
        self._reported = time.monotonic()
        self._kept_phases = 0  # phases that have been given to the caller
        peers = range(1, len(request.shares)) if request.rank == 0 else [0]
        descriptors = os.environ[CHANNELS].split()
        channels = [Channel(int(descriptor), peer) for descriptor, peer in zip(descriptors, peers, strict=True)]
        self._single_rank = not channels
        self.fabric = Fabric(request, self.clock) if request.rank == 0 else None
        self._window = window(min_trip_ps(request.link, request.switch_ns), self.clock)
        self.meetings, self.meeting_seconds = 0, 0.0
        self._meeting: Meeting
        if self.fabric:
            self._meeting = Centre(self.fabric.exchange, request.shares, channels, self._decide)
        else:
            self._meeting = Member(*channels)
        self.state = State(busy=False, last_end=0, holds_frames=False, progress=0)

    async def run(self) -> None:
        """Carry out all phases, then let the live hosts drive. Raises SimulationError."""
        result, hosts = self.result, self.request.hosts
        for phase in self.request.phases:
            result.phases.append(await self._phase(phase))
            if len(result.phases) == len(self.request.phases) and not hosts:
                result.cycles, result.recorded = result.phases[-1].end, self.library.close_wave()
            await self._window_end(self.library.cycle())
            if phase.kept:
                self._write_kept()
            self._report()
        if hosts:
            await self._run_hosts(hosts)

    async def _phase(self, phase: Phase) -> PhaseResult:
        """Run a phase. Phases begin at a window's start, so ranks need no extra meeting (docs/scale.md)."""
        library, own_nodes = self.library, self.request.own_nodes
        while phase.settled and self.state.holds_frames:
            await self._window_end(library.cycle() + 1)
        start = library.cycle()
        nodes = list(zip(own_nodes, phase.programs, strict=False))
        for node, program in nodes:
            library.run_host(node, program)
        self._meet()  # all ranks learn of all programs
        while self.state.busy:
            await self._step()
        end = max(start, self.state.last_end)
        if self.fabric:
            self.fabric.exchange.watch.note_configured(end)
        return PhaseResult(phase.name, start, end, [library.reads(node) for node, _ in nodes])

    async def _window_end(self, edge: int) -> None:
        """Run to the first window end at or after ``edge``."""
        end = -(-edge // self._window) * self._window
        while self.library.cycle() < end:
            await self._step(end)

    async def _step(self, *edges: int) -> None:
        """Run to an event, as ``_run_to_event``. Raises SimulationError if a node has failed."""
        await self._run_to_event(*edges)
        if failure := self.state.failure:
            raise SimulationError(failure.text)

    async def _run_hosts(self, hosts_of: Callable[[Board], LiveHosts]) -> None:
        library, request = self.library, self.request
        self._board = Board(
            library,
            self.clock,
            request.own_nodes,
            request.memories,
            request.host_ports,
            all_nodes=request.nodes,
        )
        hosts = hosts_of(self._board)
        live_run = self._hosts = LiveRun(
            hosts,
            self._board,
            library,
            quiet_cycles=request.quiet_cycles,
            endless=request.endless,
            single_rank=self._single_rank,
        )
        live_run.start()
        self._meet()
        while (done := self._done()) is None:
            skip_edge = live_run.next_skip_edge(self.state)
            await self._run_to_event(skip_edge, library.cycle() + min(_HEARTBEAT, request.quiet_cycles))
            if (time := live_run.skip(self.state)) is not None:
                self._skip(time - self._board.now)
        self.result.cycles, self.result.recorded = done, library.close_wave()
        end = -(-done // self._window) * self._window  # all ranks know of the end by then
        while library.cycle() < end:
            await self._run_to_event(end)
            self._done()
        self.result.hosts = hosts.result()

    def _done(self) -> int | None:
        """Return the edge at which live hosts reached their end, or None. Raises SimulationError on failure."""
        assert self._hosts is not None
        if failure := self.state.failure:
            if failure.of_host:
                raise SimulationError(failure.text)
            self._meet()  # all ranks know of the failure; now exchange what all hosts wait for
            assert self.state.hosts is not None
            waiting = self._hosts.wait_text(self.state.hosts, self.clock.time(failure.cycle))
            raise SimulationError(f"{failure.text}; {waiting}")
        assert self.state.hosts is not None
        return self.state.hosts.done

    def _skip(self, time_ps: int) -> None:
        """Let time pass without clock edges. No frame may be in flight, since it would arrive too late."""
        assert self._hosts is not None
        if self.fabric:
            self.fabric.exchange.before_skip()
        self.clock.skipped_ps += time_ps
        self.library.skip(time_ps)
        self._hosts.serve()
        self._meet()

    async def _run_to_event(self, *edges: int) -> None:
        """Run the nodes until an event, at most to one of the edges; carry frames.

        With several ranks, run to the next meeting. Live hosts are called whenever they are due.
        """
        meeting_edge = self._next_meeting(edges)
        while True:
            limits = [meeting_edge, self._hosts.alarm if self._hosts else None]
            self.library.set_alarm(min((edge for edge in limits if edge is not None), default=None))
            await self._wake()
            if self._hosts:
                self._hosts.serve()
            if self._single_rank or self.library.cycle() >= (meeting_edge or 0):
                break
        self._meet()
        if time.monotonic() > self._reported + _REPORT_SECONDS:
            self._report()

    def _next_meeting(self, edges: Sequence[int]) -> int | None:
        """Return the next edge at which ranks must meet; with one rank, at which frames must be carried.

        With several ranks it is a window's end, or earlier the edge before the watchdog, which knows only this
        rank's nodes, could expire.
        """
        state, cycle, limits = self.state, self.library.cycle(), list(edges)
        window_end = (cycle // self._window + 1) * self._window
        if self._single_rank:
            assert self.fabric is not None
            if (alarm := self.fabric.exchange.alarm) is not None:
                limits.append(alarm)
            if self._board and self._board.has_orders:
                limits.append(window_end)
            return min(limits, default=None)
        limits += [window_end, state.progress + self.request.watchdog - 1]
        return max(cycle + 1, min(limits))

    def _meet(self) -> None:
        """Exchange frames and facts with the other ranks, and update the state of all nodes.

        Hosts of all ranks carry out orders at once; another meeting follows at the same edge.
        """
        while (orders := self._hold_meeting()) and not self.state.failure:
            assert self._hosts is not None
            self._hosts.obey(orders)

    def _hold_meeting(self) -> Sequence[Any]:
        """Hold one meeting; return the orders for hosts."""
        library = self.library
        sent, taken = (
            [SentFrame(*frame) for frame in library.pop_frames()],
            [TakenFrame(*frame) for frame in library.pop_taken()],
        )
        start = time.monotonic()
        cuts, facts = self._board.take() if self._board else ([], [])
        report = Report(sent, taken, self._state(), cuts, facts)
        answer = self._meeting.meet(library.cycle(), report)
        if not self._single_rank:
            self.meetings += 1
            self.meeting_seconds += time.monotonic() - start
        for node, frame, at, error, tag in answer.received:
            library.push_frame(node, frame, at, error=error, tag=tag)
        self.state = answer.state
        if not self._single_rank:
            library.note_progress(self.state.progress)
        return answer.orders

    def _state(self) -> State:
        library, hosts = self.library, self._hosts
        return State(
            busy=library.hosts_busy(),
            last_end=library.last_end(),
            holds_frames=library.holds_frames(),
            progress=library.last_progress(),
            failure=library.failure() if hosts is None else first_of([library.failure(), hosts.failure]),
            hosts=hosts.state(failed=self.state.failure is not None) if hosts else None,
        )

    def _decide(self, facts: Sequence[Fact]) -> Decision:
        """Pass the facts of all ranks to rank 0's hosts; return their failure, and the orders due.

        Orders wait for the end of a window.
        """
        if not (self._hosts and self._board):
            return Decision()
        failure = self._hosts.judge(facts)
        orders = self._board.take_orders() if self.library.cycle() % self._window == 0 else []
        return Decision(failure, orders, self._board.has_orders)

    def _report(self) -> None:
        """Report progress. Raises BrokenPipeError if the parent process has ended, which ends this run."""
        self._reported = time.monotonic()
        exchange = self.fabric.exchange if self.fabric else None
        host_state = self.state.hosts
        operations = host_state.progress if host_state else exchange.watch.operations if exchange else 0
        frames = exchange.watch.sent.total() if exchange else 0
        numbers = (self.library.cycle(), len(self.result.phases), operations, frames)
        os.write(int(os.environ[PROGRESS]), (" ".join(map(str, numbers)) + "\n").encode())

    def _write_kept(self) -> None:
        """Write the results so far to a file, which the next report announces."""
        number = len(self.result.phases)
        result = RunResult(phases=self.result.phases[self._kept_phases :], cycles=self.result.phases[-1].end)
        self._kept_phases = number
        if self.fabric:
            self.fabric.count(result)
        kept_file(Path.cwd(), number).write_bytes(pickle.dumps(result))

    def finish(self) -> None:
        """Close files and collect counters."""
        result, request, library = self.result, self.request, self.library
        library.close_trace()
        result.recorded = result.recorded or library.close_wave()
        failure = self.state.failure
        result.cycles = failure.cycle if failure else result.cycles or library.cycle()
        result.failed_check = failure.check if failure else None
        result.skipped_ps = self.clock.skipped_ps
        if not self._single_rank:
            result.meetings, result.meeting_seconds = self.meetings, [self.meeting_seconds]
        own_nodes = request.own_nodes
        result.last_reads = [library.reads(node) for node in own_nodes]
        ports = [(node, range(len(files))) for node, files in zip(own_nodes, request.memories, strict=True)]
        result.bytes_read = [
            [library.bytes_read(node, port) for port in node_ports] for node, node_ports in ports
        ]
        result.bytes_written = [
            [library.bytes_written(node, port) for port in node_ports] for node, node_ports in ports
        ]
        end = np.uint64(result.cycles)
        occupied = [library.occupied(node) for node in own_nodes]
        result.occupied = [np.minimum(intervals[intervals[:, 0] < end], end) for intervals in occupied]
        if request.trace:
            result.events = in_order(np.fromfile(request.trace, EVENT), request.event_limit)
        if self.fabric:
            self.fabric.finish(result)
        if isinstance(self._meeting, Centre):
            result.network_seconds = self._meeting.network_seconds


def _prepare(request: RunRequest) -> Library:
    library = Library()
    library.setup(
        nodes=request.own_nodes,
        single_rank=len(request.shares) == 1,
        period_ps=request.period_ps,
        latency=request.memory_latency,
        watchdog=request.watchdog,
        mac_bytes_per_cycle=request.mac_bytes_per_cycle,
        memory_bytes_per_cycle=request.memory_bytes_per_cycle,
    )
    if request.hbm:
        library.use_hbm(request.hbm, nodes=len(request.own_nodes), period_ps=request.period_ps)
    for node, files, writable in zip(request.own_nodes, request.memories, request.writable, strict=True):
        for path, is_writable in zip(files, writable, strict=True):
            library.map_memory(node, path, writable=is_writable, repeats=request.memory_repeats)
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
        """Carry out the request; the result is written in any case."""
        started, cpu_started = time.monotonic(), time.process_time()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles the terminal's interrupt
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
        except (SimulationError, CheckFailed, ToolFailed, InputError, Stopped) as error:
            session.result.error = str(error)
        except BrokenPipeError:  # the parent process has ended, or has stopped this run
            session.result.error = "the run was stopped"
        except RankTimeout as error:
            session.result.error, session.result.silent_rank = str(error), error.rank
        except Exception as error:
            session.result.error = f"{type(error).__name__} in the simulator's process: {error}"
            raise
        finally:
            session.finish()
            session.result.seconds = time.monotonic() - started
            session.result.cpu_seconds = time.process_time() - cpu_started
            Path(os.environ[RESULT]).write_bytes(pickle.dumps(session.result))
