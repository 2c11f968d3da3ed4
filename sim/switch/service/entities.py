"""P4Runtime's entities of a running embedded switch: reads and writes of controllers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from finsy.proto import p4r, rpc_code

from fanin.p4.control import MulticastGroup, Replica
from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.runtime import GROUP_BITS, REPLICA_BITS, Session
from fanin.sim.switch.service.ageing import Ageing
from fanin.sim.switch.service.calls import Steps
from fanin.sim.switch.service.data import counter_data, decode, encode, indices, number_in, shortest
from fanin.sim.switch.service.digests import Digests
from fanin.sim.switch.service.faults import Fault, invalid, unimplemented, unknown
from fanin.sim.switch.service.meters import Meters
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.profiles import Profiles
from fanin.sim.switch.service.tables import TableEntries

M = TypeVar("M", p4r.MulticastGroupEntry, p4r.CloneSessionEntry)
MAX_REPLICATION_BYTES = 1 << 23  #: maximum bytes of all groups and clone sessions, as messages
MAX_SESSIONS = 1 << 15  #: maximum clone sessions, as in BMv2; an empty one takes a few bytes as a message
_PORT_BITS = 9
_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class Entities:
    """Carries out updates on ``switch`` and reads from it, by the ids of ``names``. Calls raise Fault.

    - ``send``: sends a message to the primary controller.
    - ``wake``: gets the time at which :meth:`run` is due.
    """

    def __init__(
        self,
        switch: Switch,
        names: Names,
        send: Callable[[p4r.StreamMessageResponse], bool],
        wake: Callable[[float], None],
    ):
        self._switch = switch
        self._names = names
        self.profiles = Profiles(switch, names)
        self._tables = TableEntries(switch, names, self.profiles)
        self._meters = Meters(names, self._tables)
        self._ageing = Ageing(switch, self._tables, send)
        self.digests = Digests(switch.program, names, send, wake)
        switch.listen(self.digests.receive)
        self._wake = wake
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}  # in the controller's form
        self._replication_bytes = 0  # of groups and sessions
        self._writers: dict[str, Callable[[int, Any], Iterator[bool] | None]] = {
            "table_entry": self._tables.write,
            "action_profile_member": self.profiles.write_member,
            "action_profile_group": self.profiles.write_group,
            "packet_replication_engine_entry": self._write_replication,
            "counter_entry": self._write_counter,
            "direct_counter_entry": self._tables.write_counter,
            "meter_entry": self._meters.write,
            "direct_meter_entry": self._meters.write_direct,
            "register_entry": self._write_register,
            "digest_entry": self.digests.write,
        }
        self._readers: dict[str, Callable[[Any], Iterator[p4r.Entity | None]]] = {
            "table_entry": self._tables.read,
            "action_profile_member": self.profiles.read_members,
            "action_profile_group": self.profiles.read_groups,
            "packet_replication_engine_entry": self._read_replication,
            "counter_entry": self._read_counters,
            "direct_counter_entry": self._tables.read_counters,
            "meter_entry": self._meters.read,
            "direct_meter_entry": self._meters.read_direct,
            "register_entry": self._read_registers,
            "digest_entry": self.digests.read,
            "value_set_entry": lambda query: _none_of("value set", query.value_set_id),
            "extern_entry": lambda query: _none_of("extern type", query.extern_type_id),
        }

    def write(self, update: p4r.Update) -> Iterator[bool]:
        """Carry out one update in steps, wholly or not at all; packets see no change before the last step."""
        kind = update.entity.WhichOneof("entity")
        if kind is None:
            raise invalid("an update without an entity")
        if kind not in self._writers:
            raise unimplemented(f"writing {kind} is not implemented")
        if update.type not in (_INSERT, _MODIFY, _DELETE):
            raise invalid("an update without a type")
        try:
            yield from self._writers[kind](update.type, getattr(update.entity, kind)) or ()
        except ValueError as error:
            raise invalid(str(error)) from error
        if kind == "table_entry" and update.entity.table_entry.idle_timeout_ns:
            self._ageing.wake()
            self._wake(time.monotonic())

    def run(self) -> float:
        """Send the controller all notices that are due; return the time of the next one."""
        return min(self.digests.run(), self._ageing.run())

    def read(self, entity: p4r.Entity) -> Iterator[p4r.Entity | None]:
        """Yield the entities that match ``entity``; 0 or nothing in a field matches all.

        None is a step without a result.
        """
        kind = entity.WhichOneof("entity")
        if kind is None:
            raise invalid("a read without an entity type")
        if kind not in self._readers:
            raise unimplemented(f"reading {kind} is not implemented")
        try:
            yield from self._readers[kind](getattr(entity, kind))
        except ValueError as error:
            raise invalid(str(error)) from error

    # counters

    def _write_counter(self, kind: int, message: p4r.CounterEntry) -> Iterator[bool] | None:
        if kind != _MODIFY:
            raise invalid("a counter is modified, not inserted or deleted")
        info = self._names.extern("counters", message.counter_id)
        cells = indices(message, info.size)
        if not message.HasField("data"):
            return None
        values = message.data.packet_count, message.data.byte_count
        if not message.HasField("index"):
            return self._switch.fill_counter(info.preamble.name, *values)
        self._switch.set_counter(info.preamble.name, cells.start, *values)
        return None

    def _read_counters(self, query: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        for info in self._names.select_externs("counters", query.counter_id):
            for index in indices(query, info.size) if query.counter_id else range(info.size):
                data = counter_data(*self._switch.counter(info.preamble.name, index))
                yield p4r.Entity(
                    counter_entry=p4r.CounterEntry(
                        counter_id=info.preamble.id, index=p4r.Index(index=index), data=data
                    )
                )

    # registers

    def _write_register(self, kind: int, message: p4r.RegisterEntry) -> Iterator[bool] | None:
        if kind != _MODIFY:
            raise invalid("a register is modified, not inserted or deleted")
        info = self._names.extern("registers", message.register_id)
        register = self._switch.registers[info.preamble.name]
        value = decode(message.data, register.types[0], self._switch.program.errors)
        cells = indices(message, len(register))
        if not message.HasField("index"):
            return register.fill(value)
        register[cells.start] = value
        return None

    def _read_registers(self, query: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        for info in self._names.select_externs("registers", query.register_id):
            register = self._switch.registers[info.preamble.name]
            for index in indices(query, len(register)) if query.register_id else range(len(register)):
                yield p4r.Entity(
                    register_entry=p4r.RegisterEntry(
                        register_id=info.preamble.id,
                        index=p4r.Index(index=index),
                        data=encode(register[index], register.types[0], self._switch.program.errors),
                    )
                )

    # multicast groups and clone sessions

    def _write_replication(self, kind: int, message: p4r.PacketReplicationEngineEntry) -> Iterator[bool]:
        if message.WhichOneof("type") == "clone_session_entry":
            yield from self._write_session(kind, message.clone_session_entry)
            return
        group = message.multicast_group_entry
        number = group.multicast_group_id
        subject = f"multicast group {number}"
        _check_presence(kind, number, number in self._switch.multicast_groups, subject)
        if kind == _DELETE:
            self._switch.delete_multicast_group(number)
            self._store(self._groups, number, None)
        else:
            _check_width(number, GROUP_BITS, subject)
            replicas = yield from self._replicas(group.replicas, subject)
            stored: p4r.MulticastGroupEntry = yield from _canonical_copy(group)
            self._check_room(subject, stored)
            self._switch.set_multicast_group(MulticastGroup(number, replicas))
            self._store(self._groups, number, stored)

    def _write_session(self, kind: int, session: p4r.CloneSessionEntry) -> Iterator[bool]:
        number = session.session_id
        subject = f"clone session {number}"
        _check_presence(kind, number, number in self._switch.clone_sessions, subject)
        if kind == _DELETE:
            self._switch.delete_clone_session(number)
            self._store(self._sessions, number, None)
            return
        if session.packet_length_bytes:
            raise unimplemented(f"{subject}: cutting clones is not implemented")
        replicas = yield from self._replicas(session.replicas, subject)
        stored = yield from _canonical_copy(session)
        self._check_room(subject, stored)
        if kind == _INSERT and len(self._switch.clone_sessions) >= MAX_SESSIONS:
            raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{subject}: there are {MAX_SESSIONS} sessions at most")
        self._switch.set_clone_session(number, replicas=replicas)
        self._store(self._sessions, number, stored)

    def _check_room(self, subject: str, message: M) -> None:
        """Raise Fault if groups and sessions would take too much memory."""
        if self._replication_bytes + message.ByteSize() > MAX_REPLICATION_BYTES:
            raise Fault(
                rpc_code.RESOURCE_EXHAUSTED,
                f"{subject}: groups and sessions have {MAX_REPLICATION_BYTES} bytes together at most",
            )

    def _store(self, store: dict[int, M], number: int, message: M | None) -> None:
        """Store a group or session for reads, in place of an earlier one; None removes it."""
        old = store.get(number)
        if old is not None:
            self._replication_bytes -= old.ByteSize()
        if message is None:
            store.pop(number, None)
        else:
            self._replication_bytes += message.ByteSize()
            store[number] = message

    def _replicas(self, messages: Any, subject: str) -> Steps[tuple[Replica, ...]]:
        """Return the destinations of copies. Raises Fault if one is impossible or equals another."""
        replicas = []
        for message in messages:
            if message.backup_replicas:
                raise unimplemented(f"{subject}: backup replicas are not implemented")
            port = message.egress_port
            if message.WhichOneof("port_kind") == "port":
                port = number_in(message.port, _PORT_BITS, f"{subject}: port")
            if port not in self._switch.ports:
                raise invalid(f"{subject}: there is no port {port}")
            _check_width(message.instance, REPLICA_BITS, f"{subject}: instance")
            replicas.append(Replica(port, message.instance))
            yield True
        if len({(replica.port, replica.id) for replica in replicas}) < len(replicas):
            raise invalid(f"{subject}: a port twice with one instance")
        return tuple(replicas)

    def _read_replication(self, query: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        kind = query.WhichOneof("type")
        groups, sessions = self._switch.multicast_groups, self._switch.clone_sessions
        if kind != "clone_session_entry":
            number = query.multicast_group_entry.multicast_group_id
            for group_id in list(groups) if not number else [number]:
                if group_id in groups:  # it may have been deleted between two steps
                    message = self._groups.get(group_id) or _encode_group(groups[group_id])
                    entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
                    yield p4r.Entity(packet_replication_engine_entry=entry)
        if kind != "multicast_group_entry":
            number = query.clone_session_entry.session_id
            for session_id in list(sessions) if not number else [number]:
                if session_id in sessions:
                    copy = self._sessions.get(session_id) or _encode_session(session_id, sessions[session_id])
                    entry = p4r.PacketReplicationEngineEntry(clone_session_entry=copy)
                    yield p4r.Entity(packet_replication_engine_entry=entry)


def _canonical_copy(message: M) -> Steps[M]:
    """Return a copy of a group or session in the form of reads: ports have the fewest bytes that hold them."""
    copy = type(message).FromString(message.SerializeToString())
    for replica in copy.replicas:
        if replica.WhichOneof("port_kind") == "port":
            replica.port = shortest(replica.port)
        yield True
    return copy


def _check_width(number: int, bits: int, subject: str) -> None:
    if number >> bits:
        raise invalid(f"{subject}: {number} does not fit in {bits} bits")


def _encode_group(group: MulticastGroup) -> p4r.MulticastGroupEntry:
    return p4r.MulticastGroupEntry(multicast_group_id=group.id, replicas=_encode_replicas(group.replicas))


def _encode_session(number: int, session: Session) -> p4r.CloneSessionEntry:
    return p4r.CloneSessionEntry(session_id=number, replicas=_encode_replicas(session.replicas))


def _encode_replicas(replicas: Iterable[Replica]) -> list[p4r.Replica]:
    return [p4r.Replica(egress_port=replica.port, instance=replica.id) for replica in replicas]


def _check_presence(kind: int, number: int, present: bool, subject: str) -> None:
    if not number:
        raise invalid(f"{subject}: 0 means none")
    if kind == _INSERT and present:
        raise Fault(rpc_code.ALREADY_EXISTS, f"{subject} exists")
    if kind != _INSERT and not present:
        raise unknown(f"there is no {subject}")


def _none_of(kind: str, number: int) -> Iterator[p4r.Entity]:
    """Return no entities, since the switch has none of ``kind``. Raises Fault if ``number`` asks for one."""
    if number:
        raise unknown(f"there is no {kind} with the id {number}")
    return iter(())
