"""Live hosts: Python beside the simulated nodes that gives them programs and frames, sees memory, and waits."""

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
from fanin.sim.cosim.state import Cut, Fact, Failure, Live, State, Waits

Bytes = npt.NDArray[np.uint8]
Then = Callable[[], None]

MAX_IDLE_SKIPS = 10_000  # alarms in a row to which time was skipped, and nothing else happened
_LOOK_CYCLES = 500  # after which it is asked again whether time may be skipped


class SimulationError(Exception):
    """The run cannot go on: found by the top, or by a live host."""


class LiveHosts(Protocol):
    """Live hosts drive a run by what they ask of their :class:`Board`; made anew in the simulator's process.

    All their code runs in ``start`` and in the callbacks that they hand to the board; simulated time stands
    still meanwhile. A CheckFailed or SimulationError that it raises ends the run with its message. Hosts on
    several ranks are made on each, for ``Board.nodes``; what they tell goes to those of rank 0, whose orders go
    to all; ``result`` has ``add(other)`` or is None at other ranks than 0. Until the others know of the end
    callbacks come, which must change nothing any more.
    """

    @property
    def done(self) -> bool:
        """Whether the run has come to its end; asked after ``start`` and after each callback."""

    @property
    def progress(self) -> int:
        """How far it is, in whatever it counts: ``Progress.operations``."""

    def start(self) -> None:
        """Begin; called once, after the last phase."""

    def may_skip(self) -> bool:
        """Whether nothing that nodes count in cycles, as a write's timeout, matters until the next alarm."""

    def waiting(self) -> str:
        """Who waits for what, for the message of a run that cannot go on."""

    def result(self) -> Any:
        """What becomes ``RunResult.hosts``; called once done; to be pickled. May raise as callbacks may."""


class Top(Protocol):
    """What live hosts need of the simulated top; see :class:`fanin.sim.cosim.library.Library`."""

    def go_live(self) -> None:
        """From now on each end of a program wakes Python."""

    def run_host(self, node: int, program: HostProgram) -> None:
        """Start a program."""

    def reads(self, node: int) -> npt.NDArray[np.uint32]:
        """What the program's reads have returned."""

    def ended(self) -> Iterable[int]:
        """Nodes whose programs have ended since the last call."""

    def watch(self, node: int, address: int) -> None:
        """Wake Python at each write of a byte."""

    def written(self) -> Iterable[tuple[int, int]]:
        """Watched bytes written since the last call: (node, address)."""

    def send(self, node: int, frame: bytes) -> None:
        """Let a node's host send a frame."""

    def sent(self) -> Iterable[int]:
        """Nodes that have taken a frame of their host since the last call."""

    def handed(self) -> Iterable[tuple[int, int, bytes]]:
        """Frames that nodes have handed to their hosts since the last call: (cycle, node, bytes)."""

    def stall(self, node: int, share: float) -> None:
        """Let a node's host take nothing in a share of the cycles."""

    def cycle(self) -> int:
        """The rising edge at which Python was woken."""

    def last_progress(self) -> int:
        """The last edge at which something happened: a frame, a word written, a register access but polls."""


@dataclass
class _Queued:
    program: HostProgram
    then: Callable[[list[int]], None]


