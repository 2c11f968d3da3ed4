# amaranth: UnusedElaboratable=no
"""Whole nodes against the golden model: memories, registers, transport and switch included."""

from dataclasses import replace
from itertools import pairwise

import pytest

from fanin import fixed
from fanin.glm.facts import PRESETS, Partitioning
from fanin.hdl.glm.node_registers import Failure
from fanin.hdl.glm.worker import GlmWorker
from fanin.wire.aggregation import Encap, Kind
from tests.hdl.glm.cluster import Cluster, Link
from tests.hdl.glm.training import Job
from tests.support import new_seed

TINY = PRESETS["tiny"]
TRANSPORT = 5  # cycles, there and back: PA to AGG, RESULT to FA


NODES = {
    "one node": (1, TINY),
    "two nodes": (2, TINY),
    "two engines, UDP": (1, replace(TINY, engines=2, encap=Encap.UDP, mac_width=512)),
    "a board's": (2, replace(PRESETS["ecp5-25"], slots=4)),
}


def _check(cluster: Cluster) -> None:
    """The golden model, and nothing clamped more or less often than there."""
    golden = cluster.job.golden
    assert all(not status.failed for status in cluster.status)
    assert cluster.model == golden.model.tolist()
    assert sum(counters["clamps"] for counters in cluster.counters) == golden.clamps


@pytest.mark.slow
@pytest.mark.parametrize("case", list(NODES))
def test_nodes_train_the_golden_model_while_memory_and_network_stall(case):
    workers, node = NODES[case]
    _check(Cluster(Job(seed=new_seed(), node=node, workers=workers)).run())


@pytest.mark.slow
@pytest.mark.parametrize("mode", Partitioning)
def test_nodes_whose_weights_decay_train_the_golden_model(mode):
    node = replace(TINY, engines=2, mode=mode, l2=True)
    decay = fixed.Decay(2, spared=21)
    job = Job(seed=new_seed(), node=node, workers=2, samples=40, batch=32, decay=decay)
    assert job.golden.model.tolist() != replace(job, decay=fixed.NO_DECAY).golden.model.tolist()
    _check(Cluster(job).run())


def _second_of_each_kind(arrivals: list[int]) -> Link:
    """A link that treats the second packet of every kind, to and from worker 0, differently."""
    return lambda up, worker, packet, before: arrivals if (worker, before) == (0, 1) else [0]


@pytest.mark.slow
def test_a_lost_packet_of_any_kind_is_sent_again():
    job = Job(seed=new_seed(), node=TINY, epochs=1)
    cluster = Cluster(job, link=_second_of_each_kind([]), timeout=200).run()
    _check(cluster)
    lost = {(up, kind) for (up, _, kind), seen in cluster.links.seen.items() if seen >= 2}
    assert lost == {(kind in (Kind.AGG, Kind.ACK), kind) for kind in Kind}
    assert cluster.counters[0]["retransmissions"] >= 4


@pytest.mark.slow
def test_duplicates_of_everything_change_nothing():
    job = Job(seed=new_seed(), node=TINY, epochs=1)
    cluster = Cluster(job, link=lambda *_: [0, 1]).run()
    _check(cluster)
    assert cluster.counters[0]["duplicates"] + cluster.counters[0]["stale"] >= 1


@pytest.mark.slow
def test_a_packet_60_cycles_late_changes_nothing():
    """Later than its timeout: it comes behind its own retransmission, and its slot may be in use again."""
    job = Job(seed=new_seed(), node=TINY, epochs=1)
    cluster = Cluster(job, link=_second_of_each_kind([160]), timeout=100).run()
    _check(cluster)
    counters = cluster.counters[0]
    assert counters["retransmissions"] >= 1
    assert counters["duplicates"] + counters["stale"] >= 1


@pytest.mark.slow
def test_a_full_replay_fifo_stops_forward_and_loses_nothing():
    job = Job(seed=new_seed(), node=replace(TINY, sample_fifo=9), epochs=1)
    assert job.shape.words_per_micro_batch == 9
    cluster = Cluster(job).run()
    _check(cluster)
    assert cluster.counters[0]["stall_fifo_full"] > 0


@pytest.mark.slow
def test_a_second_start_trains_on_and_operations_count_on():
    job = Job(seed=new_seed(), node=TINY, epochs=1)
    cluster = Cluster(job, runs=2).run()
    assert cluster.model == replace(job, epochs=2).golden.model.tolist()
    operations = 2 * job.shape.micro_batches_per_epoch
    assert sum(n for (up, _, kind), n in cluster.links.seen.items() if up and kind == Kind.AGG) == operations


