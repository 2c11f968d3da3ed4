"""The v1model architecture: behaviour of BMv2's simple_switch around the program's parser and controls."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, ClassVar, NamedTuple

from fanin.p4.control import Replica
from fanin.sim.switch.embedded import types
from fanin.sim.switch.embedded.budget import Budget, refuse_late
from fanin.sim.switch.embedded.checksums import as_bytes, csum16, digest_of
from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined
from fanin.sim.switch.embedded.lexer import integer
from fanin.sim.switch.embedded.packet import PacketIn
from fanin.sim.switch.embedded.profiles import Profile
from fanin.sim.switch.embedded.runtime import (
    MAX_PASSES,
    CounterArray,
    ExternObject,
    RegisterArray,
    Replication,
    Session,
    callable_names,
    run_block,
    takes_widths,
)
from fanin.sim.switch.embedded.values import UNDEFINED, Reject

DROP_PORT = 511
_TIME = (1 << 48) - 1
_NO_LIMIT = 1 << 32  # bytes; a length that cuts no frame
# Values of ``instance_type``.
NORMAL, INGRESS_CLONE, EGRESS_CLONE, _, RECIRCULATED, REPLICATED, RESUBMITTED = range(7)


class Register(RegisterArray):
    """``register``."""

    methods = callable_names("read write")

    def read(self, index: int) -> Any:
        """Return the value; undefined beyond the end."""
        if index is UNDEFINED:
            raise RunUndefined(f"an undefined index of register {self.name}")
        if index >= len(self.values):
            return (
                UNDEFINED if isinstance(self.kind, types.Bits) or self.kind == types.BOOL else self.makers[0]()
            )
        value = self.values[index]
        return value.copy() if hasattr(value, "copy") else value

    def write(self, index: int, value: Any) -> None:
        """Set a value; ignore an index beyond the end."""
        if index is UNDEFINED:
            raise RunUndefined(f"an undefined index of register {self.name}")
        if index < len(self.values):
            self.values[index] = value.copy() if hasattr(value, "copy") else value
            self.trace_write(index, value)


class DirectCounter(ExternObject):
    """``direct_counter``; counts every hit of its table automatically."""

    methods = callable_names("count")

    def __init__(self, _kind: str, **extern: Any):
        super().__init__(**extern)

    def hit(self, entry: Any) -> None:
        """Count a packet in the entry that it ran."""
        if entry.hit:
            entry.packets += 1
            entry.bytes += self.arch.frame_length

    def count(self) -> None:
        """Do nothing for the program's ``count``, since the hit is already counted."""


class Meter(ExternObject):
    """``meter`` and ``direct_meter``, which have no rates here: every packet is green."""

    methods = callable_names("execute_meter read")

    def __init__(self, *_: Any, **extern: Any):
        super().__init__(**extern)

    def execute_meter(self, _index: int) -> int:
        """Return green."""
        return 0

    def read(self) -> int:
        """Return green."""
        return 0


class _Copy(NamedTuple):
    """A packet before egress, with its egress port."""

    port: int
    headers: Any
    metadata: Any
    standard: Any
    payload: bytes
    length: int
    max_length: int = _NO_LIMIT  # bytes that leave (truncate)


