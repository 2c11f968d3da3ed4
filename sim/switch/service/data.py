"""P4's types and values in P4Runtime: ``P4DataTypeSpec`` and ``P4Data``, of registers and digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from finsy.proto import p4d, p4r, p4t, rpc_code

from fanin.sim.switch.embedded import types
from fanin.sim.switch.service.faults import Fault, invalid

_MAX_SHOWN_BITS = 128  # of a number in a message


class TypeSpecs:
    """Writer of P4Info's descriptions of types.

    - ``info``: receives the description of each named type, once.
    - ``errors``: names of the program's errors, in order.
    """

    def __init__(self, info: p4t.P4TypeInfo, errors: list[str]):
        self._info = info
        self._errors = errors

    def spec(self, kind: types.Type) -> p4t.P4DataTypeSpec:
        """Return the description of ``kind``; empty for a type that neither registers nor digests have."""
        spec = p4t.P4DataTypeSpec()
        match kind:
            case types.New():
                spec.new_type.name = kind.name
                self._new(kind)
            case types.Enum(underlying=None):
                spec.enum.name = kind.name
                for name in kind.members if kind.name not in self._info.enums else ():
                    self._info.enums[kind.name].members.add(name=name)
            case types.Enum():
                spec.serializable_enum.name = kind.name
                self._serializable(kind)
            case types.Bits():
                (spec.bitstring.int if kind.signed else spec.bitstring.bit).bitwidth = kind.width
            case types.Tuple():
                spec.tuple.members.extend(map(self.spec, kind.elements))
            case types.Record(kind="struct"):
                spec.struct.name = kind.name
                members = [
                    p4t.P4StructTypeSpec.Member(name=name, type_spec=self.spec(part))
                    for name, part in kind.fields.items()
                ]
                self._info.structs[kind.name].CopyFrom(p4t.P4StructTypeSpec(members=members))
            case types.BOOL:
                spec.bool.SetInParent()
            case types.ERROR:
                spec.error.SetInParent()
                self._info.error.members[:] = self._errors
        return spec

    def width(self, kind: types.Type) -> int:
        """Return the width of a value of ``kind`` for a controller, in bits; 0 for a text."""
        if isinstance(kind, types.New):
            self._new(kind)
            if kind.translation is not None:
                return kind.translation[1] or 0
            return self.width(kind.base)
        if isinstance(kind, types.Enum) and kind.underlying:
            self._serializable(kind)
        return types.width_of(kind) or 0

    def _new(self, kind: types.New) -> None:
        description = self._info.new_types[kind.name]
        if kind.translation is None:
            description.original_type.CopyFrom(self.spec(types.base_of(kind.base)))
            return
        description.translated_type.uri, width = kind.translation
        if width is None:
            description.translated_type.sdn_string.SetInParent()
        else:
            description.translated_type.sdn_bitwidth = width

    def _serializable(self, kind: types.Enum) -> None:
        assert kind.underlying is not None
        if kind.name in self._info.serializable_enums:
            return
        description = self._info.serializable_enums[kind.name]
        description.underlying_type.bitwidth = kind.underlying.width
        for name, value in kind.members.items():
            description.members.add(name=name, value=as_bytes(value, kind.underlying.width))


def as_bytes(value: int, width: int) -> bytes:
    """Return P4Runtime's canonical form: the fewest bytes that hold the value, at least one."""
    value &= (1 << width) - 1
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def shortest(value: bytes) -> bytes:
    """Return the canonical form of an unsigned number's bytes."""
    return value.lstrip(b"\0") or b"\0"


def number_in(value: bytes, width: int, subject: str) -> int:
    """Return an unsigned number from any number of bytes. Raises Fault if it exceeds ``width`` bits."""
    if not value:
        raise Fault(rpc_code.OUT_OF_RANGE, f"{subject}: an empty value")
    number = int.from_bytes(value, "big")
    if number >> width:
        raise Fault(rpc_code.OUT_OF_RANGE, f"{subject}: {number_text(number)} does not fit in {width} bits")
    return number


def number_text(number: int) -> str:
    """Return a number for a message; ``str`` refuses numbers of thousands of digits."""
    return str(number) if number.bit_length() <= _MAX_SHOWN_BITS else f"a number of {number.bit_length()} bits"


