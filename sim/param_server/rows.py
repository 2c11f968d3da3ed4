"""Golden server for comparison with a simulated one: its rows, and the gradients and rows in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.param_server.facts import Algorithm, ParamServerConfig, PushAfter, ServerLayout
from fanin.param_server.golden import ParameterServer, Push
from fanin.sim.param_server.scans import ScannedRows
from fanin.sim.param_server.training import ServerUpdate, TrainingJob


@dataclass(frozen=True)
class _Gradient:
    """A pushed gradient that has not been applied; ``since``: time in ps at which it was sent."""

    since: int
    data: bytes


@dataclass(frozen=True)
class _DueRow:
    """A row in flight to a worker.

    - ``since``: time in ps at which the worker's gradient was sent; without one, the row was stored.
    - ``row``: content.
    - ``push``: the server's write of the row.
    - ``update``: update with the worker's gradient; without one, the row's last update.
    """

    since: int
    row: bytes
    push: Push
    update: ServerUpdate


class DueRows(Protocol):
    """Receivers of a server's rows, and rows in flight.

    Times of type int are in ps; times of type float are in seconds.
    """

    def note_stored(
        self, update: ServerUpdate, row: bytes, begin: float, since: int, now: int
    ) -> Sequence[int]:
        """Note that an update's row is in memory; return the workers to which it, or a later row, is now due.

        - ``begin``: start of the update, in seconds.
        - ``since``: time in ps at which its gradient was sent.
        - ``now``: time of the call, in ps.
        """

    def note_arrival(self, worker: int, address: int, row: bytes) -> tuple[float, ServerUpdate | None]:
        """Note a row's arrival; return its ``sent`` in seconds, and the worker's update that is new in it.

        Raises CheckFailed unless the row may come next.
        """

    def holds(self, worker: int) -> bool:
        """Return whether a worker's gradient has been applied and waits for the round's other gradients."""

    def due_since(self, worker: int) -> int | None:
        """Return ``_DueRow.since``, in ps, of the first row in flight to a worker, or None."""

    def forget(self, worker: int) -> None:
        """Forget the rows in flight to a worker that is replaced."""

    def check(self, dead: Container[int]) -> None:
        """Check at the end, with ``dead`` workers, that rows have reached their workers. Raises CheckFailed."""


class RoundRows:
    """Rows that are pushed after a round of gradients: of all workers with Sync-DSGD, otherwise of one."""

    def __init__(self, golden: ParameterServer, job: TrainingJob):
        self._golden, self._broadcasts = golden, job.broadcasts
        workers = golden.config.workers
        self._size = workers if job.algorithm is Algorithm.SYNC else 1
        #: Whether each row goes to one worker. The server then pushes the row while it makes it.
        self._one_receiver = self._size == 1 and not job.broadcasts
        self._round: list[tuple[ServerUpdate, int]] = []  # updates that have not been pushed, with ``since``
        self._due: list[deque[_DueRow]] = [deque() for _ in range(workers)]
        self._joining: set[int] = set()  # replacements that have not received a row

    def note_stored(
        self, update: ServerUpdate, row: bytes, begin: float, since: int, now: int
    ) -> Sequence[int]:
        """Note a row; a round's last row is due to its workers, or to all. Its other rows are not pushed."""
        self._round.append((update, since))
        if len(self._round) < self._size:
            return ()
        own_updates = {pending.worker: (pending, since) for pending, since in self._round}
        # In seconds: a row for one worker can be sent from the update's begin on, others after they are stored.
        for pending, _ in self._round:
            pending.sent = begin if self._one_receiver else update.stored
        self._round = []
        receivers = list(range(len(self._due)) if self._broadcasts else own_updates)
        for worker in receivers:
            update_in_row, due_since = own_updates.get(worker, (update, now))
            self._due[worker].append(_DueRow(due_since, row, self._golden.push(worker), update_in_row))
        return receivers

    def note_arrival(self, worker: int, address: int, row: bytes) -> tuple[float, ServerUpdate | None]:
        """Note a row's arrival: it must be the next row made for the worker."""
        name = f"server {self._golden.layout.shard}"
        if not self._due[worker]:
            raise CheckFailed(f"{name}: worker {worker} has got a row that was not made for it")
        due = self._due[worker].popleft()
        if worker in self._joining:  # skip broadcast rows that were pushed before it was readmitted
            self._joining.remove(worker)
            while self._due[worker] and (row, address) != (due.row, due.push.remote):
                due = self._due[worker].popleft()
        if (row, address) != (due.row, due.push.remote):
            raise CheckFailed(f"{name}: worker {worker} has got another row than was made for it")
        return due.update.sent, due.update if due.update.worker == worker else None

    def holds(self, worker: int) -> bool:
        """Return whether a worker's gradient has been applied and waits for the round's other gradients."""
        return any(update.worker == worker for update, _ in self._round)

    def due_since(self, worker: int) -> int | None:
        """Return ``_DueRow.since`` of the first row in flight to a worker, or None."""
        return self._due[worker][0].since if self._due[worker] else None

    def forget(self, worker: int) -> None:
        """Forget the rows in flight to a worker that is replaced."""
        self._due[worker].clear()
        self._joining.add(worker)

    def check(self, dead: Container[int]) -> None:
        """Do nothing: every row was checked at its arrival."""


