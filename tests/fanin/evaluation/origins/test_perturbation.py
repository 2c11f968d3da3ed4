"""The graph of origins against the models: an input that moves a figure is declared, and the figure is derived.

Each input is moved by one per cent, alone. Fitted inputs of AI Smart NIC and INCEPTIONN are moved themselves;
those of P4SGD's machines and of RDMA-wild are moved by the number that they are fitted to.
"""

from dataclasses import replace

import numpy as np
import pytest

from fanin.evaluation.bench import baselines as p4sgd_bench
from fanin.evaluation.bench import param_server_models, ring, smart_nic_figures
from fanin.evaluation.models import baselines, exchange_cost, rdma_wild, smart_nic_paper
from fanin.evaluation.origins import inputs as i
from fanin.evaluation.origins.graph import origin
from fanin.evaluation.origins.kinds import UNMEASURED
from fanin.evaluation.reproduce.rows import PAPERS
from fanin.planner.cluster import load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.plan.sweep import sweep
from fanin.planner.search.limits import Limits
from fanin.sim.codec import tags

UP = 1.01
ROWS = [(paper, row) for paper in PAPERS for row in paper.rows]


def figures(results):
    return {result.id: result.value for result in results if result.id}


def moved(before, after):
    """The identifiers whose figures differ by more than an iterated fit is off."""
    assert before.keys() == after.keys()
    return {name for name, value in before.items() if abs(after[name] - value) > 1e-7 * abs(value)}


def held(before, changes):
    """Each change moves figures that declare its input, and no others; nothing measured is among them.

    ``changes``: of each input, the figures after it was moved.
    """
    for given, after in changes.items():
        changed = moved(before, after)
        declaring = {name for name in before if given in origin(name).inputs}
        assert changed <= declaring, f"{given.name}: not declared by {sorted(changed - declaring)[:5]}"
        assert changed, f"{given.name}: moves nothing"
        assert {origin(name).kind for name in changed} <= set(UNMEASURED), given.name
    for name in before:
        assert set(origin(name).inputs) <= changes.keys(), f"{name}: an input that is not moved here"


