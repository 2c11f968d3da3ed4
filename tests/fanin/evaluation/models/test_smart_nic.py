"""AI Smart NIC's model: the formula is its trace, published figures are met, collectives cost as in Thakur."""

import math

import numpy as np
import pytest

from fanin.evaluation.models import smart_nic, smart_nic_paper
from fanin.evaluation.models.smart_nic import Conventional, Layer, SmartNic, Worker
from fanin.sim.ring.collectives import Link, binomial, rabenseifner, ring, worker_aggregator
from fanin.sim.ring.timeline import Task, idle, makespan, run

LINK = Link(latency=3.0, byte=0.5, add=0.25)


def _random_layers(rng, count):
    return [Layer(*rng.exponential((1, 2, rng.choice((0.5, 2, 8)), 0.3))) for _ in range(count)]


def test_tasks_run_in_order_when_resource_and_predecessors_allow():
    spans = run([Task("a", "x", 2), Task("b", "y", 1, ("a",)), Task("c", "x", 5), Task("d", "x", 1, ("b",))])
    assert [(span.task.name, span.begin, span.end) for span in spans] == [
        ("a", 0, 2),
        ("b", 2, 3),
        ("c", 2, 7),
        ("d", 7, 8),
    ]
    assert (makespan(spans), idle(spans, "x"), idle(spans, "y")) == (8, 0, 7)


def test_tasks_that_wait_for_one_another_are_refused():
    with pytest.raises(ValueError, match="tasks that can never begin: a, b"):
        run([Task("a", "x", 1, ("b",)), Task("b", "y", 1, ("a",))])


def test_the_printed_total_is_the_trace_of_figure_3b():
    rng = np.random.default_rng(0)
    for count in (2, 3, 4, 20):
        for _ in range(50):
            times = _random_layers(rng, count)
            assert smart_nic.total(times) == pytest.approx(makespan(smart_nic.trace(times)))


def test_the_printed_total_has_no_meaning_for_one_layer_but_the_trace_has():
    one = [Layer(1, 2, 3, 4)]
    with pytest.raises(ValueError, match="layers must be at least 2, not 1"):
        smart_nic.total(one)
    for blocking in (True, False):
        assert makespan(smart_nic.trace(one, blocking=blocking)) == 10


def test_a_queue_of_requests_is_never_slower_and_the_same_for_equal_layers():
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(200):
        times = [Layer(t.forward, t.backward, t.all_reduce, 0) for t in _random_layers(rng, 8)]
        gains.append(makespan(smart_nic.trace(times)) - makespan(smart_nic.trace(times, blocking=False)))
    assert min(gains) > -1e-9
    assert max(gains) > 1
    equal = [Layer(1, 2, 5, 0)] * 8
    assert makespan(smart_nic.trace(equal)) == makespan(smart_nic.trace(equal, blocking=False)) == 8 + 2 + 8 * 5


def test_an_all_reduce_is_as_slow_as_link_adders_or_memory():
    nic = SmartNic(ethernet=40e9, pcie=100e9, adds=2e9)
    assert nic.ring(2048, 6) == pytest.approx(5.592e-3, rel=1e-3)  # 2048² = 4,194,304: 2 zeros fill 6 chunks
    assert nic.ring(3, 4) == 32 * 4 * 3 * 2 * 3 / (4 * 40e9)
    assert nic.add(3, 4) == 4 * 3 * 2 * 3 / (4 * 2e9)
    assert nic.memory(3, 4) == 2 * 32 * 12 / 100e9
    assert nic.all_reduce(2048, 6) == nic.ring(2048, 6)
    assert SmartNic(40e9, 100e9, 2e9, ratio=3.76).all_reduce(2048, 6) == nic.add(2048, 6)
    assert SmartNic(40e9, 10e9, 2e9).all_reduce(2048, 6) == pytest.approx(10 * nic.memory(2048, 6))
    assert nic.all_reduce(2048, 1) == 0


