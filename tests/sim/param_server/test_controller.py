"""What a training's controller makes of what hosts tell: rows are compared, and orders given."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.param_server.facts import Algorithm, ParamServerConfig, Receivers, ServerLayout, WorkerLayout
from fanin.param_server.golden import ParameterServer, WorkerEndpoint
from fanin.sim.learning.learner import NoTraining
from fanin.sim.param_server.controller import (
    PS,
    CheckQueuePairs,
    Controller,
    End,
    GiveUp,
    GradientArrived,
    GradientPushed,
    Join,
    QueuePairEnded,
    Replace,
    ReplacementReady,
    RowReceived,
    RowStored,
    SlotsVacated,
    Watch,
    WatchExpired,
    WorkerStopped,
)
from fanin.sim.param_server.costs import DESIGN, Compute
from fanin.sim.param_server.training import TrainingJob

WORKERS, BATCHES, SERVER = 2, 2, 2  # the server's node is behind the workers'
GIVE_UP_SECONDS = 1e-5
JOB = TrainingJob(workers=WORKERS, lr=1.0, compute=Compute(per_sample=1e-6), costs=DESIGN)
SYNC = replace(JOB, algorithm=Algorithm.SYNC)


class Nodes:
    """Two workers and a server as the golden model has them, in the place of simulated ones; their hosts."""

    def __init__(self, job=JOB):
        learner = NoTraining(40, BATCHES)
        self.sizes = ParamServerConfig(parameters=40, workers=WORKERS, slots=job.slots, servers=1, width=128)
        initial = np.zeros(40, np.float32)
        self.orders, self.now = [], 0
        self.controller = Controller(
            self,
            job=job,
            learner=learner,
            sizes=self.sizes,
            initial=initial,
            first_server=SERVER,
            give_up_seconds=GIVE_UP_SECONDS,
        )
        layout = ServerLayout(self.sizes, 0)
        self.server = ParameterServer(layout, rate=job.lr, initial=initial, broadcast=job.broadcasts)
        self.workers = [WorkerEndpoint(n, WorkerLayout(self.sizes), initial) for n in range(WORKERS)]
        self.order = self.orders.append

    @property
    def told_at(self):
        return self.now

    def tell(self, node, fact, after=1e-6):
        """Have it told, so many seconds later; the orders that follow."""
        self.now += round(after * PS)
        self.orders.clear()
        self.controller.handle(node, fact)
        return list(self.orders)

    def push(self, worker):
        """A worker pushes a gradient, which comes."""
        endpoint = self.workers[worker]
        (push,) = endpoint.push(np.full(40, 1 + worker, np.float32), [0])
        data = bytes(endpoint.memory[push.local : push.local + push.length])
        self.server.memory[push.remote : push.remote + push.length] = data
        orders = self.tell(worker, GradientPushed(endpoint.version, [data]))
        return orders + self.tell(SERVER, GradientArrived(worker, self.sizes.slot_of(endpoint.version)))

    def make(self, worker, change=0):
        """The server applies it; the row's first byte may be changed."""
        self.server.apply(worker)
        place = self.server.row.layout
        row = bytearray(self.server.memory[place.base : place.base + place.size])
        row[place.w - place.base] ^= change
        return self.tell(SERVER, RowStored(bytes(row)))

    def receive(self, worker, change=0):
        """Its row comes back."""
        push = self.server.push(worker)
        row = bytearray(self.server.memory[push.local : push.local + push.length])
        self.workers[worker].memory[push.remote : push.remote + push.length] = row
        row[0] ^= change
        return self.tell(worker, RowReceived(0, push.remote, bytes(row)))

    def round_trip(self, worker):
        """All of a gradient's way."""
        return self.push(worker) + self.make(worker) + self.receive(worker)


def test_the_run_ends_once_when_the_last_row_has_come():
    nodes = Nodes()
    for worker in 0, 1, 0:
        assert nodes.round_trip(worker) == []
    assert nodes.push(1) + nodes.make(1) == []
    assert not nodes.controller.idle
    assert nodes.receive(1) == [End()]
    assert nodes.controller.idle
    assert nodes.tell(0, WorkerStopped(lost=False)) == []
    outcome = nodes.controller.result()
    assert (outcome.tally.applied, outcome.tally.lost, outcome.staleness.total()) == (4, 0, 4)
    assert outcome.stopped == ()  # it had ended
    assert outcome.w.tolist() == nodes.server.row.w.tolist() != [0] * 40


def test_a_row_that_the_golden_server_does_not_make_is_found_out():
    nodes = Nodes()
    nodes.push(0)
    with pytest.raises(CheckFailed, match="server 0, version 1 for worker 0: the row differs from the golden"):
        nodes.make(0, change=1)


def test_so_is_a_gradient_that_was_not_pushed():
    nodes = Nodes()
    (push,) = nodes.workers[0].push(np.ones(40), [0])
    data = nodes.workers[0].memory[push.local : push.local + push.length]
    nodes.server.memory[push.remote : push.remote + push.length] = data
    with pytest.raises(CheckFailed, match="gradient 1 was not sent, or has been applied before"):
        nodes.make(0)


