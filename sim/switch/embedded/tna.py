"""The Tofino Native Architecture: one pipe of a Tofino 1, parsers and controls around a traffic manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from time import monotonic_ns
from typing import Any, ClassVar

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.budget import Budget, refuse_late
from fanin.sim.switch.embedded.checksums import as_bytes, digest_of, ones_complement_sum
from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined
from fanin.sim.switch.embedded.packet import NO_MATCH, TOO_SHORT, PacketIn
from fanin.sim.switch.embedded.runtime import (
    CounterArray,
    ExternObject,
    RegisterArray,
    Replication,
    callable_names,
    run_block,
    takes_frame,
)
from fanin.sim.switch.embedded.values import UNDEFINED, Reject, Undefined

_PORT_METADATA = bytes(8)
_REJECTED = 0  # parser error of the program's own transition to reject
_PARSER_ERRORS = {NO_MATCH: 0x0001, TOO_SHORT: 0x0002}
_PREFIX = ("ingress_intrinsic_metadata", "egress_intrinsic_metadata")
# Headers in front of a packet: size in bytes, and byte offsets of the fields that a simulation knows
# without clock and queues.
_KNOWN_FIELDS = {
    "ingress_intrinsic_metadata_t": (8, {"f_ingress_port": 0}),
    "egress_intrinsic_metadata_t": (27, {"f_egress_port": 0, "f_egress_rid": 19}),
}


class _Unset(Undefined):
    """A value that the traffic manager does not get; results computed with it are undefined."""

    __slots__ = ()

    def _spread(self, *_: object) -> Undefined:
        return UNDEFINED


UNSET = _Unset()


class Register(RegisterArray):
    """``Register``."""

    methods = callable_names("read write")

    def __init__(self, size: int, initial: int = 0, **extern: Any):
        super().__init__(size, **extern)
        if initial:
            self.values = [initial] * size

    def checked(self, index: int) -> int:
        """Return ``index`` if it is in range. Raises RunRefused if not."""
        if index is UNDEFINED or index >= len(self.values):
            error = RunUndefined if index is UNDEFINED else RunRefused
            raise error(f"index {index!r} of register {self.name}, which has {len(self.values)}")
        return index

    def read(self, index: int) -> Any:
        """Return the value at ``index``. Raises RunRefused if it is out of range."""
        value = self.values[self.checked(index)]
        return value.copy() if hasattr(value, "copy") else value

    def write(self, index: int, value: Any) -> Any:
        """Set a value; the result is undefined."""
        self.values[self.checked(index)] = value.copy() if hasattr(value, "copy") else value
        self.trace_write(index, value)
        return UNDEFINED


class RegisterAction(ExternObject):
    """``RegisterAction``: one read, change and write of a register."""

    methods = callable_names("execute")
    abstract = ("apply",)

    def __init__(
        self, register: Register, *, apply: Callable[..., tuple[Any, ...]] | None = None, **extern: Any
    ):
        super().__init__(**extern)
        if apply is None:
            raise RunRefused("a RegisterAction without apply")
        self.register = register
        self.apply = apply
        self.arity = apply.__code__.co_argcount  # 2 (the frame, the value), or 3 with the result

    @takes_frame
    def execute(self, frame: Any, index: int) -> Any:
        """Change the value at ``index``; return the result in the action's last parameter."""
        register = self.register
        values = register.values
        if index is UNDEFINED or index >= len(values):
            register.checked(index)
        outputs = (
            self.apply(frame, values[index]) if self.arity == 2 else self.apply(frame, values[index], UNDEFINED)
        )
        values[index] = outputs[0]
        if register.tracer is not None:
            register.trace_write(index, outputs[0])
        return outputs[1] if self.arity == 3 else UNDEFINED


class Counter(CounterArray):
    """``Counter`` of packets; not of bytes, since Tofino's count of a packet's bytes is not known here."""

    def __init__(self, size: int, kind: str, **extern: Any):
        super().__init__(size, kind, **extern)
        _only_packets(kind)


class DirectCounter(ExternObject):
    """``DirectCounter`` of packets; does not count in a default action."""

    methods = callable_names("count")

    def __init__(self, kind: str, **extern: Any):
        super().__init__(**extern)
        _only_packets(kind)
        self._entry: Any = None

    def hit(self, entry: Any) -> None:
        """Remember the entry that the table runs."""
        self._entry = entry

    def count(self) -> None:
        """Count the packet in the table's entry."""
        if self._entry.hit:
            self._entry.packets += 1
            self._entry.bytes += self.arch.frame_length


