"""Event model of the ring's training: hosts and bits as in the RTL run, all-reduce times by a formula.

It serves hosts that reduce on their own cores, for which no RTL exists, and runs for which the NIC's time model
is enough.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fanin.base.limits import CLOCK_MHZ
from fanin.golden.mlp import Floats
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.sim.learning.replica import Dataset, State
from fanin.sim.network import SWITCH_NS
from fanin.sim.ring.profile import Cores
from fanin.sim.ring.schedule import (
    AwaitCompletions,
    Compute,
    Fetch,
    Learners,
    Overlap,
    Post,
    Program,
    Schedule,
    Times,
)
from fanin.sim.ring.sums import Sums
from fanin.sim.ring.time import RingTime
from fanin.sim.ring.training import Learning, Outcome, RingTraining

Callback = Callable[[], None]


class World:
    """Event model of nodes whose all-reduces go through one ring, one after the other.

    ``seconds`` gives the time of an all-reduce by its number of values. An all-reduce begins when all nodes
    have posted it and the previous one has ended.
    """

    def __init__(self, learners: Learners, nodes: int, sums: Sums, seconds: Callable[[int], float]):
        self.now = 0.0
        self.sums, self.nodes, self._seconds = sums, nodes, seconds
        self.completed = 0
        self._alarms: list[tuple[float, int, Callback]] = []  # heap: time, order, callback
        self._order = itertools.count()
        self._posts: list[int] = []  # per descriptor, the number of nodes that have posted it
        self._free = 0.0  # time when the ring has finished all posted all-reduces
        workers = learners.workers(lambda: self.now)
        self.hosts = [_Host(self, node, worker.run(learners.steps)) for node, worker in enumerate(workers)]
        self.times = [worker.times for worker in workers]

    def run(self) -> list[Times]:
        """Run to the end of all programs; return the times of all hosts."""
        for host in self.hosts:
            host.advance()
        while self._alarms:
            self.now, _, callback = heapq.heappop(self._alarms)
            callback()
        return self.times

    def at(self, time: float, callback: Callback) -> None:
        """Call ``callback`` at ``time``, in seconds."""
        heapq.heappush(self._alarms, (time, next(self._order), callback))

    def post(self, descriptor: int, values: int) -> None:
        """Note a node's post of a descriptor; schedule the all-reduce when all nodes have posted it."""
        if descriptor == len(self._posts):
            self._posts.append(0)
        self._posts[descriptor] += 1
        if self._posts[descriptor] == self.nodes:
            self._free = max(self._free, self.now) + self._seconds(values)
            self.at(self._free, self._complete)

    def _complete(self) -> None:
        self.completed += 1
        for host in self.hosts:
            host.wake()


class _Host:
    """Host of one node, which carries out its program's requests."""

    def __init__(self, world: World, node: int, program: Program):
        self._world, self._node, self._program = world, node, program
        self._posted = self._fetched = 0
        self._more_than: int | None = None  # the program waits until more descriptors than this are complete

    def advance(self, answer: Any = None) -> None:
        """Continue the program until it waits."""
        world = self._world
        try:
            request = self._program.send(answer)
        except StopIteration:
            return
        match request:
            case Compute(seconds):
                world.at(world.now + seconds, self.advance)
            case Post(_, gradient):
                self._post(gradient)
                self.advance()
            case AwaitCompletions(more_than):
                self._more_than = -1 if more_than is None else more_than
                self.wake()
            case Fetch():
                self._fetched += 1
                self.advance(world.sums.take(self._fetched - 1))

    def _post(self, gradient: Floats) -> None:
        self._world.sums.post(self._posted, self._node, gradient)
        self._posted += 1
        self._world.post(self._posted - 1, gradient.size)

    def wake(self) -> None:
        """Continue a program that waits, if enough descriptors are complete."""
        if self._more_than is not None and self._world.completed > self._more_than:
            self._more_than = None
            self.advance(self._world.completed)


def run_model(
    job: RingTraining,
    data: Dataset,
    state: State,
    *,
    seconds: Callable[[int], float],
    progress: Callable[[int], None] = lambda steps: None,
) -> Outcome:
    """Carry out a job from a state, as ``run_rtl`` does; ``seconds`` gives an all-reduce's time by its values.

    ``progress`` is called with the number of steps that all nodes have made. Raises CheckFailed as the learners
    do.
    """
    learning = Learning(job, data, state, progress=progress)
    nodes = job.training.nodes
    world = World(learning, nodes, Sums(job.reducer(job.config, state.step), nodes), seconds)
    times = world.run()
    return Outcome(learning.result(), times, [])


def nic_seconds(
    config: RingConfig,
    nodes: int,
    link: LinkConfig,
    *,
    switch_ns: float = SWITCH_NS,
    clock_mhz: float = CLOCK_MHZ,
    memory_gbps: float | None = None,
) -> Callable[[int], float]:
    """Return the NIC's time by the number of values, with INCEPTIONN's words taken as incompressible."""

    def seconds(values: int) -> float:
        time = RingTime(
            config=config,
            nodes=nodes,
            count=values,
            link=link,
            switch_ns=switch_ns,
            clock_mhz=clock_mhz,
            memory_gbps=memory_gbps,
        )
        return time.total / (clock_mhz * 1e6)

    return seconds


def on_cores(job: RingTraining, cores: Cores) -> tuple[RingTraining, Callable[[int], float]]:
    """Return the job of hosts that reduce on their cores, with a conventional NIC, and an all-reduce's time.

    With overlap, the communicating threads reduce and update every layer as it arrives; the other threads
    compute more slowly, and wait at the end. Without overlap, all threads wait for one thread after each layer
    (section III, figure 2a). There is no codec. Raises ValueError for groups.
    """
    if job.groups is not None:
        raise ValueError("groups are of ring nodes: hosts that reduce on their own cores are in one ring")
    nodes, single_thread = job.training.nodes, job.schedule.overlap is Overlap.NONE
    schedule = job.schedule if single_thread else Schedule(outstanding=job.training.network.layers)
    slowdown = 1.0 if single_thread else cores.slowdown
    profile = replace(job.profile, slowdown=slowdown, memory_bandwidth=math.inf)
    core_job = replace(job, schedule=schedule, profile=profile, config=replace(job.config, codec=None))
    return core_job, lambda values: cores.seconds(values, nodes, single_thread=single_thread)
