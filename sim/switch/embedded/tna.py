"""The Tofino Native Architecture, one pipe of Tofino 1: parsers, pipelines and deparsers around a traffic manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.checksums import as_bytes, digest_of, ones_complement_sum
from fanin.sim.switch.embedded.errors import RunRefused
from fanin.sim.switch.embedded.packet import NO_MATCH, TOO_SHORT, PacketIn
from fanin.sim.switch.embedded.runtime import (
    CounterArray,
    ExternObject,
    RegisterArray,
    Replication,
    run_block,
    takes_frame,
)
from fanin.sim.switch.embedded.values import UNDEFINED, Reject, Undefined

_PORT_METADATA = bytes(8)
_REJECTED = 0  # by the program itself
_PARSER_ERRORS = {NO_MATCH: 0x0001, TOO_SHORT: 0x0002}
_BLOCKS = ("ingress_parser", "ingress", "ingress_deparser", "egress_parser", "egress", "egress_deparser")
_PREFIX = ("ingress_intrinsic_metadata", "egress_intrinsic_metadata")
# The intrinsic fields that a simulation without clock and queues knows.
_FROM_INGRESS = ("f_ingress_port", "f_resubmit_flag")
_FROM_EGRESS = ("f_egress_port", "f_egress_rid")


class _Unset(Undefined):
    """What the traffic manager is not told; computing with it gives what is undefined."""

    __slots__ = ()

    def _spread(self, *_: object) -> Undefined:
        return UNDEFINED


UNSET = _Unset()


class Register(RegisterArray):
    """``Register``."""

    def __init__(self, size: int, initial: int = 0, **rest: Any):
        super().__init__(size, **rest)
        if initial:
            self.values = [initial] * size

    def checked(self, index: int) -> int:
        """``index``, where there is such a one."""
        if index is UNDEFINED or index >= len(self.values):
            raise RunRefused(f"index {index!r} of register {self.name}, which has {len(self.values)}")
        return index

    def read(self, index: int) -> Any:
        """The value."""
        value = self.values[self.checked(index)]
        return value.copy() if hasattr(value, "copy") else value

    def write(self, index: int, value: Any) -> Any:
        """Set a value; what is returned is not defined."""
        self.values[self.checked(index)] = value.copy() if hasattr(value, "copy") else value
        self.changed(index, value)
        return UNDEFINED


class RegisterAction(ExternObject):
    """``RegisterAction``: one read, change and write of a register."""

    def __init__(self, register: Register, *, apply: Callable[..., tuple[Any, ...]] | None = None, **rest: Any):
        super().__init__(**rest)
        if apply is None:
            raise RunRefused("a RegisterAction without apply")
        self.register = register
        self.apply = apply
        self.arity = apply.__code__.co_argcount  # the frame, the value, and perhaps the result

    @takes_frame
    def execute(self, frame: Any, index: int) -> Any:
        """Change the value at ``index``; what the action's last parameter was given."""
        register = self.register
        values = register.values
        if index is UNDEFINED or index >= len(values):
            register.checked(index)
        out = self.apply(frame, values[index]) if self.arity == 2 else self.apply(frame, values[index], UNDEFINED)
        values[index] = out[0]
        if register.trace is not None:
            register.changed(index, out[0])
        return out[1] if self.arity == 3 else UNDEFINED


class Counter(CounterArray):
    """``Counter`` of packets: what Tofino takes for a packet's bytes is not known here."""

    def __init__(self, size: int, kind: str, **rest: Any):
        super().__init__(size, kind, **rest)
        _only_packets(kind)


class DirectCounter(ExternObject):
    """``DirectCounter`` of packets; counts nothing in a default action."""

    def __init__(self, kind: str, **rest: Any):
        super().__init__(**rest)
        _only_packets(kind)
        self._entry: Any = None

    def hit(self, entry: Any) -> None:
        """Remember the entry that the table runs."""
        self._entry = entry

    def count(self) -> None:
        """Count the packet in it."""
        if self._entry.hit:
            self._entry.packets += 1
            self._entry.bytes += self.arch.frame_length


class Checksum(ExternObject):
    """``Checksum``: begins anew with each packet."""

    def __init__(self, **rest: Any):
        super().__init__(**rest)
        self.arch.checksums.append(self)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._sum = 0
        self._added = self._subtracted = False

    def add(self, data: tuple[int, int]) -> None:
        """Add 16-bit words."""
        self._sum += ones_complement_sum(as_bytes(data))
        self._added = True

    def subtract(self, data: tuple[int, int]) -> None:
        """Subtract 16-bit words."""
        self._sum += 0xFFFF ^ ones_complement_sum(as_bytes(data))
        self._subtracted = True

    def _folded(self) -> int:
        return self._sum % 0xFFFF or (0xFFFF if self._sum else 0)

    def verify(self) -> bool:
        """Whether the sum is *not* that of valid data: Tofino's parser reports an error."""
        return self._folded() != 0xFFFF

    def get(self) -> int:
        """What was not subtracted, for ``update`` to add the new fields to."""
        if self._added or not self._subtracted:
            raise RunRefused("Checksum.get of anything but what was subtracted")
        return self._folded()

    def update(self, data: tuple[int, int]) -> int:
        """The checksum of ``data``."""
        return ones_complement_sum(as_bytes(data)) ^ 0xFFFF


