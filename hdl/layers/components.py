"""Component class of a layer, found by the name that the layer's class declares."""

from __future__ import annotations

from importlib import import_module

from amaranth.lib import wiring

from fanin.cnn.facts import Stage
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Storage
from fanin.cnn.layers.output import Output

#: Layers without a component: the store or the network port takes their place.
ENDS: tuple[type[Layer], ...] = (Input, Output, Ingress, Egress)


def component_class(stage: Stage) -> type[wiring.Component]:
    """Return the class of the component of a stage that is not one of ``ENDS``.

    Raises ValueError if no hardware exists for the stage.
    """
    on_chip = stage.storage is Storage.CHIP
    name = stage.layer.component if on_chip else stage.layer.spilled_component
    if not name:
        suffix = "" if on_chip else " with parameters in DRAM"
        raise ValueError(f"{stage.name}: there is no hardware for layers of kind {stage.layer.kind}{suffix}")
    module, _, class_name = name.partition(".")
    component: type[wiring.Component] = getattr(import_module(f"fanin.hdl.layers.{module}"), class_name)
    return component


def component_of(stage: Stage) -> wiring.Component:
    """Return the component of a stage that is not one of ``ENDS``. Raises ValueError if no hardware exists."""
    return component_class(stage)(layer=stage.layer, parallelism=stage.parallelism)