class Checksum(ExternObject):
    """``Checksum``; each packet starts from an empty one."""

    methods = callable_names("add subtract verify get update")

    def __init__(self, **extern: Any):
        super().__init__(**extern)
        self.arch.checksums.append(self)
        self.clear()

    def clear(self) -> None:
        """Clear the sum."""
        self._sum = 0
        self._added = self._subtracted = False

    def add(self, data: tuple[int, int]) -> None:
        """Add data of whole bytes to the sum."""
        self._sum += ones_complement_sum(as_bytes(data))
        self._added = True

    def subtract(self, data: tuple[int, int]) -> None:
        """Subtract 16-bit words."""
        self._sum += 0xFFFF ^ ones_complement_sum(as_bytes(data))
        self._subtracted = True

    def _fold(self) -> int:
        return self._sum % 0xFFFF or (0xFFFF if self._sum else 0)

    def verify(self) -> bool:
        """Return whether the sum is *not* that of valid data: Tofino's parser reports an error."""
        return self._fold() != 0xFFFF

    def get(self) -> int:
        """Return the sum without the subtracted data, to which ``update`` adds the new fields."""
        if self._added or not self._subtracted:
            raise RunRefused("Checksum.get after add, or without subtract")
        return self._fold()

    def update(self, data: tuple[int, int]) -> int:
        """Return the checksum of ``data``."""
        return ones_complement_sum(as_bytes(data)) ^ 0xFFFF


class Hash(ExternObject):
    """``Hash`` with the algorithms that need no polynomial."""

    methods = callable_names("get")
    _WIDTHS: ClassVar = {"CRC16": 16, "CRC32": 32, "XOR16": 16, "IDENTITY": 64}

    def __init__(self, algorithm: str, **extern: Any):
        super().__init__(**extern)
        width = types.width_of(self.types[0])
        if algorithm not in self._WIDTHS or width is None or width > self._WIDTHS[algorithm]:
            raise RunRefused(f"the hash {algorithm} of {width} bits")
        self._algorithm, self._mask = algorithm.lower(), (1 << width) - 1

    def get(self, data: tuple[int, int]) -> int:
        """Return the lowest bits of the hash of ``data``."""
        return digest_of(self._algorithm, data) & self._mask


