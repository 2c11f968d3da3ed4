"""The search against exhaustive search, and its parts against what they promise."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.planner.check.plan import check_plan
from fanin.planner.cluster import Cluster, Device, load_cluster
from fanin.planner.model import dsl
from fanin.planner.model.graph import Edge
from fanin.planner.model.load import load_model
from fanin.planner.plan.plan import make_plan
from fanin.planner.plan.write import plan_documents, write_documents
from fanin.planner.search import anneal, kernel
from fanin.planner.search.choices import all_choices
from fanin.planner.search.instance import Instance, Placement, divergent_paths
from fanin.planner.search.limits import Limits
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.relax import period_bound
from fanin.planner.search.search import GAP_TOLERANCE as SAME_RATE
from fanin.planner.search.start import first_placement
from tests.planner.exhaustive import (
    Exhaustive,
    colours,
    has_hops,
    pinned_nodes,
    random_case,
    random_model,
    two_ways,
)
from tests.support import slow

CASES, QUICK = 300, 60
# Three devices are best, or LUTs or connections bind, in none of the quick ones.
MORE = (61, 102, 139, 155, 170)
SAME = 15  # of these, as many are planned again


def _plan(case, **limits):
    return make_plan(Instance(*random_case(case)), Limits(**{"seconds": 10, "workers": 1, "seed": 0, **limits}))


@pytest.mark.parametrize(
    "seed", [s if s < QUICK else pytest.param(s, marks=pytest.mark.slow) for s in range(CASES)]
)
def test_throughput_is_that_of_exhaustive_search_and_the_checker_finds_nothing(seed, tmp_path):
    best = Exhaustive(*random_case(seed)).best()
    if best is None:
        with pytest.raises(InputError):
            _plan(seed)
        return
    plan = _plan(seed)
    assert plan.throughput == 1 / best
    assert plan.optimal
    assert plan.bound == plan.throughput
    write_documents(tmp_path, plan_documents(plan))
    assert check_plan(tmp_path) == []


@pytest.mark.slow
def test_a_gap_ends_the_search_and_the_plan_says_why():
    instance = Instance(load_model("example_cnn"), load_cluster("arria10x3"))
    limits = Limits(seconds=200, workers=1, gap=0.02)
    plan = make_plan(instance, limits)
    statistics = dict(plan.statistics)
    assert statistics["stopped_by"] == "gap"
    assert SAME_RATE < plan.gap <= 0.02
    assert statistics["effort"] < limits.effort / 2


def test_a_search_without_a_gap_ends_with_a_proof_or_with_its_time():
    assert dict(_plan(0).statistics)["stopped_by"] == "proof"
    instance = Instance(load_model("example_cnn"), load_cluster("arria10x3"))
    plan = make_plan(instance, Limits(seconds=1, workers=1))
    assert dict(plan.statistics)["stopped_by"] == "time"


def test_the_random_cases_are_limited_by_everything():
    found = set()
    for seed in (*range(QUICK), *MORE):
        model, cluster = random_case(seed)
        best = Exhaustive(model, cluster).best()
        if best is None:
            found.add("infeasible")
            continue
        instance = Instance(model, cluster)
        plan = make_plan(instance, Limits(seconds=10, workers=1))
        found.add(f"{plan.used} devices")
        for load, device in zip(plan.loads, cluster.devices, strict=True):
            if load.network and Fraction(load.network, device.part.network) == best:
                found.add("network")
            if load.dram_read and Fraction(load.dram_read, device.part.dram) == best:
                found.add("dram")
            if Fraction(load.cycles, device.part.clock) == best:
                found.add("cycles")
        for rule in ("dsp", "luts", "ram", "connections", "hops"):
            rules = {"connections", "dram", "dsp", "hops", "host", "luts", "network", "ram"} - {rule}
            if len(model.nodes) <= 9 and Exhaustive(model, cluster, rules).best() < best:
                found.add(rule)
    assert found == {
        *("infeasible", "1 devices", "2 devices", "3 devices"),
        *("network", "dram", "cycles", "dsp", "luts", "ram", "connections", "hops"),
    }


def _outcomes(workers):
    """Of some cases what becomes of them, in words."""
    said = []
    for seed in range(SAME):
        try:
            plan = _plan(seed, workers=workers)
            said.append(f"{plan.placement} {plan.priorities} {plan.bound}")
        except InputError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("workers", [2, *slow(1)])
def test_the_same_input_gives_the_same_placement_in_any_process(workers):
    code = f"import json\nfrom tests.planner import test_search as t\nprint(json.dumps(t._outcomes({workers})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == _outcomes(workers)


def test_another_seed_gives_the_same_throughput():
    for case in range(SAME):
        if Exhaustive(*random_case(case)).best() is not None:
            assert len({_plan(case, seed=seed).throughput for seed in range(3)}) == 1, case


def test_the_pooled_bound_is_no_longer_than_the_best_period_and_absent_only_without_any():
    absent = 0
    for seed in range(100):
        model, cluster = random_case(seed, 6)
        instance, best = Instance(model, cluster), Exhaustive(model, cluster).best()
        least = period_bound(instance)
        absent += least is None
        assert best is None if least is None else best is None or 0 < least <= best * instance.ticks, seed
    assert absent > 5


def test_a_first_placement_keeps_every_rule():
    found = 0
    for seed in range(130):
        model, cluster = random_case(seed)
        instance = Instance(model, cluster)
        if any(
            not instance.options(n, p, 1 << 60, 1 << 60) for n in range(len(model.nodes)) for p in cluster.parts
        ):
            continue
        placement = first_placement(instance, period_bound(instance) or 1)
        if placement is not None:
            found += len(set(placement.devices)) > 1
            assert _broken(instance, placement) == [], seed
    assert found > 10


def _broken(instance, placement):
    """Rules that a placement breaks, whatever its period."""
    model, cluster = instance.model, instance.cluster
    wrong = [f"host: {n}" for n in pinned_nodes(model) if placement.devices[n] != cluster.host]
    if not has_hops(Exhaustive(model, cluster).edges, placement.devices):
        wrong.append("hops")
    for load, device in zip(instance.loads(placement), cluster.devices, strict=True):
        part = device.part
        limits = [("dsp", load.dsp, part.dsp), ("connections", load.connections, part.connections)]
        limits += [("LUTs", load.luts, part.luts)] if part.luts is not None else []
        limits += [("bits", load.ram_bits, part.ram_bits)] if part.ram_bits is not None else []
        limits += [("blocks", *pair) for pair in zip(load.ram_blocks, part.ram_blocks or (), strict=False)]
        limits += [("dram", load.dram_read + load.dram_write, 0)] if not part.dram else []
        limits += [("network", load.network, 0)] if not part.network else []
        wrong += [f"{device.name}: {name}" for name, needed, there in limits if needed > there]
    return wrong


def test_a_model_of_the_hosts_layers_alone_lies_on_the_host():
    with dsl.new_model() as builder:
        dsl.add_output("out", dsl.relu(dsl.add_input("in", [4, 4, 2])))
        model = builder.finish("small", "small.py")
    instance = Instance(model, load_cluster("arria10x3"))
    assert first_placement(instance, 1).devices == (0, 0, 0)
    plan = make_plan(instance, Limits(seconds=5, workers=1))
    assert plan.optimal
    assert plan.placement.devices == (0, 0, 0)


def test_a_short_cut_back_to_the_host_is_no_first_placement():
    """The convolution's device is two hops away, the input none, and the last sum wants both."""
    with dsl.new_model() as builder:
        image = dsl.add_input("in", [4, 4, 2])
        dsl.add_output("out", dsl.add(dsl.conv(2, 1, 1, dsl.relu(image)), image))
        model = builder.finish("short", "short.py")
    part = load_cluster("arria10x1").devices[0].part
    instance = Instance(model, Cluster("two", (Device("a", replace(part, dsp=3)), Device("b", part))))
    assert first_placement(instance, instance.ticks) is None
    with pytest.raises(InputError, match="as many hops on every way to a join"):
        make_plan(instance, Limits(seconds=5, workers=1))


