"""From a plan's folder to the network that its devices train, and the plans that are refused."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.cnn.layers.layer import Storage
from fanin.planner.cluster import load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.plan.digest import plan_digest
from fanin.planner.plan.network import STORE_SHARE, _pace, read_network
from fanin.planner.plan.plan import make_plan
from fanin.planner.plan.read import read_plan
from fanin.planner.plan.write import plan_documents, write_documents
from fanin.planner.search.instance import Instance
from fanin.planner.search.limits import Limits

MHZ = """[[device]]
name = "first"
part = "arria10"
clock_mhz = 100
[[device]]
name = "second"
part = "arria10"
clock_mhz = {}
"""


def write_plan(folder, model, cluster):
    plan = make_plan(Instance(load_model(model), load_cluster(str(cluster))), Limits(seconds=20, workers=1))
    write_documents(folder, plan_documents(plan))
    return plan


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return folder, write_plan(folder, "digits_cnn", "arria10x1")


@pytest.fixture
def copy(digits, tmp_path):
    return Path(shutil.copytree(digits[0], tmp_path / "plan"))


def test_a_network_that_memory_limits_has_the_pace_of_what_the_store_makes_of_it(digits, copy):
    """digits_cnn with DRAM of the rate that its plan needs, no more."""
    assert read_network(copy).pace == 0  # layers limit
    plan = read_plan(copy)
    tight = {**plan.utilisation["fpga0"], "dram_read": Fraction(1), "dram_write": Fraction(9, 10)}
    plan = replace(plan, utilisation={"fpga0": tight})
    planned = read_network(copy)
    period = float(planned.clock / planned.throughput)
    assert _pace(plan, planned.clock) == pytest.approx(period / STORE_SHARE)
    assert replace(planned, pace=1.5 * period).prediction(64).period == pytest.approx(1.5 * period)


def test_few_frames_of_a_batch_are_predicted_as_they_are(digits):
    """Fewer than are under way at once come out of an empty pipeline; more tell nothing new."""
    planned = read_network(digits[0])
    assert [planned.prediction(batch).batch for batch in (2, 32)] == [2, 32]
    assert planned.prediction(1000) is planned.prediction(2000)
    assert planned.prediction(1000).batch < 100


def edit(folder, change, name="plan.json", *, sign=False):
    """Change a file; ``sign``: give the plan the digest that it then has."""
    content = json.loads((folder / name).read_text())
    change(content)
    if sign:
        names = ["connections.json", "devices/fpga0.json"]
        files = {each: json.loads((folder / each).read_text()) for each in names}
        content["sha256"] = plan_digest({name: content, **files})
    (folder / name).write_text(json.dumps(content))


def refusal(folder):
    with pytest.raises(InputError) as caught:
        read_network(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plan_holds_the_model_with_the_parallelism_that_was_chosen(digits):
    folder, plan = digits
    planned = read_network(folder)
    network, nodes, choices = planned.network, plan.model.nodes, plan.placement.choices
    assert network.name == "digits_cnn"
    assert [(s.name, s.layer, s.sources) for s in network.stages] == [
        (n.name, n.layer, n.sources) for n in nodes
    ]
    assert [(s.parallelism, s.storage) for s in network.stages] == [(c.parallelism, c.storage) for c in choices]
    assert planned.cycles == tuple(choice.cost.cycles for choice in choices)
    assert (planned.placement.names, planned.clock) == (("fpga0",), 100_000_000)
    assert float(planned.throughput) == pytest.approx(float(plan.throughput))
    assert {s.storage for s in network.stages} == {Storage.CHIP}


def test_how_a_plan_was_searched_is_no_part_of_it(digits, copy):
    edit(copy, lambda plan: plan["solver"].update(seconds=99))
    assert read_network(copy) == read_network(digits[0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plan.json", lambda plan: plan["layers"][2].update(forward_decay=0.98)),
        ("plan.json", lambda plan: plan.update(batch=128)),
        ("connections.json", lambda file: file.update(more=1)),
        ("devices/fpga0.json", lambda file: file.update(clock_hz=1)),
    ],
)
def test_an_edited_plan_is_refused(copy, name, change):
    edit(copy, change, name)
    assert refusal(copy).startswith(f"{copy}/plan.json: the plan was edited: its sha256 is ")


def test_a_plan_without_a_digest_is_refused(copy):
    edit(copy, lambda plan: plan.pop("sha256"))
    assert refusal(copy) == f'{copy}/plan.json: "sha256" is missing'


def test_a_plan_that_breaks_a_rule_is_refused_even_if_its_digest_is_right(copy):
    edit(copy, lambda plan: plan["layers"][1].update(cycles=1), sign=True)
    assert refusal(copy).startswith(f"{copy}/plan.json: breaks a rule, plan again: conv1: cycles is 1, not ")


def test_the_places_of_layers_are_the_plans(tmp_path):
    (tmp_path / "two.toml").write_text(MHZ.format(100))
    write_plan(tmp_path / "plan", "listing1", tmp_path / "two.toml")
    plan, placement = read_plan(tmp_path / "plan"), read_network(tmp_path / "plan").placement
    assert placement.names == ("first", "second")
    names = [stage.name for stage in placement.network.stages]
    assert dict(zip(names, placement.devices, strict=True)) == plan.layer_devices
    found = {(names[one.source], names[one.consumer.stage]): one.priority for one in placement.connections}
    assert found == {(one.source[1], one.target[1]): one.priority for one in plan.connections}


def test_devices_with_clocks_of_their_own_are_refused(tmp_path):
    (tmp_path / "two.toml").write_text(MHZ.format(90))
    write_plan(tmp_path / "plan", "listing1", tmp_path / "two.toml")
    said = "clocks differ (first 100 MHz, second 90 MHz); a cluster runs on one clock"
    assert refusal(tmp_path / "plan") == f"{tmp_path}/plan/plan.json: {said}"


def test_a_dense_layer_may_have_its_parameters_in_dram(tmp_path):
    ram = '[{ kind = "bram18", blocks = 3400 }, { kind = "uram", blocks = 250 }]'
    (tmp_path / "few.toml").write_text(f'[[device]]\npart = "u280"\nram = {ram}\n')
    write_plan(tmp_path / "plan", "example_cnn", str(tmp_path / "few.toml"))
    stages = read_network(tmp_path / "plan").network.stages
    assert [stage.layer.kind for stage in stages if stage.storage is Storage.DRAM] == ["dense"]


def test_a_model_without_a_loss_cannot_be_trained(tmp_path):
    model = tmp_path / "model.py"
    model.write_text("from fanin.planner import *\nadd_output('y', relu(add_input('x', [4, 4, 2])))")
    write_plan(tmp_path / "plan", str(model), "arria10x1")
    assert refusal(tmp_path / "plan").endswith("model has 0 layers of kind loss; training needs one")
