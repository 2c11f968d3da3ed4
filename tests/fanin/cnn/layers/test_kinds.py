"""Kinds of layer: each has a file of its own, and states what others ask of it."""

import inspect

import pytest

from fanin.cnn.facts import Stage
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Layer, Parallelism, Shape, Storage
from fanin.cnn.layers.relu import Relu
from fanin.hdl.layers.components import component_class
from fanin.planner.check.kinds import KINDS
from fanin.planner.model.dsl import language
from tests.fanin.cnn.golden.cases import CASES

WITH_HARDWARE = [kind for kind, layer in layer_kinds().items() if layer.component]


def test_each_kind_has_a_file_that_is_called_after_it():
    assert {kind: layer.__module__.rpartition(".")[2] for kind, layer in layer_kinds().items()} == {
        kind: kind for kind in layer_kinds()
    }


def test_a_subclass_elsewhere_is_no_kind_of_fanin():
    class Other(Relu):
        kind = "other"

    assert Other in Relu.__subclasses__()
    layer_kinds.cache_clear()
    assert "other" not in layer_kinds()


def test_every_kind_has_rules_in_the_checker_a_golden_case_and_a_function_of_the_model_language():
    in_plans = set(layer_kinds()) - {Ingress.kind, Egress.kind}
    assert set(KINDS) == in_plans
    assert {layer.kind for layer, _ in CASES.values()} == in_plans
    assert set(language()) == {*WITH_HARDWARE, "add_input", "add_output"}


@pytest.mark.parametrize("kind", WITH_HARDWARE)
def test_the_component_that_a_kind_names_takes_its_layers(kind):
    for storage in (Storage.CHIP, *[Storage.DRAM for name in [layer_kinds()[kind].spilled_component] if name]):
        layer = layer_kinds()[kind].__new__(layer_kinds()[kind])
        component = component_class(Stage(kind, layer, Parallelism(), storage=storage))
        assert {"layer", "parallelism"} <= set(inspect.signature(component).parameters)


@pytest.mark.parametrize("kind", WITH_HARDWARE)
def test_every_kind_states_what_is_asked_of_all(kind):
    for name in ("actors", "golden", "golden_back", "float64"):
        assert getattr(layer_kinds()[kind], name) is not getattr(Layer, name), name


def test_a_kind_without_hardware_is_refused_by_name():
    stage = Stage("far", Egress(inputs=(Shape(1, 1, 1),)), Parallelism())
    with pytest.raises(ValueError, match="far: there is no hardware for layers of kind egress"):
        component_class(stage)