def test_a_device_gives_up_a_layer_where_those_behind_it_find_no_place():
    """As many as fit, the first takes all in front of a skip, of whose two convolutions each fills a device."""
    with dsl.new_model() as builder:
        begin = dsl.relu(dsl.conv(16, 3, 1, dsl.relu(dsl.add_input("in", [4, 4, 16])), name="first"))
        under = dsl.conv(16, 3, 1, dsl.conv(16, 3, 1, begin))
        dsl.add_output("out", dsl.add(under, begin))
        model = builder.finish("skip", "skip.py")
    part = load_cluster("arria10x1").devices[0].part
    costs = (
        all_choices(node.layer, part, links) for node, links in zip(model.nodes, model.contexts, strict=True)
    )
    *before, one, other, _, out = (min(choice.cost.ram_bits for choice in choices) for choices in costs)
    part = replace(part, ram_bits=400_000, ram_blocks=None)
    assert sum(before) + out < part.ram_bits < one + other
    instance = Instance(model, Cluster("three", tuple(Device(f"fpga{n}", part) for n in range(3))))
    placement = first_placement(instance, period_bound(instance))
    assert placement.devices == (0, 0, 0, 1, 1, 2, 2, 0)
    assert _broken(instance, placement) == []


def test_ways_from_where_they_part_are_equal_exactly_where_hops_exist():
    order, both = random.Random(1), set()
    for _ in range(60):
        model = random_model(order)
        edges = Exhaustive(model, load_cluster("arria10x2")).edges
        ways = list(divergent_paths(model))
        for _ in range(40):
            on = [order.randrange(3) for _ in model.nodes]
            cut = [on[source] != on[target] for source, target, _, _ in edges]
            equal = all(sum(cut[e] for e in one) == sum(cut[e] for e in other) for one, other in ways)
            assert equal == has_hops(edges, on)
            both.add((equal, bool(ways)))
    assert both == {(True, True), (True, False), (False, True)}


