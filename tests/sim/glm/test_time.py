"""Time model of an epoch: held to RTL and golden workers on trees; its times on docs/systems/scale.md."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fanin import fixed
from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.link import LinkConfig
from fanin.sim.glm.cosim import Cosim
from fanin.sim.glm.time import EpochTime
from fanin.sim.network import NetworkConfig
from fanin.tree import MAX_LEVELS, levels_of, parse_shape, tree_of, workers_of
from tests.support import slow

PAGE = (Path(__file__).parents[3] / "docs/systems/scale.md").read_text()
BATCH, WORKERS = 64, 4


def epoch(workers, columns, *, samples, levels=1, node="u280"):
    shape = TrainShape(node=PRESETS[node], workers=workers, samples=samples, columns=columns, batch=BATCH)
    return EpochTime(shape=shape, levels=levels)


def rows(heading):
    """Return the cells of each row of the tables under a heading that begins with a number or a tree."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| `?\d", line)]
    assert lines, heading
    return [[cell.strip(" `%").replace(",", "") for cell in line.strip("| ").split(" | ")] for line in lines]


def measure(cosim, text, columns, samples, trunk=None):
    """Train an epoch of random data in RTL on a tree; return the run and the time model of the same."""
    node, tree = cosim.config, tree_of(parse_shape(text), job=1, base=0, slots=cosim.config.slots)
    tree = replace(tree, switches=tuple(replace(each, link=trunk or {}) for each in tree.switches))
    workers = len(tree.workers)
    shape = TrainShape(node=node, workers=workers, samples=samples, columns=columns, batch=BATCH)
    rng = np.random.default_rng(0)
    features = rng.integers(0, 1 << shape.precision, (samples, columns), dtype=np.uint8)
    labels = (rng.integers(0, 2, samples) << node.frac).astype(np.int32)
    network = NetworkConfig(tree=tree if tree.levels > 1 else None)
    rate = fixed.learning_rate(0.5 / BATCH)
    run = cosim.train(
        shape, features, labels, loss=Loss.LOGISTIC, rate=rate, epochs=1, network=network, models=False
    )
    model = epoch(workers, columns, samples=samples, levels=tree.levels, node=node.name)
    return run, replace(model, trunk=trunk and LinkConfig(**trunk))


def check(run, model, error):
    """The model has RTL's round trip exactly, RTL's epoch within ``error``."""
    assert set(run.allreduce_ns) == {1000 / model.clock_mhz * model.allreduce_cycles}
    (cycles,) = run.cycles
    assert model.cycles == pytest.approx(cycles, rel=error)


@pytest.fixture(scope="module")
def demo():
    return Cosim(PRESETS["demo"], workers=WORKERS, quiet=True)


@pytest.fixture(scope="module")
def u280():
    return Cosim(PRESETS["u280"], workers=WORKERS, quiet=True)


@pytest.mark.verilator
@pytest.mark.parametrize("text", ["2x2", *slow("4", "1+3", "2x1x2", "1x2x1x2")])
def test_nodes_of_one_engine_take_the_models_time(demo, text):
    check(*measure(demo, text, columns=257, samples=130), error=0.03)


@pytest.mark.verilator
@pytest.mark.parametrize("text", ["2x2", *slow("2x1x2")])
def test_links_between_switches_take_the_models_time(demo, text):
    trunk = {"gbps": 400, "delay_ns": 700}
    run, model = measure(demo, text, columns=257, samples=130, trunk=trunk)
    check(run, model, error=0.03)
    assert model.cycles > 1.05 * replace(model, trunk=None).cycles


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("text", ["4", "2x2", "1+3", "2x1x2"])
@pytest.mark.parametrize(("columns", "samples"), [(4096, 258), (131072, 64)])
def test_nodes_of_eight_engines_take_the_models_time(u280, text, columns, samples):
    check(*measure(u280, text, columns, samples), error=0.01)


