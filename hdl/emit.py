"""Components to Verilog: flat port names, and every distinct shared component elaborated once.

Amaranth elaborates and emits each submodule anew, equal or not; a worker of eight engines would take minutes.
``shared(component)`` marks a submodule that becomes a Verilog module of its own, instantiated wherever a
component of the same class and parameters occurs. In Amaranth's simulator the same call returns the component
itself, so one description serves both.

Port names (``flat_ports``) join the path by underscores, indices without one: ``samples[0].araddr`` is
``samples0_araddr``. Packet streams become AXI4-Stream (``tdata tkeep tlast tvalid tready``, and ``tuser`` for
``error``), other streams ``x_valid x_ready x_payload``. Clock ``clk``, reset ``rst`` (synchronous, high); every
module has both, used or not. A component with members in other domains says so in its ``domains``, by member;
then each of these has ``DOMAIN_clk`` and ``DOMAIN_rst``. It cannot be shared.
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

_NAME_LIMIT = 48  # a module name longer than this shows a digest instead of its parameters
_PACKET_PORTS = {"data": "tdata", "keep": "tkeep", "last": "tlast", "error": "tuser"}


@dataclass(frozen=True)
class FlatPort:
    """One Verilog port: its name, the value behind it, and whether the component drives it."""

    name: str
    value: Value
    output: bool


def flat_ports(component: wiring.Component) -> list[FlatPort]:
    """The Verilog ports of a component, in the order of its signature, clock and reset apart.

    Raises ValueError when two members end up with the same name.
    """
    # A constant is the ready or valid of a stream that always is: nothing to wire.
    ports = [p for p in _walk(component.signature, component, "") if not isinstance(p.value, Const)]
    seen = {"clk", "rst"}
    for port in ports:
        if port.name in seen:
            raise ValueError(f"{type(component).__name__}: two ports would be called {port.name!r}")
        seen.add(port.name)
    return ports


def _walk(signature: wiring.Signature, value: Any, name: str) -> Iterator[FlatPort]:
    """The ports of an interface ``value`` with the path ``name``, "" at the top; one without bits has none."""
    if isinstance(signature, stream.Signature):
        yield from _stream_ports(signature, value, name)
        return
    for key, member in signature.members.items():
        path = f"{name}_{key}" if name else key
        for index, item in _elements(getattr(value, key), path):
            if member.is_signature:
                yield from _walk(member.signature, item, index)
            elif len(Value.cast(item)):
                yield FlatPort(index, Value.cast(item), member.flow == wiring.Out)


def _elements(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The members of an array of any dimension with their names."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _elements(item, f"{path}{index}")
    else:
        yield path, value


def _stream_ports(signature: stream.Signature, value: Any, name: str) -> Iterator[FlatPort]:
    """Ports of a stream: those of AXI4-Stream if its payload has a packet's fields, else the whole payload.

    A payload of no bits has no port.
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
    """Whether a stream's payload is a packet's: the fields of ``_PACKET_PORTS``, with or without ``error``."""
    return isinstance(layout, data.StructLayout) and set(layout.members) | {"error"} == set(_PACKET_PORTS)


def parameters(component: wiring.Component) -> dict[str, str]:
    """The constructor parameters of a component by name, as ``repr``.

    A component keeps each parameter in an attribute of the same name; that is what makes two of them equal.
    Raises TypeError for a parameter that is not kept or has no stable ``repr``.
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
    """``GlmNode`` as ``glm_node``, ``FP32Adder`` as ``fp32_adder``."""
    name = re.sub(r"([A-Z0-9]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def module_name(component: wiring.Component) -> str:
    """Name of a shared component's module: its class, then its parameters or, if that is long, a digest."""
    base = snake_case(type(component).__name__)
    values = parameters(component)
    suffix = "".join(f"_{name}{value}" for name, value in values.items())
    if re.fullmatch(r"\w*", suffix) and len(base + suffix) <= _NAME_LIMIT:
        return base + suffix
    return f"{base}_{hashlib.sha256(repr(values).encode()).hexdigest()[:8]}"