def counter_data(packets: int, octets: int) -> p4r.CounterData:
    """Return the message of a counter's cell. Like BMv2's, a cell has 64 bits and wraps."""
    return p4r.CounterData(packet_count=_wrap(packets), byte_count=_wrap(octets))


def _wrap(count: int) -> int:
    return (count + (1 << 63)) % (1 << 64) - (1 << 63)


def check_index(message: Any, size: int) -> None:
    """Raise Fault if a message has an index outside 0 to ``size`` - 1; a message without an index passes."""
    index = message.index.index
    if message.HasField("index") and index < 0:
        raise invalid(f"index {index} is below 0")
    if message.HasField("index") and index >= size:
        raise Fault(rpc_code.OUT_OF_RANGE, f"index {index} of {size}")


def indices(message: Any, size: int) -> range:
    """Return the cells that a message names: one, or without an index all ``size`` cells. Raises Fault."""
    check_index(message, size)
    if not message.HasField("index"):
        return range(size)
    return range(message.index.index, message.index.index + 1)


def encode(value: Any, kind: types.Type, errors: list[str]) -> p4d.P4Data:
    """Return the message for a value of ``kind``; ``value`` is a number, or for a struct or tuple a tuple."""
    match kind:
        case types.New():
            return encode(value, kind.base, errors)
        case types.Enum(underlying=None):
            return p4d.P4Data(enum=next(name for name, number in kind.members.items() if number == value))
        case types.Enum():
            assert kind.underlying is not None
            return p4d.P4Data(enum_value=as_bytes(int(value), kind.underlying.width))
        case types.Record() | types.Tuple():
            members = [
                encode(part, part_kind, errors)
                for part, part_kind in zip(value, _part_kinds(kind), strict=True)
            ]
            composite = p4d.P4StructLike(members=members)
            return (
                p4d.P4Data(struct=composite) if isinstance(kind, types.Record) else p4d.P4Data(tuple=composite)
            )
        case types.Bits():
            bits = (value if value >= 0 else ~value).bit_length() + kind.signed  # a sign takes a bit
            size = max(1, (bits + 7) // 8)
            return p4d.P4Data(bitstring=value.to_bytes(size, "big", signed=kind.signed))
        case types.ERROR:
            return p4d.P4Data(error=errors[value])
    return p4d.P4Data(bool=bool(value))


def decode(data: p4d.P4Data, kind: types.Type, errors: list[str]) -> Any:
    """Return the value of ``kind`` in a controller's message, as for :func:`encode`. Raises Fault."""
    form = data.WhichOneof("data")
    while isinstance(kind, types.New):
        kind = kind.base
    if isinstance(kind, types.Record | types.Tuple):
        name, part_kinds = "struct" if isinstance(kind, types.Record) else "tuple", _part_kinds(kind)
        members = getattr(data, name).members
        if form != name or len(members) != len(part_kinds):
            raise invalid(f"a cell of {kind} takes a {name} of {len(part_kinds)} members")
        pairs = zip(members, part_kinds, strict=True)
        return tuple(decode(part, part_kind, errors) for part, part_kind in pairs)
    if kind == types.ERROR:
        if form != "error" or data.error not in errors:
            raise invalid("a cell of error takes the name of an error")
        return errors.index(data.error)
    if isinstance(kind, types.Enum) and kind.underlying is None:
        if form != "enum" or data.enum not in kind.members:
            raise invalid(f"a cell of {kind} takes the name of a member")
        return kind.members[data.enum]
    expected = {types.Bits: "bitstring", types.Enum: "enum_value"}.get(type(kind), "bool")
    if form != expected:
        raise invalid(f"a cell of {kind} takes no {form}")
    if expected == "bool":
        return data.bool
    base = types.base_of(kind)
    assert isinstance(base, types.Bits)
    value: bytes = getattr(data, expected)
    if not value:
        raise Fault(rpc_code.OUT_OF_RANGE, "an empty value")
    number = int.from_bytes(value, "big", signed=base.signed)
    low, high = base.limits
    if not low <= number <= high:
        raise Fault(rpc_code.OUT_OF_RANGE, f"{number_text(number)} does not fit in {base}")
    return number


def _part_kinds(kind: types.Record | types.Tuple) -> list[types.Type]:
    fields: Mapping[Any, types.Type] = (
        kind.fields if isinstance(kind, types.Record) else dict(enumerate(kind.elements))
    )
    return list(fields.values())