@pytest.mark.parametrize(
    ("levels", "text"), [(1, "2"), (2, "2x1"), (3, "1x2x1"), (4, "1x1x2x1"), *slow((2, "32x32"))]
)
@pytest.mark.parametrize(("delay_ns", "gbps", "switch_ns"), [(100, 100, 400), (70, 10, 300)])
def test_golden_workers_take_the_models_time(capsys, levels, text, delay_ns, gbps, switch_ns):
    network = ["--link-ns", delay_ns, "--gbps", gbps, "--switch-ns", switch_ns]
    options = ["--racks", text, "--operations", 3, "--window", 1, "--switch", "reference", *network, "--json"]
    assert main(["p4", "allreduce", *map(str, options)]) == 0
    latency = json.loads(capsys.readouterr().out)["latency_ns"]
    shape, link = epoch(1, 1, samples=1).shape, LinkConfig(delay_ns=delay_ns, gbps=gbps)
    expected = pytest.approx(EpochTime(shape=shape, levels=levels, link=link, switch_ns=switch_ns).allreduce_ns)
    assert [latency["mean"], latency["p99"]] == [expected, expected]


def test_a_level_costs_two_links_and_two_switches():
    times = [epoch(32, 4096, samples=64, levels=levels) for levels in (1, 2, 3, 4)]
    assert [time.allreduce_cycles for time in times] == [154, 407, 660, 913]
    assert [time.cycles - times[0].cycles for time in times] == [0, 253, 506, 759]


def test_a_tree_has_bounds():
    assert epoch(65_535, 1 << 26, samples=64, levels=4).cycles > 0
    with pytest.raises(ValueError, match=r"levels must be in 1…4, not 5"):
        epoch(32, 4096, samples=64, levels=5)
    with pytest.raises(ValueError, match=r"levels must be in 1…4, not 0"):
        epoch(32, 4096, samples=64, levels=0)
    with pytest.raises(ValueError, match=r"2 levels hold 1,024 workers, not 1,025"):
        epoch(1025, 4096, samples=64, levels=2)
    with pytest.raises(InputError, match=r"workers must be in 1…65,535, not 65,536"):
        epoch(65_536, 4096, samples=64, levels=4)


def test_the_page_has_the_models_latencies():
    levels, trees = (
        [row for row in rows("Latency against levels") if row[0].isdigit() == is_number]
        for is_number in (True, False)
    )
    assert len(levels) == MAX_LEVELS
    for row in levels:
        time = epoch(1, 1, samples=1, levels=int(row[0]))
        cycles, nanoseconds = time.allreduce_cycles, round(time.allreduce_ns)
        assert [*map(int, row[1:])] == [nanoseconds, nanoseconds, 4 * cycles, cycles, cycles, cycles + 10]
    for tree, workers, _, measured, model, error in trees:
        shape = parse_shape(tree)
        assert workers_of(shape) == int(workers)
        assert round(epoch(1, 1, samples=1, levels=levels_of(shape)).allreduce_ns) == int(model)
        assert 100 * (int(measured) / int(model) - 1) == pytest.approx(float(error), abs=0.05)
        assert float(error) <= 3


def test_the_page_has_the_models_epochs():
    for tree, columns, samples, measured, model, error in rows("RTL beside the time model"):
        shape = parse_shape(tree)
        levels, workers = levels_of(shape), workers_of(shape)
        assert epoch(workers, int(columns), samples=int(samples), levels=levels).cycles == int(model)
        assert 100 * (int(model) / int(measured) - 1) == pytest.approx(float(error), abs=0.05)
        assert abs(float(error)) <= 3
    for workers, tree, *cycles in rows("Epochs beyond RTL"):
        shape = parse_shape(tree)
        assert workers_of(shape) == int(workers)
        times = [
            epoch(int(workers), columns, samples=1024, levels=levels_of(shape))
            for columns in (1 << 16, 1 << 20, 1 << 26)
        ]
        assert [time.cycles for time in times] == [*map(int, cycles)]
