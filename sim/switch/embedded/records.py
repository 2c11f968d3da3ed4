"""Headers, structs and header unions as Python classes with ``__slots__``, in text form.

Each class has ``copy()``, ``set(other)``, ``equals(other)`` and ``emit(out)``. Headers also have ``valid``,
``set_valid()``, ``set_invalid()`` and ``extract(packet)``. Structs also have ``zero()``, which returns the
struct. Fields have the prefix ``f_``.
"""

from __future__ import annotations

from fanin.sim.switch.embedded import types
from fanin.sim.switch.embedded.errors import RunRefused, Unsupported
from fanin.sim.switch.embedded.types import BOOL, Bits, Record, Type, base_of

MAX_WRITTEN = 1 << 18  # maximum fields of headers, structs and tuples in the Python text


def signed_code(code: str, width: int) -> str:
    """Return code of the signed number with the same ``width`` bits as the unsigned ``code``."""
    sign = 1 << (width - 1)
    return f"(({code}) ^ {sign}) - {sign}"


class Records:
    """Generator of Python classes for a program's headers, structs and unions; ``lines`` is their text.

    ``permissive``: a field of an invalid header keeps its value (:mod:`permissive`) and is writable.
    """

    def __init__(self, *, permissive: bool = False) -> None:
        self.permissive = permissive
        self._names: dict[Record, str] = {}
        self._written = 0  # fields of headers, structs and tuples in the Python text so far
        self.lines: list[str] = []

    def _count(self, parts: int) -> None:
        """Count fields of the Python text. Raises RunRefused above ``MAX_WRITTEN``."""
        self._written += parts
        if self._written > MAX_WRITTEN:
            raise RunRefused(f"a program with more than {MAX_WRITTEN:,} fields of headers, structs and tuples")

    def new(self, kind: Type) -> str:
        """Return code of a new, undefined value of ``kind``."""
        base = base_of(kind)
        if isinstance(base, Record):
            return self.name(base) + "()"
        if isinstance(base, types.Stack):
            return f"HeaderStack({self.name(base.element)}, {base.size})"
        if isinstance(base, types.Tuple):
            self._count(len(base.elements))
            return "(" + "".join(self.new(part) + ", " for part in base.elements) + ")"
        return "UNDEFINED"

    def zero(self, kind: Type) -> str:
        """Return code of a new value of ``kind`` whose scalars are 0 and whose headers are invalid."""
        base = base_of(kind)
        if base == BOOL:
            return "False"
        if isinstance(base, types.Varbit):
            return "(0, 0)"
        if isinstance(base, types.Tuple):
            self._count(len(base.elements))
            return "(" + "".join(self.zero(part) + ", " for part in base.elements) + ")"
        if isinstance(base, Record) and base.kind == "struct":
            return self.new(base) + ".zero()"
        return self.new(base) if isinstance(base, Record | types.Stack) else "0"

    def name(self, kind: Record) -> str:
        """Return the name of the class of ``kind``, which is written at the first call."""
        if kind not in self._names:
            self._count(types.parts_in(kind) if kind.kind == "header" else len(kind.fields))
            fields = [(f"f_{name}", base_of(part)) for name, part in kind.fields.items()]
            for _, part in fields:
                if isinstance(part, Record):
                    self.name(part)
                elif isinstance(part, types.Stack):
                    self.name(part.element)
            self._names[kind] = f"R{len(self._names)}_{''.join(c for c in kind.name if c.isalnum())}"
            write = {"header": self._header, "struct": self._struct, "header_union": self._union}[kind.kind]
            self.lines += write(kind, self._names[kind], fields)
        return self._names[kind]

    def _common(self, name: str, fields: list[tuple[str, Type]], extra_slots: list[str]) -> list[str]:
        slots = [field for field, _ in fields] + extra_slots
        lines = [f"class {name}:", f"    __slots__ = {slots!r}", "    def __init__(self):"]
        lines += [f"        self.{field} = {self.new(kind)}" for field, kind in fields]
        return [*lines, "        pass"]

    @staticmethod
    def _copy_lines(fields: list[tuple[str, Type]]) -> tuple[list[str], list[str]]:
        """Return the lines of ``copy`` and of ``set`` for the fields."""
        copies, sets = [], []
        for field, kind in fields:
            is_object = isinstance(kind, Record | types.Stack)
            copies.append(f"        new.{field} = self.{field}{'.copy()' if is_object else ''}")
            sets.append(
                f"        self.{field}.set(other.{field})"
                if is_object
                else f"        self.{field} = other.{field}"
            )
        return copies, sets

    def _struct(self, _kind: Record, name: str, fields: list[tuple[str, Type]]) -> list[str]:
        copies, sets = self._copy_lines(fields)
        lines = self._common(name, fields, [])
        lines += ["    def copy(self):", f"        new = {name}.__new__({name})", *copies, "        return new"]
        lines += ["    def set(self, other):", *sets, "        pass"]
        lines += ["    def zero(self):"]
        for field, part in fields:
            if isinstance(part, Record) and part.kind == "struct":
                lines.append(f"        self.{field}.zero()")
            elif not isinstance(part, Record | types.Stack):
                lines.append(f"        self.{field} = {self.zero(part)}")
        lines += ["        return self", "    def emit(self, out):"]
        lines += [
            f"        self.{field}.emit(out)"
            for field, part in fields
            if isinstance(part, Record | types.Stack)
        ]
        lines += ["        pass", *self._equals(fields, "")]
        return lines

    @staticmethod
    def _equals(fields: list[tuple[str, Type]], condition: str) -> list[str]:
        own_fields = "".join(f"self.{field}, " for field, _ in fields)
        other_fields = "".join(f"other.{field}, " for field, _ in fields)
        lines = ["    def equals(self, other):"]
        if condition:
            lines.append(condition)
        return [*lines, f"        return equal_parts(({own_fields}), ({other_fields}))"]

    def _union(self, _kind: Record, name: str, fields: list[tuple[str, Type]]) -> list[str]:
        lines = self._common(name, fields, [])
        lines += [f"        self.{field}.union = self" for field, _ in fields]
        lines += [
            "    def copy(self):",
            f"        new = {name}()",
            "        new.set(self)",
            "        return new",
        ]
        lines += ["    def set(self, other):"]
        for field, _ in fields:  # the valid one last: setting it makes the others invalid
            lines.append(f"        if not other.{field}.valid: self.{field}.set(other.{field})")
        lines += [f"        if other.{field}.valid: self.{field}.set(other.{field})" for field, _ in fields]
        lines += ["    def invalidate_others(self, header):"]
        for field, _ in fields:
            lines.append(f"        if self.{field} is not header: self.{field}.set_invalid()")
        lines += ["    @property", "    def valid(self):"]
        lines.append("        return " + (" or ".join(f"self.{field}.valid" for field, _ in fields) or "False"))
        lines += [
            "    def emit(self, out):",
            *(f"        self.{field}.emit(out)" for field, _ in fields),
            "        pass",
        ]
        return lines + self._equals(fields, "")

    # headers

    def _header(self, kind: Record, name: str, fields: list[tuple[str, Type]]) -> list[str]:
        scalars = [(field, part) for field, part in fields if not isinstance(part, Record)]
        copies, sets = self._copy_lines(fields)
        lines = self._common(name, fields, ["valid", "union"])
        lines += ["        self.valid = False", "        self.union = None"]
        lines += ["    def copy(self):", f"        new = {name}.__new__({name})", *copies]
        lines += ["        new.valid = self.valid", "        new.union = None", "        return new"]
        lines += ["    def set(self, other):"]
        lines += ["        if self.union is not None and other.valid: self.union.invalidate_others(self)"]
        lines += [*sets, "        self.valid = other.valid"]
        clear = [f"        self.{field} = UNDEFINED" for field, _ in scalars]
        clear += [
            f"        self.{field} = {self.new(part)}" for field, part in fields if isinstance(part, Record)
        ]
        keep = [f"        self.{field} = mark_unset(self.{field})" for field, _ in scalars]
        lines += ["    def set_invalid(self):", "        if not self.valid: return"]
        lines += ["        self.valid = False", *(keep if self.permissive else clear)]
        lines += ["    def set_valid(self):", "        if self.valid: return", "        self.valid = True"]
        lines += clear if self.permissive else []
        lines += ["        if self.union is not None: self.union.invalidate_others(self)"]
        lines += self._equals(
            fields, "        if not (self.valid and other.valid): return self.valid == other.valid"
        )
        return lines + self._wire(kind)

    def _wire(self, kind: Record) -> list[str]:
        """Return the lines of ``extract`` and ``emit`` of a header."""
        leaves = _leaves(kind, "self")
        fixed = sum(
            part.width if isinstance(part, Bits) else 1
            for _, part in leaves
            if not isinstance(part, types.Varbit)
        )
        varbits = [i for i, (_, part) in enumerate(leaves) if isinstance(part, types.Varbit)]
        position = kind.declaration.position
        if len(varbits) > 1:
            raise Unsupported(position, f"header {kind} with several varbit fields")
        if varbits:
            return self._variable_wire(leaves, varbits[0], fixed)
        lines = ["    def extract(self, packet):"]
        lines += _read_lines(leaves, fixed)
        lines += [
            "        self.valid = True",
            "        if self.union is not None: self.union.invalidate_others(self)",
        ]
        lines += ["    def emit(self, out):", "        if self.valid:"]
        if fixed % 8:
            lines.append(
                f"            raise RunRefused('a header of {fixed} bits leaves the switch: not whole bytes')"
            )
        elif fixed:
            lines.append(f"            out.append(({_concatenation(leaves)}).to_bytes({fixed // 8}, 'big'))")
        else:
            lines.append("            pass")
        return lines

    def _variable_wire(self, leaves: list[tuple[str, Type]], index: int, fixed: int) -> list[str]:
        leading, (name, kind), trailing = leaves[:index], leaves[index], leaves[index + 1 :]
        assert isinstance(kind, types.Varbit)
        sizes = [sum(p.width if isinstance(p, Bits) else 1 for _, p in part) for part in (leading, trailing)]
        lines = ["    def extract(self, packet, width=0):"]
        lines += [f"        width = packet.varbit_width(width, {fixed}, {kind.width})"]
        lines += _read_lines(leading, sizes[0])
        lines += [f"        {name} = (packet.take(width), width)"]
        lines += _read_lines(trailing, sizes[1])
        lines += [
            "        self.valid = True",
            "        if self.union is not None: self.union.invalidate_others(self)",
        ]
        lines += ["    def emit(self, out):", "        if self.valid:"]
        lines += [f"            if {name} is UNDEFINED: {name}.to_bytes()"]
        lines += [f"            value, width = {name}"]
        lines += [
            f"            value |= ({_concatenation(leading)}) << width" if leading else "            pass"
        ]
        if trailing:
            lines.append(f"            value = value << {sizes[1]} | ({_concatenation(trailing)})")
        lines += [f"            width += {fixed}"]
        lines += [
            "            if width % 8: raise RunRefused('a header leaves the switch that is not whole bytes')"
        ]
        return [*lines, "            out.append(value.to_bytes(width // 8, 'big'))"]


