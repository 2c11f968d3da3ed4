"""The parameter server in bits: its arithmetic, its versions, and that no fault loses or repeats a gradient."""

import random
from collections import Counter

import numpy as np
import pytest

from fanin.golden import fp32
from fanin.param_server.facts import MAX_VERSION, ParamServerConfig, ServerLayout, WorkerLayout
from fanin.param_server.golden import ParameterServer, Tally, WorkerEndpoint, update
from fanin.rdma.golden.nic import Connection, Region, Requester, Responder, Write
from tests.support import new_seed


class Job:
    """Servers and workers whose writes arrive when the test says so."""

    def __init__(self, config, *, rate=1.0, initial=None, waits_for_credit=True, broadcast=False):
        self.config = config
        initial = np.zeros(config.parameters, np.float32) if initial is None else initial
        starts = [config.shard_start(s) for s in range(1, config.servers)]
        parts = np.split(initial, starts)
        self.servers = [
            ParameterServer(ServerLayout(config, shard), rate=rate, initial=part, broadcast=broadcast)
            for shard, part in enumerate(parts)
        ]
        self.workers = [
            WorkerEndpoint(number, WorkerLayout(config), initial, waits_for_credit)
            for number in range(config.workers)
        ]

    def up(self, push):
        self.copy(push, self.workers[push.worker].memory, self.servers[push.shard].memory)

    def down(self, push):
        self.copy(push, self.servers[push.shard].memory, self.workers[push.worker].memory)

    @staticmethod
    def copy(push, source, target):
        target[push.remote : push.remote + push.length] = source[push.local : push.local + push.length]

    def push(self, number, gradient, others=None):
        for push in self.workers[number].push(gradient, others or [0] * self.config.servers):
            self.up(push)

    def serve(self, number):
        found = [server.apply(number) for server in self.servers]
        for server in self.servers:
            self.down(server.push(number))
        return found

    def read(self, number):
        worker = self.workers[number]
        return worker.end_read(worker.begin_read())


def _floats(rng, count):
    return rng.standard_normal(count).astype(np.float32)


def test_an_update_is_numpys_where_nothing_is_subnormal():
    rng = np.random.default_rng(new_seed())
    w, gradient, step = _floats(rng, 5000), _floats(rng, 5000), np.float32(0.9 / 15)
    assert np.array_equal(update(w, gradient, step), w - step * gradient)


def test_an_update_is_the_hardwares_for_every_kind_of_value():
    rng = np.random.default_rng(new_seed())
    bits = rng.integers(0, 1 << 32, (3, 20_000), dtype=np.uint32)
    bits[:2, ::3] &= 0x80FF_FFFF  # subnormals, zeros and the least normal ones
    bits[:2, ::50] |= 0x7F80_0000
    w, gradient = bits[:2].view(np.float32)
    for step in (np.float32(0.06), np.float32(2.0**20), *bits[2, :50].view(np.float32)):
        expected = fp32.add(w, fp32.multiply(-step, gradient))
        assert np.array_equal(update(w, gradient, step).view(np.uint32), expected.view(np.uint32))
        for k in range(200):  # one odd value among ordinary ones
            few = [np.array([1, v[k], 1], np.float32) for v in (w, gradient)]
            assert update(*few, step).view(np.uint32)[1] == expected.view(np.uint32)[k]


def test_subnormal_products_and_sums_become_zero():
    tiny = np.float32(2.0**-126)
    assert update(np.float32([1.5 * tiny]), np.float32([tiny]), np.float32(1))[0] == 0
    assert update(np.float32([1.0]), np.float32([tiny / 2]), np.float32(2.0**127))[0] == 1
    rounded_up = np.float32([2.0**-126 * (1 + 2.0**-23)]), np.float32(1 - 2.0**-23)
    assert (rounded_up[0] * rounded_up[1])[0] == tiny
    assert update(np.float32([0]), *rounded_up)[0] == 0


def test_a_run_is_the_same_sum_as_numpys():
    rng = np.random.default_rng(new_seed())
    config = ParamServerConfig(parameters=333, workers=3, slots=2, servers=2)
    initial = _floats(rng, 333)
    job, w = Job(config, rate=0.9, initial=initial), initial.copy()
    for _ in range(50):
        for number in range(3):
            gradient = _floats(rng, 333)
            job.push(number, gradient)
            job.serve(number)
            w -= np.float32(0.9 / 3) * gradient
            assert np.array_equal(job.read(number)[0], w)
    assert {server.version for server in job.servers} == {150}
    assert Tally.of(job.workers, job.servers) == Tally(300, 300, 0, 0)


