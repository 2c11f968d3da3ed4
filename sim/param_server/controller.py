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
from fanin.sim.param_server.training import Account, Applied, Outcome, TrainingJob, sync_ends

PS = 10**12  # picoseconds per second


# ---- facts from workers' hosts ----


@dataclass(frozen=True)
class Did:
    """Fact: a worker has computed or waited from ``began``, in seconds since the start, until now."""

    kind: str
    began: float


@dataclass(frozen=True)
class Pushed:
    """Fact: a worker has posted the writes of its next gradient; ``parts`` has the bytes per server."""

    version: int
    parts: Sequence[bytes]


@dataclass(frozen=True)
class Received:
    """Fact: a server's row has arrived in a worker's memory, at ``address``."""

    shard: int
    address: int
    row: bytes


@dataclass(frozen=True)
class Waited:
    """Fact: a queue pair could have ended since the worker's last gradient, or since a Watch order."""


@dataclass(frozen=True)
class Left:
    """Fact: a worker has stopped answering, by the job's ``stops``, or ``lost`` with a queue pair."""

    lost: bool


@dataclass(frozen=True)
class Ready:
    """Fact: a worker's replacement has connected its queue pairs, and waits for rows."""


# ---- facts from servers' hosts ----


@dataclass(frozen=True)
class Came:
    """Fact: a worker's gradient has arrived in its slot."""

    worker: int
    slot: int


@dataclass(frozen=True)
class Made:
    """Fact: the server has stored a row in memory."""

    row: bytes


@dataclass(frozen=True)
class Gone:
    """Fact: the server's queue pair to a worker has ended."""

    worker: int


@dataclass(frozen=True)
class Vacated:
    """Fact: the slots of a replaced worker are empty, except for a gradient of zeros on a version of w."""

    worker: int
    version: int


# ---- orders ----


@dataclass(frozen=True)
class Watch:
    """Order: the worker's host must report when a queue pair in use could have ended."""

    worker: int


@dataclass(frozen=True)
class Ask:
    """Order: the hosts of the worker and of the servers read whether a queue pair of the worker has ended."""

    worker: int


@dataclass(frozen=True)
class Lose:
    """Order: give the worker up, because a server's queue pair to it has ended."""

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


Fact = Did | Pushed | Received | Waited | Left | Ready | Came | Made | Gone | Vacated
Order = Watch | Ask | Lose | Replace | Join | End


@dataclass
class _Worker:
    """The controller's view of a worker."""

    number: int
    dead: bool  # it has stopped answering
    returns: bool  # it will be replaced
    version: int = 0  # version of its newest gradient
    watches: bool = False  # its host will report ``Waited``