def _leaves(kind: Record, prefix: str) -> list[tuple[str, Type]]:
    """Return the scalar fields in order, including those of inner structs, as Python paths."""
    leaves: list[tuple[str, Type]] = []
    for name, part in kind.fields.items():
        base = base_of(part)
        path = f"{prefix}.f_{name}"
        leaves += _leaves(base, path) if isinstance(base, Record) else [(path, base)]
    return leaves


def _read_lines(leaves: list[tuple[str, Type]], width: int) -> list[str]:
    """Return lines that read the next ``width`` bits into ``leaves``."""
    if not leaves:
        return ["        pass"]
    lines = ["        start = packet.position", f"        end = start + {width}"]
    if width % 8 == 0:
        lines += [
            f"        if end > packet.bits or start & 7: bits = packet.peek({width})",
            "        else: bits = int.from_bytes(packet.data[start >> 3:end >> 3], 'big')",
        ]
    else:
        lines += [f"        bits = packet.peek({width})"]
    lines += ["        packet.position = end"]
    offset = width
    for path, kind in leaves:
        size = kind.width if isinstance(kind, Bits) else 1
        offset -= size
        code = f"bits >> {offset}" if offset else "bits"
        if offset + size < width:
            code = f"{code} & {(1 << size) - 1}"
        if isinstance(kind, Bits) and kind.signed:
            code = signed_code(code, size)
        lines.append(f"        {path} = ({code}) == 1" if kind == BOOL else f"        {path} = {code}")
    return lines


def _concatenation(leaves: list[tuple[str, Type]]) -> str:
    """Return code of the number that concatenates ``leaves``."""
    code = ""
    for path, kind in leaves:
        width = kind.width if isinstance(kind, Bits) else 1
        part = (
            f"{path} & {(1 << width) - 1}" if kind == BOOL or (isinstance(kind, Bits) and kind.signed) else path
        )
        code = f"({code}) << {width} | {part}" if code else part
    return code or "0"
