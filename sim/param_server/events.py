"""Event model of the parameter server and its workers (docs/systems/param-server-time.md).

Servers and workers are those of ``fanin.param_server.golden``, with bytes and bits; this module adds the times
of their steps. Source: RDMA-wild, section 4, algorithms 1 and 2; Sync-DSGD is from section 2.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from fanin.param_server.facts import Algorithm, ParamServerConfig, ServerLayout, WorkerLayout
from fanin.param_server.golden import ParameterServer, Push, WorkerEndpoint
from fanin.rdma.facts import MAX_RETRIES
from fanin.sim.learning.learner import Learner
from fanin.sim.param_server.costs import PACKET_BYTES, timeout_seconds
from fanin.sim.param_server.training import Account, Outcome, Progress, TrainingJob
from fanin.sim.param_server.worker import Worker

_FETCHED = 4  # rows that are posted one packet after the other
_MAX_PARTS = 16  # parts of a gradient, between which a link may carry other gradients' parts, as with packets


class _Clock:
    """Queue of events in order of time; events of equal times are in order of creation."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` at ``seconds``."""
        heapq.heappush(self._events, (seconds, next(self._numbers), callback))

    def run(self) -> None:
        """Handle all events."""
        while self._events:
            self.now, _, callback = heapq.heappop(self._events)
            callback()


class _Worker(Worker):
    """Worker with a link to the switch, which carries its gradients."""

    def __init__(self, run: _Run, endpoint: WorkerEndpoint):
        super().__init__(run, endpoint)
        self.run = run
        self._link_free = 0.0

    def send(self, pushes: Sequence[Push]) -> None:
        """Post one write after the other."""
        for push in pushes:
            self.run.call_after(push.shard * self.run.job.costs.post, partial(self._send, push))

    def _send(self, push: Push) -> None:
        """Send a write in parts over the worker's link, then the server's; it is stored with its last part."""
        run, server = self.run, self.run.servers[push.shard]
        costs, size = run.job.costs, run.slot_bytes(push.shard)
        parts = min(math.ceil(size / PACKET_BYTES), _MAX_PARTS)
        seconds = costs.write(size) / parts
        endpoint, memory = self.endpoint, self.endpoint.memory

        def arrive() -> None:
            if endpoint is not self.endpoint:
                return
            run.note(self.number, "push", begin)
            server.write(self.number, push.remote, bytes(memory[push.local : push.local + push.length]))

        def send_part(number: int) -> None:
            if self.dead or endpoint is not self.endpoint:
                return
            server.link_free = max(run.clock.now, server.link_free + seconds)
            if number == parts - 1:
                run.clock.at(server.link_free + costs.arrival(size), arrive)

        begin = run.clock.now
        for number in range(parts):
            self._link_free = max(begin, self._link_free) + seconds
            run.clock.at(self._link_free, partial(send_part, number))

    def receive(self, endpoint: WorkerEndpoint, push: Push, data: bytes, complete: bool) -> None:
        """Receive a row for an endpoint; unless ``complete``, only its first word, with the head version."""
        if self.dead or endpoint is not self.endpoint:
            return
        size = len(data) if complete else self.endpoint.config.word_bytes
        self.endpoint.memory[push.remote : push.remote + size] = data[:size]
        if complete:
            self.advance()