def test_ai_smart_nics_figures_declare_the_inputs_that_move_them(monkeypatch):
    fitted = smart_nic_paper.fitted()
    first, second = fitted.flops
    before = figures(ring.smart_nic(fitted))
    changes = {
        given: figures(ring.smart_nic(replace(fitted, **change)))
        for given, change in {
            i.FLOPS_448: {"flops": (UP * first, second)},
            i.FLOPS_1792: {"flops": (first, UP * second)},
            i.NIC_ADDS: {"adds": UP * fitted.adds},
            i.MPI_LATENCY: {"latency": UP * fitted.latency},
            i.MPI_ADD: {"add": UP * fitted.add},
            i.MPI_LONE_ADD: {"lone_add": UP * fitted.lone_add},
        }.items()
    }
    for given, name, value in (
        (i.NIC_LINK, "ETHERNET", UP * smart_nic_paper.ETHERNET),
        (i.NIC_PCIE, "PCIE", 0.2 * smart_nic_paper.PCIE),  # at the paper's rate it binds nowhere
        (i.MPI_BYTE, "BASELINE_BYTE", UP * smart_nic_paper.BASELINE_BYTE),
        (i.SLOWER, "BASELINE_SLOWDOWN", UP * smart_nic_paper.BASELINE_SLOWDOWN),
        (i.WIDTHS, "WIDTHS", smart_nic_paper.WIDTHS[1:]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(smart_nic_paper, name, value)
            changes[given] = figures(ring.smart_nic(fitted))
    with monkeypatch.context() as patch:
        bfp = UP * smart_nic_paper.BFP16
        for module in (smart_nic_paper, ring):
            patch.setattr(module, "BFP16", bfp)
        patch.setitem(smart_nic_figures.SERIES, smart_nic_figures.SMART_BFP, bfp)
        changes[i.BFP16] = figures(ring.smart_nic(fitted))
    held(before, changes)


def _exchange():
    shares = {f"inceptionn.figure_3.{each.id}": each.model for each in exchange_cost.communication_shares()}
    return figures(ring.exchange_times()) | shares


def _benchmarks(monkeypatch, **factors):
    """Table II with fields of each benchmark times a factor."""
    found = tuple(
        replace(each, **{name: factor * getattr(each, name) for name, factor in factors.items()})
        for each in exchange_cost.BENCHMARKS
    )
    monkeypatch.setattr(exchange_cost, "BENCHMARKS", found)
    monkeypatch.setattr(exchange_cost, "ALEXNET", found[0])
    monkeypatch.setattr(exchange_cost, "RESNET", found[2])


def test_inceptionns_figures_declare_the_inputs_that_move_them(monkeypatch):
    before = _exchange()
    links, share = (
        {n: getattr(exchange_cost, n)() for n in ("aggregator_link", "ring_link")},
        exchange_cost.fixed_share(),
    )

    def fits(patch, fixed=share, **changed):
        for name, link in (links | changed).items():
            patch.setattr(exchange_cost, name, lambda link=link: link)
        patch.setattr(exchange_cost, "fixed_share", lambda: fixed)

    aggregator, over_ring = links.values()
    changes = {}
    for given, change in {
        i.BYTE: {"aggregator_link": replace(aggregator, byte=UP * aggregator.byte)},
        i.ADDITION: {
            "aggregator_link": replace(aggregator, add=UP * aggregator.add),
            "ring_link": replace(over_ring, add=UP * over_ring.add),
        },
        i.RING_BYTE: {"ring_link": replace(over_ring, byte=UP * over_ring.byte)},
        i.FIXED_SHARE: {"fixed": UP * share},
    }.items():
        with monkeypatch.context() as patch:
            fits(patch, **change)
            changes[given] = _exchange()
    for given, name in (
        (i.SIZES, "size"),
        (i.LOCAL, "local"),
        (i.SUMS, "sum"),
        (i.COMMUNICATION, "communicate"),
        (i.TOTAL, "total"),
        (i.RING_SAVES, "saved_communication"),
    ):
        with monkeypatch.context() as patch:
            fits(patch)
            _benchmarks(patch, **{name: UP})
            changes[given] = _exchange()
    with monkeypatch.context() as patch:
        fits(patch)
        for network, bounds in tags.TABLE_III.items():
            zero, *others = bounds[0]
            patch.setitem(tags.TABLE_III, network, ((UP * zero, *others), *bounds[1:]))
        changes[i.SHARES] = _exchange()
    held(before, changes)


def _p4sgd(monkeypatch, given=None, **changed):
    """Figures of the machines beside P4SGD; ``given``: the number that is moved."""
    with monkeypatch.context() as patch:
        patch.setattr(p4sgd_bench, "switchml_latencies", lambda workers: np.array([13_836.0]))
        for name, value in changed.items():
            patch.setattr(baselines, name, value)
        for cached in (baselines.baselines, baselines.paper_mini_batches):
            cached.cache_clear()
        _, points = p4sgd_bench.figure_13()
        found = figures([*points, *p4sgd_bench._table_4()])
    for cached in (baselines.baselines, baselines.paper_mini_batches):
        cached.cache_clear()
    return {
        name: value for name, value in found.items() if "p4sgd_b_" not in name
    }  # the model that RTL is held to


def _scaled(table, machine):
    return table | {machine: {name: UP * value for name, value in table[machine].items()}}


def test_figures_of_machines_beside_p4sgd_declare_the_inputs_that_move_them(monkeypatch):
    before = _p4sgd(monkeypatch)
    seconds = baselines.SECONDS
    held(
        before,
        {
            i.CPU_TIME: _p4sgd(monkeypatch, SECONDS=_scaled(seconds, baselines.CPU)),
            i.GPU_TIME: _p4sgd(monkeypatch, SECONDS=_scaled(seconds, baselines.GPU)),
            i.MINI_BATCHES: _p4sgd(monkeypatch, SECONDS=_scaled(seconds, baselines.P4SGD)),
            i.HOST_ALLREDUCE: _p4sgd(monkeypatch, HOST_ALLREDUCE_NS=UP * baselines.HOST_ALLREDUCE_NS),
            i.PEAKS: _p4sgd(
                monkeypatch, PEAK=baselines.PEAK | {baselines.GPU: UP * baselines.PEAK[baselines.GPU]}
            ),
            i.WATTS: _p4sgd(monkeypatch, WATTS={name: UP * watts for name, watts in baselines.WATTS.items()}),
            i.T_L: _p4sgd(monkeypatch, T_L_NS=UP * baselines.T_L_NS),
        },
    )


def _rdma_wild(monkeypatch, row=None, constants=None):
    with monkeypatch.context() as patch:
        patch.setattr(rdma_wild, "_SIMULATED_BATCHES", 20)
        for name, value in (constants or {}).items():
            patch.setattr(rdma_wild, name, value)
        lr = rdma_wild.PAPER["lr"]
        patch.setitem(rdma_wild.PAPER, "lr", replace(lr, **(row or {})))
        found = {}
        for cached in (rdma_wild.cluster, rdma_wild.server_byte_seconds):
            cached.cache_clear()
        for reading in (rdma_wild.STEADY, rdma_wild.ONE_SERVER):
            of_it = replace(reading, jitter=rdma_wild.JITTER if reading.jitter else 0.0)
            found |= figures(param_server_models._table_1(of_it, "lr"))
    for cached in (rdma_wild.cluster, rdma_wild.server_byte_seconds):
        cached.cache_clear()
    return found


def test_rdma_wilds_times_declare_the_inputs_that_move_them(monkeypatch):
    lr = rdma_wild.PAPER["lr"]
    single = {"sync_speedup": UP * lr.sync_speedup, "wild_speedup": UP * lr.wild_speedup}
    less = lr.sync_speedup * (1 - 1 / UP)
    held(
        _rdma_wild(monkeypatch),
        {
            i.SAMPLE: _rdma_wild(monkeypatch, single),
            i.UPDATE: _rdma_wild(monkeypatch, {"sync": UP * lr.sync, "sync_speedup": lr.sync_speedup - less}),
            i.ONE_SERVER: _rdma_wild(monkeypatch, {"wild": UP * lr.wild, "wild_speedup": lr.wild_speedup / UP}),
            i.PS_BYTES: _rdma_wild(monkeypatch, {"bytes": round(UP * lr.bytes)}),
            i.PS_LINK: _rdma_wild(monkeypatch, constants={"LINK_BYTE": UP * rdma_wild.LINK_BYTE}),
            i.PS_LATENCY: _rdma_wild(
                monkeypatch, constants={"LATENCY_SECONDS": UP * rdma_wild.LATENCY_SECONDS}
            ),
            i.JITTER: _rdma_wild(monkeypatch, constants={"JITTER": UP * rdma_wild.JITTER}),
        },
    )


def test_a_plans_rate_is_that_of_its_clusters_inputs():
    """Twice the clock and the bandwidths: twice the frames a second, by the same choices."""

    def rate(factor):
        cluster, limits = load_cluster("arria10x4"), Limits(seconds=20, workers=1)
        part = cluster.devices[0].part
        rates = {name: factor * getattr(part, name) for name in ("clock", "dram", "network")}
        faster = replace(part, **rates)
        cluster = replace(cluster, devices=tuple(replace(each, part=faster) for each in cluster.devices))
        [(_, _, plan)] = sweep(
            load_model("listing1"), cluster, [2], [1], limits, pool=None, report=lambda *_: None
        )
        assert plan.optimal
        return plan.throughput

    assert rate(2) == 2 * rate(1)


@pytest.mark.parametrize("quick", [True, False])
def test_a_row_of_inputs_alone_is_derived(quick):
    """No row passes for a measurement or a plan if its figures are inputs, or derived from them."""
    for paper, row in ROWS:
        measurement = row.measurement(quick=quick)
        prefix = f"{measurement.id_prefix}." if measurement.id_prefix else ""
        hows = {origin(prefix + figure).kind for figure in measurement.value.figures}
        assert (measurement.origin.kind in UNMEASURED) == (hows <= set(UNMEASURED)), (
            f"{paper.name}: {row.quantity}"
        )
        assert not row.model or measurement.origin.kind in UNMEASURED, f"{paper.name}: {row.quantity}"


def test_the_numbers_that_passed_for_predictions_are_derived():
    derived = {
        ("smart-nic", "6 nodes, B = 448: time that NIC and BFP save"),
        ("smart-nic", "6 nodes, B = 448, smart NIC with BFP: speed-up"),
        ("smart-nic", "naive over overlapped iteration"),
        ("inceptionn", "AlexNet: of the training time, by the ring"),
        ("nada", "MobileNetV2 on six Arria 10: throughput"),
        ("p4sgd", "AllReduce of 8 values, 8 workers, mean"),
    }
    found = {(paper.name, row.quantity): row for paper, row in ROWS}
    assert {found[name].full.origin.kind.value for name in derived} == {
        "derived from fitted",
        "derived from quoted",
    }


def _refitted(monkeypatch, published=None, **constants):
    """Published facts, by identifier, and what the model, fitted to them, makes of the rows that follow."""
    facts = tuple(
        replace(fact, published=(published or {}).get(fact.id, fact.published))
        for fact in smart_nic_paper.FACTS
    )
    with monkeypatch.context() as patch:
        patch.setattr(smart_nic_paper, "FACTS", facts)
        for name, value in constants.items():
            patch.setattr(smart_nic_paper, name, value)
        inputs = smart_nic_paper.fitted.__wrapped__()
        found = figures(ring.smart_nic(inputs))
        (exposed,) = [fact.model(inputs) for fact in facts if fact.id.endswith("exposed_naive_over_overlapped")]
        given = {f"ring.fact.{fact.id}": fact.published for fact in facts}
        slower = smart_nic_paper.BASELINE_SLOWDOWN
    return given | {"ring.slower_backward": slower, "ring.exposed_naive_over_overlapped": exposed}, found


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"published": {"b_448.nodes_6.smart_nic.time_saved": 18.5}},
        {"published": {"b_448.nodes_6.smart_nic.exposed_saved": 36.0}},
        {"published": {"b_448.nodes_6.bfp.exposed_saved": 93.0}},
        {"published": {"b_1792.nodes_6.naive.exposed": 50.0}},
        {"BASELINE_SLOWDOWN": 1.1},
        {"ETHERNET": 44e9},
        {"WIDTHS": (2048,) * 18},
    ],
)
def test_smart_nic_rows_that_follow_change_as_their_algebra_says(monkeypatch, change):
    facts, found = _refitted(monkeypatch, **change)
    rows = [row for paper, row in ROWS if paper.name == "smart-nic" and row.derivation]
    assert len(rows) == 3
    for row in rows:
        assert row.full.value(found) == pytest.approx(row.derivation.value(facts), rel=2e-3), row.quantity


@pytest.mark.parametrize("field", ["local", "sum", "communicate", "total", "saved_communication"])
def test_inceptionn_rows_that_follow_change_as_their_algebra_says(monkeypatch, field):
    _benchmarks(monkeypatch, **{field: 1.1})
    facts = {
        f"{each.name.lower().replace('-', '_')}.{name}": value
        for each in exchange_cost.BENCHMARKS
        for name, value in vars(each).items()
    }
    rows = [row for paper, row in ROWS if paper.name == "inceptionn" and row.derivation]
    assert len(rows) == 4
    found = _exchange()
    for row in rows:
        assert row.full.value(found) == pytest.approx(row.derivation.value(facts), rel=1e-9), row.quantity