@dataclass
class _Emission:
    """What one run of ``emit_verilog`` has met: module names by component, and what is still to convert.

    ``prefix``: before the name of each shared module.
    """

    prefix: str = ""
    modules: dict[tuple[type, str], str] = field(default_factory=dict)
    pending: deque[tuple[str, wiring.Component]] = field(default_factory=deque)

    def module_of(self, component: wiring.Component, name: str | None = None) -> str:
        """Name of the module that stands for ``component``; the first of its kind is queued."""
        key = type(component), repr(parameters(component))
        if key not in self.modules:
            name = name or self.prefix + module_name(component)
            if name in self.modules.values():
                raise ValueError(f"two different modules would be called {name!r}")
            self.modules[key] = name
            self.pending.append((name, component))
        return self.modules[key]


def component_instance(component: wiring.Component, module: str) -> Instance:
    """An instance of the Verilog module that :func:`emit_verilog` makes of a component, on its members.

    Clock and reset are those of ``sync``.
    """
    # It is elaborated elsewhere, and has not been forgotten, as Amaranth would warn.
    # Missing upstream (0.5): a public way to say so.
    component._MustUse__used = True
    connections = [("o" if port.output else "i", port.name, port.value) for port in flat_ports(component)]
    reset = ResetSignal(allow_reset_less=True)
    return Instance(module, ("i", "clk", ClockSignal()), ("i", "rst", reset), *connections)


_Assign = type(Signal().eq(0))  # Amaranth does not export its name
_emission: ContextVar[_Emission | None] = ContextVar("emission", default=None)


class _SharedInstance(Elaboratable):
    """Stands for a component during emission: an instance of its module, connected to its own ports."""

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

    Outside emission this is the component itself. What is returned has the component's members either way.
    The component lives in the ``sync`` domain; ``DomainRenamer`` and ``ResetInserter`` around it, or around
    what holds it, do to it what they do to any other. Emission raises ValueError under ``EnableInserter``, and
    where the component has members in other domains.
    """
    emission = _emission.get()
    if emission is None:
        return component
    if getattr(component, "domains", {}):
        raise ValueError(f"{type(component).__name__}: a shared() component cannot have domains beside sync")
    return _SharedInstance(component, emission.module_of(component))


def _connect_resets(fragment: Fragment) -> None:
    """Hand the control of every ``ResetInserter`` around an instance of a shared component to its ``rst``.

    Amaranth (0.5) resets an instance's statements, not what is inside of it. So there are three steps:

    1. ``_SharedInstance`` gives the instance one statement, ``inserted_reset = 0`` in ``sync``, a register
       whose initial value is 1.
    2. A ``ResetInserter`` appends ``if control: inserted_reset = 1`` to it, as it does to any register.
    3. This function moves both to ``comb``, where they make ``inserted_reset`` a wire that is 1 while any
       control is, and puts it into ``rst`` beside the domain's reset. All registers inside are then reset in
       the same cycle as those outside.

    Raises ValueError where ``EnableInserter`` has wrapped the statement.
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
    """A component whose members are its Verilog ports, for ``rtlil.convert``."""

    def __init__(self, component: wiring.Component):
        self._component = component
        further = sorted(set(getattr(component, "domains", {}).values()))
        self._domains = {name: ClockDomain(name) for name in ("sync", *further)}
        self._clocks = {"clk": self._domains["sync"].clk, "rst": self._domains["sync"].rst}
        for name in further:
            domain = self._domains[name]
            self._clocks |= {f"{name}_clk": domain.clk, f"{name}_rst": domain.rst}
        self._ports = flat_ports(component)
        # A field of a payload is no signal, and a port needs one of its own.
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
        """The component's fragment, with its clock domains and its ports."""
        fragment = Fragment.get(self._component, platform)
        fragment.add_domains(*self._domains.values())
        _connect_resets(fragment)
        for port in self._ports:
            wire = self._wires[port.name]
            if wire is not port.value:
                fragment.add_statements("comb", wire.eq(port.value) if port.output else port.value.eq(wire))
        return fragment


def _to_rtlil(component: wiring.Component, name: str) -> str:
    """RTLIL of one module and of its submodules that are not shared."""
    with _without_zeros():
        return rtlil.convert(_Flat(component), name=name, emit_src=False)


@contextlib.contextmanager
def _without_zeros() -> Iterator[None]:
    """Let Amaranth leave memories that start as zeros without contents, for ``to_verilog`` to fill.

    It writes contents bit by bit: an engine's memories would take a minute and 26 MB. Missing upstream: a
    public way to leave them out, or a short form of zeros.
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
    """Verilog of a component and of all that it contains; equal components give equal text, to the byte.

    ``name`` is the top module's, the class's in snake case by default. ``prefix`` stands before the name of
    each shared module, so that two texts can be in one design.
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