class Board:
    """The run as live hosts see it. Each callback, ``then``, is called in order of simulated time.

    Nodes are numbered as in the simulator; ``nodes`` are those of this rank, and a number out of range is a
    ValueError. ``memories`` and ``host_ports`` are theirs. ``told`` gets what hosts ``tell``, at rank 0, and
    ``ordered`` what is ordered there, at all ranks. ``all_nodes`` counts those of all.
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
        self.told_at = 0  # the time of what is being told
        self.ordered: Callable[[Any], None] | None = None
        self._top, self._clock, self._all_nodes = top, clock, all_nodes
        self._paths = dict(zip(nodes, memories, strict=True))
        self._host_ports = dict(zip(nodes, host_ports, strict=True))
        self._memories: dict[Path, Bytes] = {}
        self._queues: dict[int, deque[_Queued]] = {node: deque() for node in nodes}  # the first of each runs
        self._watchers: dict[tuple[int, int], list[Then]] = {}
        self._unsent: dict[int, deque[Then | None]] = {node: deque() for node in nodes}  # what each frame calls
        self._receivers: dict[int, list[Callable[[bytes], None]]] = {node: [] for node in nodes}
        self._cuts: list[Cut] = []
        self._facts: list[Fact] = []
        self._orders: list[Any] = []
        self._telling = False
        self._alarms: list[tuple[int, int, Then]] = []  # heap: time, order, what to call
        self._order = itertools.count()

    @property
    def now(self) -> int:
        """Simulated time in ps, skipped time included."""
        return self._clock.time(self.cycle)

    @property
    def cycle(self) -> int:
        """The number of the rising edge; skipped time has none."""
        return self._top.cycle()

    def run(self, node: int, program: HostProgram, then: Callable[[list[int]], None]) -> None:
        """Have a node's host carry out a program, after those that it already has; ``then`` gets what it reads.

        ``then`` is called at most a cycle after its end. The program must not be changed any more.
        """
        queue = self._queues[self._check(node)]
        queue.append(_Queued(program, then))
        if len(queue) == 1:
            self._top.run_host(node, program)

    def memory(self, node: int, port: int = 0) -> Bytes:
        """The bytes that a node's memory port accesses, shared with the node: each reads what the other writes.

        Raises ValueError for a port that the node does not have.
        """
        ports = self._paths[self._check(node)]
        if not ports:
            raise ValueError(f"node {node} has no memory port")
        if port not in range(len(ports)):
            raise ValueError(f"port must be 0 to {len(ports) - 1} at node {node}, not {port!r}")
        path = ports[port]
        if path not in self._memories:
            empty = not path.stat().st_size  # which cannot be mapped
            self._memories[path] = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r+")
        return self._memories[path]

    def watch(self, node: int, address: int, then: Then) -> None:
        """From now on, call ``then`` at each write of a byte by a node, at most a cycle later."""
        if address < 0:
            raise ValueError(f"address must not be below 0, but is {address}")
        watchers = self._watchers.setdefault((self._check(node), address), [])
        if not watchers:
            self._top.watch(node, address)
        watchers.append(then)

    def send(self, node: int, frame: bytes, then: Then | None = None) -> None:
        """Send a frame through a node's host packet port, after those that it already has.

        Its beats come without a pause, as fast as the node takes them. ``then`` is called at most a cycle
        after the node has taken the last one. Raises ValueError for a node without such a port, and for an
        empty frame.
        """
        if not frame:
            raise ValueError("frame must have a byte at least")
        self._unsent[self._check_host(node)].append(then)
        self._top.send(node, frame)

    def unsent(self, node: int) -> int:
        """Frames of a node's host that the node has not taken in full; at most a cycle old."""
        return len(self._unsent[self._check_host(node)])

    def on_frame(self, node: int, then: Callable[[bytes], None]) -> None:
        """From now on, call ``then`` with each frame that a node hands to its host, at most a cycle later."""
        self._receivers[self._check_host(node)].append(then)

    def stall(self, node: int, share: float) -> None:
        """From now on a node's host takes no beat in that share of the cycles, drawn at random."""
        if not 0 <= share <= 1:
            raise ValueError(f"share must be 0 to 1, not {share!r}")
        self._top.stall(self._check_host(node), share)

    def cut(self, node: int, peer: int | None = None) -> None:
        """Cut a node's link, of any rank: frames that leave it, or the switch for it, are dropped from now on.

        With ``peer``: those alone that go from one of the two to the other.
        """
        if node not in range(self._all_nodes):
            raise ValueError(f"node must be 0 to {self._all_nodes - 1}, not {node!r}")
        self._cuts.append(Cut(self.cycle, node, peer))

    def mend(self, node: int) -> None:
        """Mend a node's link that was cut, of any rank: it carries frames from now on."""
        if node not in range(self._all_nodes):
            raise ValueError(f"node must be 0 to {self._all_nodes - 1}, not {node!r}")
        self._cuts.append(Cut(self.cycle, node, None, mends=True))

    def tell(self, node: int, what: Any) -> None:
        """Have ``told(node, what)`` called with what a node's host has to say, to be pickled.

        It is called once at rank 0, in order of time, and so may compare the hosts of all nodes; what it finds
        wrong it raises as callbacks do. It must ask nothing of the board but ``told_at`` and ``order``.
        """
        self._facts.append(Fact(self.cycle, self.now, node, what))

    def order(self, what: Any) -> None:
        """Have ``ordered(what)`` called at all ranks, with what is to be pickled.

        It is called at the next end of a window, or at this edge if it is one, and may ask of the board what
        callbacks may. Raises RuntimeError unless ``told`` asks for it, since nothing else is in order of time.
        """
        if not self._telling:
            raise RuntimeError("order must be called from within told")
        self._orders.append(what)

    def at(self, time_ps: int, then: Then) -> None:
        """Call ``then`` once, at the first rising edge at or after a time, but not in this cycle any more."""
        heapq.heappush(self._alarms, (time_ps, next(self._order), then))

    def _check(self, node: int) -> int:
        if node not in self.nodes:
            raise ValueError(f"node must be {self.nodes[0]} to {self.nodes[-1]}, not {node!r}")
        return node

    def _check_host(self, node: int) -> int:
        if not self._host_ports[self._check(node)]:
            raise ValueError(f"node {node} has no host packet port")
        return node

    # ---- for LiveRun ----

    @property
    def next_alarm(self) -> int | None:
        """The time of the next alarm; None without any."""
        return self._alarms[0][0] if self._alarms else None

    @property
    def next_edge(self) -> int | None:
        """The rising edge at which it is due; the next one for a time that has passed."""
        return max(self._clock.edge(self._alarms[0][0]), self.cycle + 1) if self._alarms else None

    @property
    def busy(self) -> list[int]:
        """Nodes that run a program."""
        return [node for node, queue in self._queues.items() if queue]

    @property
    def sending(self) -> list[int]:
        """Nodes whose hosts have frames that the node has not taken."""
        return [node for node, frames in self._unsent.items() if frames]

    def take(self) -> tuple[list[Cut], list[Fact]]:
        """What has been cut, and told, since the last call."""
        cuts, self._cuts = self._cuts, []
        facts, self._facts = self._facts, []
        return cuts, facts

    def hand_on(self, fact: Fact) -> None:
        """Have ``told`` called with what a host of any rank has told."""
        assert self.told is not None
        self.told_at, self._telling = fact.time, True
        try:
            self.told(fact.node, fact.what)
        finally:
            self._telling = False

    @property
    def ordering(self) -> bool:
        """Whether orders wait for the end of the window."""
        return bool(self._orders)

    def take_orders(self) -> list[Any]:
        """Those that have waited."""
        orders, self._orders = self._orders, []
        return orders

    def happened(self) -> list[Then]:
        """What is to be called for programs that have ended, bytes that were written, and frames of hosts."""
        calls: list[Then] = []
        for node in self._top.ended():
            queue = self._queues[node]
            ended, reads = queue.popleft(), self._top.reads(node).tolist()
            calls.append(functools.partial(ended.then, reads))
            if queue:
                self._top.run_host(node, queue[0].program)
        for place in self._top.written():
            calls += self._watchers[place]
        for node in self._top.sent():
            if then := self._unsent[node].popleft():
                calls.append(then)
        for _, node, frame in self._top.handed():
            calls += [functools.partial(receiver, frame) for receiver in self._receivers[node]]
        return calls

    def due(self) -> list[Then]:
        """What is to be called for alarms whose time has come, in the order of their times."""
        now, calls = self.now, []
        while self._alarms and self._alarms[0][0] <= now:
            calls.append(heapq.heappop(self._alarms)[2])
        return calls