class Tna(Budget):
    """A running pipe of a Tofino 1."""

    name = "tna"
    package = "Switch"
    externs: ClassVar = {
        "Register": Register, "RegisterAction": RegisterAction, "Counter": Counter,
        "DirectCounter": DirectCounter, "Checksum": Checksum, "Hash": Hash,
    }  # fmt: skip
    functions: ClassVar = callable_names("max min")

    @staticmethod
    def constants(blocks: list[Any]) -> dict[str, Any]:
        """Return names for the generated text: parameters of each block; whether ingress reads the error."""
        return {
            "PURPOSES": [_parameter_purposes(b) for b in blocks],
            "READS_ERROR": _mentions(blocks[1].node, "parser_err"),
        }

    @staticmethod
    def made_types(blocks: list[Any]) -> list[Any]:
        """Return the type of each parameter of each block, except packets, which have no such type."""
        return [p.type for block in blocks for p in block.node.parameters]

    def __init__(self) -> None:
        self.clock: Callable[[], int] | None = None  # not used: reading a clock is refused
        self.replication = Replication(exclusion=True)
        self.checksums: list[Checksum] = []
        self.frame_length = 0
        self.drops: list[str] = []  #: reasons why copies of the last packet did not leave

    def start(self, names: dict[str, Any]) -> None:
        """Store the generated objects in ``names``: blocks, and functions that return their parameters."""
        blocks, purposes, makers = names["BLOCKS"], names["PURPOSES"], iter(names["MAKERS"])
        pairs = [[(purpose, next(makers)) for purpose in block_purposes] for block_purposes in purposes]
        self._ingress = _Gress(blocks[:3], pairs[:3])
        self._egress = _Gress(blocks[3:], pairs[3:])
        self._reads_error: bool = names["READS_ERROR"]

    # the path of a packet

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that leave, with their ports, after ``frame`` enters at ``port``."""
        self.frame_length = len(frame)
        self.drops = []
        self.renew()
        # In front of the frame: 8 bytes of intrinsic metadata, with the port first, and the port's metadata.
        packet = PacketIn(port.to_bytes(2, "big") + bytes(6) + _PORT_METADATA + frame)
        gress = self._ingress
        values = gress.values(packet)
        error = self._parse(gress, values)
        if error is not None:
            if error == _REJECTED or not self._reads_error:
                return self._drop("the parser rejected it")
            if error not in _PARSER_ERRORS:
                raise RunRefused("Tofino's number for this parser error")
            values[gress.from_parser].f_parser_err = _PARSER_ERRORS[error]
        gress.run(1, values)
        # Without metadata for the traffic manager, the packet has no destination.
        if gress.for_manager is None:
            return self._drop("ingress names no egress port")
        if _is_dropped(gress.for_deparser, values):
            return self._drop("drop_ctl of ingress")
        parts: list[bytes] = []
        values[0] = parts
        gress.run(2, values)
        data = b"".join(parts) + packet.remainder()
        manager = values[gress.for_manager]
        departures: list[tuple[int, bytes]] = []
        for destination, replica in self._copies(manager):
            if monotonic_ns() > self.deadline:
                refuse_late()
            if destination is UNDEFINED:
                raise RunUndefined("an undefined egress port")
            if _manager_field(manager, "bypass_egress"):
                departures.append((destination, data))
            else:
                self._send_through_egress(destination, replica, data, departures)
        return (
            departures
            if departures or self.drops
            else self._drop("no egress port, and no member of a multicast group")
        )

    def _drop(self, reason: str) -> list[tuple[int, bytes]]:
        """Drop the packet; return no frames."""
        self.drops.append(reason)
        return []

    def _parse(self, gress: _Gress, values: list[Any]) -> int | None:
        """Run a parser; return the number of the error that stopped it, or None."""
        for checksum in self.checksums:
            checksum.clear()
        try:
            gress.run(0, values)
        except Reject as reject:
            return reject.error
        return None

    def _copies(self, manager: Any) -> Iterator[tuple[int, int]]:
        """Yield ports and replica ids of the copies."""
        for field in ("copy_to_cpu", "deflect_on_drop", "level2_exclusion_id"):
            if _manager_field(manager, field):
                raise RunRefused(f"{field} for the traffic manager")
        if manager.f_ucast_egress_port is not UNSET:
            yield manager.f_ucast_egress_port, 0
        excluded = _manager_field(manager, "level1_exclusion_id")
        for field in ("mcast_grp_a", "mcast_grp_b"):
            group = self.replication.groups.get(_manager_field(manager, field))
            for replica in group.replicas if group else ():
                if replica.exclusion is None or replica.exclusion != excluded:
                    yield replica.port, replica.id

    def _send_through_egress(
        self, port: int, replica: int, data: bytes, departures: list[tuple[int, bytes]]
    ) -> None:
        """Send a copy through egress.

        In front of its data are 27 bytes of intrinsic metadata: the port at byte 0, the replica id at byte 19.
        """
        packet = PacketIn(port.to_bytes(2, "big") + bytes(17) + replica.to_bytes(2, "big") + bytes(6) + data)
        gress = self._egress
        values = gress.values(packet)
        if self._parse(gress, values) is not None:
            raise RunRefused("an error of the egress parser")
        gress.run(1, values)
        if _is_dropped(gress.for_deparser, values):
            self._drop("drop_ctl of egress")
            return
        parts: list[bytes] = []
        values[0] = parts
        gress.run(2, values)
        departures.append((port, b"".join(parts) + packet.remainder()))

    # externs that are functions

    def max(self, first: int, second: int) -> int:
        """Return the larger number."""
        return first if first >= second else second

    def min(self, first: int, second: int) -> int:
        """Return the smaller number."""
        return first if first <= second else second


class _Gress:
    """Parser, control and deparser of ingress or egress, and the values that they share for one packet.

    ``values[0]`` is the packet. ``from_parser``, ``for_deparser`` and ``for_manager`` are the indices of
    intrinsic metadata, None if no block has a parameter for them.
    """

    def __init__(self, blocks: Sequence[Any], parameters: list[list[tuple[str, Any]]]):
        indices = {"packet": 0}
        self._makers: list[Callable[[], Any]] = []
        for purpose, make in (pair for block in parameters for pair in block):
            if purpose not in indices:
                indices[purpose] = len(indices)
                self._makers.append(_maker(purpose, make))
        self._blocks = [
            (block, tuple(indices[purpose] for purpose, _ in block_parameters))
            for block, block_parameters in zip(blocks, parameters, strict=True)
        ]
        metadata_indices = {purpose.partition("metadata_")[2]: index for purpose, index in indices.items()}
        self.from_parser = metadata_indices.get("from_parser_t", 0)
        self.for_deparser = metadata_indices.get("for_deparser_t")
        self.for_manager = metadata_indices.get("for_tm_t")

    def values(self, packet: PacketIn) -> list[Any]:
        """Return fresh values for a packet."""
        return [packet, *[make() for make in self._makers]]

    def run(self, number: int, values: list[Any]) -> None:
        """Run block ``number``: 0 parser, 1 control, 2 deparser."""
        block, indices = self._blocks[number]
        run_block(block, *[values[index] for index in indices])


def _maker(purpose: str, make: Callable[[], Any]) -> Callable[[], Any]:
    """Return the function that makes the value of a block's parameter for each packet."""
    if not purpose.startswith(_PREFIX):
        return make
    record = make()
    if purpose in _KNOWN_FIELDS:
        return _intrinsic(type(record), *_KNOWN_FIELDS[purpose])
    initial: Any = UNSET if purpose.endswith("for_tm_t") else 0
    for field in record.__slots__:
        setattr(record, field, UNDEFINED if purpose.endswith("from_parser_t") else initial)
    if purpose.endswith("from_parser_t"):
        record.f_parser_err = 0
    copy: Callable[[], Any] = record.copy
    return copy


