"""Whom a scan's row reaches: what can be is accepted, and what cannot is found out."""

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.param_server.facts import ParamServerConfig, ServerLayout
from fanin.param_server.golden import ParameterServer
from fanin.sim.param_server.scans import ScannedRows
from fanin.sim.param_server.training import ServerUpdate

SIZES = ParamServerConfig(parameters=8, workers=3, width=128)


class Server:
    """A golden server, whose rows go to workers as a test has it."""

    def __init__(self, *, broadcast=False):
        self.golden = ParameterServer(
            ServerLayout(SIZES, 0), rate=1.0, initial=np.zeros(8), broadcast=broadcast
        )
        self.rows = ScannedRows(self.golden, broadcast=broadcast)
        self.broadcast = broadcast

    def apply(self, *workers):
        """A gradient of each, in this order."""
        for worker in workers:
            version = int(self.golden.row.lgvnum[worker]) + 1
            gvnum = self.golden.layout.slot(worker, 0).gvnum
            self.golden.memory[gvnum : gvnum + 4] = version.to_bytes(4, "little")
            self.golden.apply(worker)
            made = self.golden.version
            self.rows.note_stored(
                ServerUpdate(0, worker, version, stored=float(made)), b"", 0.0, made - 10, made
            )

    def owes(self):
        """Since when a row for each worker is due."""
        return [self.rows.due_since(worker) for worker in range(3)]

    def push(self, *workers, wrong=0, other_buffer=False):
        """The newest row to these; with ``wrong`` bits in its first byte."""
        for worker in workers:
            push = self.golden.push(worker)
            row = bytearray(self.golden.memory[push.local : push.local + push.length])
            row[0] ^= wrong
            remote = push.remote
            if other_buffer:
                remote = next(self.golden.buffer(n) for n in (0, 1) if self.golden.buffer(n) != remote)
            found = self.rows.note_arrival(worker, remote, bytes(row))
        return found


def test_rows_of_scans_are_accepted_and_are_due_until_they_have_arrived():
    server = Server()
    server.apply(0, 2)
    assert server.owes() == [-9, None, -8]
    left, own = server.push(0)
    assert (left, own.worker, own.stored, own.sent) == (2.0, 0, 1.0, 2.0)
    assert server.owes() == [None, None, -8]
    server.push(2)
    server.apply(1)
    server.push(1)
    server.rows.check(())


def test_a_broadcast_reaches_all_in_one_buffer_after_the_other():
    server = Server(broadcast=True)
    server.apply(1, 2)
    assert server.owes() == [1, -9, 1]
    assert server.push(0) == (2.0, None)
    server.push(1, 2)
    server.apply(0)
    server.push(0, 1, 2)
    server.rows.check(())


@pytest.mark.parametrize("broadcast", [False, True], ids=["barter", "broadcast"])
@pytest.mark.parametrize(
    ("change", "cause"),
    [({"wrong": 1}, "another row than was made"), ({"other_buffer": True}, "the other buffer")],
)
def test_another_row_and_another_place_are_found_out(broadcast, change, cause):
    server = Server(broadcast=broadcast)
    server.apply(0, 1)
    with pytest.raises(CheckFailed, match=rf"server 0, version 2 at worker 1: .*{cause}"):
        server.push(1, **change)


def test_a_row_that_has_nothing_new_for_its_worker_is_found_out():
    server = Server()
    server.apply(0, 1)
    with pytest.raises(CheckFailed, match="worker 2: 0 of the worker's gradients are new in a scan"):
        server.push(2)
    server.push(0)
    with pytest.raises(CheckFailed, match="version 2 at worker 0: the worker has had 2; 2 exist"):
        server.push(0)


def test_a_row_with_two_gradients_of_its_worker_is_found_out():
    server = Server()
    server.apply(0, 1, 0)
    with pytest.raises(CheckFailed, match="worker 0: 2 of the worker's gradients are new in a scan"):
        server.push(0)


def test_a_scan_in_another_order_and_a_worker_that_got_no_row_are_found_out():
    server = Server()
    server.apply(1, 0)
    server.push(0, 1)
    with pytest.raises(CheckFailed, match=r"versions 1 to 2: no scan finds gradients of workers \[1, 0\]"):
        server.rows.check(())
    server = Server()
    server.apply(0, 1)
    server.push(0)
    server.apply(2)
    server.push(2)
    with pytest.raises(CheckFailed, match=r"versions 1 to 2: their row did not go to workers \[1\]"):
        server.rows.check(())
    server.rows.check({1})