def test_priorities_are_chosen_exactly_where_there_are_any():
    order, both = random.Random(2), set()
    for _ in range(400):
        limits = [order.randint(0, 4) for _ in range(order.randint(2, 5))]
        pairs = [order.sample(range(len(limits)), 2) for _ in range(order.randint(1, 8))]
        instance = SimpleNamespace(
            model=SimpleNamespace(edges=[Edge(a, b, 32) for a, b in pairs]),
            cluster=SimpleNamespace(
                devices=[SimpleNamespace(part=SimpleNamespace(connections=limit)) for limit in limits]
            ),
        )
        chosen = choose_priorities(instance, Placement(tuple(range(len(limits))), ()))
        assert (chosen is None) == (colours(pairs, limits) is None)
        both.add(chosen is None)
        if chosen is None:
            continue
        assert list(chosen) == list(range(len(pairs)))
        for edge, priority in chosen.items():
            assert 0 <= priority < min(limits[end] for end in pairs[edge])
        for one, other in product(chosen, repeat=2):
            if one < other and set(pairs[one]) & set(pairs[other]):
                assert chosen[one] != chosen[other]
    assert both == {True, False}


def test_the_best_is_found_where_better_connections_could_have_no_priorities():
    """Two layers, each on a device of its own, are four connections of the host, with priorities below 2."""
    model, cluster = two_ways(connections=2)
    _, free = two_ways(connections=4)
    plans = [make_plan(Instance(model, c), Limits(seconds=10, workers=1)) for c in (cluster, free)]
    assert [plan.throughput for plan in plans] == [1 / Exhaustive(model, c).best() for c in (cluster, free)]
    assert [plan.used for plan in plans] == [2, 3]
    assert plans[0].optimal


def _annealing(seed):
    """An annealing of a random case at a period that it cannot meet, begun on the host's device."""
    order = random.Random(seed)
    model = random_model(order, 8)
    arria10, u280 = (load_cluster(name).devices[0].part for name in ("arria10x1", "u280x1"))
    parts = [replace(arria10, ram_bits=35_000_000, ram_blocks=None), u280]
    cluster = Cluster("mixed", tuple(Device(f"fpga{n}", parts[n % 2]) for n in range(4)))
    instance = Instance(model, cluster)
    nodes, period = range(len(model.nodes)), instance.ticks
    options = [[instance.options(n, part, 1, period) for n in nodes] for part in cluster.parts]
    fixed = anneal._fixed(instance, period, options, [n % 2 for n in range(4)])
    fixed = fixed._replace(
        limits=fixed.limits // 10**5,
        network=fixed.network // 10**4,
        max_connections=np.array([1, 2, 1, 2], np.int64),
    )
    start = Placement((0,) * len(nodes), ())
    state = anneal._state(fixed, start, [0] * len(nodes), len(list(divergent_paths(model))))
    kernel.begin(fixed, state)
    return instance, fixed, state


