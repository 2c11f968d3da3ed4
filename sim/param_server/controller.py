"""Controller of a training at rank 0: golden servers beside the simulated ones, and orders to all hosts.

Hosts report the events at their nodes in order of time, and carry out the controller's orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.param_server.facts import Algorithm, ParamServerConfig
from fanin.sim.cosim.live import Board
from fanin.sim.learning.learner import Learner
from fanin.sim.param_server.rows import Rows
from fanin.sim.param_server.training import Account, Outcome, ServerUpdate, TrainingJob, sync_ends

PS = 10**12  # picoseconds per second


# ---- facts from workers' hosts ----


@dataclass(frozen=True)
class ActivityEnded:
    """Fact: a worker has computed or waited (``kind``) since ``begin``, in seconds since the start."""

    kind: str
    begin: float


@dataclass(frozen=True)
class GradientPushed:
    """Fact: a worker has posted the writes of its next gradient; ``parts`` has the bytes per server."""

    version: int
    parts: Sequence[bytes]


@dataclass(frozen=True)
class RowReceived:
    """Fact: a row of server ``shard`` has arrived in a worker's memory, at ``address``."""

    shard: int
    address: int
    row: bytes


@dataclass(frozen=True)
class WatchExpired:
    """Fact: enough time has passed since the worker's last gradient or Watch for a queue pair to have ended."""


@dataclass(frozen=True)
class WorkerStopped:
    """Fact: a worker has stopped answering, by the job's ``stops``; ``lost``: since a queue pair ended."""

    lost: bool


@dataclass(frozen=True)
class ReplacementReady:
    """Fact: the replacement of a worker has connected its queue pairs, and waits for rows."""


# ---- facts from servers' hosts ----


@dataclass(frozen=True)
class GradientArrived:
    """Fact: a worker's gradient has arrived in its slot."""

    worker: int
    slot: int


@dataclass(frozen=True)
class RowStored:
    """Fact: the server has stored a new row in its memory."""

    row: bytes


@dataclass(frozen=True)
class QueuePairEnded:
    """Fact: the server's queue pair to a worker has ended."""

    worker: int


@dataclass(frozen=True)
class SlotsVacated:
    """Fact: the slots of a replaced worker are empty, except for a gradient of zeros on ``version`` of w."""

    worker: int
    version: int


# ---- orders ----


@dataclass(frozen=True)
class Watch:
    """Order: the worker's host reports ``WatchExpired`` when a queue pair in use could have ended."""

    worker: int


@dataclass(frozen=True)
class CheckQueuePairs:
    """Order: the hosts of the worker and of the servers check whether a queue pair of the worker has ended."""

    worker: int


@dataclass(frozen=True)
class GiveUp:
    """Order: the worker's host gives the worker up, because a server's queue pair to it has ended."""

    worker: int


@dataclass(frozen=True)
class Replace:
    """Order: the servers' hosts readmit a worker's replacement."""

    worker: int


@dataclass(frozen=True)
class Join:
    """Order: a worker's replacement starts at the row with its gradient of zeros, which has this version."""

    worker: int
    version: int


@dataclass(frozen=True)
class End:
    """Order: the run is complete."""


Fact = (
    ActivityEnded
    | GradientPushed
    | RowReceived
    | WatchExpired
    | WorkerStopped
    | ReplacementReady
    | GradientArrived
    | RowStored
    | QueuePairEnded
    | SlotsVacated
)
Order = Watch | CheckQueuePairs | GiveUp | Replace | Join | End


@dataclass
class _Worker:
    """The controller's view of a worker."""

    number: int
    dead: bool  # it has stopped answering
    returns: bool  # it will be replaced
    version: int = 0  # version of its newest gradient
    watched: bool = False  # its host will report ``WatchExpired``


