"""Code of calls: copy-in, the call, copy-out."""

from __future__ import annotations

from fanin.sim.switch.embedded import ast, budget, types
from fanin.sim.switch.embedded.body import Body, Place, Store
from fanin.sim.switch.embedded.errors import Unsupported
from fanin.sim.switch.embedded.preprocessor import is_bundled
from fanin.sim.switch.embedded.records import signed_code
from fanin.sim.switch.embedded.types import BOOL, VOID, Bits, base_of, is_scalar, width_of
from fanin.sim.switch.embedded.values_code import has_effects

_OUT_DIRECTIONS = ("out", "inout")
_PACKET_METHODS = {"packet_in": ("extract", "lookahead", "advance", "length"), "packet_out": ("emit",)}
_CORE_FUNCTIONS = ("verify", "static_assert", "digest")  # with code of their own


class CallBody(Body):
    """Generator of a function's body, with calls."""

    def call(self, node: ast.Call) -> str:
        """Emit a call; return code of its result."""
        if self.generator.repeats(node, self.instance):
            self.source.emit(budget.CLOCK_CHECK)
        kind = node.callee.kind
        code: str = getattr(self, f"_call_{kind}")(node)
        return code

    def _call_construct(self, node: ast.Call) -> str:
        raise Unsupported(node.position, "an instance made where it is used")

    # headers and stacks

    def _call_builtin(self, node: ast.Call) -> str:
        assert isinstance(node.function, ast.Member)
        base = self.value(node.function.base)
        name = node.callee.target
        if name == "isValid":
            return f"{base}.valid"
        if name in ("push_front", "pop_front"):
            assert node.arguments[0].value
            self.source.emit(f"{base}.{name}({node.arguments[0].value.constant})")
        else:
            self.source.emit(f"{base}.{'set_valid' if name == 'setValid' else 'set_invalid'}()")
        return "None"

    # tables, actions, functions

    def _call_table(self, node: ast.Call) -> str:
        assert self.instance is not None
        name = self.source.unique_name("t")
        self.source.emit(f"{name} = {self.instance.tables[node.callee.target]}(f)")
        return name

    def _call_action(self, node: ast.Call) -> str:
        function = self.generator.function_of(node.callee.target, self.instance)
        self._call_python(node, f"{function}(f, ", False)
        return "None"

    def _call_function(self, node: ast.Call) -> str:
        function = self.generator.function_of(node.callee.target, None)
        return self._call_python(node, f"{function}(None, ", node.type != VOID)

    def _call_python(self, node: ast.Call, begin: str, has_result: bool) -> str:
        """Call a generated function: values go in; result and out parameters come back, left to right."""
        codes, stores = self._copy_in(node)
        result = self.source.unique_name("t")
        call = f"{result} = {begin}{''.join(code + ', ' for code in codes)})"
        if not stores:
            self.source.emit(call)
            return result if has_result else "None"
        with self.source.block("try:"):
            self.source.emit(call)
        with self.source.block("except Exit as exiting:"):  # an exit copies out as well
            for index, store in enumerate(stores):
                store(f"exiting.out_values[{index}]")
            self.source.emit("raise")
        for index, store in enumerate(stores):
            store(f"{result}[{index + has_result}]")
        return f"{result}[0]" if has_result else "None"

    def _copy_in(self, node: ast.Call) -> tuple[list[str], list[Store]]:
        """Return the codes of the arguments, from left to right, and stores for the returned values."""
        codes: list[str] = []
        stores: list[Store] = []
        for index, (parameter, argument) in enumerate(zip(node.callee.parameters, node.arguments, strict=True)):
            value = argument.value
            has_later_effects = any(has_effects(a.value) for a in node.arguments[index + 1 :])
            if parameter.direction in _OUT_DIRECTIONS:
                place = Place("", lambda code: None) if value is None else self.target(value, frozen=True)
                stores.append(place.store)
                if value is not None:
                    value = self.name_for(value, place.load)  # effects of its evaluation happen once
            if parameter.direction == "out" or value is None:
                codes.append(self.records.new(parameter.type if value is None else value.type))
            else:
                code = self.copy_code(value)
                codes.append(self.save(code, value.type) if has_later_effects else code)
        return codes, stores

    # controls and parsers

    def _call_block(self, node: ast.Call) -> str:
        """Run a control or parser in a frame of its own.

        A record is passed without a copy if no other argument reaches it during the run.
        """
        assert self.instance is not None
        assert isinstance(node.function, ast.Member)
        inner = self.instance.block_of(node.function.base)
        frame = self.source.unique_name("f")
        # These are the instance's own parameters. The callee may be a constructor parameter of a control type,
        # whose parameters have other names.
        pairs = list(zip(inner.node.parameters, node.arguments, strict=True))
        self.source.emit(f"{frame} = {inner.frame}()")
        stores: list[tuple[Store, str]] = []
        for index, (parameter, argument) in enumerate(pairs):
            value = argument.value
            slot = f"{frame}.{inner.python_name(parameter).removeprefix('f.')}"
            kind = parameter.type if value is None else value.type
            by_reference = (
                parameter.direction != "out" and not is_scalar(kind) and self._is_unaliased(index, node)
            )
            if value is not None and parameter.direction in _OUT_DIRECTIONS and not by_reference:
                place = self.target(value, frozen=True)
                stores.append((place.store, slot))
                value = self.name_for(value, place.load)
            if value is None or parameter.direction == "out":
                code = self.records.new(kind)
            else:
                code = self.value(value) if by_reference else self.copy_code(value)
            self.source.emit(f"{slot} = {code}")
        run = f"{inner.run}({frame})"
        if not stores:
            self.source.emit(run)
            return "None"
        with self.source.block("try:"):
            self.source.emit(run)
        with self.source.block("finally:"):
            for store, slot in stores:
                store(slot)
        return "None"

    def _is_unaliased(self, index: int, node: ast.Call) -> bool:
        """Return whether no other argument reaches into argument ``index``."""
        own_path = _path(node.arguments[index].value)
        if own_path is None:
            return False
        for other_index, argument in enumerate(node.arguments):
            value = argument.value
            if other_index == index or value is None:
                continue
            copied = (
                is_scalar(value.type) and node.callee.parameters[other_index].direction not in _OUT_DIRECTIONS
            )
            other_path = _path(value)
            if not copied and (
                other_path is None or own_path[: len(other_path)] == other_path[: len(own_path)]
            ):
                return False
        return True

    # externs

    def _call_extern(self, node: ast.Call) -> str:
        function = node.callee.target
        owner = function.owner.name if function.owner else ""
        is_packet_method = function.name in _PACKET_METHODS.get(owner, ())
        if is_packet_method or (function.name in _CORE_FUNCTIONS and not owner):
            _check_origin(node, function)
        if is_packet_method:
            code: str = getattr(self, f"_{owner}_{function.name}")(node)
            return code
        if function.name == "verify" and not owner:
            return self._verify(node)
        if function.name == "digest" and not owner:
            return self._digest(node)
        if function.name == "static_assert":  # already checked
            return "True"
        return self._call_architecture(node, function)

    def _digest(self, node: ast.Call) -> str:
        """Send a digest with its present values; BMv2 ignores the receiver."""
        if "digest" not in self.generator.architecture.functions:
            raise Unsupported(node.position, "this form of the extern function digest")
        receiver, value = (argument.value for argument in node.arguments)
        assert receiver is not None
        assert value is not None
        self.value(receiver)
        name = self.generator.digest(node, value.type)
        self.source.emit(f"ARCH.digest({name!r}, {self._tuple_code(self.copy_code(value), value)})")
        return "None"

    def _tuple_code(self, code: str, node: ast.Expression, kind: types.Type | None = None) -> str:
        """Return code of a value with structs as tuples."""
        kind = base_of(kind or node.type)
        if isinstance(kind, types.Record) and kind.kind == "struct":
            parts = (self._tuple_code(f"{code}.f_{name}", node, part) for name, part in kind.fields.items())
        elif isinstance(kind, types.Tuple):
            parts = (
                self._tuple_code(f"{code}[{index}]", node, part) for index, part in enumerate(kind.elements)
            )
        elif is_scalar(kind) and not isinstance(kind, types.Varbit):
            return code
        else:
            raise Unsupported(node.position, f"{kind} in a digest")
        return f"({''.join(part + ', ' for part in parts)})"

    def _extern_of(self, node: ast.Name) -> str:
        """Return the Python name of an extern instance, of this block or outside all blocks."""
        if self.instance is not None:
            return self.instance.extern_of(node)
        if isinstance(node.target, ast.Instance):
            return self.generator.global_extern(node.target)
        return self.python_name(node.target)

    def _call_architecture(self, node: ast.Call, function: ast.Function) -> str:
        """Call a method of the architecture, or of an instance of one of its extern objects.

        The name in the Python text comes from the architecture's tables, never from the program.
        """
        if isinstance(node.function, ast.Member):
            base = node.function.base
            assert isinstance(base, ast.Name)
            holder = self._extern_of(base)
            python_class = self.generator.extern_class(node.position, function.owner.name)
            names = python_class.methods
        else:
            holder, python_class = "ARCH", self.generator.architecture
            names = python_class.functions
        if function.name not in names:
            raise Unsupported(node.position, f"the extern function {function.name}")
        _check_origin(node, function)
        name = names[function.name]
        method = getattr(python_class, name)
        codes, stores = self._extern_arguments(node)
        if getattr(method, "takes_widths", False):
            codes.append(
                f"widths={tuple(width_of(a.value.type) if a.value else None for a in node.arguments)!r}"
            )
        if getattr(method, "takes_frame", False):
            codes.insert(0, "f")
        call = f"{holder}.{name}({', '.join(codes)})"
        if not stores and node.type == VOID:
            self.source.emit(call)
            return "None"
        result = self.source.unique_name("t")
        self.source.emit(f"{result} = {call}")
        if not stores:
            return result
        single = len(stores) == 1 and node.type == VOID
        for index, store in enumerate(stores):
            store(result if single else f"{result}[{index + (node.type != VOID)}]")
        return f"{result}[0]" if node.type != VOID else "None"

    def _extern_arguments(self, node: ast.Call) -> tuple[list[str], list[Store]]:
        """Return codes and stores as ``_copy_in``; ``data`` are (value, width), enum members names."""
        codes: list[str] = []
        stores: list[Store] = []
        for index, (parameter, argument) in enumerate(zip(node.callee.parameters, node.arguments, strict=True)):
            value = argument.value
            if value is None:
                continue
            has_later_effects = any(has_effects(a.value) for a in node.arguments[index + 1 :])
            by_reference = not is_scalar(value.type) and parameter.direction == "inout"
            if parameter.direction in _OUT_DIRECTIONS and not by_reference:
                place = self.target(value, frozen=True)
                stores.append(place.store)
                value = self.name_for(value, place.load)
            if parameter.direction == "out":
                continue
            if parameter.name == "data":
                code = self.pack_code(value)
                codes.append(self.save(code, VOID) if has_later_effects else code)
            elif isinstance(value.type, types.Enum) and value.type.underlying is None:
                codes.append(self.generator.member_name(value))
            else:
                code = self.value(value)
                codes.append(self.save(code, value.type) if has_later_effects and not by_reference else code)
        return codes, stores

    def pack_code(self, node: ast.Expression) -> str:
        """Return code of ``node`` as (value, width), without fields of invalid headers, for checksums."""
        parts: list[str] = []
        self._pack_into(parts, node)
        return f"pack({', '.join(parts)})"

    def _pack_into(self, parts: list[str], node: ast.Expression) -> None:
        items = list(node.items) if isinstance(node, ast.ListValue) else []
        if isinstance(node, ast.StructValue):
            items = list(node.items.values())
        if isinstance(node, ast.ListValue | ast.StructValue):
            for item in items:
                self._pack_into(parts, item)
            return
        if parts and has_effects(node):  # the parts to its left are read first
            parts[:] = ["*" + self.save(f"({', '.join(parts)},)", VOID)]
        self._pack_code(parts, self.value(node), base_of(node.type), node)

    def _pack_code(self, parts: list[str], code: str, kind: types.Type, node: ast.Expression) -> None:
        """Append code of a value's scalars as (value, width) pairs.

        A header's pairs have the form ``*(pair,) * header.valid``, which is nothing if the header is invalid.
        """
        if isinstance(kind, types.Record):
            if kind.kind == "header_union":
                raise Unsupported(node.position, "a header union as data")
            for name, part in kind.fields.items():
                inner: list[str] = []
                self._pack_code(inner, f"{code}.f_{name}", base_of(part), node)
                parts += [f"*({i},) * {code}.valid" if kind.kind == "header" else i for i in inner]
            return
        if isinstance(kind, types.Tuple):
            for index, part in enumerate(kind.elements):
                self._pack_code(parts, f"{code}[{index}]", base_of(part), node)
            return
        if isinstance(kind, types.Varbit):
            part_code = code
        elif isinstance(kind, Bits) or kind == BOOL:
            part_code = f"({code}, {width_of(kind)})"
        else:
            raise Unsupported(node.position, f"{kind} as data")
        holder = node.base if isinstance(node, ast.Member) else None
        holder_kind = base_of(holder.type) if holder is not None else None
        if holder is not None and isinstance(holder_kind, types.Record) and holder_kind.kind == "header":
            part_code = f"*({part_code},) * {self.value(holder)}.valid"
        parts.append(part_code)

    # packets

    def _packet(self, node: ast.Call) -> str:
        assert isinstance(node.function, ast.Member)
        return self.value(node.function.base)

    def _packet_in_extract(self, node: ast.Call) -> str:
        packet, target = self._packet(node), node.arguments[0].value
        if target is None:
            width = width_of(node.callee.bindings.substitute(node.callee.parameters[0].type))
            if width is None:
                raise Unsupported(node.position, "extract of nothing without a width")
            self.source.emit(f"{packet}.take({width})")
            return "None"
        kind = base_of(target.type)
        if not isinstance(kind, types.Record) or kind.kind != "header":
            raise Unsupported(node.position, f"extract of {target.type}")
        width_code = (
            f", {self.value(node.arguments[1].value)}"
            if len(node.arguments) > 1 and node.arguments[1].value
            else ""
        )
        if (
            isinstance(target, ast.Member)
            and target.name == "next"
            and isinstance(target.base.type, types.Stack)
        ):
            stack = self._holder(target.base, True)
            self.source.emit(f"{stack}.next_element().extract({packet}{width_code})")
            self.source.emit(f"{stack}.next += 1")
        elif isinstance(target, ast.Member) and _is_next(target.base):
            stack = self._holder(target.base.base, True)  # type: ignore[attr-defined]
            self.source.emit(f"{stack}.next_element().f_{target.name}.extract({packet}{width_code})")
            self.source.emit(f"{stack}.next += 1")
        else:
            self.source.emit(f"{self.value(target)}.extract({packet}{width_code})")
        return "None"

    def _packet_in_lookahead(self, node: ast.Call) -> str:
        packet, kind = self._packet(node), base_of(node.type)
        name = self.source.unique_name("t")
        if isinstance(kind, Bits):
            code = f"{packet}.peek({kind.width})"
            self.source.emit(f"{name} = {signed_code(code, kind.width) if kind.signed else code}")
        elif kind == BOOL:
            self.source.emit(f"{name} = {packet}.peek(1) == 1")
        elif isinstance(kind, types.Record) and types.width_of(kind) is not None:
            position = self.source.unique_name("t")
            self.source.emit(f"{position} = {packet}.position")
            self.source.emit(f"{packet}.peek({types.width_of(kind)})")  # rejects before a part is read
            self.source.emit(f"{name} = {self.records.new(kind)}")
            self._read_parts(node, name, kind, packet)
            self.source.emit(f"{packet}.position = {position}")
        else:
            raise Unsupported(node.position, f"lookahead of {node.type}")
        return name

    def _read_parts(self, node: ast.Call, path: str, kind: types.Type, packet: str) -> None:
        """Emit code that reads a value of ``kind`` into ``path``, part by part."""
        base = base_of(kind)
        if isinstance(base, types.Record) and base.kind == "header":
            self.source.emit(f"{path}.extract({packet})")
        elif isinstance(base, types.Record) and base.kind == "struct":
            for name, part in base.fields.items():
                self._read_parts(node, f"{path}.f_{name}", part, packet)
        elif isinstance(base, Bits):
            code = f"{packet}.take({base.width})"
            self.source.emit(f"{path} = {signed_code(code, base.width) if base.signed else code}")
        elif base == BOOL:
            self.source.emit(f"{path} = {packet}.take(1) == 1")
        else:
            raise Unsupported(node.position, f"lookahead of {node.type}, for its part of type {kind},")

    def _packet_in_advance(self, node: ast.Call) -> str:
        assert node.arguments[0].value
        self.source.emit(f"{self._packet(node)}.advance({self.value(node.arguments[0].value)})")
        return "None"

    def _packet_in_length(self, node: ast.Call) -> str:
        return f"{self._packet(node)}.length()"

    def _packet_out_emit(self, node: ast.Call) -> str:
        value = node.arguments[0].value
        assert value
        items = value.items if isinstance(value, ast.ListValue) else [value]
        for item in items:
            if not isinstance(base_of(item.type), types.Record | types.Stack):
                raise Unsupported(item.position, f"emit of {item.type}")
            self.source.emit(f"{self.value(item)}.emit({self._packet(node)})")
        return "None"

    def _verify(self, node: ast.Call) -> str:
        codes = self.values([a.value for a in node.arguments if a.value])
        with self.source.block(f"if not {codes[0]}:"):
            self.source.emit(f"raise Reject({codes[1]})")
        return "None"


def _check_origin(node: ast.Call, function: ast.Function) -> None:
    """Raise Unsupported for a call of an implemented extern function with the program's own declaration."""
    if not is_bundled(function.position):
        raise Unsupported(node.position, f"a second declaration of the extern function {function.name}")


def _is_next(node: ast.Expression) -> bool:
    return isinstance(node, ast.Member) and node.name == "next" and isinstance(node.base.type, types.Stack)


def _path(node: ast.Expression | None) -> tuple[object, ...] | None:
    """Return the declaration and the names that lead to a record; None if ``node`` is not such a path."""
    if isinstance(node, ast.Name):
        return (node.target,)
    if isinstance(node, ast.Member):
        base = _path(node.base)
        return None if base is None else (*base, node.name)
    return None