def test_the_scanner_finds_fresh_gradients_in_turn_and_each_once():
    job = Job(ParamServerConfig(parameters=16, workers=4))
    server = job.servers[0]
    assert server.scan() is None
    job.push(1, np.ones(16))
    job.push(3, np.ones(16))
    assert [server.scan(start) for start in range(4)] == [1, 1, 3, 3]
    assert server.apply(1).version == 1
    assert server.scan() == 3
    server.apply(3)
    assert server.scan() is None
    with pytest.raises(ValueError, match="worker 3 has no gradient after 1"):
        server.apply(3)


def test_a_worker_may_be_as_many_gradients_ahead_as_it_has_slots():
    for slots in (1, 2, 3, 8):
        job = Job(ParamServerConfig(parameters=16, workers=1, slots=slots))
        for version in range(slots):
            job.push(0, np.full(16, version))
        with pytest.raises(ValueError, match=f"worker 0: no credit for gradient {slots + 1}"):
            job.push(0, np.zeros(16))
        job.serve(0)
        job.push(0, np.zeros(16))
        assert not job.workers[0].may_push


def test_credit_is_that_of_the_slowest_server():
    job = Job(ParamServerConfig(parameters=64, workers=1, servers=2))
    job.push(0, np.ones(64))
    job.servers[0].apply(0)
    job.down(job.servers[0].push(0))
    assert not job.workers[0].may_push
    job.servers[1].apply(0)
    job.down(job.servers[1].push(0))
    assert job.workers[0].may_push


def test_staleness_counts_updates_by_others_between_reading_and_application():
    job = Job(ParamServerConfig(parameters=16, workers=3, slots=2))
    seen = [job.read(number)[1] for number in range(3)]
    job.push(0, np.ones(16), seen[0])
    job.push(0, np.ones(16), seen[0])  # on the same model
    job.push(1, np.ones(16), seen[1])
    order = (0, 1, 0)
    assert [job.serve(number)[0].staleness for number in order] == [0, 1, 1]
    job.push(2, np.ones(16), seen[2])
    job.push(0, np.ones(16), job.read(0)[1])
    assert [job.serve(number)[0].staleness for number in (2, 0)] == [3, 1]


def test_a_read_that_a_write_gets_in_the_way_of_is_noticed_whatever_part_has_arrived():
    job = Job(ParamServerConfig(parameters=40, workers=1, slots=3), initial=np.zeros(40, np.float32))
    server, worker = job.servers[0], job.workers[0]
    for _ in range(3):
        job.push(0, np.ones(40))
    job.serve(0)
    reading = worker.begin_read()
    job.serve(0)  # into the other buffer
    assert worker.end_read(reading)[0][0] == -1
    reading = worker.begin_read()
    job.serve(0)
    job.push(0, np.ones(40))
    server.apply(0)
    push = server.push(0)
    before = bytes(worker.memory)
    data = bytes(server.memory[push.local : push.local + push.length])
    for arrived in range(4, push.length + 1, 4):
        worker.memory[:] = before
        worker.memory[push.remote : push.remote + arrived] = data[:arrived]
        model = worker.end_read(reading)
        if arrived < worker.config.word_bytes:  # zeros in front of the version: w is what it was
            assert model[0].tolist() == [-2] * 40
        else:
            assert model is None
        fresh = worker.end_read(worker.begin_read())
        assert fresh[0].tolist() == [-4 if arrived == push.length else -3] * 40
    assert worker.rereads == (push.length - worker.config.word_bytes) // 4 + 1


def test_without_the_wait_a_gradient_is_lost_and_counted():
    job = Job(ParamServerConfig(parameters=16, workers=2), waits_for_credit=False)
    job.push(0, np.ones(16))
    job.push(0, np.full(16, 5))
    job.push(1, np.ones(16))
    assert job.serve(0)[0].version == 2
    job.serve(1)
    assert Tally.of(job.workers, job.servers) == Tally(3, 2, 1, 0)


def test_a_gradient_applied_twice_would_be_counted():
    job = Job(ParamServerConfig(parameters=16, workers=1))
    job.push(0, np.ones(16))
    job.serve(0)
    job.servers[0].row.lgvnum[0] = 0
    job.serve(0)
    assert Tally.of(job.workers, job.servers) == Tally(1, 2, 0, 1)


