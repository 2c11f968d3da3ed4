"""Live hosts: Python code that, during a simulation, gives nodes programs and frames and reads their memory."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.state import Fact, Failure, LinkCut, LiveState, State, WaitReport

Bytes = npt.NDArray[np.uint8]
Callback = Callable[[], None]

MAX_IDLE_SKIPS = 10_000  # consecutive skips to an alarm without other progress that end a run
_SKIP_INTERVAL = 500  # cycles until a skip of time is considered again


class SimulationError(Exception):
    """Failure of a run, found by the top or by a live host."""


class LiveHosts(Protocol):
    """Interface of live hosts, which drive a run through their :class:`Board`.

    Live hosts are made in the simulator's process for each run. All their code runs in ``start`` and in
    callbacks that they give to the board. Simulated time does not advance meanwhile. A CheckFailed or
    SimulationError that this code raises ends the run with its message.

    With several ranks, each rank makes hosts for its ``Board.nodes``. Values passed to ``tell`` go to the hosts
    of rank 0, whose orders go to all ranks. ``result`` returns None at other ranks than 0, or an object that
    rank 0's result can ``add``. Callbacks may still arrive after ``done``, until the other ranks know of the
    end, and must change nothing then.
    """

    @property
    def done(self) -> bool:
        """Whether the run has reached its end; read after ``start`` and after each callback."""

    @property
    def progress(self) -> int:
        """Progress of the run in the hosts' own unit: ``Progress.operations``."""

    def start(self) -> None:
        """Start driving the run; called once, after the last phase."""

    def may_skip(self) -> bool:
        """Return whether time may be skipped to the next alarm: no node's cycle count matters until then."""

    def waiting(self) -> str:
        """Return which host waits for what, for the message of a failed run."""

    def result(self) -> Any:
        """Return ``RunResult.hosts``, picklable; called after ``done``; may raise like callbacks."""


class Top(Protocol):
    """The part of the simulated top that live hosts use; see :class:`fanin.sim.cosim.library.Library`."""

    def go_live(self) -> None:
        """Wake Python at each end of a program from now on."""

    def run_host(self, node: int, program: HostProgram) -> None:
        """Start a program."""

    def reads(self, node: int) -> npt.NDArray[np.uint32]:
        """Return the words that the program's reads have returned."""

    def pop_ended(self) -> Iterable[int]:
        """Return the nodes whose programs have ended since the last call."""

    def watch(self, node: int, address: int) -> None:
        """Wake Python at each write of a byte."""

    def pop_written(self) -> Iterable[tuple[int, int]]:
        """Return the watched bytes written since the last call, as (node, address)."""

    def send(self, node: int, frame: bytes) -> None:
        """Queue a frame at a node's host for sending."""

    def pop_sent(self) -> Iterable[int]:
        """Return the nodes that have taken a frame of their host since the last call."""

    def pop_host_frames(self) -> Iterable[tuple[int, int, bytes]]:
        """Return the frames that nodes gave to their hosts since the last call, as (cycle, node, bytes)."""

    def stall(self, node: int, share: float) -> None:
        """Make a node's host refuse beats in a share of the cycles."""

    def cycle(self) -> int:
        """Return the rising edge at which Python was woken."""

    def last_progress(self) -> int:
        """Return the last edge with progress: a frame, a written word, or a register access except polls."""


@dataclass
class _Queued:
    """A program of a node's host, and the function that gets the words that it has read."""

    program: HostProgram
    then: Callable[[list[int]], None]


