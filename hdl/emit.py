"""Components to Verilog: flat port names, and every distinct shared component elaborated once.

Amaranth elaborates and emits each submodule anew, equal or not; a worker of eight engines would take minutes.
``shared(component)`` marks a submodule that becomes a Verilog module of its own, instantiated wherever a
component of the same class and parameters occurs. In Amaranth's simulator the same call returns the component
itself, so one description serves both. If its class says ``keep_hierarchy = True``, so does the module:
synthesis does not dissolve it in what is around it, but maps it apart.

Port names (``flat_ports``) join the path by underscores, indices without one: ``samples[0].araddr`` is
``samples0_araddr``. Packet streams become AXI4-Stream (``tdata tkeep tlast tvalid tready``, and ``tuser`` for
``error``), other streams ``x_valid x_ready x_payload``. Clock ``clk``, reset ``rst`` (synchronous, high); every
module has both, used or not.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import re
import subprocess
from collections import deque
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from amaranth import ClockDomain, ClockSignal, Const, Elaboratable, Fragment, Instance, ResetSignal, Signal
from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.hdl._ast import Assign, SignalDict
from amaranth.hdl._ir import PortDirection, build_netlist
from amaranth.lib import data, stream, wiring

from fanin import __version__
from fanin.tools import yosys

_NAME_LIMIT = 48  # a module name longer than this shows a digest instead of its parameters
_PACKET_PORTS = {"data": "tdata", "keep": "tkeep", "last": "tlast", "error": "tuser"}
_INTERNAL_ATTRIBUTES = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding")


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
    forward = signature.members["valid"].flow == wiring.Out
    payload, layout = value.payload, signature.members["payload"].shape
    if isinstance(layout, data.StructLayout) and set(layout.members) in (
        set(_PACKET_PORTS),
        set(_PACKET_PORTS) - {"error"},
    ):
        for member in layout.members:
            yield FlatPort(f"{name}_{_PACKET_PORTS[member]}", Value.cast(payload[member]), forward)
        handshake = ("tvalid", "tready")
    else:
        if len(Value.cast(payload)):
            yield FlatPort(f"{name}_payload", Value.cast(payload), forward)
        handshake = ("valid", "ready")
    yield FlatPort(f"{name}_{handshake[0]}", Value.cast(value.valid), forward)
    yield FlatPort(f"{name}_{handshake[1]}", Value.cast(value.ready), not forward)


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
    """What one run of ``emit_verilog`` has met: module names by component, and what is still to convert."""

    modules: dict[tuple[type, str], str] = field(default_factory=dict)
    pending: deque[tuple[str, wiring.Component]] = field(default_factory=deque)

    def module_of(self, component: wiring.Component, name: str | None = None) -> str:
        """Name of the module that stands for ``component``; the first of its kind is queued."""
        key = type(component), repr(parameters(component))
        if key not in self.modules:
            name = name or module_name(component)
            if name in self.modules.values():
                raise ValueError(f"two different modules would be called {name!r}")
            self.modules[key] = name
            self.pending.append((name, component))
        return self.modules[key]


_emission: ContextVar[_Emission | None] = ContextVar("emission", default=None)


class _SharedInstance(Elaboratable):
    """Stands for a component during emission: an instance of its module, connected to its own ports."""

    def __init__(self, component: wiring.Component, module: str):
        self._component, self._module = component, module
        component._MustUse__used = True  # elaborated through its first equal; it has not been forgotten

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)

    def elaborate(self, platform: Any) -> Instance:
        connections = [
            ("o" if port.output else "i", port.name, port.value) for port in flat_ports(self._component)
        ]
        reset = ResetSignal(allow_reset_less=True)
        instance = Instance(self._module, ("i", "clk", ClockSignal()), ("i", "rst", reset), *connections)
        # ``ResetInserter`` works on statements alone: this one lets _connect_resets see what it has done.
        instance.add_statements("sync", Signal(name=f"{self._module}_rst", init=1).eq(0))
        return instance


def shared(component: wiring.Component) -> Any:
    """Mark a submodule whose equals share one Verilog module: ``m.submodules.engine = shared(Engine(...))``.

    Outside emission this is the component itself. What is returned has the component's members either way.
    The component lives in the ``sync`` domain; ``DomainRenamer`` and ``ResetInserter`` around it, or around
    what holds it, do to it what they do to any other. Emission raises ValueError under ``EnableInserter``.
    """
    emission = _emission.get()
    if emission is None:
        return component
    return _SharedInstance(component, emission.module_of(component))


def _connect_resets(fragment: Fragment) -> None:
    """Hand every ``ResetInserter`` around the instances of shared components to their ``rst``.

    Amaranth (0.5) leaves instances alone. Each brings a statement ``reset = 0`` of a signal whose initial
    value is 1, and a ``ResetInserter`` adds ``if control: reset = 1`` to it. What would be a register becomes
    a wire, in the same cycle the reset of all registers within.
    """
    for part, _, _ in fragment.subfragments:
        _connect_resets(part)
        if not isinstance(part, Instance):
            continue
        for own, *inserted in part.statements.values():
            if not isinstance(own, Assign):
                raise ValueError(f"{part.type}: a shared() component cannot be under EnableInserter")
            if inserted:
                fragment.add_statements("comb", own, *inserted)
                reset, kind = part.ports["rst"]
                part.ports["rst"] = reset | own.lhs, kind
        part.statements.clear()


def _to_rtlil(component: wiring.Component, name: str) -> str:
    """RTLIL of one module and of its submodules that are not shared."""
    domain = ClockDomain("sync")
    fragment = Fragment.get(component, None)
    fragment.add_domains(domain)
    _connect_resets(fragment)
    ports: dict[str, tuple[Value, PortDirection]] = {
        "clk": (domain.clk, PortDirection.Input),
        "rst": (domain.rst, PortDirection.Input),
    }
    for port in flat_ports(component):
        wire = port.value
        if not isinstance(wire, Signal):  # a field of a payload: a port needs a signal of its own
            wire = Signal(port.value.shape(), name=port.name)
            fragment.add_statements("comb", wire.eq(port.value) if port.output else port.value.eq(wire))
        ports[port.name] = (wire, PortDirection.Output if port.output else PortDirection.Input)
    return _convert(fragment, ports, name, keep=getattr(component, "keep_hierarchy", False))


class _ModuleEmitter(rtlil.ModuleEmitter):
    """Leaves memories that start as zeros without contents, for ``_zeroed`` to fill.

    Amaranth writes contents bit by bit: the memories of an engine would take a minute and 26 MB.
    """

    def emit_memory(self, cell_idx: int, cell: Any) -> None:
        """Write the contents of a memory."""
        if any(cell.init):
            super().emit_memory(cell_idx, cell)


def _convert(
    fragment: Fragment, ports: dict[str, tuple[Value, PortDirection]], name: str, *, keep: bool
) -> str:
    """``amaranth.back.rtlil.convert_fragment`` with the emitter above."""
    netlist = build_netlist(fragment, ports=ports, name=name)
    empty, names, design = rtlil.EmptyModuleChecker(netlist), SignalDict(), rtlil.Design(emit_src=False)
    for index, module in enumerate(netlist.modules):
        if empty.is_empty(index):
            continue
        builder = design.module(".".join(module.name), src_loc=module.src_loc)
        if index == 0:
            builder.attribute("top", 1)
            if keep:
                builder.attribute("keep_hierarchy", "yes")
        _ModuleEmitter(builder, netlist, module, names, empty_checker=empty).emit()
    return str(design)


def _zeroed(verilog: str) -> str:
    """Let every memory without contents start as zeros, as in Amaranth's simulator.

    For simulation only: FPGA memories start so by themselves, and synthesis would unroll the loop.
    """
    count = itertools.count()

    def loop(match: re.Match[str]) -> str:
        index = f"fanin_zero{next(count)}"
        return (
            f"{match[0]}\n`ifndef SYNTHESIS\n  integer {index};\n  initial for ({index} = 0;"
            f" {index} <= {match['last']}; {index} = {index} + 1) {match['name']} [{index}] = 0;\n`endif"
        )

    memory = r"^  reg (\[\d+:0\] )?(?P<name>\S+)\s+\[(?P<last>\d+):0\];"
    filled = r"(?!\n  initial begin\n    (?P=name)\s*\[0\] = )"
    return re.sub(memory + "$" + filled, loop, verilog, flags=re.MULTILINE)


_NAME = r"\\\S+ |[A-Za-z_]\w*"  # an escaped identifier ends with a space


def _check_self_readers(verilog: str) -> None:
    """Refuse a combinational block that drives one part of a signal and reads another part of it.

    To Verilator (5.048) such a block does not depend on the signal, and it silently computes with what the
    other part was before.
    """
    for module in re.split(r"(?m)^(?=module )", verilog):
        for block in re.findall(r"(?ms)^  always @\* begin\n(.*?)^  end$", module):
            target = rf"(?m)^ *({_NAME})(?:\[[\d:]+\] ?)?\s*= "
            read = set(re.findall(_NAME, re.sub(target, "", block)))
            for name in read.intersection(re.findall(target, block)):
                raise ValueError(
                    f"{module.split('(')[0].strip()}: the block that drives part of {name.strip()} reads "
                    "another part of it; let it read a signal of its own"
                )


def _plain_field_names(text: str) -> str:
    """``signal.0`` for an array's field, which is ``signal[0]`` to Amaranth.

    yosys takes that for a bit of a port, and fails when it maps the module apart. Slices have a space in front
    of their bracket, and are left.
    """
    return re.sub(r"\\\S+\[\S+", lambda match: re.sub(r"\[(\d+)\]", r".\1", match[0]), text)


def _plain_module_names(text: str) -> str:
    """``parent__child`` for Amaranth's ``parent.child``, which Verilog would have to escape."""
    names = re.findall(r"^module \\(\S+)$", text, re.MULTILINE)
    plain = {name: re.sub(r"\W", "_", name.replace(".", "__")) for name in names}
    if len(set(plain.values())) != len(names):
        raise ValueError(f"module names clash: {sorted(names)}")
    return re.sub(
        r"^(module|  cell) \\(\S+)",
        lambda match: f"{match[1]} \\{plain.get(match[2], match[2])}",
        text,
        flags=re.MULTILINE,
    )