def test_what_a_lost_worker_pushed_is_not_missed():
    job = Job(ParamServerConfig(parameters=16, workers=2))
    job.push(0, np.ones(16))
    list(job.workers[1].push(np.ones(16), [0]))  # posted, but never sent
    job.serve(0)
    assert Tally.of(job.workers, job.servers).lost == 1
    assert Tally.of(job.workers, job.servers, stopped={1}) == Tally(1, 1, 0, 0)


def test_a_replacement_begins_with_the_newest_w_and_goes_on_with_its_versions():
    """Worked by hand: the old worker's gradient 2, which is not applied, is lost."""
    job = Job(ParamServerConfig(parameters=3, workers=2, slots=2), rate=1.0)
    server, (one, other) = job.servers[0], job.workers
    ones = np.ones(3, np.float32)
    for worker, factor in (one, 2), (other, 4):
        job.up(next(worker.push(factor * ones, [0])))
        server.apply(worker.number)
        job.down(server.push(worker.number))
    job.up(next(one.push(99 * ones, [0])))
    assert server.has_gradient(0)
    assert server.readmit(0) == 2
    replacement = WorkerEndpoint(0, WorkerLayout(job.config), np.zeros(3, np.float32), joins=True)
    job.workers[0] = replacement
    replacement.join(2)
    assert not replacement.may_push  # no row has come
    found = server.apply(0)
    assert (found.version, found.staleness) == (2, 0)
    assert not server.has_gradient(0)
    job.down(server.push(0))
    replacement.join(2)
    w, others = replacement.end_read(replacement.begin_read())
    assert list(w) == [-3, -3, -3]  # (2 + 4)/2
    assert (replacement.version, replacement.may_push, others) == (2, True, [1])
    job.up(next(replacement.push(2 * ones, others)))
    server.apply(0)
    assert list(server.row.w) == [-4, -4, -4]
    assert server.applied == Counter({(0, 1): 1, (1, 1): 1, (0, 2): 1, (0, 3): 1})


def test_a_replacement_does_not_begin_with_a_row_that_is_older_than_its_gradient_of_zeros():
    """Rows are broadcast: such a row has its LGVnum, and a gradient 2 would overwrite the one of zeros."""
    job = Job(ParamServerConfig(parameters=3, workers=2, slots=2), broadcast=True)
    server, ones = job.servers[0], np.ones(3, np.float32)
    for worker in 0, 1:
        job.push(worker, 2 * ones)
    server.apply(0)
    version = server.readmit(0)
    replacement = WorkerEndpoint(0, WorkerLayout(job.config), np.zeros(3, np.float32), joins=True)
    job.workers[0] = replacement
    server.apply(1)
    job.down(server.push(0))
    assert replacement.consumed == 1
    replacement.join(version)
    assert (version, replacement.joins, replacement.may_push) == (2, True, False)
    server.apply(0)
    job.down(server.push(0))
    replacement.join(version)
    assert (replacement.version, replacement.joins, replacement.may_push) == (2, False, True)
    assert list(job.read(0)[0]) == [-2, -2, -2]  # (2 + 2 + 0)/2


def test_a_replacement_begins_once_all_shards_have_applied_its_gradient_of_zeros():
    job = Job(ParamServerConfig(parameters=32, workers=1, servers=2))
    replacement = WorkerEndpoint(0, WorkerLayout(job.config), np.zeros(32, np.float32), joins=True)
    job.workers[0] = replacement
    began = []
    for server in job.servers:
        version = server.readmit(0)
        server.apply(0)
        job.down(server.push(0))
        replacement.join(version)
        began.append(not replacement.joins)
    assert began == [False, True]


def test_versions_end_before_they_wrap():
    job = Job(ParamServerConfig(parameters=16, workers=1))
    job.workers[0].version = MAX_VERSION
    with pytest.raises(OverflowError, match="worker 0 has used up its 4294967295 versions"):
        _ = job.workers[0].may_push
    job.workers[0].version = 0
    job.push(0, np.ones(16))
    job.servers[0].version = MAX_VERSION
    job.servers[0].row.lgvnum[0] = 0
    with pytest.raises(OverflowError, match="the server has used up its 4294967295 versions of w"):
        job.servers[0].apply(0)


def test_a_shard_of_the_wrong_length_is_refused():
    layout = ServerLayout(ParamServerConfig(parameters=20), 0)
    with pytest.raises(ValueError, match=r"initial must have shape \(20,\), not \(19,\)"):
        ParameterServer(layout, rate=1.0, initial=np.zeros(19))