class Hash(ExternObject):
    """``Hash`` with the algorithms that need no polynomial."""

    _WIDTHS: ClassVar = {"CRC16": 16, "CRC32": 32, "XOR16": 16, "IDENTITY": 64}

    def __init__(self, algorithm: str, **rest: Any):
        super().__init__(**rest)
        width = types.width_of(self.types[0])
        if algorithm not in self._WIDTHS or width is None or width > self._WIDTHS[algorithm]:
            raise RunRefused(f"the hash {algorithm} of {width} bits")
        self._algorithm, self._mask = algorithm.lower(), (1 << width) - 1

    def get(self, data: tuple[int, int]) -> int:
        """The lowest bits of the hash of ``data``."""
        return digest_of(self._algorithm, data) & self._mask


class Tna:
    """A running pipe."""

    name = "tna"
    package = "Switch"
    externs: ClassVar = {
        "Register": Register, "RegisterAction": RegisterAction, "Counter": Counter, "DirectCounter": DirectCounter,
        "Checksum": Checksum, "Hash": Hash,
    }  # fmt: skip

    @staticmethod
    def constants(blocks: list[Any]) -> dict[str, Any]:
        """Names for the generated text: what each block wants, and whether ingress looks at the parser's error."""
        wants = map(_wanted, blocks)
        return {"WANTS": dict(zip(_BLOCKS, wants, strict=True)), "READS_ERROR": mentions(blocks[1].node, "parser_err")}

    @staticmethod
    def fresh_types(blocks: list[Any]) -> list[Any]:
        """Every type that a parameter of a block has, but for packets."""
        return [p.type for block in blocks for p in block.node.parameters if not isinstance(p.type, types.External)]

    def __init__(self) -> None:
        self.replication = Replication()
        self.checksums: list[Checksum] = []
        self.frame_length = 0

    def start(self, names: dict[str, Any]) -> None:
        """Take what was generated."""
        self._blocks = dict(zip(_BLOCKS, names["BLOCKS"], strict=True))
        self._wants: dict[str, list[str]] = names["WANTS"]
        self._reads_error: bool = names["READS_ERROR"]
        fresh = iter(names["FRESH"])
        # A block's own type of headers and metadata; the intrinsic ones are the same for all.
        self._fresh: dict[str, Any] = {}
        for block, wants in self._wants.items():
            for want in wants:
                if want != "packet":
                    made = next(fresh)
                    self._fresh.setdefault(f"{block}.{want}" if want in ("headers", "metadata") else want, made)

    def _call(self, block: str, known: dict[str, Any]) -> None:
        """Run a block on what is known of the packet; what it wants and is not known yet is made."""
        arguments = []
        for want in self._wants[block]:
            if want not in known:
                known[want] = self._fresh[f"{block}.{want}" if f"{block}.{want}" in self._fresh else want]()
            arguments.append(known[want])
        run_block(self._blocks[block], *arguments)

    # the way of a packet

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """What leaves, where, when ``frame`` comes in at ``port``."""
        self.frame_length = len(frame)
        packet = PacketIn(port.to_bytes(2, "big") + bytes(6) + _PORT_METADATA + frame)
        known: dict[str, Any] = {"packet": packet}
        self._prepare_ingress(known)
        error = self._parse("ingress_parser", known, _FROM_INGRESS)
        if error is not None and (error == _REJECTED or not self._reads_error):
            return []
        if error is not None and error not in _PARSER_ERRORS:
            raise RunRefused("the number that Tofino has for this error of the parser")
        if "ingress_intrinsic_metadata_from_parser_t" in self._fresh:
            known.setdefault(
                "ingress_intrinsic_metadata_from_parser_t", self._fresh["ingress_intrinsic_metadata_from_parser_t"]()
            )
            known["ingress_intrinsic_metadata_from_parser_t"].f_parser_err = _PARSER_ERRORS.get(error or 0, 0)
        self._call("ingress", known)
        control = known.get("ingress_intrinsic_metadata_for_deparser_t")
        manager = known.get("ingress_intrinsic_metadata_for_tm_t")
        # Packets without these stay drops: nobody said where they go.
        if manager is None or self._dropped(control):
            return []
        known["packet"] = parts = []
        self._call("ingress_deparser", known)
        data = b"".join(parts) + packet.rest()
        return [out for copy in self._copies(manager) for out in self._leave(*copy, data, manager)]

    def _prepare_ingress(self, known: dict[str, Any]) -> None:
        for want in self._fresh:
            if want.startswith("ingress_intrinsic_metadata_for"):
                known[want] = record = self._fresh[want]()
                value = UNSET if want.endswith("tm_t") else 0
                for field in record.__slots__:
                    setattr(record, field, value)

    def _parse(self, block: str, known: dict[str, Any], defined: tuple[str, ...]) -> int | None:
        """Run a parser; the number of the error that it stopped with."""
        for checksum in self.checksums:
            checksum.clear()
        error = None
        try:
            self._call(block, known)
        except Reject as reject:
            error = reject.error
        intrinsic = known.get(f"{_PREFIX[block.startswith('egress')]}_t")
        if intrinsic is not None and intrinsic.valid:
            for field in intrinsic.__slots__:
                if field.startswith("f_") and field not in defined:
                    setattr(intrinsic, field, UNDEFINED)  # clocks, queues
        return error

    @staticmethod
    def _dropped(control: Any) -> bool:
        """Whether a deparser lets nothing through. Refuses what else it may be asked for."""
        if control is None:
            return False
        for field in control.__slots__:
            if field != "f_drop_ctl" and getattr(control, field) != 0:
                raise RunRefused(f"{field[2:]} for the deparser")
        return bool(control.f_drop_ctl & 1)

    def _copies(self, manager: Any) -> Iterator[tuple[int, int]]:
        """Ports and replica ids of the copies."""
        for field in ("copy_to_cpu", "deflect_on_drop", "level2_exclusion_id"):
            if _told(manager, field):
                raise RunRefused(f"{field} for the traffic manager")
        if manager.f_ucast_egress_port is not UNSET:
            yield manager.f_ucast_egress_port, 0
        excluded = _told(manager, "level1_exclusion_id")
        for field in ("mcast_grp_a", "mcast_grp_b"):
            group = self.replication.groups.get(_told(manager, field))
            for replica in group.replicas if group else ():
                if replica.exclusion is None or replica.exclusion != excluded:
                    yield replica.port, replica.id

    def _leave(self, port: int, replica: int, data: bytes, manager: Any) -> Iterator[tuple[int, bytes]]:
        """A copy's way through egress."""
        if port is UNDEFINED:
            raise RunRefused("an undefined egress port")
        if _told(manager, "bypass_egress"):
            yield port, data
            return
        intrinsic = port.to_bytes(2, "big") + bytes(17) + replica.to_bytes(2, "big") + bytes(6)
        packet = PacketIn(intrinsic + data)
        known: dict[str, Any] = {"packet": packet}
        for want in self._fresh:
            if want.startswith(("egress_intrinsic_metadata_for", "egress_intrinsic_metadata_from")):
                known[want] = self._fresh[want]()
                if want.startswith("egress_intrinsic_metadata_for"):
                    known[want].zero()
        if self._parse("egress_parser", known, _FROM_EGRESS) is not None:
            raise RunRefused("an error of the egress parser")
        if "egress_intrinsic_metadata_from_parser_t" in known:
            known["egress_intrinsic_metadata_from_parser_t"].f_parser_err = 0
        self._call("egress", known)
        if self._dropped(known.get("egress_intrinsic_metadata_for_deparser_t")):
            return
        known["packet"] = parts = []
        self._call("egress_deparser", known)
        yield port, b"".join(parts) + packet.rest()

    # externs that are functions

    def max(self, one: int, other: int) -> int:
        """The larger."""
        return one if one >= other else other

    def min(self, one: int, other: int) -> int:
        """The smaller."""
        return one if one <= other else other