class _Server:
    """Server that scans, updates and pushes; with ``one_pass`` an update and its push overlap."""

    def __init__(self, run: _Run, engine: ParameterServer, shard: int):
        self.run, self.engine, self.shard = run, engine, shard
        self.link_free = 0.0  # time when the link for gradients is free
        self.busy = False
        self._row_free = [0.0] * engine.config.rows
        self._rows_end = 0.0  # time when the rows of previous rounds have left
        self._receivers: list[int] = []
        self._arrivals: dict[int, float] = {}  # by worker: seconds when its last gradient arrived
        self._give_up_times: dict[int, float] = {}  # by unresponsive worker, in seconds
        self._returning: list[int] = []  # replaced workers to readmit after their round

    @property
    def _excluded(self) -> list[int]:
        """Workers that the server has given up: it ignores their gradients, and pushes no rows to them."""
        return [worker for worker, end in self._give_up_times.items() if end <= self.run.clock.now]

    def _workers_with_gradients(self) -> list[int]:
        """Return the workers whose next gradients are present, without excluded workers."""
        excluded, workers = self._excluded, range(self.engine.config.workers)
        return [worker for worker in workers if worker not in excluded and self.engine.has_gradient(worker)]

    def write(self, worker: int, address: int, data: bytes) -> None:
        """Store a gradient that has arrived."""
        self.engine.memory[address : address + len(data)] = data
        self._arrivals[worker] = self.run.clock.now
        self.advance()

    def readmit(self, worker: int) -> None:
        """Readmit a replaced worker: its slots are empty, except for a gradient of zeros."""
        if worker in self._receivers:
            self._returning.append(worker)
        elif self.engine.row.lgvnum[worker] < self.run.account.gradients_each:
            self._give_up_times.pop(worker, None)
            version = self.engine.readmit(worker)
            self._arrivals[worker] = self.run.clock.now
            self.run.replace(worker, version)
            self.advance()

    def advance(self) -> None:
        """Start a scan if the server is idle and has a new gradient, or with Sync-DSGD all of a round."""
        if self.busy:
            return
        one_pass = self.run.job.costs.one_pass
        all_first = self.run.job.algorithm is Algorithm.SYNC and not one_pass
        if len(self._workers_with_gradients()) >= (self.engine.config.workers if all_first else 1):
            self.busy = True
            (self._pass if one_pass else self._scan)(0)

    def _pass(self, start: int) -> None:
        """Update with the arrived gradients from worker ``start`` on, and push each row while it is made.

        A row for several workers is pushed from memory instead. This is:

        - with Sync-DSGD, the row of a round's last gradient;
        - with pushes after scans, the row of a scan's last gradient;
        - with broadcasts, every row.

        The hardware searches for the next gradient during an update. A Sync-DSGD round therefore applies
        gradients, and posts rows, in order of arrival. A scan continues its search when its last update begins.
        """
        job, clock, costs = self.run.job, self.run.clock, self.run.job.costs
        wild, scans = job.algorithm is Algorithm.WILD, job.pushes_after_scan
        at_once = wild and not scans and not job.broadcasts
        worker = (
            self.engine.scan(start, self._excluded)
            if wild
            else min(self._workers_with_gradients(), key=self._arrivals.__getitem__, default=None)
        )
        if worker is None:
            self.busy = False
            return
        free = self._row_free[self.engine.config.row_of(self.engine.version + 1)]
        if free > clock.now:
            clock.at(free, lambda: self._pass(start))
            return
        seconds = self.run.update_seconds(self.shard)
        if at_once:
            seconds = max(seconds, costs.write(self.run.row_bytes(self.shard)))
        self._update(worker, seconds)
        if at_once:
            self._push(worker, clock.now, seconds)
        else:
            self._receivers.append(worker)
        ends_round = self._ends_round(worker)
        if ends_round:
            self._push_round(clock.now + seconds + costs.landing)
        next_start = 0 if scans and ends_round else worker + 1
        clock.at(clock.now + max(seconds, costs.turnaround), lambda: self._pass(next_start))

    def _ends_round(self, worker: int) -> bool:
        """Return whether a worker's gradient is the last of its round, or of its scan over the workers."""
        job = self.run.job
        if job.algorithm is Algorithm.SYNC:
            return len(self._receivers) == self.engine.config.workers
        if job.pushes_after_scan:
            return not any(other > worker for other in self._workers_with_gradients())
        return job.broadcasts

    def _scan(self, start: int) -> None:
        """Update with new gradients from worker ``start`` on, then push (algorithm 1, lines 10 to 21).

        If rows are pushed after every gradient, a scan's end only decides where the next scan begins.
        """
        clock, job = self.run.clock, self.run.job
        for worker in range(start, self.engine.config.workers):
            if worker not in self._excluded and self.engine.has_gradient(worker):
                seconds = self.run.update_seconds(self.shard)
                self._update(worker, seconds)
                self._receivers.append(worker)
                resume = partial(self._scan, worker + 1)
                at_once = job.algorithm is Algorithm.WILD and not job.pushes_after_scan
                clock.at(clock.now + seconds, partial(self._push_in_turn, resume) if at_once else resume)
                return
        self._push_in_turn(self._become_idle)

    def _push_in_turn(self, callback: Callable[[], None]) -> None:
        """Push the row to one receiver after the other, as a thread does; then call ``callback``."""
        clock, seconds = self.run.clock, self.run.job.costs.write(self.run.row_bytes(self.shard))
        receivers = self._take_receivers()
        for number, worker in enumerate(receivers):
            self._push(worker, clock.now + number * seconds, seconds)
        clock.at(clock.now + len(receivers) * seconds, callback)

    def _take_receivers(self) -> Sequence[int]:
        """Return the receivers of the row: the workers of its gradients, or all if rows are broadcast."""
        receivers, self._receivers = self._receivers, []
        returning, self._returning = self._returning, []
        for worker in returning:
            self.run.call_after(0.0, partial(self.readmit, worker))
        if receivers and self.run.job.broadcasts:
            receivers = list(range(self.engine.config.workers))
        excluded = self._excluded
        return [worker for worker in receivers if worker not in excluded]

    def _push_round(self, begin: float) -> None:
        """Push the row to its receivers, packet by packet in turn; a row ends with its own last packet."""
        packets = self.run.job.costs.packets(self.run.row_bytes(self.shard))
        first: dict[int, float] = {}
        sent = Counter[int]()
        now = max(begin, self._rows_end)
        for worker in packets_in_turn(self._take_receivers(), len(packets)):
            first.setdefault(worker, now)
            now += packets[sent[worker]]
            sent[worker] += 1
            if sent[worker] == len(packets):
                self._push(worker, first[worker], now - first[worker])
        self._rows_end = now

    def _become_idle(self) -> None:
        self.busy = False
        self.advance()

    def _update(self, worker: int, seconds: float) -> None:
        update, now = self.engine.apply(worker), self.run.clock.now
        self.run.account.note_server(self.shard, worker, "update", now, now + seconds)
        self.run.note_update(self.shard, update.staleness, now + seconds)

    def _push(self, worker: int, begin: float, seconds: float) -> None:
        """Send the model row from ``begin`` on; its memory is in use until the acknowledgement arrives.

        A dead worker sends no acknowledgement. Its row's memory is then in use until the last retransmission,
        which ends the queue pair and all later rows in it.
        """
        clock, costs = self.run.clock, self.run.job.costs
        latency = costs.arrival(self.run.row_bytes(self.shard))
        push, receiver = self.engine.push(worker), self.run.workers[worker]
        data = bytes(self.engine.memory[push.local : push.local + push.length])
        arrival = begin + seconds + latency
        acknowledged = arrival < receiver.stops
        if acknowledged:
            free = arrival + costs.latency
        else:
            free = self._give_up_times.setdefault(worker, begin + self.run.give_up_seconds(self.shard))
        self.run.account.note_server(self.shard, worker, "push", begin, arrival)
        row = self.engine.config.row_of(self.engine.version)
        self._row_free[row] = max(self._row_free[row], free)
        receive = partial(receiver.receive, receiver.endpoint, push, data)
        clock.at(begin + latency, lambda: receive(complete=False))
        clock.at(arrival, lambda: receive(complete=True))