def test_annealing_counts_what_connections_take():
    _, fixed, state = _annealing(1)
    device, column = 1, 1  # LUTs of a U280
    state.connections[device] = 3
    taken = state.load[device, column] + 3 * fixed.connection_cost[device, column]
    assert taken > state.load[device, column]
    energies = []
    for limit in (taken + 1, taken, taken - 1):
        limits = fixed.limits.copy()
        limits[device, column] = limit
        energies.append(kernel.energy(fixed._replace(limits=limits), state))
    assert energies[0] == energies[1] < energies[2]


def _afresh(instance, fixed, state):
    """The same state, from where the nodes lie and how they are built."""
    start = Placement(tuple(state.device.tolist()), ())
    other = anneal._state(fixed, start, state.option.tolist(), len(state.hop_difference))
    edges = instance.model.edges
    for node, (device, way) in enumerate(zip(state.device, state.option, strict=True)):
        other.load[device] += fixed.costs[device % 2, node, way]
    for edge in edges:
        ends = int(state.device[edge.source]), int(state.device[edge.target])
        for here, there in (ends, ends[::-1]) if ends[0] != ends[1] else ():
            other.network[here] += edge.bits
            other.connections[here] += 1
            other.between[here, there] += 1
    cut = [int(state.device[e.source] != state.device[e.target]) for e in edges]
    for join, (one, two) in enumerate(divergent_paths(instance.model)):
        other.hop_difference[join] = sum(cut[e] for e in one) - sum(cut[e] for e in two)
    return other


@pytest.mark.parametrize("seed", range(1, 8))  # 0 stays where it is
def test_the_annealings_sums_stay_those_of_its_placement(seed):
    instance, fixed, state = _annealing(seed)
    if not len(fixed.movable):
        pytest.skip("all layers are the host's")
    assert not kernel.anneal(fixed, state, seed, 20_000, 0.5, 0.01)
    assert len(set(state.device.tolist())) > 1
    other = _afresh(instance, fixed, state)
    for name in ("load", "network", "connections", "between", "hop_difference"):
        assert (getattr(state, name) == getattr(other, name)).all(), name


@pytest.mark.parametrize("seed", range(8))
def test_a_step_changes_the_energy_by_what_it_says(seed):
    instance, fixed, state = _annealing(seed)
    order = random.Random(seed)
    for _ in range(300 if len(fixed.movable) else 0):
        node, there = int(order.choice(fixed.movable)), order.randrange(4)
        before = kernel.energy(fixed, state)
        if there == state.device[node]:
            change = kernel._rebuild(fixed, state, node, order.randrange(fixed.option_count[there % 2, node]))
        else:
            ways = np.array([order.randrange(fixed.option_count[there % 2, node])], np.int64)
            change = kernel._shift(fixed, state, np.array([node], np.int64), 1, there, ways)
        assert kernel.energy(fixed, state) == pytest.approx(before + change, abs=1e-6)
        assert kernel.energy(fixed, state) == pytest.approx(
            kernel.energy(fixed, _afresh(instance, fixed, state))
        )


def test_an_annealing_that_ends_well_gives_a_placement_of_that_period():
    found = 0
    for seed in range(40):
        model, cluster = random_case(seed)
        best = Exhaustive(model, cluster).best()
        if best is None or len(pinned_nodes(model)) == len(model.nodes):
            continue
        instance = Instance(model, cluster)
        start = make_plan(instance, Limits(seconds=5, workers=1)).placement
        period = instance.in_ticks(best * 2)
        job = anneal.Annealing(instance, start, period, seed, 20_000, 0.1)
        placement = anneal.anneal(job)
        if placement is not None:
            found += 1
            assert _broken(instance, placement) == []
            assert instance.in_ticks(instance.period(placement)) <= period
    assert found > 10
