"""Emission of components as Verilog: flat port names, and every distinct shared component elaborated once.

Amaranth elaborates and emits each submodule anew, even if it equals another; a worker of eight engines would
take minutes. ``shared(component)`` marks a submodule that becomes a Verilog module of its own. The module is
instantiated for every component of the same class and parameters. In Amaranth's simulator the call returns the
component itself, so one description serves both.

Port names (``flat_ports``):

- Names of a path are joined by underscores; indices are appended: ``samples[0].araddr`` is ``samples0_araddr``.
- Packet streams become AXI4-Stream: ``tdata tkeep tlast tvalid tready``, and ``tuser`` for ``error``.
- Other streams become ``x_valid x_ready x_payload``.
- Every module has a clock ``clk`` and a reset ``rst`` (synchronous, active high), used or not.
- A component with members in other domains declares these in its attribute ``domains``, by member. Each domain
  adds ``DOMAIN_clk`` and ``DOMAIN_rst``. Such a component cannot be shared.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from amaranth import ClockDomain, ClockSignal, Const, Elaboratable, Fragment, Instance, ResetSignal, Signal
from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin import __version__
from fanin.hdl.area import Area, read_rtlil
from fanin.hdl.verilog import plain_names, to_verilog

_NAME_LIMIT = 48  # longer module names have a digest in place of the parameters
_PACKET_PORTS = {"data": "tdata", "keep": "tkeep", "last": "tlast", "error": "tuser"}


@dataclass(frozen=True)
class FlatPort:
    """Verilog port: its name, its value in the component, and whether the component drives it."""

    name: str
    value: Value
    output: bool


def flat_ports(component: wiring.Component) -> list[FlatPort]:
    """Return the Verilog ports of a component, in the order of its signature, without clock and reset.

    Raises ValueError if two ports get the same name.
    """
    # A constant is the ready or valid of a stream that is always ready or valid, and needs no port.
    ports = [p for p in _walk(component.signature, component, "") if not isinstance(p.value, Const)]
    seen = {"clk", "rst"}
    for port in ports:
        if port.name in seen:
            raise ValueError(f"{type(component).__name__}: two ports would be called {port.name!r}")
        seen.add(port.name)
    return ports


def _walk(signature: wiring.Signature, value: Any, name: str) -> Iterator[FlatPort]:
    """Yield the ports of an interface ``value`` with the path ``name`` ("" at the top).

    A member of 0 bits has no port.
    """
    if isinstance(signature, stream.Signature):
        yield from _stream_ports(signature, value, name)
        return
    for key, member in signature.members.items():
        path = f"{name}_{key}" if name else key
        for item_path, item in _elements(getattr(value, key), path):
            if member.is_signature:
                yield from _walk(member.signature, item, item_path)
            elif len(Value.cast(item)):
                yield FlatPort(item_path, Value.cast(item), member.flow == wiring.Out)


def _elements(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the paths and elements of an array of any dimension; of a member that is no array, itself."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _elements(item, f"{path}{index}")
    else:
        yield path, value


def _stream_ports(signature: stream.Signature, value: Any, name: str) -> Iterator[FlatPort]:
    """Yield the ports of a stream: those of AXI4-Stream if the payload has a packet's fields.

    Otherwise the payload is one port, or none if it has 0 bits.
    """
    is_output = signature.members["valid"].flow == wiring.Out
    payload, layout = value.payload, signature.members["payload"].shape
    if _is_packet(layout):
        for member in layout.members:
            yield FlatPort(f"{name}_{_PACKET_PORTS[member]}", Value.cast(payload[member]), is_output)
        valid, ready = "tvalid", "tready"
    else:
        if len(Value.cast(payload)):
            yield FlatPort(f"{name}_payload", Value.cast(payload), is_output)
        valid, ready = "valid", "ready"
    yield FlatPort(f"{name}_{valid}", Value.cast(value.valid), is_output)
    yield FlatPort(f"{name}_{ready}", Value.cast(value.ready), not is_output)


def _is_packet(layout: Any) -> bool:
    """Return whether a payload is a packet's: the fields of ``_PACKET_PORTS``, with or without ``error``."""
    return isinstance(layout, data.StructLayout) and set(layout.members) | {"error"} == set(_PACKET_PORTS)