def _to_verilog(text: str) -> str:
    attributes = " ".join(f"-remove {name}" for name in _INTERNAL_ATTRIBUTES)
    script = [
        f"read_rtlil <<rtlil\n{text}\nrtlil",
        "proc -nomux -norom",
        "memory_collect",
        f"attrmap {attributes}",
        f"attrmap -modattr {attributes}",
        "write_verilog -norename",
    ]
    done = subprocess.run([yosys(), "-q", "-"], input="\n".join(script), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"yosys failed: {done.stderr.strip()[-2000:]}")
    _check_self_readers(done.stdout)
    return _zeroed(done.stdout)


@dataclass(frozen=True)
class Block:
    """A module's Verilog, with all that it contains but the modules of other blocks."""

    module: str
    component: wiring.Component
    verilog: str


def emit_blocks(
    component: wiring.Component, *, name: str | None = None, apart: Collection[str] = ()
) -> list[Block]:
    """A component's Verilog in pieces: shared components of the classes ``apart`` become blocks of their own.

    ``apart`` are names of classes. The component's own block comes last, each after those that it
    instantiates. ``name`` is as for ``emit_verilog``. Raises ValueError if there is none of some class.
    """
    blocks: dict[str, Block] = {}
    _emit(component, name, frozenset(apart), blocks)
    if missing := set(apart) - {type(block.component).__name__ for block in blocks.values()}:
        raise ValueError(f"apart names {', '.join(sorted(missing))}, of which there is none")
    return list(blocks.values())


