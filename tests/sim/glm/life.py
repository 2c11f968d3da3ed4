"""The life of a node in the co-simulation: the script of :mod:`tests.hdl.glm.script`.

Amaranth's simulator watches every stream and lets memory stall; this one is compiled, and does thousands of
steps.
"""

import functools
import heapq
import itertools
from dataclasses import dataclass, field

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.glm.driver import NodeMemories
from fanin.sim.cosim.program import HostProgram
from fanin.sim.switch.base import OutsideSwitch
from tests.hdl.glm.faulty_node import BAD, MEMORY
from tests.hdl.glm.script import REGION, Script

PERIOD_PS = 4_000
NEVER = 1 << 50  # ps
POLL = 40  # cycles between two looks at the status
LINE = 64  # bytes to which addresses of data are aligned


class World:
    """What the switch and the host of a run share: the script, made where the run is, for both."""

    def __init__(self, **life):
        self._life = life

    @functools.cached_property
    def script(self):
        """The script of this life, in which nothing has happened."""
        script = CosimScript(**self._life, poll=POLL)
        script.begin()
        return script

    def switch(self):
        """The network's switch, in the process of the simulation."""
        return LateSwitch(self.script)

    def hosts(self, board):
        """The node's host, in the same process."""
        return LifeHosts(board, self.script)


class LateSwitch(OutsideSwitch):
    """The script's switch, behind links that lose, copy and delay packets as the script's ``fate`` says."""

    def __init__(self, script):
        self._script = script
        self._waiting = []  # heap: time, order, up, port, frame
        self._order = itertools.count()

    @property
    def next_poll(self):
        """When the next packet arrives."""
        return self._waiting[0][0] if self._waiting else NEVER

    def add_job(self, job):
        """Not used: the script adds its jobs."""
        raise NotImplementedError

    def remove_job(self, job_id):
        """Not used: the script removes its jobs."""
        raise NotImplementedError

    def job_counters(self, job_id):
        """Of the script's switch."""
        return self._script.switch.job_counters(job_id)

    def counters(self):
        """Of the script's switch."""
        return self._script.switch.counters()

    def inject(self, port, frame, time):
        """A packet of the node: it arrives later, or not at all."""
        self._carry(True, port, frame, time)
        return self.poll(time)

    def _carry(self, up, port, frame, time):
        for delay in self._script.fate(up):
            heapq.heappush(self._waiting, (time + delay * PERIOD_PS, next(self._order), up, port, frame))

    def poll(self, time, busy=()):
        """What arrives at the switch up to a time, and what leaves it by then."""
        left = []
        while self._waiting and self._waiting[0][0] <= time:
            now, _, up, port, frame = heapq.heappop(self._waiting)
            if not up:
                left.append((port, frame, now))
                continue
            for out, answer, _ in self._script.switch.inject(port, frame, now):
                self._carry(False, out, answer, now)
        return left


class _Wish:
    """What a script waits for: the words of a program, or some cycles."""

    def __init__(self, what):
        self._what = what

    def __await__(self):
        return (yield self._what)


@dataclass
class CosimScript(Script):
    """The script, whose accesses are programs of the simulated host."""

    content: list = field(default_factory=list)

    async def access(self, operations):
        """A program."""
        return await _Wish(HostProgram().extend(operations))

    async def pass_time(self, cycles):
        """An alarm."""
        await _Wish(cycles)

    def lay(self, content):
        """Kept until the job's configuration, when memory gets it."""
        self.content = content

    def places(self):
        """Addresses of the data; from some place on they are bad, if memory is to err."""
        places = super().places()
        lists = places.lists
        bases = [*places.samples, places.labels, *(each.address for each in lists)]
        if self.rng.random() < self.errors:
            victim = self.rng.randrange(len(bases))
            lines = self.rng.choice([0, 1, self.rng.randrange(REGION // LINE)])
            bases[victim] = BAD - LINE * lines
        for memory, base, data in zip(self.memories, bases, self.content, strict=True):
            place = (base + np.arange(len(data))) % MEMORY
            memory[place] = np.frombuffer(data, np.uint8)
        samples = len(places.samples)
        lists = [each._replace(address=at) for each, at in zip(lists, bases[samples + 1 :], strict=True)]
        return NodeMemories(samples=bases[:samples], labels=bases[samples], lists=lists)


class LifeHosts:
    """The host of the co-simulation that a script plays."""

    def __init__(self, board, script):
        self.done = False
        self._board, self._script = board, script
        script.memories = [board.memory(0, port) for port in range(script.node.read_ports)]
        self._course = script.live()

    @property
    def progress(self):
        """Steps so far."""
        return len(self._script.events)

    def may_skip(self):
        """Time is never skipped."""
        return False

    def waiting(self):
        """Where the life is."""
        return f"step {self.progress} of seed {self._script.seed}"

    def result(self):
        """Steps, and clean jobs."""
        return self.progress, self._script.clean

    def start(self):
        """Begin."""
        self._go(None)

    def _go(self, sent):
        script = self._script
        try:
            wish = self._course.send(sent)
        except StopIteration:
            self.done = True
            return
        except AssertionError as error:
            last = "; ".join(script.events[-25:])
            raise CheckFailed(f"seed {script.seed}, step {self.progress}: {error}; {last}") from error
        if isinstance(wish, int):
            self._board.at(self._board.now + wish * PERIOD_PS, lambda: self._go(None))
        else:
            self._board.run(0, wish, self._go)
