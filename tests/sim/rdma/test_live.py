"""Live hosts over RDMA nodes of two kinds: writes posted, memory watched, answers after a time of computing."""

import functools

import numpy as np
import pytest

from fanin.hdl.rdma.node import RdmaNode
from fanin.link import LinkConfig
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Ending, RdmaConfig, Region, Write
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import Group
from fanin.sim.rdma.cosim import Pair, configure_node, post, take_completion
from tests.support import new_seed

pytestmark = [pytest.mark.verilator, pytest.mark.slow]  # live hosts alone, and with a server, are quicker tests

WORKER = PRESETS["tiny"]
SERVER = RdmaConfig(width=256, queue_pairs=2, regions=2, descriptors=4, buffer_words=512, fetch_words=512)
WORKERS, NODES = 2, 3
VALUES = 300
WORD = 32  # bytes: what is read of memory is whole ones
SIZE = 8 * (VALUES + 1)  # of what is sent: values, and behind them which of them this is
KEY = 0x77
ROUNDS = 4
MS = 10**9  # ps
TIMEOUT = 5000


def region(node):
    """What may be written at a node: at the server a slot for each worker, at a worker the answer."""
    slots = WORKERS if node == WORKERS else 1
    pairs = frozenset(range(FIRST_QUEUE_PAIR, FIRST_QUEUE_PAIR + slots))
    return Region(0, slots * SIZE, KEY, pairs)


def own(node):
    """Where a node has what it sends, by peer."""
    return region(node).length + 40


class Training:
    """Workers send numbers, each when it has computed for milliseconds; the server answers with the squares."""

    def __init__(self, board, *, drivers, numbers):
        self.board, self.drivers, self.numbers = board, drivers, numbers
        self.round = [0] * WORKERS
        self.outstanding = 0
        self.answers, self.times = [[] for _ in range(WORKERS)], []

    def part(self, node, address):
        return self.board.memory(node)[address : address + SIZE].view("<u8")

    def start(self):
        for worker in range(WORKERS):
            last = SIZE - 1  # the byte that is written last
            self.board.watch(WORKERS, worker * SIZE + last, functools.partial(self.serve, worker))
            self.board.watch(worker, last, functools.partial(self.answered, worker))
            self.compute(worker)

    def compute(self, worker):
        self.board.at(self.board.now + (worker + 1) * MS, functools.partial(self.send, worker))

    def send(self, worker):
        self.times.append((self.board.now, worker))
        self.part(worker, own(worker))[:] = [*self.numbers[worker][self.round[worker]], self.round[worker]]
        self.write(worker, 0, Write(worker, own(worker), worker * SIZE, KEY, SIZE))

    def write(self, node, index, write):
        program = HostProgram()
        post(self.drivers[node], program, index, write)
        take_completion(self.drivers[node], program)
        self.outstanding += 1
        self.board.run(node, program, functools.partial(self.completed, node))

    def completed(self, node, reads):
        driver = self.drivers[node]
        taken = driver.take_completion()
        assert driver.completion_of(taken.results(reads)).ending == Ending.DONE
        self.outstanding -= 1

    def serve(self, worker):
        *values, number = self.part(WORKERS, worker * SIZE).tolist()
        assert number == self.round[worker]
        to = own(WORKERS) + worker * SIZE
        self.part(WORKERS, to)[:] = [*(value * value for value in values), number]
        self.write(WORKERS, worker, Write(worker, to, 0, KEY, SIZE))

    def answered(self, worker):
        self.answers[worker].append(self.part(worker, 0)[:-1].tolist())
        self.round[worker] += 1
        if self.round[worker] < ROUNDS:
            self.compute(worker)

    @property
    def done(self):
        return self.round == [ROUNDS] * WORKERS and not self.outstanding

    progress = 0

    def may_skip(self):
        return not self.outstanding

    def waiting(self):
        return f"rounds {self.round}"

    def result(self):
        return self.answers, self.times


@pytest.fixture(scope="module", params=["alike", pytest.param("two kinds", marks=pytest.mark.slow)])
def nodes(request):
    """The cluster, and the drivers of its nodes."""
    if request.param == "alike":
        cluster = Cluster(lambda: [Group(RdmaNode(config=WORKER), NODES)], quiet=True)
        return cluster, [RdmaDriver(WORKER)] * NODES
    kinds = [Group(RdmaNode(config=WORKER), WORKERS), Group(RdmaNode(config=SERVER))]
    return Cluster(lambda: kinds, quiet=True), [*[RdmaDriver(WORKER)] * WORKERS, RdmaDriver(SERVER)]


@pytest.fixture
def train(nodes):
    cluster, drivers = nodes

    def go(numbers, **link):
        pairs = [Pair.of((worker, 0), (WORKERS, worker), mtu=256) for worker in range(WORKERS)]
        words = [-(-(own(node) + WORKERS * SIZE) // WORD) for node in range(NODES)]
        programs = [
            configure_node(drivers[node], node, pairs, [region(node)], timeout=TIMEOUT) for node in range(NODES)
        ]
        return cluster.run(
            memories=([np.zeros(count * WORD, np.uint8)] for count in words),
            phases=[Phase("configure", programs)],
            longest_wait=20 * TIMEOUT,
            hosts=functools.partial(Training, drivers=drivers, numbers=numbers),
            link=LinkConfig(**link),
            seed=3,
        )

    return go


@pytest.fixture
def numbers():
    return np.random.default_rng(new_seed()).integers(0, 1 << 32, (WORKERS, ROUNDS, VALUES)).tolist()


def squares(numbers):
    return [[[value * value for value in values] for values in own] for own in numbers]


def test_writes_cross_between_macs_of_two_widths_and_computing_is_skipped(train, numbers):
    result = train(numbers, gbps=50)
    answers, times = result.hosts
    assert answers == squares(numbers)
    for worker in range(WORKERS):
        sent = [time for time, who in times if who == worker]
        waits = np.diff(sent) - (worker + 1) * MS
        assert len(sent) == ROUNDS
        assert (waits > 2 * 100_000).all()  # there and back
        assert (waits < 20_000_000).all()
    assert result.skipped_ps > 0.95 * WORKERS * ROUNDS * MS
    assert result.cycles < 2 * WORKERS * ROUNDS * (600 + 1500)


def test_what_is_lost_is_sent_again_before_time_is_skipped(train, numbers):
    result = train(numbers, drop=0.05)
    answers, times = result.hosts
    assert answers == squares(numbers)
    assert sum(way["dropped"] for link in result.links for way in link.values()) > 0
    assert max(np.diff([time for time, who in times if who == 0])) < MS + MS // 2  # timeouts are 20 µs