def _intrinsic(base_class: type, size: int, offsets: dict[str, int]) -> type:
    """Return a class for a header of ``size`` bytes; ``offsets``: byte offsets of its known 16-bit fields."""

    class Intrinsic(base_class):
        """A header whose fields of clocks and queues stay undefined."""

        __slots__ = ()

        def extract(self, packet: PacketIn) -> None:
            """Read the header, which must be the first one and only once."""
            if packet.position:
                raise RunRefused("intrinsic metadata that is not extracted first")
            packet.position = 8 * size
            setattr(self, "valid", True)  # noqa: B010 -- a slot of the class that is generated
            for field, offset in offsets.items():
                setattr(self, field, int.from_bytes(packet.data[offset : offset + 2], "big"))

    return Intrinsic


def _is_dropped(index: int | None, values: list[Any]) -> bool:
    """Return whether a deparser drops the packet. Raises RunRefused for any other request to it."""
    if index is None:
        return False
    control = values[index]
    for field in control.__slots__:
        if field != "f_drop_ctl" and getattr(control, field) != 0:
            raise RunRefused(f"{field[2:]} for the deparser")
    return bool(control.f_drop_ctl & 1)


def _manager_field(manager: Any, field: str) -> Any:
    """Return a field of the traffic manager's metadata; 0 if it is not set."""
    value = getattr(manager, f"f_{field}")
    if value is UNDEFINED:
        raise RunUndefined(f"an undefined {field} for the traffic manager")
    return 0 if value is UNSET else value


def _parameter_purposes(block: Any) -> list[str]:
    """Return the purposes of a block's parameters; its own are headers and metadata, in this order."""
    program_parameters = iter(("headers", "metadata"))
    purposes = []
    for parameter in block.node.parameters:
        kind = parameter.type
        if isinstance(kind, types.External):
            purposes.append("packet")
        elif isinstance(kind, types.Record) and kind.name.startswith(_PREFIX):
            purposes.append(kind.name)
        else:
            purposes.append(next(program_parameters))
    return purposes


def _mentions(node: Any, name: str) -> bool:
    """Return whether a block, or an instance in it, mentions a member of this name."""
    if isinstance(node, ast.Member) and node.name == name:
        return True
    if isinstance(node, ast.Instance) and isinstance(node.type, types.Block):
        return _mentions(node.type.declaration, name)
    if isinstance(node, list):
        return any(_mentions(child, name) for child in node)
    if not is_dataclass(node) or isinstance(node, types.Type):
        return False
    children = (
        getattr(node, field.name)
        for field in fields(node)
        if field.name not in ("target", "type", "callee", "owner")
    )
    return any(_mentions(child, name) for child in children if isinstance(child, list | ast.Node))


def _only_packets(kind: str) -> None:
    if kind != "PACKETS":
        raise RunRefused(f"a counter of {kind}")