class Wire:
    """Both ways of one queue pair over a network that loses and repeats packets; writes reach ``target``."""

    def __init__(self, rng, source, target, region):
        connection = Connection(0, mtu=256, window=4, retries=7)
        regions = [Region(*region, rkey=1, queue_pairs=frozenset({0}))]
        self.rng, self.sender = rng, Requester(connection, source)
        self.receiver = Responder(0, connection, target, regions)

    def post(self, push):
        self.sender.post(Write(0, push.local, push.remote, 1, push.length))

    def step(self):
        """A packet, perhaps, and its answer."""
        packet = next(self.sender.packets(), None)
        if packet is None:
            if self.rng.random() < 0.2:
                self.sender.timeout()
            return
        for _ in range(self.rng.choice((0, 1, 1, 1, 1, 1, 1, 2))):
            answer = self.receiver.receive(packet)
            if answer is not None and self.rng.random() < 0.9:
                self.sender.receive(answer)


@pytest.mark.parametrize(("slots", "servers"), [(1, 1), (2, 2), (4, 3)])
def test_no_gradient_is_lost_or_applied_twice_over_faulty_links(slots, servers):
    """Every step at random: packets, scans, computing. Each worker's gradients are all different."""
    rng = random.Random(new_seed())
    config = ParamServerConfig(parameters=300, workers=3, slots=slots, servers=servers)
    job = Job(config, rate=3.0)
    layouts = [server.layout for server in job.servers]
    ups, downs = {}, {}
    for worker in job.workers:
        for shard, server in enumerate(job.servers):
            key = worker.number, shard
            region = layouts[shard].region(worker.number)
            ups[key] = Wire(rng, worker.memory, server.memory, region)
            downs[key] = Wire(rng, server.memory, worker.memory, worker.layout.region(shard))
    wires, count, values = [*ups.values(), *downs.values()], 12, Counter()
    unsent = [{} for _ in job.servers]
    for _ in range(400_000):
        for wire in wires:
            wire.step()
        for worker in job.workers:
            if worker.version < count and worker.may_push and rng.random() < 0.2:
                model = worker.end_read(worker.begin_read())
                if model:
                    value = 1 << (worker.number * 6 + worker.version % 6)
                    values[value] += 1
                    for push in worker.push(np.full(300, value), model[1]):
                        ups[push.worker, push.shard].post(push)
        for shard, server in enumerate(job.servers):
            number = server.scan(rng.randrange(3))
            # a packet is read when it goes, also again: the row that comes next must have been sent
            before = unsent[shard].get(config.row_of(server.version + 1))
            if number is not None and (before is None or before.sender.idle):
                server.apply(number)
                wire = unsent[shard][config.row_of(server.version)] = downs[number, shard]
                wire.post(server.push(number))
        assert not any(wire.sender.failed for wire in wires)
        if all(sum(s.applied.values()) == 3 * count for s in job.servers):
            break
    assert Tally.of(job.workers, job.servers) == Tally(36 * servers, 36 * servers, 0, 0)
    total = sum(value * times for value, times in values.items())
    assert all((server.row.w == -total).all() for server in job.servers)


def test_rows_that_are_broadcast_go_to_one_buffer_of_all_workers_then_to_the_other():
    """A worker that reads the newest row is not written to where it reads, until the row after the next."""
    config = ParamServerConfig(parameters=40, workers=3)
    server = ParameterServer(ServerLayout(config, 0), rate=3.0, initial=np.zeros(40), broadcast=True)
    workers = [WorkerEndpoint(number, WorkerLayout(config), np.zeros(40, np.float32)) for number in range(3)]
    for turn, number in enumerate((0, 2, 0, 0), 1):
        for push in workers[number].push(np.ones(40), [0]):
            Job.copy(push, workers[number].memory, server.memory)
        server.apply(number)
        readings = [worker.begin_read() for worker in workers]
        pushes = [server.push(worker) for worker in range(3)]
        assert len({push.remote for push in pushes}) == 1
        for push, worker in zip(pushes, workers, strict=True):
            Job.copy(push, server.memory, worker.memory)
        for worker, reading in zip(workers, readings, strict=True):
            assert worker.end_read(reading) is not None, "a row came where the worker was reading"
            w, (others,) = worker.end_read(worker.begin_read())
            assert (w == -turn).all()
            assert others == turn - worker.version
