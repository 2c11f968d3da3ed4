"""The golden server beside a simulated one: which rows it makes, and what is in flight to it and from it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.errors import CheckFailed
from fanin.golden.param_server import ParameterServer, Push
from fanin.param_server import ParamServerConfig, ServerLayout
from fanin.sim.param_server.training import Algorithm, Applied, TrainingJob


@dataclass(frozen=True)
class _Gradient:
    """It has been pushed, and not been applied yet."""

    since: int
    data: bytes


@dataclass(frozen=True)
class _Due:
    """A row on its way to a worker: in flight since its gradient is, or since it is made if it has none.

    ``update`` is that of its gradient, or else the row's last one.
    """

    since: int
    row: bytes
    push: Push
    update: Applied


class Rows:
    """All rows of a server, as the golden one makes them of the same gradients in the same order.

    ``initial`` are its values of w. Times since which something is in flight are in ps.
    """

    def __init__(
        self, job: TrainingJob, sizes: ParamServerConfig, shard: int, initial: npt.NDArray[np.float32]
    ):
        self.shard, self._sizes, self._broadcasts = shard, sizes, job.broadcasts
        layout = ServerLayout(sizes, shard)
        self.golden = ParameterServer(layout, rate=job.rate, initial=initial, broadcast=job.broadcasts)
        #: Gradients after which a server pushes: of all workers with Sync-DSGD, else of one.
        self._size = sizes.workers if job.algorithm is Algorithm.SYNC else 1
        #: Whether a row goes to one worker, as it is made.
        self._one_receiver = self._size == 1 and not job.broadcasts
        self._gradients: dict[tuple[int, int], _Gradient] = {}  # by worker and version
        self._since: dict[int, int] = {}  # of a worker's last gradient that has been applied
        self._round: list[Applied] = []  # updates that have not been pushed
        self._due: list[deque[_Due]] = [deque() for _ in range(sizes.workers)]

    def pushed(self, worker: int, version: int, data: bytes, since: int) -> None:
        """A worker has begun to write a gradient to this server."""
        self._gradients[worker, version] = _Gradient(since, data)

    def apply(self, row: bytes) -> tuple[int, int, int]:
        """A row has been made: its gradient's worker and version, and the staleness.

        Raises CheckFailed unless it is what the golden server makes.
        """
        golden = self.golden
        name, place = f"server {self.shard}, version {golden.version + 1}", golden.row.layout
        lgvnum = np.frombuffer(row, "<u4", self._sizes.workers, place.lgvnum - place.base)
        consumed = np.flatnonzero(lgvnum != golden.row.lgvnum)
        if len(consumed) != 1:
            raise CheckFailed(f"{name}: LGVnum of {len(consumed)} workers has changed")
        worker = int(consumed[0])
        version = int(lgvnum[worker])
        gradient = self._gradients.pop((worker, version), None)
        if gradient is None:
            raise CheckFailed(
                f"{name} for worker {worker}: gradient {version} was not sent, or has been applied before"
            )
        slot = golden.layout.slot(worker, self._sizes.slot_of(version))
        golden.memory[slot.base : slot.base + slot.size] = gradient.data
        self._since[worker] = gradient.since
        found = golden.apply(worker)
        place = golden.row.layout
        if row != golden.memory[place.base : place.base + place.size]:
            raise CheckFailed(f"{name} for worker {worker}: the row differs from the golden server's")
        return worker, version, found.staleness

    def made(self, update: Applied, row: bytes, began: float, now: int) -> list[int]:
        """The workers to which the row of an update, which ``began`` at that time in seconds, goes now.

        None of them, where a round is not complete.
        """
        self._round.append(update)
        if len(self._round) < self._size:
            return []
        own = {each.worker: each for each in self._round}
        for each in self._round:
            each.left = began if self._one_receiver else update.made
        self._round = []
        receivers = list(range(self._sizes.workers) if self._broadcasts else own)
        for worker in receivers:
            since = self._since[worker] if worker in own else now
            self._due[worker].append(_Due(since, row, self.golden.push(worker), own.get(worker, update)))
        return receivers

    def received(self, worker: int, address: int, row: bytes) -> Applied:
        """A worker has a row: of its gradient's update, or the row's last one if it has none of its own.

        Raises CheckFailed unless it is the next one that was made for it.
        """
        if not self._due[worker]:
            raise CheckFailed(f"server {self.shard}: worker {worker} has got a row that was not made for it")
        due = self._due[worker].popleft()
        if (row, address) != (due.row, due.push.remote):
            raise CheckFailed(f"server {self.shard}: worker {worker} has got another row than was made for it")
        return due.update

    def holds(self, worker: int) -> bool:
        """Whether a gradient of a worker has been applied, and waits for the round's other gradients."""
        return any(update.worker == worker for update in self._round)

    def unapplied(self, worker: int) -> int | None:
        """The version of a worker's first gradient that is in flight, if there is one."""
        return min((version for sender, version in self._gradients if sender == worker), default=None)

    def in_flight_since(self, worker: int) -> int | None:
        """Since when the first of a worker's gradients, or of its rows, has been in flight, if there is one."""
        times = [gradient.since for (sender, _), gradient in self._gradients.items() if sender == worker]
        times += [due.since for due in self._due[worker]]
        return min(times, default=None)