class Controller:
    """Controller of a run: compares all rows with the golden servers', records the run, and gives orders.

    - ``initial``: initial values of w.
    - ``first_server``: node of the first server; the other servers follow.
    - ``give_up_seconds``: seconds without any delivery until a queue pair ends; None if no frame is lost.
    """

    def __init__(
        self,
        board: Board,
        *,
        job: TrainingJob,
        learner: Learner,
        sizes: ParamServerConfig,
        initial: npt.NDArray[np.float32],
        first_server: int,
        give_up_seconds: float | None,
    ):
        self._board, self._job, self._sizes, self._first_server = board, job, sizes, first_server
        self._give_up_ps = None if give_up_seconds is None else round(give_up_seconds * PS)
        self._start, self._complete = board.now, False
        self._account = Account(job, learner, lambda: self._w)
        shard_starts = [sizes.shard_start(shard) for shard in range(1, sizes.servers)]
        self._servers = [Rows(job, sizes, n, part) for n, part in enumerate(np.split(initial, shard_starts))]
        self._workers = [
            _Worker(n, dead=job.stops.get(n, math.inf) <= 0, returns=n in job.returns)
            for n in range(sizes.workers)
        ]
        self._pushing: dict[tuple[int, int], tuple[float, int]] = {}  # worker, version → begin, servers missing
        self._arrivals: dict[tuple[int, int, int], float] = {}  # shard, worker, slot → seconds
        self._last_stored = [0.0] * sizes.servers  # seconds, by shard: end of the last update

    def handle(self, node: int, fact: Fact) -> None:
        """Handle a fact from a host. Raises CheckFailed for a wrong row, and if Sync-DSGD cannot continue."""
        shard = node - self._first_server
        match fact:
            case ActivityEnded(kind, begin):
                self._account.note(node, kind, begin, self._seconds)
            case GradientPushed():
                self._note_pushed(self._workers[node], fact)
            case GradientArrived(worker, slot):
                self._note_arrival(shard, worker, slot)
            case RowStored(row):
                self._check_stored(shard, row)
            case RowReceived():
                self._check_received(node, fact)
            case WatchExpired():
                self._check_watch(self._workers[node])
            case QueuePairEnded(worker):
                self._give_up(self._workers[worker])
            case WorkerStopped(lost):
                self._note_stopped(self._workers[node], lost)
            case ReplacementReady():
                self._board.order(Replace(node))
            case SlotsVacated(worker, version):
                self._replace(shard, self._workers[worker], version)
        if not self._complete and all(self._is_finished(worker) for worker in self._workers):
            self._complete = True
            self._board.order(End())

    @property
    def applied(self) -> int:
        """Number of gradients that all servers have applied."""
        return self._account.applied

    @property
    def idle(self) -> bool:
        """Whether no gradient or row is in flight: all workers compute, wait at the barrier, or are dead."""
        return all(worker.dead or self._in_flight_since(worker) is None for worker in self._workers)

    def waiting(self) -> str:
        """Return the waiting workers, and what each waits for."""
        descriptions = []
        for worker in self._workers:
            if worker.dead or self._in_flight_since(worker) is None:
                continue
            versions = {server.shard: server.unapplied(worker.number) for server in self._servers}
            first = min((version for version in versions.values() if version), default=None)
            if first is None:
                senders = (s.shard for s in self._servers if s.in_flight_since(worker.number) is not None)
                awaited = f"server {_join_numbers(senders)}'s row"
            else:
                lacking = (shard for shard, version in versions.items() if version == first)
                awaited = f"server {_join_numbers(lacking)} to apply gradient {first}"
            pushed = f"worker {worker.number} has pushed gradient {worker.version}"
            descriptions.append(f"{pushed} and waits for {awaited}")
        return "; ".join(descriptions) or "no worker waits"

    def result(self) -> Outcome:
        """Return the run's outcome. Raises CheckFailed if rows were missing."""
        dead = [worker.number for worker in self._workers if worker.dead]
        outcome = self._account.close(self._workers, [server.golden for server in self._servers], dead)
        for server in self._servers:
            server.due.check(dead)
        outcome.start = self._start / PS
        return outcome

    # ---- gradients and rows ----

    def _note_pushed(self, worker: _Worker, pushed: GradientPushed) -> None:
        worker.version, worker.watched = pushed.version, True
        self._pushing[worker.number, pushed.version] = self._seconds, self._sizes.servers
        for server, data in zip(self._servers, pushed.parts, strict=True):
            server.note_pushed(worker.number, pushed.version, data, self._board.told_at)

    def _note_arrival(self, shard: int, worker: int, slot: int) -> None:
        """Note the arrival at one more server of the gradient in flight for this slot."""
        self._arrivals[shard, worker, slot] = self._seconds
        versions = [v for w, v in self._pushing if w == worker and self._sizes.slot_of(v) == slot]
        if not versions:
            return
        version = min(versions)
        begin, missing = self._pushing.pop((worker, version))
        if missing > 1:
            self._pushing[worker, version] = begin, missing - 1
        else:
            self._account.note(worker, "push", begin, self._seconds)

    def _check_stored(self, shard: int, row: bytes) -> None:
        server, now = self._servers[shard], self._seconds
        worker, version, staleness = server.apply(row)
        arrival = self._arrivals.pop((shard, worker, self._sizes.slot_of(version)), math.nan)
        begin, self._last_stored[shard] = max(self._last_stored[shard], arrival), now
        self._account.note_server(shard, worker, "update", begin, now)
        update = ServerUpdate(shard, worker, version, now, arrival)
        for receiver in server.note_stored(update, row, begin, self._board.told_at):
            self._start_watch(self._workers[receiver])
        self._account.outcome.updates.append(update)
        self._account.update(shard, staleness, now)

    def _check_received(self, worker: int, received: RowReceived) -> None:
        due = self._servers[received.shard].due
        sent, own_update = due.note_arrival(worker, received.address, received.row)
        if own_update:
            own_update.received = self._seconds
        self._account.note_server(received.shard, worker, "push", sent, self._seconds)

    # ---- queue pairs that end ----

    def _start_watch(self, worker: _Worker) -> None:
        """Order a watch of a worker with a row in flight, since its host may wait for no other event."""
        if self._give_up_ps is not None and not (worker.dead or worker.watched):
            worker.watched = True
            self._board.order(Watch(worker.number))

    def _check_watch(self, worker: _Worker) -> None:
        """Check both ends of a worker's queue pairs after ``give_up_seconds``: NICs do not report an end."""
        since = self._in_flight_since(worker)
        worker.watched = since is not None
        if since is not None and self._give_up_ps is not None:
            overdue = self._board.told_at - since >= self._give_up_ps
            self._board.order((CheckQueuePairs if overdue else Watch)(worker.number))

    def _give_up(self, worker: _Worker) -> None:
        if not self._is_finished(worker):  # a finished worker no longer needs its queue pairs
            self._check_continuable(worker)
            self._board.order(GiveUp(worker.number))

    def _note_stopped(self, worker: _Worker, lost: bool) -> None:
        finished, worker.dead = self._is_finished(worker), True
        if (lost and not finished) or worker.version < self._account.gradients_each:
            self._check_continuable(worker)

    def _check_continuable(self, worker: _Worker) -> None:
        """Raise CheckFailed with Sync-DSGD, which cannot continue without a worker, unless it is replaced."""
        if not worker.returns and self._job.algorithm is Algorithm.SYNC:
            raise sync_ends([other.number for other in self._workers if other.dead or other is worker])

    def _replace(self, shard: int, worker: _Worker, version: int) -> None:
        """Continue with a worker's replacement: frames in flight for the old worker will not arrive."""
        number = worker.number
        for gradient in [gradient for gradient in self._pushing if gradient[0] == number]:
            del self._pushing[gradient]
        for key in [key for key in self._arrivals if key[:2] == (shard, number)]:
            del self._arrivals[key]
        worker.version = self._servers[shard].vacate(number, version, self._board.told_at)
        worker.dead = worker.returns = worker.watched = False
        self._board.order(Join(number, worker.version))

    # ---- progress of workers ----

    def _in_flight_since(self, worker: _Worker) -> int | None:
        """Return when the worker's oldest gradient or row in flight was sent, in ps, or None."""
        times = (server.in_flight_since(worker.number) for server in self._servers)
        return min((time for time in times if time is not None), default=None)

    def _is_finished(self, worker: _Worker) -> bool:
        """Return whether the worker is dead, or has its gradients applied and its rows received."""
        if worker.dead:
            return not worker.returns or self._applied_all(worker)
        if worker.version < self._account.gradients_each or self._in_flight_since(worker) is not None:
            return False
        return not any(server.due.holds(worker.number) for server in self._servers)

    def _applied_all(self, worker: _Worker) -> bool:
        rows = (server.golden.row for server in self._servers)
        return all(row.lgvnum[worker.number] == self._account.gradients_each for row in rows)

    @property
    def _seconds(self) -> float:
        """Time of the fact that is being handled, in seconds since the start."""
        return (self._board.told_at - self._start) / PS

    @property
    def _w(self) -> npt.NDArray[np.float32]:
        return np.concatenate([server.golden.row.w for server in self._servers])


def _join_numbers(shards: Iterable[int]) -> str:
    return ", ".join(map(str, shards))