def emit_verilog(component: wiring.Component, *, name: str | None = None) -> str:
    """Verilog of a component and of all that it contains; equal components give equal text, to the byte.

    ``name`` is the top module's, the class's in snake case by default.
    """
    return emit_blocks(component, name=name)[-1].verilog


def _emit(
    component: wiring.Component, name: str | None, apart: frozenset[str], blocks: dict[str, Block]
) -> None:
    """Add a component's block to ``blocks``, and before it those that it needs."""
    emission = _Emission()
    top = emission.module_of(component, name or snake_case(type(component).__name__))
    token = _emission.set(emission)
    parts, notes, left = [], [], {}
    try:
        while emission.pending:
            module, part = emission.pending.popleft()
            if part is not component and type(part).__name__ in apart:
                left[module] = part
                continue
            parts.append(_to_rtlil(part, module))
            values = ", ".join(f"{key}={value}" for key, value in parameters(part).items())
            notes.append(f"//   {module}: {type(part).__name__}({values})")
    finally:
        _emission.reset(token)
    for module, part in left.items():
        if module not in blocks:
            _emit(part, module, apart, blocks)
    verilog = _to_verilog(_plain_module_names(_plain_field_names("\n".join(parts))))
    body = re.sub(r"\A/\*.*?\*/\n", "", verilog)  # the generator's version is no part of the design
    header = [f"// {top}, generated by fanin {__version__}. Modules and their parameters:", *notes]
    blocks[top] = Block(top, component, "\n".join(header) + "\n\n" + body.lstrip())
