"""What emission takes from Amaranth beyond its documentation: it fails here if a new one has it otherwise."""

import gc
import warnings

import amaranth
import pytest
from amaranth import (
    ClockDomain,
    DomainRenamer,
    Elaboratable,
    EnableInserter,
    Fragment,
    Instance,
    Module,
    ResetInserter,
    ResetSignal,
    Signal,
)
from amaranth.back import rtlil
from amaranth.hdl import UnusedElaboratable
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out


class Flat(Elaboratable):
    """No component: it has a signature, its members, and an ``elaborate`` that gives a fragment."""

    signature = wiring.Signature({"clk": In(1), "a": In(1), "o": Out(4)})

    def __init__(self):
        self.domain = ClockDomain("sync")
        self.clk, self.a, self.o = self.domain.clk, Signal(), Signal(4)

    def elaborate(self, platform):
        inner = Module()
        inner.submodules.store = store = memory.Memory(shape=4, depth=4, init=[1])
        inner.d.comb += self.o.eq(store.read_port().data)
        fragment = Fragment.get(inner, platform)
        fragment.add_domains(self.domain)
        fragment.add_statements("comb", Signal(name="added").eq(self.a))
        return fragment


def convert_takes_what_has_a_signature_and_gives_a_fragment():
    text = rtlil.convert(Flat(), name="flat", emit_src=False)
    ports = [line.split()[-1] for line in text.splitlines() if " input " in line or " output " in line]
    return {"\\clk", "\\a", "\\o"} <= set(ports) and "module \\flat\n" in text and "\\added" in text


def the_emitter_asks_emit_memory_for_contents():
    seen, emit = [], rtlil.ModuleEmitter.emit_memory
    rtlil.ModuleEmitter.emit_memory = lambda self, index, cell: seen.append([*cell.init])
    try:
        text = rtlil.convert(Flat(), name="flat")
    finally:
        rtlil.ModuleEmitter.emit_memory = emit
    return seen == [[1, 0, 0, 0]] and "$meminit" not in text


def _transformed(*transformers):
    """The instance in a module, with one statement, behind the transformers; and that statement's signal."""
    mark = Signal(init=1)

    class Placeholder(Elaboratable):
        def elaborate(self, platform):
            instance = Instance("x", ("i", "rst", ResetSignal(allow_reset_less=True)))
            instance.add_statements("sync", mark.eq(0))
            return instance

    inner = Module()
    inner.submodules.x = Placeholder()
    around = inner
    for transformer in transformers:
        around = transformer(around)
    ((instance, name, _),) = Fragment.get(around, None).subfragments
    assert name == "x"
    assert isinstance(instance, Instance)
    return instance, mark


def an_instance_keeps_a_statement_and_its_ports():
    instance, mark = _transformed()
    ((own,),) = instance.statements.values()
    value, kind = instance.ports["rst"]
    return own.lhs is mark and isinstance(value, ResetSignal) and kind == "i" and instance.type == "x"


def reset_inserters_append_to_it():
    instance, mark = _transformed(ResetInserter(Signal()), ResetInserter(Signal()))
    (own, *inserted) = instance.statements["sync"]
    return own.lhs is mark and len(inserted) == 2 and type(own) is type(mark.eq(0)) is not type(inserted[0])


def an_enable_inserter_puts_it_under_a_condition():
    instance, mark = _transformed(EnableInserter(Signal()))
    (own,) = instance.statements["sync"]
    return type(own) is not type(mark.eq(0))


def a_domain_renamer_renames_its_domain_and_its_reset():
    instance, _ = _transformed(DomainRenamer("other"))
    return [*instance.statements] == ["other"] and instance.ports["rst"][0].domain == "other"


def what_is_used_can_be_marked():
    Fragment.get(Module(), None)  # from the first elaboration on, Amaranth warns

    def warns(used):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            flat = Flat()
            if used:
                flat._MustUse__used = True
            del flat
            gc.collect()
        return any(issubclass(warning.category, UnusedElaboratable) for warning in caught)

    return warns(False) and not warns(True)


@pytest.mark.parametrize(
    "holds",
    [
        convert_takes_what_has_a_signature_and_gives_a_fragment,
        the_emitter_asks_emit_memory_for_contents,
        an_instance_keeps_a_statement_and_its_ports,
        reset_inserters_append_to_it,
        an_enable_inserter_puts_it_under_a_condition,
        a_domain_renamer_renames_its_domain_and_its_reset,
        what_is_used_can_be_marked,
    ],
)
def test_amaranth_is_inside_as_emission_needs_it(holds):
    asked = (
        f"hdl/emit.py needs of Amaranth that {holds.__name__.replace('_', ' ')}; {amaranth.__version__} differs"
    )
    try:
        assert holds(), asked
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        pytest.fail(f"{asked}: {error!r}")