def test_so_are_rows_that_come_to_the_wrong_worker_or_changed():
    nodes = Nodes()
    nodes.push(0)
    nodes.make(0)
    with pytest.raises(CheckFailed, match="worker 0 has got another row than was made for it"):
        nodes.receive(0, change=1)
    with pytest.raises(CheckFailed, match="worker 1 has got a row that was not made for it"):
        nodes.receive(1)


def test_both_ends_are_asked_for_what_is_in_flight_too_long():
    nodes = Nodes()
    nodes.push(0)
    assert nodes.tell(0, WatchExpired()) == [Watch(0)]  # not for long yet
    assert nodes.tell(0, WatchExpired(), after=GIVE_UP_SECONDS) == [CheckQueuePairs(0)]
    nodes.make(0)
    assert nodes.tell(0, WatchExpired()) == [CheckQueuePairs(0)]  # its row may be lost
    nodes.receive(0)
    assert nodes.tell(0, WatchExpired(), after=GIVE_UP_SECONDS) == []


def test_a_worker_whose_host_does_not_watch_is_to_when_a_row_is_made_for_it():
    nodes = Nodes(SYNC)
    nodes.push(0)
    assert nodes.make(0) == []
    assert nodes.controller.idle  # its gradient waits at the barrier
    assert nodes.controller.waiting() == "no worker waits"
    assert nodes.tell(0, WatchExpired(), after=GIVE_UP_SECONDS) == []
    nodes.push(1)
    assert nodes.make(1) == [Watch(0)]
    assert nodes.controller.waiting() == (
        "worker 0 has pushed gradient 1 and waits for server 0's row; "
        "worker 1 has pushed gradient 1 and waits for server 0's row"
    )


def test_rows_that_are_broadcast_are_in_flight_to_all():
    nodes = Nodes(replace(JOB, receivers=Receivers.BROADCAST))
    nodes.push(1)
    assert nodes.make(1) == [Watch(0)]
    nodes.receive(1)
    assert not nodes.controller.idle
    assert nodes.tell(0, WatchExpired(), after=GIVE_UP_SECONDS) == [CheckQueuePairs(0)]


def test_the_others_go_on_without_a_worker_that_a_server_has_lost():
    nodes = Nodes()
    nodes.push(0)
    assert nodes.controller.waiting() == (
        "worker 0 has pushed gradient 1 and waits for server 0 to apply gradient 1"
    )
    assert nodes.tell(SERVER, QueuePairEnded(0)) == [GiveUp(0)]
    assert nodes.tell(0, WorkerStopped(lost=True)) == []
    assert nodes.tell(SERVER, QueuePairEnded(0)) == []
    assert nodes.controller.idle
    assert nodes.round_trip(1) == []
    assert nodes.round_trip(1) == [End()]
    assert nodes.controller.result().stopped == (0,)


@pytest.mark.parametrize(
    ("node", "fact"),
    [(SERVER, QueuePairEnded(1)), (1, WorkerStopped(lost=True)), (1, WorkerStopped(lost=False))],
)
def test_sync_dsgd_does_not(node, fact):
    nodes = Nodes(SYNC)
    with pytest.raises(CheckFailed, match="worker 1 stopped answering; Sync-DSGD cannot continue without it"):
        nodes.tell(node, fact)


@pytest.mark.parametrize("job", [JOB, SYNC], ids=["wild", "sync"])
def test_a_queue_pair_that_ends_behind_the_last_row_changes_nothing(job):
    """A node that was asked answers late: one process drops what follows the end, and several ranks do not."""
    nodes = Nodes(job)
    for _ in range(BATCHES):
        if job is SYNC:
            for worker in range(WORKERS):
                nodes.push(worker)
                nodes.make(worker)
            ends = [nodes.receive(worker) for worker in range(WORKERS)]
        else:
            ends = [nodes.round_trip(worker) for worker in range(WORKERS)]
    assert ends == [[], [End()]]
    assert nodes.tell(SERVER, QueuePairEnded(1)) == []
    assert nodes.tell(1, WorkerStopped(lost=True)) == []


def test_a_worker_may_stop_behind_its_last_gradient():
    nodes = Nodes(SYNC)
    for worker in range(WORKERS):
        nodes.push(worker)
        nodes.make(worker)
    for worker in range(WORKERS):
        nodes.receive(worker)
    nodes.push(0)
    nodes.make(0)
    nodes.push(1)
    assert (
        nodes.tell(1, WorkerStopped(lost=False)) == []
    )  # the other's gradient waits for its own, which has come
    nodes.make(1)
    assert nodes.receive(0) == [End()]
    assert nodes.controller.result().applied == ((2,), (2,))


def test_a_replacement_gets_the_version_of_its_gradient_of_zeros():
    """The old worker's gradient 1 has been applied, so that the gradient of zeros has version 2."""
    nodes = Nodes(replace(JOB, stops={1: 1e-3}, returns={1: 2e-3}))
    nodes.round_trip(1)
    assert nodes.tell(1, WorkerStopped(lost=False)) == []
    assert nodes.tell(1, ReplacementReady()) == [Replace(1)]
    assert nodes.tell(SERVER, SlotsVacated(1, version=1)) == [Join(1, version=2)]