def parameters(component: wiring.Component) -> dict[str, str]:
    """Return the constructor parameters of a component by name, as ``repr``.

    A component keeps each parameter in an attribute of the same name. Components of one class with equal
    parameters are equal. Raises TypeError for a parameter that is not kept or has no stable ``repr``.
    """
    kind = type(component)
    result = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if not hasattr(component, name):
            raise TypeError(f"{kind.__name__} must keep its parameter {name!r} in an attribute of that name")
        text = repr(getattr(component, name))
        if " at 0x" in text:
            raise TypeError(f"{kind.__name__}: parameter {name!r} has no stable repr: {text}")
        result[name] = text
    return result


def snake_case(name: str) -> str:
    """Return a class name in snake case: ``GlmNode`` as ``glm_node``, ``FP32Adder`` as ``fp32_adder``."""
    name = re.sub(r"([A-Z0-9]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def module_name(component: wiring.Component) -> str:
    """Return the module name of a shared component.

    The name has the class, then the parameters or, if these are too long, a digest of them.
    """
    base = snake_case(type(component).__name__)
    values = parameters(component)
    suffix = "".join(f"_{name}{value}" for name, value in values.items())
    if re.fullmatch(r"\w*", suffix) and len(base + suffix) <= _NAME_LIMIT:
        return base + suffix
    return f"{base}_{hashlib.sha256(repr(values).encode()).hexdigest()[:8]}"


@dataclass
class _Emission:
    """State of one call of ``emit_verilog``: module names by component, and a queue of components to convert.

    ``prefix``: prefix of the names of shared modules.
    """

    prefix: str = ""
    modules: dict[tuple[type, str], str] = field(default_factory=dict)
    pending: deque[tuple[str, wiring.Component]] = field(default_factory=deque)

    def module_of(self, component: wiring.Component, name: str | None = None) -> str:
        """Return the module name of ``component``; queue the component if it is the first of its kind."""
        key = type(component), repr(parameters(component))
        if key not in self.modules:
            name = name or self.prefix + module_name(component)
            if name in self.modules.values():
                raise ValueError(f"two different modules would be called {name!r}")
            self.modules[key] = name
            self.pending.append((name, component))
        return self.modules[key]


def component_instance(component: wiring.Component, module: str) -> Instance:
    """Return an instance of a component's module, as :func:`emit_verilog` names it, on the component's members.

    Clock and reset are those of ``sync``.
    """
    # The component is elaborated elsewhere; without this, Amaranth would warn that it was forgotten.
    # Missing upstream (0.5): a public way to disable the warning.
    component._MustUse__used = True
    connections = [("o" if port.output else "i", port.name, port.value) for port in flat_ports(component)]
    reset = ResetSignal(allow_reset_less=True)
    return Instance(module, ("i", "clk", ClockSignal()), ("i", "rst", reset), *connections)


_Assign = type(Signal().eq(0))  # Amaranth does not export its name
_emission: ContextVar[_Emission | None] = ContextVar("emission", default=None)


class _SharedInstance(Elaboratable):
    """Replacement of a component during emission: an instance of its module, connected to its own ports."""

    def __init__(self, component: wiring.Component, module: str):
        self._component, self._module = component, module
        component._MustUse__used = True  # as in component_instance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)

    def elaborate(self, platform: Any) -> Instance:
        instance = component_instance(self._component, self._module)
        inserted_reset = Signal(name=f"{self._module}_rst", init=1)
        instance.add_statements("sync", inserted_reset.eq(0))  # step 1 of _connect_resets
        return instance


def shared(component: wiring.Component) -> Any:
    """Mark a submodule whose equals share one Verilog module: ``m.submodules.engine = shared(Engine(...))``.

    Return the component itself outside emission; the returned object always has the component's members. The
    component is in the ``sync`` domain. ``DomainRenamer`` and ``ResetInserter`` around it, or around a module
    that contains it, act as on any other component. Emission raises ValueError for a component under
    ``EnableInserter``, and for one with members in other domains.
    """
    emission = _emission.get()
    if emission is None:
        return component
    if getattr(component, "domains", {}):
        raise ValueError(f"{type(component).__name__}: a shared() component cannot have domains beside sync")
    return _SharedInstance(component, emission.module_of(component))


def _connect_resets(fragment: Fragment) -> None:
    """Connect the controls of ``ResetInserter`` around instances of shared components to their ``rst``.

    Amaranth (0.5) resets an instance's statements, not its contents. A reset therefore takes three steps:

    1. ``_SharedInstance`` gives the instance one statement, ``inserted_reset = 0`` in ``sync``: a register
       whose initial value is 1.
    2. A ``ResetInserter`` appends ``if control: inserted_reset = 1``, as it does to any register.
    3. This function moves both statements to ``comb``: ``inserted_reset`` becomes a wire that is 1 while any
       control is. The wire is ORed with the domain's reset into ``rst``. All registers inside are then reset in
       the same cycle as those outside.

    Raises ValueError if ``EnableInserter`` has wrapped the statement.
    """
    for part, _, _ in fragment.subfragments:
        _connect_resets(part)
        if not isinstance(part, Instance):
            continue
        for own, *inserted in part.statements.values():
            if not isinstance(own, _Assign):
                raise ValueError(f"{part.type}: a shared() component cannot be under EnableInserter")
            if inserted:
                fragment.add_statements("comb", own, *inserted)
                domain_reset, kind = part.ports["rst"]
                part.ports["rst"] = domain_reset | own.lhs, kind
        part.statements.clear()


class _Flat(Elaboratable):
    """Component with its Verilog ports as members, for ``rtlil.convert``."""

    def __init__(self, component: wiring.Component):
        self._component = component
        further = sorted(set(getattr(component, "domains", {}).values()))
        self._domains = {name: ClockDomain(name) for name in ("sync", *further)}
        self._clocks = {"clk": self._domains["sync"].clk, "rst": self._domains["sync"].rst}
        for name in further:
            domain = self._domains[name]
            self._clocks |= {f"{name}_clk": domain.clk, f"{name}_rst": domain.rst}
        self._ports = flat_ports(component)
        # A field of a payload is no signal, but a port needs one.
        self._wires = {
            port.name: port.value
            if isinstance(port.value, Signal)
            else Signal(port.value.shape(), name=port.name)
            for port in self._ports
        }
        members = {port.name: (Out if port.output else In)(len(port.value)) for port in self._ports}
        self.signature = wiring.Signature({**dict.fromkeys(self._clocks, In(1)), **members})

    def __getattr__(self, name: str) -> Value:
        return self._clocks[name] if name in self._clocks else self._wires[name]

    def elaborate(self, platform: Any) -> Fragment:
        """Return the component's fragment with its clock domains and ports."""
        fragment = Fragment.get(self._component, platform)
        fragment.add_domains(*self._domains.values())
        _connect_resets(fragment)
        for port in self._ports:
            wire = self._wires[port.name]
            if wire is not port.value:
                fragment.add_statements("comb", wire.eq(port.value) if port.output else port.value.eq(wire))
        return fragment


def _to_rtlil(component: wiring.Component, name: str) -> str:
    """Return RTLIL of one module and of its submodules that are not shared."""
    with _without_zeros():
        return rtlil.convert(_Flat(component), name=name, emit_src=False)


@contextlib.contextmanager
def _without_zeros() -> Iterator[None]:
    """Omit the initial contents of memories that start as zeros; ``to_verilog`` adds the zeros.

    Amaranth writes contents bit by bit: an engine's memories would take a minute and 26 MB. Missing upstream: a
    public way to omit them, or a short form of zeros.
    """
    emit = rtlil.ModuleEmitter.emit_memory

    def emit_filled(self: Any, index: int, cell: Any) -> None:
        if any(cell.init):
            emit(self, index, cell)

    rtlil.ModuleEmitter.emit_memory = emit_filled
    try:
        yield
    finally:
        rtlil.ModuleEmitter.emit_memory = emit


def emit_verilog(component: wiring.Component, *, name: str | None = None, prefix: str = "") -> str:
    """Return Verilog of a component with its submodules; equal components give equal text, to the byte.

    ``name``: name of the top module; by default the class's name in snake case. ``prefix``: prefix of the names
    of shared modules, so that two emitted texts can be in one design.
    """
    emission = _Emission(prefix)
    top = emission.module_of(component, name or snake_case(type(component).__name__))
    token = _emission.set(emission)
    parts, notes = [], []
    try:
        while emission.pending:
            module, part = emission.pending.popleft()
            parts.append(_to_rtlil(part, module))
            values = ", ".join(f"{key}={value}" for key, value in parameters(part).items())
            notes.append(f"//   {module}: {type(part).__name__}({values})")
    finally:
        _emission.reset(token)
    text = plain_names("\n".join(parts))
    modules = read_rtlil(text)
    header = [f"// {top}, generated by fanin {__version__}. Modules and their parameters:", *notes]
    header.append(Area.of(modules, top).comment)
    return "\n".join(header) + "\n\n" + to_verilog(text, modules)