def test_forward_is_two_and_backward_four_operations_a_weight_and_sample():
    worker, nic = Worker(flops=1e9, update=1e-9), SmartNic(1e9, 1e9, 1e9)
    (layer,) = smart_nic.layers([100], 7, worker, nic, nodes=1)
    assert layer == Layer(pytest.approx(2 * 7e-5), pytest.approx(4 * 7e-5), 0, pytest.approx(1e-5))


def test_overlapping_hides_what_the_backward_pass_covers_and_naive_nothing():
    worker = Worker(flops=6 * 100**2)  # a layer and sample: forward 1/3 s, backward 2/3 s
    baseline = Conventional(Link(0.25, 0, 0), slowdown=1.5)  # two nodes: 0.5 s
    spans = smart_nic.overlapped([100] * 4, 1, worker, baseline, 2)
    assert smart_nic.backward(spans) == pytest.approx(4)
    assert smart_nic.exposed(spans) == pytest.approx(0.5)
    assert makespan(smart_nic.naive([100] * 4, 1, worker, baseline, 2)) == pytest.approx(4 + 4 * 0.5)
    assert makespan(smart_nic.overlapped([100] * 4, 1, worker, baseline, 1)) == pytest.approx(4)


def test_collectives_cost_what_thakur_rabenseifner_and_gropp_say():
    size, part = 80, 70
    assert ring(8, size, LINK) == 14 * 3 + 2 * part * 0.5 + part * 0.25
    assert rabenseifner(8, size, LINK) == 6 * 3 + 2 * part * 0.5 + part * 0.25
    assert rabenseifner(9, size, LINK) == rabenseifner(8, size, LINK) + 2 * 3 + 2 * size * 0.5 + size * 0.25
    assert binomial(5, size, LINK) == 3 * (2 * 3 + 2 * size * 0.5 + size * 0.25)
    assert worker_aggregator(8, size, LINK) == 4 * 3 + 11 * size * 0.5 + 7 * size * 0.25


@pytest.mark.parametrize("scheme", [ring, rabenseifner, binomial])
def test_compression_makes_bytes_on_the_wire_fewer_and_nothing_else(scheme):
    free = Link(LINK.latency, 0, LINK.add)
    wire = scheme(6, 100, LINK) - scheme(6, 100, free)
    assert scheme(6, 100, LINK, ratio=4) == pytest.approx(scheme(6, 100, free) + wire / 4)


def test_only_the_gradients_of_the_worker_aggregator_are_compressed():
    only = Link(0, 1, 0)
    assert worker_aggregator(8, 1, only, ratio=4) == 8 / 4 + math.log2(8)


@pytest.mark.parametrize("fact", smart_nic_paper.FACTS, ids=lambda fact: fact.name)
def test_published_figures_are_met(fact):
    value = fact.model(smart_nic_paper.fitted())
    if fact.fitted:
        assert value == pytest.approx(fact.published, rel=1e-6)
    elif fact.name == "B = 1792, 6 nodes: exposed, naive over overlapped":
        assert value == pytest.approx(36, abs=1)  # the paper's 50 is not met: docs/systems/gradient-training.md
    else:
        assert value == pytest.approx(fact.published, rel=0.05)


def test_as_many_inputs_as_figures_are_fitted_and_all_are_plausible():
    inputs = smart_nic_paper.fitted()
    assert sum(fact.fitted for fact in smart_nic_paper.FACTS) == 6
    peak = 28 * 64 * 2.4e9
    assert 0.4 * peak < inputs.flops[0] < inputs.flops[1] < peak
    assert 200e6 < inputs.adds / 8 < 300e6
    assert 0 < inputs.latency < 200e-6
    assert 1.5 < inputs.lone_add / inputs.add < 3


def test_with_bfp_the_adders_are_the_bottleneck():
    nic = smart_nic_paper.fitted().nic(smart_nic_paper.BFP16)
    assert nic.add(2048, 6) > nic.memory(2048, 6) > nic.ring(2048, 6)