class V1Model(Budget):
    """A running v1model switch: externs that are functions, and the path of a packet."""

    name = "v1model"
    package = "V1Switch"
    externs: ClassVar = {
        "register": Register, "counter": CounterArray, "direct_counter": DirectCounter, "meter": Meter,
        "direct_meter": Meter, "action_profile": Profile, "action_selector": Profile,
    }  # fmt: skip
    functions: ClassVar = {
        **callable_names(
            "mark_to_drop clone clone_preserving_field_list resubmit_preserving_field_list digest hash random "
            "recirculate_preserving_field_list truncate log_msg assume verify_checksum update_checksum "
            "verify_checksum_with_payload update_checksum_with_payload"
        ),
        "assert": "assert_",
    }

    @staticmethod
    def constants(blocks: list[Any]) -> dict[str, Any]:
        """Return constants for the generated text: the metadata fields of each field list."""
        return {"FIELD_LISTS": _field_lists(blocks[0].node.parameters[2].type)}

    @staticmethod
    def made_types(blocks: list[Any]) -> list[Any]:
        """Return the types of headers, metadata and standard metadata; each packet needs a value of each."""
        return [parameter.type for parameter in blocks[0].node.parameters[1:]]

    def __init__(self) -> None:
        self.replication = Replication()
        self.sessions: dict[int, Session] = {}
        self.clock: Callable[[], int] | None = None  #: microseconds; without one, times are undefined
        self.on_digest: Callable[[str, Any], None] = _ignore_digest  #: gets each digest's name and values
        self._generator = random.Random(0)
        self.lost_clones: Counter[int] = Counter()  #: to sessions that are not configured, by session
        self.frame_length = 0
        self.drops: list[str] = []  #: reasons why copies of the last packet did not leave
        self._departures: list[tuple[int, bytes]] = []
        self._work: deque[tuple[Any, ...]] = deque()  # passes of the frame still to do: (method, *arguments)
        self._passes = 0
        self._clear()

    def start(self, names: dict[str, Any]) -> None:
        """Store the generated objects in ``names``: six blocks, constructors of headers and metadata."""
        self._parse, self._verify, self._ingress, self._egress, self._compute, self._deparse = names["BLOCKS"]
        self._headers, self._metadata, self._standard = names["MAKERS"]
        self._lists: dict[int, list[tuple[str, ...]]] = names["FIELD_LISTS"]

    def _clear(self) -> None:
        """Clear the requests of the program in a pass, which the switch carries out at the end of the pass.

        The last part of a request for a clone, resubmission or recirculation is the field list to preserve.
        """
        self._clone: tuple[str, int, int | None] | None = None
        self._resubmit: tuple[int | None] | None = None
        self._recirculate: tuple[int | None] | None = None
        self._checksum_error = 0
        self._max_length = _NO_LIMIT

    # the path of a packet

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that leave, with their ports, after ``frame`` enters at ``port``."""
        self._departures, self.drops = [], []
        self.renew()
        deadline = self.deadline
        self._work.clear()
        self._passes = 0
        self._queue_ingress(frame, port, NORMAL, None)
        while self._work:
            self._passes += 1
            if self._passes > MAX_PASSES:
                raise RunRefused(f"more than {MAX_PASSES} passes of one frame: copied or sent back without end")
            if monotonic_ns() > deadline:
                refuse_late()
            step, *arguments = self._work.popleft()
            step(*arguments)
        return self._departures

    def _queue_ingress(self, frame: bytes, port: Any, kind: int, metadata: Any) -> None:
        self._work.append((self._do_ingress, frame, port, kind, metadata))

    def _parse_frame(self, frame: bytes, port: Any, kind: int, metadata: Any) -> tuple[Any, Any, Any, PacketIn]:
        """Return headers, metadata, standard metadata and packet after parser and checksum verification."""
        headers, standard = self._headers(), self._standard()
        if metadata is None:
            metadata = self._metadata()
            metadata.zero()
        standard.zero()
        standard.f_ingress_port = port
        standard.f_instance_type = kind
        standard.f_packet_length = self.frame_length = len(frame)
        standard.f_egress_port = UNDEFINED  # not yet known
        standard.f_ingress_global_timestamp = UNDEFINED if self.clock is None else self.clock() & _TIME
        standard.f_egress_global_timestamp = UNDEFINED
        standard.f_enq_timestamp = standard.f_enq_qdepth = UNDEFINED
        standard.f_deq_timedelta = standard.f_deq_qdepth = UNDEFINED
        self.packet = packet = PacketIn(frame)
        self._clear()
        try:
            self._parse(packet, headers, metadata, standard)
        except Reject as reject:
            standard.f_parser_error = reject.error
        run_block(self._verify, headers, metadata)
        standard.f_checksum_error = self._checksum_error
        return headers, metadata, standard, packet

    def _do_ingress(self, frame: bytes, port: Any, kind: int, preserved: Any) -> None:
        headers, metadata, standard, packet = self._parse_frame(frame, port, kind, preserved)
        run_block(self._ingress, headers, metadata, standard)
        max_length = self._max_length
        if self._clone is not None or self._resubmit is not None or standard.f_mcast_grp != 0:
            _refuse_truncated(max_length)
        if self._clone is not None:
            self._clone_ingress(frame, port, metadata)
        if self._resubmit is not None:
            self._queue_ingress(
                frame, UNDEFINED, RESUBMITTED, self._preserve_fields(metadata, self._resubmit[0])
            )
            return
        group, target = standard.f_mcast_grp, standard.f_egress_spec
        if group != 0:
            standard.f_instance_type = REPLICATED
            self._multicast(group, _Copy(0, headers, metadata, standard, packet.remainder(), len(frame)))
        elif target != DROP_PORT:
            standard.f_instance_type = NORMAL
            self._send(
                _Copy(target, headers, metadata, standard, packet.remainder(), len(frame), max_length), 0
            )
        else:
            self.drops.append(f"ingress sends it to the drop port, {DROP_PORT}")

    def _send(self, copy: _Copy, replica: int) -> None:
        if copy.port is UNDEFINED:
            raise RunUndefined("an undefined egress port")
        self._work.append((self._do_egress, copy, replica))

    def _multicast(self, group: int, copy: _Copy) -> None:
        """Send a copy for each replica of a group, or none if the group is not installed."""
        members = self.replication.groups.get(group)
        if not members or not members.replicas:
            self.drops.append(f"multicast group {group} has no members")
            return
        self._replicate(members.replicas, copy)

    def _replicate(self, replicas: Sequence[Replica], copy: _Copy) -> None:
        for replica in replicas:
            replica_copy = copy._replace(
                port=replica.port, headers=copy.headers.copy(), metadata=copy.metadata.copy(),
                standard=copy.standard.copy(),
            )  # fmt: skip
            self._send(replica_copy, replica.id)

    def _do_egress(self, copy: _Copy, replica: int) -> None:
        headers, metadata, standard = copy.headers, copy.metadata, copy.standard
        standard.f_egress_port = copy.port
        standard.f_egress_rid = replica
        standard.f_egress_spec = UNDEFINED
        if self.clock is not None:  # there is no queue, so no packet waits
            now = self.clock()
            standard.f_egress_global_timestamp, standard.f_enq_timestamp = now & _TIME, now & 0xFFFFFFFF
            standard.f_enq_qdepth = standard.f_deq_qdepth = standard.f_deq_timedelta = 0
        standard.f_packet_length = self.frame_length = copy.length
        self._clear()
        self._max_length = copy.max_length
        run_block(self._egress, headers, metadata, standard)
        max_length = self._max_length
        if self._clone is not None or self._recirculate is not None:
            _refuse_truncated(max_length)
        if self._clone is not None:
            self._clone_egress(copy)
        if standard.f_egress_spec is not UNDEFINED and standard.f_egress_spec == DROP_PORT:
            self.drops.append(f"egress sends it to the drop port, {DROP_PORT}")
            return
        recirculate = self._recirculate
        self._payload = copy.payload
        run_block(self._compute, headers, metadata)
        parts: list[bytes] = []
        run_block(self._deparse, parts, headers)
        frame = b"".join(parts) + copy.payload
        if recirculate is not None:
            self._queue_ingress(frame, UNDEFINED, RECIRCULATED, self._preserve_fields(metadata, recirculate[0]))
        else:
            self._departures.append((copy.port, frame[:max_length]))

    # clones

    def _preserve_fields(self, metadata: Any, number: int | None) -> Any:
        """Return new metadata, 0 except for the fields of field list ``number``."""
        fresh = self._metadata()
        fresh.zero()
        for path in self._lists.get(number, []) if number is not None else []:
            source, target = metadata, fresh
            for name in path[:-1]:
                source, target = getattr(source, name), getattr(target, name)
            value = getattr(source, path[-1])
            if hasattr(value, "set"):
                getattr(target, path[-1]).set(value)
            else:
                setattr(target, path[-1], value)
        return fresh

    def _clone_ingress(self, frame: bytes, port: Any, metadata: Any) -> None:
        assert self._clone is not None
        kind, session, fields = self._clone
        if kind != "I2E":
            raise RunRefused("clone of the kind E2E in ingress")
        preserved = self._preserve_fields(metadata, fields)
        resubmit = self._resubmit
        headers, _, standard, packet = self._parse_frame(frame, port, INGRESS_CLONE, None)
        self._resubmit = resubmit
        self._clear_standard(standard, INGRESS_CLONE)
        self._clone_to_session(session, _Copy(0, headers, preserved, standard, packet.remainder(), len(frame)))

    def _clone_egress(self, copy: _Copy) -> None:
        assert self._clone is not None
        kind, session, fields = self._clone
        if kind != "E2E":
            raise RunRefused("clone of the kind I2E in egress")
        standard = self._standard()
        standard.zero()
        self._clear_standard(standard, EGRESS_CLONE)
        preserved = self._preserve_fields(copy.metadata, fields)
        self._clone_to_session(
            session, copy._replace(headers=copy.headers.copy(), metadata=preserved, standard=standard)
        )

    @staticmethod
    def _clear_standard(standard: Any, kind: int) -> None:
        """Clear a clone's standard metadata, as simple_switch does, contrary to its documentation."""
        for field in standard.__slots__:
            setattr(standard, field, UNDEFINED)
        standard.f_instance_type = kind

    def _clone_to_session(self, session: int, copy: _Copy) -> None:
        if session is UNDEFINED:
            raise RunUndefined("a clone to an undefined session")
        destinations = self.sessions.get(session)
        if destinations is None:
            self.lost_clones[session] += 1
            self.drops.append(f"a clone: nobody has configured clone session {session}")
            return
        if destinations.group is not None:
            self._multicast(destinations.group, copy)
        self._replicate(destinations.replicas, copy)

    # externs that are functions

    def mark_to_drop(self, standard: Any) -> None:
        """Drop the packet, unless the program sets another port later."""
        standard.f_egress_spec = DROP_PORT
        standard.f_mcast_grp = 0

    def clone(self, kind: str, session: int) -> None:
        """Clone without metadata."""
        self._clone = (kind, session, None)

    def clone_preserving_field_list(self, kind: str, session: int, fields: int) -> None:
        """Clone with the metadata of a field list."""
        self._clone = (kind, session, fields)

    def resubmit_preserving_field_list(self, fields: int) -> None:
        """Send the original frame through ingress again."""
        self._resubmit = (fields,)

    def recirculate_preserving_field_list(self, fields: int) -> None:
        """Send the departing frame through ingress again."""
        self._recirculate = (fields,)

    def digest(self, name: str, data: Any) -> None:
        """Send a message to the control plane with the present values, structs as tuples."""
        if _has_undefined(data):
            raise RunUndefined("an undefined value in a digest")
        self.on_digest(name, data)

    @takes_widths
    def hash(self, algorithm: str, base: int, data: tuple[int, int], size: int, widths: tuple[int, ...]) -> int:
        """Return a hash from ``base`` to ``base + size - 1``."""
        if size is UNDEFINED:
            raise RunUndefined("a hash into an undefined range")
        if size == 0:
            raise RunRefused("a hash into an empty range")
        return (base + digest_of(algorithm, data) % size) & ((1 << widths[0]) - 1)

    def verify_checksum(self, condition: Any, data: tuple[int, int], checksum: int, algorithm: str) -> None:
        """Record a wrong checksum."""
        if condition and digest_of(algorithm, data) != checksum:
            self._checksum_error = 1

    def verify_checksum_with_payload(
        self, condition: Any, data: tuple[int, int], checksum: int, algorithm: str
    ) -> None:
        """Record a wrong checksum over data and payload."""
        if condition:
            _only_csum16(algorithm)
            if csum16(as_bytes(data) + self.packet.remainder()) != checksum:
                self._checksum_error = 1

    @takes_widths
    def update_checksum(
        self, condition: Any, data: tuple[int, int], checksum: int, algorithm: str, widths: tuple[int, ...]
    ) -> int:
        """Return the checksum, cut to the width of its field, or without ``condition`` the old value."""
        return digest_of(algorithm, data) & ((1 << widths[2]) - 1) if condition else checksum

    @takes_widths
    def update_checksum_with_payload(
        self, condition: Any, data: tuple[int, int], checksum: int, algorithm: str, widths: tuple[int, ...]
    ) -> int:
        """Return the checksum over data and payload, or without ``condition`` the old value."""
        if not condition:
            return checksum
        _only_csum16(algorithm)
        return csum16(as_bytes(data) + self._payload) & ((1 << widths[2]) - 1)

    def random(self, low: int, high: int) -> Any:
        """Return a number from ``low`` to ``high``; each switch has the same sequence."""
        if low is UNDEFINED or high is UNDEFINED:
            raise RunUndefined("a random number in an undefined range")
        return self._generator.randint(low, high) if low <= high else UNDEFINED

    def truncate(self, length: int) -> None:
        """Limit the packet to ``length`` bytes; the smallest of several calls applies."""
        if length is UNDEFINED:
            raise RunUndefined("truncate to an undefined length")
        self._max_length = min(self._max_length, length)

    def log_msg(self, *_: Any) -> None:
        """Do nothing; the trace has more information."""

    def assert_(self, holds: Any) -> None:
        """Stop the run if an assertion of the program fails."""
        if not holds:
            raise RunRefused("an assertion of the program that does not hold")

    assume = assert_