class LiveRun:
    """The run of live hosts: calls them when something has happened, and says when time may be skipped.

    All ranks know the same of all hosts and nodes at a meeting, and so find the same.
    """

    def __init__(
        self,
        hosts: LiveHosts,
        board: Board,
        top: Top,
        *,
        quiet_cycles: int,
        endless: bool = False,
        alone: bool = True,
    ):
        self.failure: Failure | None = None  # that a host has found
        self._alone = alone  # no other rank has hosts
        self._hosts, self._board, self._top = hosts, board, top
        self._quiet_cycles, self._endless = quiet_cycles, endless
        self._last_call = 0  # the edge: a host may have changed memory, which nodes are yet to see
        self._done: int | None = None
        self._idle_skips = 0
        self._last_skip = -1

    def start(self) -> None:
        """Let the hosts begin."""
        self._top.go_live()
        self._call([self._hosts.start])

    def serve(self) -> None:
        """Call the hosts for all that has happened."""
        self._call([*self._board.happened(), *self._board.due()])

    def judge(self, facts: Sequence[Fact]) -> Failure | None:
        """Hand on what hosts have told, at rank 0; what is found wrong."""
        for fact in facts:
            try:
                self._board.hand_on(fact)
            except (CheckFailed, SimulationError) as error:
                return Failure(fact.cycle, fact.node, str(error), of_host=True)
        return None

    def obey(self, orders: Sequence[Any]) -> None:
        """Let the hosts do what they are ordered to."""
        assert self._board.ordered is not None
        self._call([functools.partial(self._board.ordered, order) for order in orders])

    @property
    def alarm(self) -> int | None:
        """The rising edge at which to serve at the latest."""
        return self._board.next_edge

    def state(self, *, failed: bool) -> Live:
        """How the hosts of this rank are; in a run that has ``failed``, what they wait for, too."""
        board, hosts = self._board, self._hosts
        quiet = self._top.cycle() >= max(self._top.last_progress(), self._last_call) + self._quiet_cycles
        return Live(
            called=self._last_call,
            alarm=board.next_alarm,
            still=quiet and not board.busy and hosts.may_skip(),
            done=self._done,
            progress=hosts.progress,
            waits=Waits(tuple(board.busy), tuple(board.sending), hosts.may_skip(), hosts.waiting())
            if failed
            else None,
        )

    def next_look(self, state: State) -> int:
        """The next edge at which time may be skipped, as far as is known now.

        It is where nothing has happened for ``quiet_cycles``, or, where something else then forbids it, some
        edges after it: neither depends on when Python wakes.
        """
        quiet, now = self._quiet_from(state), self._top.cycle()
        return quiet + max(0, (now - quiet) // _LOOK_CYCLES + 1) * _LOOK_CYCLES

    def skip(self, state: State) -> int | None:
        """The time to which to skip now, if at all: that of the next alarm.

        Raises SimulationError when hosts wait in vain.
        """
        live, quiet, now = state.live, self._quiet_from(state), self._top.cycle()
        if now < quiet or (now - quiet) % _LOOK_CYCLES or live is None:
            return None
        if live.alarm is None or not live.still or state.holds_frames:
            return None
        self._idle_skips = self._idle_skips + 1 if state.progress == self._last_skip else 0
        if self._idle_skips >= MAX_IDLE_SKIPS and not self._endless:
            raise SimulationError(f"{MAX_IDLE_SKIPS} alarms have passed, and nothing else has happened")
        self._last_skip = now  # a skip is progress: until something else is, this is the last edge with any
        return live.alarm

    def waiting(self, live: Live, time_ps: int) -> str:
        """What all hosts wait for, for a message."""
        assert live.waits is not None
        waits, alarm = live.waits, live.alarm
        parts = [f"live hosts at {time_ps / 1e6:.3f} µs"]
        if waits.busy:
            parts.append(f"programs run at nodes {', '.join(map(str, waits.busy))}")
        else:
            parts.append("no program runs")
        if waits.sending:
            parts.append(f"frames of hosts wait at nodes {', '.join(map(str, waits.sending))}")
        parts.append("no alarm is set" if alarm is None else f"the next alarm is at {alarm / 1e6:.3f} µs")
        if alarm is not None and not waits.may_skip:
            parts.append("no time may be skipped until then")
        parts.append(waits.hosts)
        return ", ".join(parts)

    def _call(self, calls: Iterable[Then]) -> None:
        try:
            for call in calls:
                if self.failure or (self._alone and self._done is not None):
                    return
                call()
                self._last_call = self._top.cycle()
                if self._done is None and self._hosts.done:
                    self._done = self._top.cycle()
        except (CheckFailed, SimulationError) as error:
            self.failure = Failure(self._top.cycle(), self._board.nodes[0], str(error), of_host=True)

    def _quiet_from(self, state: State) -> int:
        """The first rising edge at which nothing has happened for ``quiet_cycles``, as far as is known now."""
        assert state.live is not None
        return max(state.progress, state.live.called) + self._quiet_cycles
