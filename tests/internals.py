"""The signals inside a component, for what tests ask of them. (Amaranth 0.5 has no public way to them.)"""

from __future__ import annotations

from collections.abc import Iterator

from amaranth import Module, Signal
from amaranth.hdl._dsl import resolve_statements
from amaranth.lib import wiring
from amaranth.lib.memory import Memory


def signals_of(module: Module) -> dict[str, Signal]:
    """The signals that a module's own statements drive, by name."""
    module._flush()
    statements = (each for body in module._statements.values() for each in resolve_statements(body))
    return {signal.name: signal for statement in statements for signal in statement._lhs_signals()}


def parts_of(module: Module, path: str = "") -> Iterator[tuple[str, wiring.Component, dict[str, Signal]]]:
    """Elaborate the sub-components of a module, all but memories; each with its path and its signals."""
    for name, (part, location) in list(module._named_submodules.items()):
        component = getattr(part, "_elaboratable_", part)  # inside a ResetInserter and the like
        if not isinstance(component, wiring.Component) or isinstance(component, Memory):
            continue
        inner = component.elaborate(None)
        component._MustUse__used = True
        if part is component:
            module._named_submodules[name] = (inner, location)
        else:
            part._elaboratable_ = inner
        yield f"{path}{name}", component, signals_of(inner)
        yield from parts_of(inner, f"{path}{name}.")