def _ignore_digest(_name: str, _data: Any) -> None:
    """Do nothing with a digest: no controller listens."""


def _refuse_truncated(max_length: int) -> None:
    """Raise RunRefused for a copy of a truncated packet, whose payload BMv2 cuts without the parsed headers."""
    if max_length < _NO_LIMIT:
        raise RunRefused("a clone, replica or second pass of a packet that was truncated")


def _only_csum16(algorithm: str) -> None:
    if algorithm != "csum16":
        raise RunRefused(f"a checksum over the payload with {algorithm}")


def _has_undefined(data: Any) -> bool:
    return any(map(_has_undefined, data)) if isinstance(data, tuple) else data is UNDEFINED


def _field_lists(metadata: Any, path: tuple[str, ...] = ()) -> dict[int, list[tuple[str, ...]]]:
    """Return the fields that ``@field_list(n)`` names, by n."""
    lists: dict[int, list[tuple[str, ...]]] = {}
    kind = types.base_of(metadata)
    if not isinstance(kind, types.Record) or kind.kind != "struct":
        return lists
    for field in kind.declaration.fields:
        field_path = (*path, f"f_{field.name}")
        for token in field.annotations.get("field_list", []):
            if token.type == "INT":
                lists.setdefault(integer(token)[0], []).append(field_path)
        for number, paths in _field_lists(kind.fields[field.name], field_path).items():
            lists.setdefault(number, []).extend(paths)
    return lists