class Board:
    """Interface of a run for live hosts. Callbacks (``then``) are called in order of simulated time.

    Nodes are numbered as in the simulator. ``nodes`` are this rank's, and other numbers raise ValueError.

    - ``memories``: per node of this rank, the files of its memory ports.
    - ``host_ports``: per node of this rank, whether it has a host packet port.
    - ``all_nodes``: number of nodes of all ranks.
    - ``told``: called at rank 0 with the values that hosts of all ranks pass to ``tell``.
    - ``ordered``: called at all ranks with the values that rank 0 passes to ``order``.
    """

    def __init__(
        self,
        top: Top,
        clock: Clock,
        nodes: range,
        memories: Sequence[Sequence[Path]],
        host_ports: Sequence[bool],
        *,
        all_nodes: int,
    ):
        self.nodes = nodes
        self.told: Callable[[int, Any], None] | None = None
        self.told_at = 0  # time of the call of ``tell`` that ``told`` handles
        self.ordered: Callable[[Any], None] | None = None
        self._top, self._clock, self._all_nodes = top, clock, all_nodes
        self._paths = dict(zip(nodes, memories, strict=True))
        self._host_ports = dict(zip(nodes, host_ports, strict=True))
        self._memories: dict[Path, Bytes] = {}
        self._queues: dict[int, deque[_Queued]] = {node: deque() for node in nodes}  # the first program runs
        self._watchers: dict[tuple[int, int], list[Callback]] = {}
        # By node: the callback of each frame that it has not fully taken from its host.
        self._unsent: dict[int, deque[Callback | None]] = {node: deque() for node in nodes}
        self._receivers: dict[int, list[Callable[[bytes], None]]] = {node: [] for node in nodes}
        self._cuts: list[LinkCut] = []
        self._facts: list[Fact] = []
        self._orders: list[Any] = []
        self._in_told = False
        self._alarms: list[tuple[int, int, Callback]] = []  # heap: time, order, callback
        self._order = itertools.count()

    @property
    def now(self) -> int:
        """Simulated time in ps, with skipped time."""
        return self._clock.time(self.cycle)

    @property
    def cycle(self) -> int:
        """Number of the current rising edge; skipped time has no edges."""
        return self._top.cycle()

    def run(self, node: int, program: HostProgram, then: Callable[[list[int]], None]) -> None:
        """Queue a program at a node's host; ``then`` is called with the words that it has read.

        ``then`` is called at most a cycle after the program's end. Do not change the program after this call.
        """
        queue = self._queues[self._check_node(node)]
        queue.append(_Queued(program, then))
        if len(queue) == 1:
            self._top.run_host(node, program)

    def memory(self, node: int, port: int = 0) -> Bytes:
        """Return the memory at a node's port, as an array of bytes that is shared with the node.

        Raises ValueError for a port that the node does not have.
        """
        ports = self._paths[self._check_node(node)]
        if not ports:
            raise ValueError(f"node {node} has no memory port")
        if port not in range(len(ports)):
            raise ValueError(f"port must be 0 to {len(ports) - 1} at node {node}, not {port!r}")
        path = ports[port]
        if path not in self._memories:
            empty = not path.stat().st_size  # an empty file cannot be mapped
            self._memories[path] = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r+")
        return self._memories[path]

    def watch(self, node: int, address: int, then: Callback) -> None:
        """Call ``then`` at each write of a byte by a node from now on, at most a cycle later."""
        if address < 0:
            raise ValueError(f"address must not be below 0, but is {address}")
        watchers = self._watchers.setdefault((self._check_node(node), address), [])
        if not watchers:
            self._top.watch(node, address)
        watchers.append(then)

    def send(self, node: int, frame: bytes, then: Callback | None = None) -> None:
        """Queue a frame for sending through a node's host packet port.

        Its beats come without a pause, as fast as the node takes them. ``then`` is called at most a cycle after
        the node has taken the last beat. Raises ValueError for a node without such a port, and for an empty
        frame.
        """
        if not frame:
            raise ValueError("frame must have a byte at least")
        self._unsent[self._check_host(node)].append(then)
        self._top.send(node, frame)

    def unsent(self, node: int) -> int:
        """Return the number of frames that the node has not fully taken from its host; at most a cycle old."""
        return len(self._unsent[self._check_host(node)])

    def on_frame(self, node: int, then: Callable[[bytes], None]) -> None:
        """Call ``then`` with each frame that a node gives to its host from now on, at most a cycle later."""
        self._receivers[self._check_host(node)].append(then)

    def stall(self, node: int, share: float) -> None:
        """Make a node's host refuse beats in the given share of cycles, drawn at random, from now on."""
        if not 0 <= share <= 1:
            raise ValueError(f"share must be 0 to 1, not {share!r}")
        self._top.stall(self._check_host(node), share)

    def cut(self, node: int, peer: int | None = None) -> None:
        """Cut the link of a node of any rank: frames from the node, or from the switch to it, are dropped.

        With ``peer``, only frames between the two nodes are dropped.
        """
        if node not in range(self._all_nodes):
            raise ValueError(f"node must be 0 to {self._all_nodes - 1}, not {node!r}")
        self._cuts.append(LinkCut(self.cycle, node, peer))

    def mend(self, node: int) -> None:
        """Mend a cut link of a node of any rank: it carries frames from now on."""
        if node not in range(self._all_nodes):
            raise ValueError(f"node must be 0 to {self._all_nodes - 1}, not {node!r}")
        self._cuts.append(LinkCut(self.cycle, node, None, mends=True))

    def tell(self, node: int, what: Any) -> None:
        """Call ``told(node, what)`` at rank 0 with a picklable value from a node's host.

        ``told`` gets the values of all nodes in order of time, so it can compare their hosts. It reports
        an error by raising, as callbacks do. It may use only ``told_at`` and ``order`` of the board.
        """
        self._facts.append(Fact(self.cycle, self.now, node, what))

    def order(self, what: Any) -> None:
        """Call ``ordered(what)`` at all ranks with a picklable value.

        The call happens at the next end of a window, or at this edge if it is one. ``ordered`` may use the
        board as callbacks do. Raises RuntimeError outside ``told``, since only ``told`` is called in order of
        time.
        """
        if not self._in_told:
            raise RuntimeError("order must be called from within told")
        self._orders.append(what)

    def at(self, time_ps: int, then: Callback) -> None:
        """Call ``then`` once, at the first rising edge at or after a time, but not in this cycle."""
        heapq.heappush(self._alarms, (time_ps, next(self._order), then))

    def _check_node(self, node: int) -> int:
        if node not in self.nodes:
            raise ValueError(f"node must be {self.nodes[0]} to {self.nodes[-1]}, not {node!r}")
        return node

    def _check_host(self, node: int) -> int:
        if not self._host_ports[self._check_node(node)]:
            raise ValueError(f"node {node} has no host packet port")
        return node

    # ---- Interface for LiveRun ----

    @property
    def next_alarm(self) -> int | None:
        """Time of the next alarm; None without any."""
        return self._alarms[0][0] if self._alarms else None

    @property
    def next_edge(self) -> int | None:
        """Rising edge of the next alarm, at least the next edge; None without any."""
        return max(self._clock.edge(self._alarms[0][0]), self.cycle + 1) if self._alarms else None

    @property
    def busy(self) -> list[int]:
        """Nodes that run a program."""
        return [node for node, queue in self._queues.items() if queue]

    @property
    def sending(self) -> list[int]:
        """Nodes that have not taken all frames of their hosts."""
        return [node for node, frames in self._unsent.items() if frames]

    def take(self) -> tuple[list[LinkCut], list[Fact]]:
        """Return the cuts and facts since the last call."""
        cuts, self._cuts = self._cuts, []
        facts, self._facts = self._facts, []
        return cuts, facts

    def deliver_fact(self, fact: Fact) -> None:
        """Call ``told`` with a fact from a host of any rank."""
        assert self.told is not None
        self.told_at, self._in_told = fact.time, True
        try:
            self.told(fact.node, fact.content)
        finally:
            self._in_told = False

    @property
    def has_orders(self) -> bool:
        """Whether orders wait for the end of the window."""
        return bool(self._orders)

    def take_orders(self) -> list[Any]:
        """Return the waiting orders."""
        orders, self._orders = self._orders, []
        return orders

    def event_callbacks(self) -> list[Callback]:
        """Return the callbacks for ended programs, written bytes, and sent or received frames of hosts."""
        callbacks: list[Callback] = []
        for node in self._top.pop_ended():
            queue = self._queues[node]
            finished, reads = queue.popleft(), self._top.reads(node).tolist()
            callbacks.append(functools.partial(finished.then, reads))
            if queue:
                self._top.run_host(node, queue[0].program)
        for place in self._top.pop_written():
            callbacks += self._watchers[place]
        for node in self._top.pop_sent():
            if callback := self._unsent[node].popleft():
                callbacks.append(callback)
        for _, node, frame in self._top.pop_host_frames():
            callbacks += [functools.partial(receiver, frame) for receiver in self._receivers[node]]
        return callbacks

    def alarm_callbacks(self) -> list[Callback]:
        """Return the callbacks of due alarms, in order of time."""
        now, callbacks = self.now, []
        while self._alarms and self._alarms[0][0] <= now:
            callbacks.append(heapq.heappop(self._alarms)[2])
        return callbacks