class Controller:
    """Controller: compares all rows with the golden servers', keeps the run's account, and gives orders.

    Servers are the nodes from ``first_server`` on. ``patience``: seconds without any delivery until a queue
    pair ends; None if nothing is lost.
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
        patience: float | None,
    ):
        self._board, self._job, self._sizes, self._first_server = board, job, sizes, first_server
        self._patience = None if patience is None else round(patience * PS)
        self._began, self._ended = board.now, False
        self._account = Account(job, learner, lambda: self._w)
        cuts = [sizes.shard_start(shard) for shard in range(1, sizes.servers)]
        self._servers = [Rows(job, sizes, n, part) for n, part in enumerate(np.split(initial, cuts))]
        self._workers = [
            _Worker(n, dead=job.stops.get(n, math.inf) <= 0, returns=n in job.returns)
            for n in range(sizes.workers)
        ]
        self._pushing: dict[tuple[int, int], tuple[float, int]] = {}  # begin, and number of servers missing
        self._came: dict[tuple[int, int, int], float] = {}  # shard, worker, slot → time of arrival
        self._last_made = [0.0] * sizes.servers  # time of the last update's row in memory

    def told(self, node: int, fact: Fact) -> None:
        """Handle a fact from a host. Raises CheckFailed for a wrong row, and if Sync-DSGD cannot continue."""
        shard = node - self._first_server
        match fact:
            case Did(kind, began):
                self._account.note(node, kind, began, self._seconds)
            case Pushed():
                self._note_pushed(self._workers[node], fact)
            case Came(worker, slot):
                self._note_came(shard, worker, slot)
            case Made(row):
                self._check_made(shard, row)
            case Received():
                self._check_received(node, fact)
            case Waited():
                self._look_after(self._workers[node])
            case Gone(worker):
                self._lose(self._workers[worker])
            case Left(lost):
                self._leave(self._workers[node], lost)
            case Ready():
                self._board.order(Replace(node))
            case Vacated(worker, version):
                self._replace(shard, self._workers[worker], version)
        if not self._ended and all(self._has_ended(worker) for worker in self._workers):
            self._ended = True
            self._board.order(End())

    @property
    def applied(self) -> int:
        """Number of gradients that all servers have applied."""
        return self._account.applied

    @property
    def quiet(self) -> bool:
        """Whether nothing is in flight: all workers compute, wait at the barrier, or are dead."""
        return all(worker.dead or self._in_flight_since(worker) is None for worker in self._workers)

    def waiting(self) -> str:
        """Return the waiting workers, and what each waits for."""
        waits = []
        for worker in self._workers:
            if worker.dead or self._in_flight_since(worker) is None:
                continue
            versions = {server.shard: server.unapplied(worker.number) for server in self._servers}
            first = min((version for version in versions.values() if version), default=None)
            if first is None:
                rows = [server for server in self._servers if server.in_flight_since(worker.number) is not None]
                what = f"server {_listed(server.shard for server in rows)}'s row"
            else:
                lacking = (shard for shard, version in versions.items() if version == first)
                what = f"server {_listed(lacking)} to apply gradient {first}"
            waits.append(f"worker {worker.number} has pushed gradient {worker.version} and waits for {what}")
        return "; ".join(waits) or "no worker waits"

    def result(self) -> Outcome:
        """Return the run's outcome. Raises CheckFailed if rows were missing."""
        dead = [worker.number for worker in self._workers if worker.dead]
        outcome = self._account.close(self._workers, [server.golden for server in self._servers], dead)
        for server in self._servers:
            server.due.check(dead)
        outcome.began = self._began / PS
        return outcome

    # ---- gradients and rows ----

    def _note_pushed(self, worker: _Worker, pushed: Pushed) -> None:
        worker.version, worker.watches = pushed.version, True
        self._pushing[worker.number, pushed.version] = self._seconds, self._sizes.servers
        for server, data in zip(self._servers, pushed.parts, strict=True):
            server.pushed(worker.number, pushed.version, data, self._board.told_at)

    def _note_came(self, shard: int, worker: int, slot: int) -> None:
        """Note the arrival at one more server of the gradient in flight for this slot."""
        self._came[shard, worker, slot] = self._seconds
        versions = [v for w, v in self._pushing if w == worker and self._sizes.slot_of(v) == slot]
        if not versions:
            return
        version = min(versions)
        began, missing = self._pushing.pop((worker, version))
        if missing > 1:
            self._pushing[worker, version] = began, missing - 1
        else:
            self._account.note(worker, "push", began, self._seconds)

    def _check_made(self, shard: int, row: bytes) -> None:
        server, now = self._servers[shard], self._seconds
        worker, version, staleness = server.apply(row)
        came = self._came.pop((shard, worker, self._sizes.slot_of(version)), math.nan)
        began, self._last_made[shard] = max(self._last_made[shard], came), now
        self._account.note_server(shard, worker, "update", began, now)
        update = Applied(shard, worker, version, now, came)
        for receiver in server.made(update, row, began, self._board.told_at):
            self._have_watched(self._workers[receiver])
        self._account.outcome.updates.append(update)
        self._account.update(shard, staleness, now)

    def _check_received(self, worker: int, received: Received) -> None:
        due = self._servers[received.shard].due
        left, own = due.arrived(worker, received.address, received.row)
        if own:
            own.arrived = self._seconds
        self._account.note_server(received.shard, worker, "push", left, self._seconds)

    # ---- queue pairs that end ----

    def _have_watched(self, worker: _Worker) -> None:
        """Start the watch at a worker with a row in flight, since its host may wait for no other event."""
        if self._patience is not None and not (worker.dead or worker.watches):
            worker.watches = True
            self._board.order(Watch(worker.number))

    def _look_after(self, worker: _Worker) -> None:
        """Check both ends if something was in flight for ``patience``: NICs do not report it themselves."""
        since = self._in_flight_since(worker)
        worker.watches = since is not None
        if since is not None and self._patience is not None:
            overdue = self._board.told_at - since >= self._patience
            self._board.order((Ask if overdue else Watch)(worker.number))

    def _lose(self, worker: _Worker) -> None:
        if not self._has_ended(worker):  # a worker with all its rows no longer needs its queue pairs
            self._check_goes_on(worker)
            self._board.order(Lose(worker.number))

    def _leave(self, worker: _Worker, lost: bool) -> None:
        ended, worker.dead = self._has_ended(worker), True
        if (lost and not ended) or worker.version < self._account.gradients_each:
            self._check_goes_on(worker)

    def _check_goes_on(self, worker: _Worker) -> None:
        """Continue without a worker. Raises CheckFailed with Sync-DSGD, unless the worker is replaced."""
        if not worker.returns and self._job.algorithm is Algorithm.SYNC:
            raise sync_ends([one.number for one in self._workers if one.dead or one is worker])

    def _replace(self, shard: int, worker: _Worker, version: int) -> None:
        """Continue with a worker's replacement: frames in flight for the old worker will not arrive."""
        number = worker.number
        for key in [key for key in self._pushing if key[0] == number]:
            del self._pushing[key]
        for place in [place for place in self._came if place[:2] == (shard, number)]:
            del self._came[place]
        worker.version = self._servers[shard].vacate(number, version, self._board.told_at)
        worker.dead = worker.returns = worker.watches = False
        self._board.order(Join(number, worker.version))

    # ---- progress of workers ----

    def _in_flight_since(self, worker: _Worker) -> int | None:
        """Return the time in ps since which a gradient or row of the worker has been in flight, or None."""
        times = (server.in_flight_since(worker.number) for server in self._servers)
        return min((time for time in times if time is not None), default=None)

    def _has_ended(self, worker: _Worker) -> bool:
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
        return (self._board.told_at - self._began) / PS

    @property
    def _w(self) -> npt.NDArray[np.float32]:
        return np.concatenate([server.golden.row.w for server in self._servers])


def _listed(shards: Iterable[int]) -> str:
    return ", ".join(map(str, shards))