@pytest.mark.slow
def test_a_dead_network_ends_in_timeout_and_the_node_can_be_used_again():
    dead = True
    job = Job(seed=new_seed(), node=TINY, epochs=1)

    async def script(cluster: Cluster) -> None:
        nonlocal dead
        await cluster.configure(retries=2, timeout=50)
        await cluster.rewrite("epochs", {"epochs": 2**32 - 1})  # more than a reader could ever finish
        await cluster.train()
        assert [status.cause for status in cluster.status] == [Failure.TIMEOUT]
        dead = False
        await cluster.configure()
        await cluster.command("clear_model")
        await cluster.wait()
        assert not cluster.status[0].failed
        await cluster.train()
        await cluster.read()

    _check(Cluster(job, link=lambda *_: [] if dead else [0], script=script).run())


@pytest.mark.slow
def test_a_memory_error_ends_the_run_and_the_node_can_be_used_again():
    job = Job(seed=new_seed(), node=TINY, epochs=1)

    async def script(cluster: Cluster) -> None:
        await cluster.configure()
        await cluster.train()
        assert [status.cause for status in cluster.status] == [Failure.BUS]
        cluster.errors.clear()
        await cluster.configure()
        await cluster.command("clear_model")
        await cluster.wait()
        await cluster.train()
        await cluster.read()

    _check(Cluster(job, errors={job.node.port_bits // 8 * 30}, script=script).run())


BAD = {
    "no planes": ("training", {"planes": 0, "loss": 0, "clamp_bits": 31}),
    "9 planes": ("training", {"planes": 9, "loss": 0, "clamp_bits": 31}),
    "a clamp of 14 bits": ("training", {"planes": 3, "loss": 0, "clamp_bits": 14}),
    "loss 3": ("training", {"planes": 3, "loss": 3, "clamp_bits": 31}),
    "no chunks": ("chunks", {"chunks": 0}),
    "more chunks than the model memory": ("chunks", {"chunks": 5}),
    "empty mini-batch": ("mini_batch", {"mini_batch": 0}),
    "empty epoch": ("epoch", {"epoch": 0}),
    "an epoch of 2^32 words": ("epoch", {"epoch": 2**32 // 9 + 1}),
    "no epochs": ("epochs", {"epochs": 0}),
    "a mantissa below 2^15": ("rate", {"mantissa": (1 << 15) - 1, "shift": 20}),
    "shift 40": ("rate", {"mantissa": 1 << 15, "shift": 40}),
    "more slots than the transport": ("job", {"job_id": 7, "log2_slots": 3, "slot_base": 64}),
    "unaligned slots": ("job", {"job_id": 7, "log2_slots": 2, "slot_base": 65}),
    "no member": ("member", {"member": 0}),
    "two members": ("member", {"member": 3}),
    "no timeout": ("timeout", {"timeout": 0}),
}
BAD_ADDRESSES = {
    "misaligned samples": ("sample_address", {"sample_address": 2}),
    "misaligned labels": ("label_address", {"label_address": 4}),
}


@pytest.mark.slow
def test_what_could_not_move_is_refused_at_start():
    """One node is given every bad register in turn."""
    job = Job(seed=new_seed(), node=TINY, epochs=1)
    causes = {}

    async def script(cluster: Cluster) -> None:
        await cluster.configure()
        for case, (name, fields) in (BAD | BAD_ADDRESSES).items():
            await cluster.rewrite(name, fields)
            await cluster.train()
            causes[case] = cluster.status[0].cause
            await cluster.rewrite(name)
        await cluster.train()
        await cluster.read()

    _check(Cluster(job, script=script).run())
    expected = dict.fromkeys(BAD, Failure.SHAPE) | dict.fromkeys(BAD_ADDRESSES, Failure.ADDRESS)
    assert causes == expected


@pytest.mark.slow
def test_data_parallel_nodes_train_their_golden_model():
    node = replace(TINY, mode=Partitioning.DATA_PARALLEL)
    job = Job(seed=new_seed(), node=node, workers=2, batch=32, columns=10, samples=40, epochs=1)
    cluster = Cluster(job).run()
    _check(cluster)
    operations = job.shape.mini_batches * job.shape.chunks * node.lanes // node.values
    assert [counters["agg_sent"] for counters in cluster.counters] == [operations] * 2


@pytest.mark.slow
@pytest.mark.parametrize("precision", [3, 1])
def test_a_mini_batch_costs_its_words_the_network_and_at_most_44_cycles(precision):
    """On the wire, at one beat a frame: from AGG to AGG of two mini-batches' last micro-batches."""
    node = replace(TINY, mac_width=512)
    job = Job(seed=new_seed(), node=node, precision=precision, samples=96, batch=32, epochs=1)
    cluster = Cluster(job, stall=0).run()
    _check(cluster)
    times, shape = cluster.links.times, job.shape
    aggs, results = times[True, Kind.AGG], times[False, Kind.RESULT]
    last = range(shape.micro_batches - 1, len(aggs), shape.micro_batches)
    costs = {aggs[after] - aggs[before] - (results[before] - aggs[before]) for before, after in pairwise(last)}
    words = shape.micro_batches * shape.words_per_micro_batch
    (overhead,) = {cost - words for cost in costs}
    assert overhead == GlmWorker(lanes=node.lanes).pipeline + TRANSPORT + precision
    assert overhead <= 44 + precision