class LiveRun:
    """Caller of live hosts: calls them on events, and decides when time may be skipped.

    - ``quiet_cycles``: cycles without an event after which time may be skipped.
    - ``endless``: alarms without other progress do not end the run.
    - ``single_rank``: no other rank has hosts; no host is called after the end.

    All ranks get the same state of all hosts and nodes at a meeting, and therefore take the same decisions.
    """

    def __init__(
        self,
        hosts: LiveHosts,
        board: Board,
        top: Top,
        *,
        quiet_cycles: int,
        endless: bool = False,
        single_rank: bool = True,
    ):
        self.failure: Failure | None = None  # reported by a host
        self._single_rank = single_rank  # whether no other rank has hosts
        self._hosts, self._board, self._top = hosts, board, top
        self._quiet_cycles, self._endless = quiet_cycles, endless
        self._last_call = 0  # last edge with a callback, which may have changed memory that nodes must see
        self._done: int | None = None
        self._idle_skips = 0
        self._last_skip = -1

    def start(self) -> None:
        """Start the hosts."""
        self._top.go_live()
        self._call_all([self._hosts.start])

    def serve(self) -> None:
        """Call the hosts for all events since the last call."""
        self._call_all([*self._board.event_callbacks(), *self._board.alarm_callbacks()])

    def judge(self, facts: Sequence[Fact]) -> Failure | None:
        """Pass facts to the hosts at rank 0; return the failure that they find, or None."""
        for fact in facts:
            try:
                self._board.deliver_fact(fact)
            except (CheckFailed, SimulationError) as error:
                return Failure(fact.cycle, fact.node, str(error), of_host=True)
        return None

    def obey(self, orders: Sequence[Any]) -> None:
        """Pass orders to the hosts."""
        assert self._board.ordered is not None
        self._call_all([functools.partial(self._board.ordered, order) for order in orders])

    @property
    def alarm(self) -> int | None:
        """Latest rising edge for the next ``serve``."""
        return self._board.next_edge

    def state(self, *, failed: bool) -> LiveState:
        """Return the state of this rank's hosts; in a ``failed`` run also what they wait for."""
        board, hosts = self._board, self._hosts
        is_quiet = self._top.cycle() >= max(self._top.last_progress(), self._last_call) + self._quiet_cycles
        return LiveState(
            last_call=self._last_call,
            alarm=board.next_alarm,
            idle=is_quiet and not board.busy and hosts.may_skip(),
            done=self._done,
            progress=hosts.progress,
            wait_report=WaitReport(tuple(board.busy), tuple(board.sending), hosts.may_skip(), hosts.waiting())
            if failed
            else None,
        )

    def next_skip_edge(self, state: State) -> int:
        """Return the next edge at which a skip of time is considered.

        At this edge ``quiet_cycles`` have passed without an event, or a multiple of ``_SKIP_INTERVAL`` cycles
        more. It does not depend on when Python wakes.
        """
        quiet_edge, edge = self._quiet_edge(state), self._top.cycle()
        return quiet_edge + max(0, (edge - quiet_edge) // _SKIP_INTERVAL + 1) * _SKIP_INTERVAL

    def skip(self, state: State) -> int | None:
        """Return the time of the next alarm, in ps, if time may be skipped to it now; otherwise None.

        Raises SimulationError after ``MAX_IDLE_SKIPS`` skips without progress.
        """
        host_state, quiet_edge, edge = state.hosts, self._quiet_edge(state), self._top.cycle()
        if edge < quiet_edge or (edge - quiet_edge) % _SKIP_INTERVAL or host_state is None:
            return None
        if host_state.alarm is None or not host_state.idle or state.holds_frames:
            return None
        self._idle_skips = self._idle_skips + 1 if state.progress == self._last_skip else 0
        if self._idle_skips >= MAX_IDLE_SKIPS and not self._endless:
            raise SimulationError(f"{MAX_IDLE_SKIPS} alarms have passed, and nothing else has happened")
        self._last_skip = edge  # a skip counts as progress: without other progress, this stays the last edge
        return host_state.alarm

    def wait_text(self, host_state: LiveState, time_ps: int) -> str:
        """Return what all hosts wait for, as text; ``time_ps`` is the simulated time."""
        assert host_state.wait_report is not None
        report, alarm = host_state.wait_report, host_state.alarm
        parts = [f"live hosts at {time_ps / 1e6:.3f} µs"]
        if report.busy:
            parts.append(f"programs run at nodes {', '.join(map(str, report.busy))}")
        else:
            parts.append("no program runs")
        if report.sending:
            parts.append(f"frames of hosts wait at nodes {', '.join(map(str, report.sending))}")
        parts.append("no alarm is set" if alarm is None else f"the next alarm is at {alarm / 1e6:.3f} µs")
        if alarm is not None and not report.may_skip:
            parts.append("no time may be skipped until then")
        parts.append(report.hosts)
        return ", ".join(parts)

    def _call_all(self, callbacks: Iterable[Callback]) -> None:
        try:
            for callback in callbacks:
                if self.failure or (self._single_rank and self._done is not None):
                    return
                callback()
                self._last_call = self._top.cycle()
                if self._done is None and self._hosts.done:
                    self._done = self._top.cycle()
        except (CheckFailed, SimulationError) as error:
            self.failure = Failure(self._top.cycle(), self._board.nodes[0], str(error), of_host=True)

    def _quiet_edge(self, state: State) -> int:
        """Return the first rising edge at which ``quiet_cycles`` have passed without an event, as known now."""
        assert state.hosts is not None
        return max(state.progress, state.hosts.last_call) + self._quiet_cycles
