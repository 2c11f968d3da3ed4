"""Externs by name: a program reaches only the functions and methods that the architecture lists."""

import pytest

from fanin.sim.switch.embedded import P4Error, Refused, load
from fanin.sim.switch.embedded.tna import Tna
from fanin.sim.switch.embedded.v1model import V1Model

from .programs import PARTS, V1MODEL, v1model


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


def _with_macro(macro: str, **parts: str) -> str:
    """Return a program for which ``macro`` changes fanin's text of the architecture."""
    text = V1MODEL.format(**{**PARTS, **parts})
    include, name = "#include <v1model.p4>\n", macro.split()[0]
    return text.replace(include, f"#define {macro}\n{include}#undef {name}\n")


@pytest.mark.parametrize("name", ["__getattribute__", "__call__", "__init__", "hit"])
def test_a_method_that_the_architecture_does_not_list_is_refused(name):
    counter = "direct_counter(CounterType.packets) c;"
    text = _with_macro(f"count {name}", locals=counter, apply=f"c.{name}();")
    assert f"the extern function {name}" in _refusal(text)


@pytest.mark.parametrize("name", ["arch", "zeros", "apply"])
def test_an_abstract_function_that_the_architecture_does_not_list_is_refused(name):
    counter = f"direct_counter(CounterType.packets) c = {{ void {name}() {{ }} }};"
    text = _with_macro(f"count count(); abstract void {name}", locals=counter)
    assert f"the abstract function {name}" in _refusal(text)


@pytest.mark.parametrize(
    ("declaration", "parts"),
    [
        ("void hash<T>(out T r, in T b, in bit<8> c)", {"apply": "hash(hdr.h.a, hdr.h.b, hdr.h.c);"}),
        ("void mark_to_drop(in bit<8> a, in bit<8> b)", {"apply": "mark_to_drop(8w1, 8w2);"}),
        ("void digest<T>(in T a)", {"apply": "digest(hdr.h.a);"}),
        ("void log_msg()", {"apply": "log_msg();"}),
        ("bool static_assert()", {"apply": "static_assert();"}),
        (
            "void verify(in bool a)",
            {"parser": "state start { packet.extract(hdr.h); verify(true); transition accept; }"},
        ),
    ],
    ids=["hash", "mark_to_drop", "digest", "log_msg", "static_assert", "verify"],
)
def test_a_listed_function_with_other_parameters_is_refused(declaration, parts):
    name = declaration.split("(")[0].split("<")[0].split()[-1]
    with pytest.raises(
        Refused, match=rf"^test.p4:\d+:\d+: a second declaration of the extern function {name} is"
    ):
        v1model(declarations=f"{PARTS['declarations']} extern {declaration};", **parts)


def test_a_listed_object_with_a_declaration_of_the_program_is_refused():
    own = "extern counter { counter(CounterType type, bit<32> size); }"
    text = _with_macro("counter another", locals="counter(CounterType.packets, 4) c;")
    text = text.replace("#undef counter\n", f"#undef counter\n{own}")
    assert _refusal(text).endswith(": a second declaration of the extern counter is not supported here")


def test_a_constructor_that_a_macro_changed_is_refused():
    program = load(_with_macro("size a, bit<32> b", locals="register<bit<8>>(4, 5) r;"), "bad.p4")
    with pytest.raises(Refused, match=r"^bad.p4:\d+:\d+: internal error: TypeError"):
        program.switch()


def test_a_program_of_an_architectures_name_has_no_architecture_of_its_own():
    text = "control C(); package V1Switch(C c); control D() { apply { } } V1Switch(D()) main;"
    with pytest.raises(Refused, match="architecture V1Switch"):
        load(text, "v1model.p4")
    with_include = V1MODEL.format(**PARTS)
    assert load(with_include, "v1model.p4").architecture == "v1model"


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