def _told(manager: Any, field: str) -> Any:
    """What the traffic manager is told; 0 where nothing."""
    value = getattr(manager, f"f_{field}")
    if value is UNDEFINED:
        raise RunRefused(f"an undefined {field} for the traffic manager")
    return 0 if value is UNSET else value


def _wanted(block: Any) -> list[str]:
    """What a block's parameters are for: its own are headers and metadata, in this order."""
    own = iter(("headers", "metadata"))
    result = []
    for parameter in block.node.parameters:
        kind = parameter.type
        if isinstance(kind, types.External):
            result.append("packet")
        elif isinstance(kind, types.Record) and kind.name.startswith(_PREFIX):
            result.append(kind.name)
        else:
            result.append(next(own))
    return result


def mentions(node: Any, name: str) -> bool:
    """Whether a member of this name is written anywhere in a block, or in those that it has instances of."""
    if isinstance(node, ast.Member) and node.name == name:
        return True
    if isinstance(node, ast.Instance) and isinstance(node.type, types.Block):
        return mentions(node.type.declaration, name)
    if isinstance(node, list):
        return any(mentions(item, name) for item in node)
    if not is_dataclass(node) or isinstance(node, types.Type):
        return False
    inner = (getattr(node, field.name) for field in fields(node) if field.name not in ("target", "type", "callee", "owner"))
    return any(mentions(item, name) for item in inner if isinstance(item, list | ast.Node))


def _only_packets(kind: str) -> None:
    if kind != "PACKETS":
        raise RunRefused(f"a counter of {kind}")