class Rows:
    """Check of a simulated server's rows: a golden server applies the same gradients in the same order.

    ``initial``: initial values of the server's shard of w. Times are in ps.
    """

    def __init__(
        self, job: TrainingJob, sizes: ParamServerConfig, shard: int, initial: npt.NDArray[np.float32]
    ):
        self.shard, self._sizes = shard, sizes
        layout = ServerLayout(sizes, shard)
        self.golden = ParameterServer(layout, rate=job.lr, initial=initial, broadcast=job.broadcasts)
        self._gradients: dict[tuple[int, int], _Gradient] = {}  # by worker and version
        self._since: dict[int, int] = {}  # by worker: start of flight of its last applied gradient
        scans = job.push_after is PushAfter.SCAN  # in RTL a server scans only on request
        #: Receivers of the rows.
        self.due: DueRows = (
            ScannedRows(self.golden, broadcast=job.broadcasts) if scans else RoundRows(self.golden, job)
        )

    def note_pushed(self, worker: int, version: int, data: bytes, since: int) -> None:
        """Note that a worker began to write a gradient (``data``) to this server at ``since``, in ps."""
        self._gradients[worker, version] = _Gradient(since, data)

    def vacate(self, worker: int, version: int, since: int) -> int:
        """Clear the slots of a replaced worker, except for a gradient of zeros; return its version.

        ``since``: time in ps from which the gradient of zeros counts as in flight.
        """
        golden = self.golden
        zeros_version = golden.readmit(worker, version)
        for key in [key for key in self._gradients if key[0] == worker]:
            del self._gradients[key]
        self.due.forget(worker)
        slot = golden.layout.slot(worker, self._sizes.slot_of(zeros_version))
        zeros = bytes(golden.memory[slot.base : slot.base + slot.size])
        self._gradients[worker, zeros_version] = _Gradient(since, zeros)
        return zeros_version

    def apply(self, row: bytes) -> tuple[int, int, int]:
        """Apply a new row's gradient to the golden server, and compare the row with the golden server's.

        Returns the gradient's worker, its version, and its staleness. Raises CheckFailed if the rows differ, or
        if the row does not contain exactly one more gradient, which must be in flight.
        """
        golden = self.golden
        name, layout = f"server {self.shard}, version {golden.version + 1}", golden.row.layout
        lgvnum = np.frombuffer(row, "<u4", self._sizes.workers, layout.lgvnum - layout.base)
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
        applied = golden.apply(worker)
        layout = golden.row.layout
        if row != golden.memory[layout.base : layout.base + layout.size]:
            raise CheckFailed(f"{name} for worker {worker}: the row differs from the golden server's")
        return worker, version, applied.staleness

    def note_stored(self, update: ServerUpdate, row: bytes, begin: float, now: int) -> Sequence[int]:
        """Return the workers to which an update's row, or a later row, is now due; see :class:`DueRows`.

        - ``begin``: start of the update, in seconds.
        - ``now``: time of the call, in ps.
        """
        return self.due.note_stored(update, row, begin, self._since[update.worker], now)

    def unapplied(self, worker: int) -> int | None:
        """Return the version of a worker's first gradient in flight, or None."""
        return min((version for sender, version in self._gradients if sender == worker), default=None)

    def in_flight_since(self, worker: int) -> int | None:
        """Return when the worker's oldest gradient or row in flight was sent, in ps.

        None: nothing is in flight.
        """
        times = [gradient.since for (sender, _), gradient in self._gradients.items() if sender == worker]
        if (since := self.due.due_since(worker)) is not None:
            times.append(since)
        return min(times, default=None)
