"""Check of the rows that a server in RTL pushes after scans."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise

from fanin.base.errors import CheckFailed
from fanin.param_server.golden import ParameterServer
from fanin.sim.param_server.training import ServerUpdate


class ScannedRows:
    """Check of a server's scanned rows against the ``golden`` server, which applies the same gradients.

    Only the server knows where a scan ends; here the ends follow from the versions of arriving rows. A row goes
    to the workers whose gradients its scan has applied; with ``broadcast`` it goes to all.
    """

    def __init__(self, golden: ParameterServer, *, broadcast: bool):
        workers = range(golden.config.workers)
        self._golden, self._broadcast, self._all = golden, broadcast, workers
        self._updates: list[ServerUpdate] = []  # index + 1 is the version of w after the update
        # By worker: version of each row in flight, and the time in ps since which it is due.
        self._due: list[list[tuple[int, int]]] = [[] for _ in workers]
        self._received = [[0] for _ in workers]  # versions of a worker's rows, from the initial version 0 on

    def note_stored(
        self, update: ServerUpdate, row: bytes, begin: float, since: int, now: int
    ) -> Sequence[int]:
        """Note that a row is in memory; return the workers to which it, or a later row, is now due."""
        self._updates.append(update)
        receivers = self._all if self._broadcast else (update.worker,)
        for worker in receivers:
            self._due[worker].append((len(self._updates), since if worker == update.worker else now))
        return receivers

    def holds(self, worker: int) -> bool:
        """Return False: a scan does not wait for gradients."""
        return False

    def due_since(self, worker: int) -> int | None:
        """Return the time since which the first row in flight to a worker is due."""
        return self._due[worker][0][1] if self._due[worker] else None

    def note_arrival(self, worker: int, address: int, row: bytes) -> tuple[float, ServerUpdate | None]:
        """Note a row's arrival; return when it was made, and the worker's own update that is new in it.

        Raises CheckFailed unless it is a golden row at a scan's end, in the buffer that the worker expects.
        """
        version = int.from_bytes(row[-4:], "little")  # the trailing version is the row's last word
        name = f"server {self._golden.layout.shard}, version {version} at worker {worker}"
        previous = self._received[worker][-1]
        if not previous < version <= len(self._updates):
            raise CheckFailed(f"{name}: the worker has had {previous}; {len(self._updates)} exist")
        layout = self._golden.rows[self._golden.config.row_of(version)].layout
        if row != self._golden.memory[layout.base : layout.base + layout.size]:
            raise CheckFailed(f"{name}: another row than was made")
        own_updates = [update for update in self._updates[previous:version] if update.worker == worker]
        if len(own_updates) > 1 or (not own_updates and not self._broadcast):
            raise CheckFailed(f"{name}: {len(own_updates)} of the worker's gradients are new in a scan")
        row_number = len(self._received[worker]) if self._broadcast else own_updates[0].version
        if address != self._golden.buffer(row_number):
            raise CheckFailed(f"{name}: is in the other buffer")
        self._received[worker].append(version)
        self._due[worker] = [(due, since) for due, since in self._due[worker] if due > version]
        stored = self._updates[version - 1].stored
        if own_updates:
            own_updates[0].sent = stored
        return stored, own_updates[0] if own_updates else None

    def forget(self, worker: int) -> None:
        """Raise AssertionError: ``ParamServerCosim.sizes`` rejects replacements together with scans."""
        raise AssertionError("a job with rows that are pushed after scans has no replacements")

    def check(self, dead: Container[int]) -> None:
        """Check at the end that every scan visited workers once, in order, and its row reached its receivers.

        Raises CheckFailed. ``dead`` workers need no rows. A scan of dead workers alone may have left no row; it
        then counts as part of the next scan.
        """
        received = [set(versions) for versions in self._received]
        ends = sorted(set().union(*received))
        for start, end in pairwise(ends):
            scan = [update.worker for update in self._updates[start:end] if update.worker not in dead]
            name = f"server {self._golden.layout.shard}, versions {start + 1} to {end}"
            if any(later <= earlier for earlier, later in pairwise(scan)):
                raise CheckFailed(f"{name}: no scan finds gradients of workers {scan} in this order")
            receivers = self._all if self._broadcast else scan
            if lacking := [n for n in receivers if n not in dead and end not in received[n]]:
                raise CheckFailed(f"{name}: their row did not go to workers {lacking}")
