"""Externs by name: a program reaches only the functions and methods that the architecture lists."""

import pytest

from fanin.sim.switch.embedded import P4Error, load
from fanin.sim.switch.embedded.tna import Tna
from fanin.sim.switch.embedded.v1model import V1Model

from .programs import PARTS, V1MODEL, v1model

OWN = "#define direct_counter another\n#include <core.p4>\n#include <v1model.p4>\n#undef direct_counter\n"


def _refusal(text: str) -> str:
    with pytest.raises(P4Error) as caught:
        load(text, "bad.p4")
    return str(caught.value)


@pytest.mark.parametrize(
    "name", ["__getattribute__", "__init__", "start", "process", "_enter", "renew", "assert_"]
)
def test_a_function_that_the_architecture_does_not_list_is_refused(name):
    with pytest.raises(P4Error, match=rf"^test.p4:\d+:\d+: .*the extern function {name}"):
        v1model(
            declarations=f"{PARTS['declarations']} extern void {name}(in bit<8> a);", apply=f"{name}(hdr.h.a);"
        )


def _with_own_counter(member: str, instance: str, apply: str) -> str:
    """Return a program for which ``#define`` frees the name ``direct_counter``, to declare it anew."""
    own = f"extern direct_counter {{ direct_counter(CounterType type); {member} }}"
    text = V1MODEL.format(
        **{**PARTS, "locals": f"direct_counter(CounterType.packets) c {instance};", "apply": apply}
    )
    return text.replace("#include <core.p4>\n#include <v1model.p4>\n", OWN + own)


@pytest.mark.parametrize("name", ["__getattribute__", "__call__", "__init__", "hit"])
def test_a_method_that_the_architecture_does_not_list_is_refused(name):
    text = _with_own_counter(f"void {name}(string name);", "", f'c.{name}("x");')
    assert f"the extern function {name}" in _refusal(text)


@pytest.mark.parametrize("name", ["arch", "zeros", "apply"])
def test_an_abstract_function_that_the_architecture_does_not_list_is_refused(name):
    text = _with_own_counter(f"abstract void {name}();", f"= {{ void {name}() {{ }} }}", "")
    assert f"the abstract function {name}" in _refusal(text)


@pytest.mark.parametrize(
    "line",
    [
        "extern void f(out counter found);",
        "extern void f(inout counter found);",
        "extern void f(in counter found);",
        "extern counter f();",
        "bit<8> f(out counter found) { return 0; }",
        "action f(inout counter found) { }",
        "control f(out counter found);",
        "typedef tuple<bit<8>, counter> f;",
        "type counter f;",
        "extern e { e(); counter f(); }",
    ],
)
def test_an_extern_is_no_value(line):
    assert ": a value of type counter" in _refusal("#include <core.p4>\n#include <v1model.p4>\n" + line)


@pytest.mark.parametrize("architecture", [V1Model, Tna])
def test_listed_externs_exist(architecture):
    for name in architecture.functions.values():
        assert callable(getattr(architecture, name))
    for shape in architecture.externs.values():
        assert all(callable(getattr(shape, name)) for name in shape.methods.values())
        assert all(not name.startswith("_") for name in [*shape.methods.values(), *shape.abstract])
