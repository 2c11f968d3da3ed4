"""Rows that a server in RTL pushes after scans: their receivers, and a check that arrivals fit the scans."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise

from fanin.base.errors import CheckFailed
from fanin.param_server.golden import ParameterServer
from fanin.sim.param_server.training import Applied


class ScannedRows:
    """Check of one server's rows beside the ``golden`` server, which applies the same gradients.

    Only the server knows where a scan ends; here the ends follow from the versions of arriving rows. A row goes
    to the workers whose gradients its scan has applied; with ``broadcast`` it goes to all.
    """

    def __init__(self, golden: ParameterServer, *, broadcast: bool):
        workers = range(golden.config.workers)
        self._golden, self._broadcast, self._all = golden, broadcast, workers
        self._updates: list[Applied] = []  # index + 1 is the version of w after the update
        self._owed: list[list[tuple[int, int]]] = [[] for _ in workers]  # versions, and times in ps
        self._got = [[0] for _ in workers]  # versions of a worker's rows, from the initial version 0 on

    def made(self, update: Applied, row: bytes, began: float, since: int, now: int) -> Sequence[int]:
        """Note that a row is in memory; return the workers to which it, or a later row, is now due."""
        self._updates.append(update)
        receivers = self._all if self._broadcast else (update.worker,)
        for worker in receivers:
            self._owed[worker].append((len(self._updates), since if worker == update.worker else now))
        return receivers

    def holds(self, worker: int) -> bool:
        """Return False: a scan does not wait for gradients."""
        return False

    def since(self, worker: int) -> int | None:
        """Return the time since which the first row owed to a worker is due."""
        return self._owed[worker][0][1] if self._owed[worker] else None

    def arrived(self, worker: int, address: int, row: bytes) -> tuple[float, Applied | None]:
        """Note a row's arrival; return when it was made, and the worker's own update that is new in it.

        Raises CheckFailed unless it is a golden row at a scan's end, in the buffer that the worker expects.
        """
        version = int.from_bytes(row[-4:], "little")  # the trailing version is the row's last word
        name = f"server {self._golden.layout.shard}, version {version} at worker {worker}"
        before = self._got[worker][-1]
        if not before < version <= len(self._updates):
            raise CheckFailed(f"{name}: the worker has had {before}; {len(self._updates)} exist")
        place = self._golden.rows[self._golden.config.row_of(version)].layout
        if row != self._golden.memory[place.base : place.base + place.size]:
            raise CheckFailed(f"{name}: another row than was made")
        own = [update for update in self._updates[before:version] if update.worker == worker]
        if len(own) > 1 or (not own and not self._broadcast):
            raise CheckFailed(f"{name}: {len(own)} of the worker's gradients are new in a scan")
        turn = len(self._got[worker]) if self._broadcast else own[0].version
        if address != self._golden.buffer(turn):
            raise CheckFailed(f"{name}: is in the other buffer")
        self._got[worker].append(version)
        self._owed[worker] = [(owed, since) for owed, since in self._owed[worker] if owed > version]
        made = self._updates[version - 1].made
        if own:
            own[0].left = made
        return made, own[0] if own else None

    def forget(self, worker: int) -> None:
        """Raise AssertionError: ``ParamServerCosim.sizes`` rejects replacements together with scans."""
        raise AssertionError("a job with rows that are pushed after scans has no replacements")

    def check(self, dead: Container[int]) -> None:
        """Check at the end that every scan visited workers once, in order, and its row reached its receivers.

        Raises CheckFailed. ``dead`` workers need no rows. A scan of dead workers alone may have left no row; it
        then counts as part of the next scan.
        """
        got = [set(versions) for versions in self._got]
        ends = sorted(set().union(*got))
        for before, end in pairwise(ends):
            scan = [each.worker for each in self._updates[before:end] if each.worker not in dead]
            name = f"server {self._golden.layout.shard}, versions {before + 1} to {end}"
            if any(later <= earlier for earlier, later in pairwise(scan)):
                raise CheckFailed(f"{name}: no scan finds gradients of workers {scan} in this order")
            receivers = self._all if self._broadcast else scan
            if lacking := [each for each in receivers if each not in dead and end not in got[each]]:
                raise CheckFailed(f"{name}: their row did not go to workers {lacking}")