def packets_in_turn(workers: Sequence[int], packets: int) -> list[int]:
    """Return the worker of each packet, in the order in which they leave; rows are posted in the given order.

    A row's first packet leaves when the row is posted. Between two posts, and after the last post, the workers'
    rows take turns packet by packet. This order was captured from the RTL with ``_FETCHED`` workers. Rows of
    further workers are assumed to be posted while earlier fetched packets are being sent.
    """
    unsent = dict.fromkeys(workers, packets)
    order: list[int] = []
    posted: list[int] = []
    last = -1

    def send(worker: int) -> None:
        unsent[worker] -= 1
        order.append(worker)

    def send_in_turn() -> None:
        nonlocal last
        if waiting := [worker for worker in posted if unsent[worker]]:
            last = min(waiting, key=lambda worker: (worker <= last, worker))
            send(last)

    for worker in workers[:_FETCHED]:
        posted.append(worker)
        send(worker)
        send_in_turn()
    posted += workers[_FETCHED:]
    while any(unsent.values()):
        send_in_turn()
    return order


class _Run:
    """Run of a job: its workers, servers and clock."""

    def __init__(self, job: TrainingJob, learner: Learner, progress: Progress | None):
        self.job, self.learner, self.progress = job, learner, progress
        self.config = ParamServerConfig(
            parameters=learner.parameters, workers=job.workers, slots=job.slots, servers=job.servers
        )
        self.clock = _Clock()
        self.account = Account(job, learner, lambda: self._w)
        initial = learner.initial().astype(np.float32)
        shard_starts = [self.config.shard_start(shard) for shard in range(1, job.servers)]
        engines = [
            ParameterServer(
                ServerLayout(self.config, shard), rate=job.lr, initial=part, broadcast=job.broadcasts
            )
            for shard, part in enumerate(np.split(initial, shard_starts))
        ]
        self.servers = [_Server(self, engine, shard) for shard, engine in enumerate(engines)]
        layout, warm_up = WorkerLayout(self.config), job.warm_up * learner.batches
        self.workers = [
            _Worker(self, WorkerEndpoint(number, layout, initial, job.waits_for_credit, warm_up))
            for number in range(job.workers)
        ]
        layouts = [engine.layout for engine in engines]
        self._row_bytes = [self._bytes(server.shard, server.row(0).size) for server in layouts]
        self._slot_bytes = [self._bytes(server.shard, server.slot(0, 0).size) for server in layouts]

    def run(self) -> Outcome:
        """Simulate the job to its end. Raises CheckFailed if Sync-DSGD cannot continue."""
        for worker in self.workers:
            worker.advance()
        for number, seconds in self.job.returns.items():
            self.clock.at(seconds, partial(self.servers[0].readmit, number))
        self.clock.run()
        dead = [worker.number for worker in self.workers if worker.dead]
        endpoints = [worker.endpoint for worker in self.workers]
        outcome = self.account.close(endpoints, [server.engine for server in self.servers], dead)
        outcome.rereads = sum(endpoint.rereads for endpoint in endpoints)
        return outcome

    def replace(self, worker: int, version: int) -> None:
        """Replace a worker; its replacement starts after a gradient of zeros of ``version``."""
        zeros = np.zeros(self.config.parameters, np.float32)
        endpoint = WorkerEndpoint(
            worker, WorkerLayout(self.config), zeros, self.job.waits_for_credit, joins=True
        )
        self.workers[worker].replace(endpoint)
        self.workers[worker].join(version)

    @property
    def seconds(self) -> float:
        """Simulated time since the start."""
        return self.clock.now

    @property
    def copy_seconds(self) -> float:
        """Seconds to take the model out of its buffers."""
        return self.job.costs.copy * sum(map(self.row_bytes, range(self.job.servers)))

    def note(self, worker: int, kind: str, begin: float) -> None:
        """Note a worker's activity that began at ``begin`` and ends now."""
        self.account.note(worker, kind, begin, self.clock.now)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` after ``seconds``."""
        self.clock.at(self.clock.now + seconds, callback)

    def update_seconds(self, shard: int) -> float:
        """Return the seconds of an update with one gradient."""
        return self.job.costs.update * self.row_bytes(shard)

    def give_up_seconds(self, shard: int) -> float:
        """Return the seconds from the first write of a row to the end of its last retransmission."""
        seconds = self.job.costs.write(self.slot_bytes(shard))
        return (1 + MAX_RETRIES) * timeout_seconds(self.config.writes_on_a_link, seconds)

    def row_bytes(self, shard: int) -> float:
        """Return the bytes of a server's row on links and in memory."""
        return self._row_bytes[shard]

    def slot_bytes(self, shard: int) -> float:
        """Return the bytes of a gradient for a server on links and in memory."""
        return self._slot_bytes[shard]

    def _bytes(self, shard: int, size: int) -> float:
        """Return ``size``, or the shard's part of the job's ``model_bytes``."""
        if self.job.model_bytes is None:
            return size
        return self.job.model_bytes * self.config.shard_values(shard) / self.config.parameters

    def note_update(self, shard: int, staleness: int, seconds: float) -> None:
        """Note the end of an update at ``seconds``."""
        if self.account.update(shard, staleness, seconds) and self.progress:
            self.progress(self.account.applied, seconds, self.account.outcome.epochs)

    @property
    def _w(self) -> npt.NDArray[np.float32]:
        return np.concatenate([server.engine.row.w for server in self.servers])


def run(job: TrainingJob, learner: Learner, progress: Progress | None = None) -> Outcome:
    """Simulate a job with the event model; ``progress`` is called after every update.

    Raises ValueError for sizes that do not fit, and CheckFailed with the names of dead workers without which
    Sync-DSGD cannot continue.
    """
    return _Run(job, learner, progress).run()
