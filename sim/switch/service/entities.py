"""P4Runtime's entities of a running embedded switch: what a controller writes and reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from finsy.proto import p4d, p4r, rpc_code

from fanin.p4.control import MulticastGroup, Replica, TableEntry
from fanin.sim.switch.embedded import Switch, types
from fanin.sim.switch.embedded.tables import Entry, Table
from fanin.sim.switch.service.faults import Fault, invalid, missing, unknown
from fanin.sim.switch.service.names import Names

_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
_OF_TERNARY = "its entries have a priority above 0"


class Entities:
    """Carries out updates on ``switch``, and reads from it, by the ids of ``names``. Calls raise Fault."""

    def __init__(self, switch: Switch, names: Names):
        self._switch = switch
        self._names = names
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}
        self._writers: dict[str, Callable[[int, Any], None]] = {
            "table_entry": self._write_entry,
            "packet_replication_engine_entry": self._write_replication,
            "counter_entry": self._write_counter,
            "direct_counter_entry": self._write_direct_counter,
            "register_entry": self._write_register,
        }
        self._readers: dict[str, Callable[[Any], Iterator[p4r.Entity]]] = {
            "table_entry": self._read_entries,
            "packet_replication_engine_entry": self._read_replication,
            "counter_entry": self._read_counters,
            "direct_counter_entry": self._read_direct_counters,
            "register_entry": self._read_registers,
        }

    def write(self, update: p4r.Update) -> None:
        """Carry out one update, or nothing of it."""
        kind = update.entity.WhichOneof("entity")
        if kind not in self._writers:
            raise missing(f"writing {kind} is not implemented")
        if update.type not in (_INSERT, _MODIFY, _DELETE):
            raise invalid("an update of no type")
        try:
            self._writers[kind](update.type, getattr(update.entity, kind))
        except ValueError as error:
            raise invalid(str(error)) from error

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        """What matches ``entity``: 0 or nothing in a field stands for all."""
        kind = entity.WhichOneof("entity")
        if kind not in self._readers:
            raise missing(f"reading {kind} is not implemented")
        try:
            return list(self._readers[kind](getattr(entity, kind)))
        except ValueError as error:
            raise invalid(str(error)) from error

    # tables

    def _write_entry(self, kind: int, message: p4r.TableEntry) -> None:
        entry = self._names.decoded(message)
        table = self._switch.table(entry.table)
        if message.HasField("meter_config"):
            raise missing(f"table {entry.table}: meters are green here, and take no rates")
        if message.is_default_action:
            self._write_default(kind, entry, message)
            return
        if table.by_priority != (entry.priority > 0):
            raise invalid(
                f"table {entry.table}: {_OF_TERNARY if table.by_priority else 'priorities mean nothing here'}"
            )
        present = table.find_entry(entry.match, entry.priority)
        if kind == _DELETE:
            if present is None:
                raise unknown(f"table {entry.table} has no such entry")
            self._switch.delete(entry)
            return
        if not entry.action:
            raise invalid(f"table {entry.table}: an entry without an action")
        if kind == _MODIFY:
            if present is None:
                raise unknown(f"table {entry.table} has no such entry")
            self._switch.modify(entry)
        else:
            if present is not None:
                raise Fault(rpc_code.ALREADY_EXISTS, f"table {entry.table} has this entry")
            if len(table) >= table.info.size:
                raise Fault(
                    rpc_code.RESOURCE_EXHAUSTED, f"table {entry.table} is full: {table.info.size} entries"
                )
            self._switch.insert(entry)
        made = table.entry(entry.match, entry.priority)
        made.note = message.metadata
        if message.HasField("counter_data"):
            self._set_direct(table, made, message.counter_data)

    def _write_default(self, kind: int, entry: TableEntry, message: p4r.TableEntry) -> None:
        if kind != _MODIFY or message.match or message.priority:
            raise invalid(
                f"table {entry.table}: a default action is modified, and has no match and no priority"
            )
        if entry.action:
            self._switch.set_default(entry.table, entry.action, entry.parameters)
        else:
            self._switch.table(entry.table).reset_default()

    def _read_entries(self, wanted: p4r.TableEntry) -> Iterator[p4r.Entity]:
        numbers = [wanted.table_id] if wanted.table_id else list(self._names.tables)
        for number in numbers:
            table = self._switch.table(self._names.table(number).preamble.name)
            if wanted.is_default_action:
                yield p4r.Entity(table_entry=self._encoded(table, table.default, wanted))
                continue
            for entry in self._matching(table, wanted):
                yield p4r.Entity(table_entry=self._encoded(table, entry, wanted))

    def _matching(self, table: Table, wanted: p4r.TableEntry) -> list[Entry]:
        if not wanted.match:
            return [e for e in table.entries() if not wanted.priority or e.priority == wanted.priority]
        entry = self._names.decoded(wanted)
        found = table.find_entry(entry.match, entry.priority)
        return [] if found is None else [found]

    def _encoded(self, table: Table, entry: Entry, wanted: p4r.TableEntry) -> p4r.TableEntry:
        message = self._names.encoded(table.described(entry))
        message.is_default_action = not entry.hit
        message.is_const = entry.constant
        message.metadata = entry.note
        if wanted.HasField("counter_data") and table.info.counters and entry.hit:
            message.counter_data.packet_count, message.counter_data.byte_count = entry.packets, entry.bytes
        return message

    # counters

    def _set_direct(self, table: Table, entry: Entry, data: p4r.CounterData) -> None:
        if not table.info.counters:
            raise invalid(f"table {table.info.name} has no direct counter")
        entry.packets, entry.bytes = data.packet_count, data.byte_count

    def _write_direct_counter(self, kind: int, message: p4r.DirectCounterEntry) -> None:
        if kind != _MODIFY:
            raise invalid("a direct counter is modified, not inserted or deleted")
        entry = self._names.decoded(message.table_entry)
        table = self._switch.table(entry.table)
        found = table.find_entry(entry.match, entry.priority)
        if found is None:
            raise unknown(f"table {entry.table} has no such entry")
        self._set_direct(table, found, message.data)

    def _read_direct_counters(self, wanted: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
        entry = wanted.table_entry
        for number in [entry.table_id] if entry.table_id else list(self._names.tables):
            table = self._switch.table(self._names.table(number).preamble.name)
            if not table.info.counters:
                if entry.table_id:
                    raise invalid(f"table {table.info.name} has no direct counter")
                continue
            for found in self._matching(table, entry):
                message = self._names.encoded(table.described(found))
                message.ClearField("action")
                data = p4r.CounterData(packet_count=found.packets, byte_count=found.bytes)
                yield p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=message, data=data))

    def _write_counter(self, kind: int, message: p4r.CounterEntry) -> None:
        if kind != _MODIFY:
            raise invalid("a counter is modified, not inserted or deleted")
        info = self._names.other("counters", message.counter_id)
        for index in _indices(message, info.size):
            self._switch.set_counter(
                info.preamble.name, index, message.data.packet_count, message.data.byte_count
            )

    def _read_counters(self, wanted: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        for info in self._wanted("counters", wanted.counter_id):
            for index in _indices(wanted, info.size):
                packets, octets = self._switch.counter(info.preamble.name, index)
                data = p4r.CounterData(packet_count=packets, byte_count=octets)
                yield p4r.Entity(
                    counter_entry=p4r.CounterEntry(
                        counter_id=info.preamble.id, index=p4r.Index(index=index), data=data
                    )
                )

    def _wanted(self, kind: str, number: int) -> list[Any]:
        return [self._names.other(kind, number)] if number else self._names.all_of(kind)

    # registers

    def _write_register(self, kind: int, message: p4r.RegisterEntry) -> None:
        if kind != _MODIFY:
            raise invalid("a register is modified, not inserted or deleted")
        info = self._names.other("registers", message.register_id)
        register = self._switch.registers[info.preamble.name]
        value = _decoded_data(message.data, register.kind)
        for index in _indices(message, len(register)):
            register[index] = value

    def _read_registers(self, wanted: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        for info in self._wanted("registers", wanted.register_id):
            register = self._switch.registers[info.preamble.name]
            for index in _indices(wanted, len(register)):
                yield p4r.Entity(
                    register_entry=p4r.RegisterEntry(
                        register_id=info.preamble.id,
                        index=p4r.Index(index=index),
                        data=_encoded_data(register[index], register.kind),
                    )
                )

    # multicast groups and clone sessions

    def _write_replication(self, kind: int, message: p4r.PacketReplicationEngineEntry) -> None:
        if message.WhichOneof("type") == "clone_session_entry":
            self._write_session(kind, message.clone_session_entry)
            return
        group = message.multicast_group_entry
        number = group.multicast_group_id
        _check_presence(kind, number in self._switch.multicast_groups, f"multicast group {number}")
        if kind == _DELETE:
            self._switch.delete_multicast_group(number)
        else:
            self._switch.set_multicast_group(MulticastGroup(number, _replicas(group.replicas)))

    def _write_session(self, kind: int, session: p4r.CloneSessionEntry) -> None:
        number = session.session_id
        _check_presence(kind, number in self._sessions, f"clone session {number}")
        if session.packet_length_bytes:
            raise missing(f"clone session {number}: cutting clones is not implemented")
        if kind == _DELETE:
            self._switch.delete_clone_session(number)
            del self._sessions[number]
        else:
            self._switch.set_clone_session(number, replicas=_replicas(session.replicas))
            self._sessions[number] = session

    def _read_replication(self, wanted: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        kind = wanted.WhichOneof("type")
        entries = []
        if kind != "clone_session_entry":
            number = wanted.multicast_group_entry.multicast_group_id
            for group in self._switch.multicast_groups.values():
                if number in (0, group.id):
                    replicas = [p4r.Replica(egress_port=r.port, instance=r.id) for r in group.replicas]
                    message = p4r.MulticastGroupEntry(multicast_group_id=group.id, replicas=replicas)
                    entries.append(p4r.PacketReplicationEngineEntry(multicast_group_entry=message))
        if kind != "multicast_group_entry":
            for session in self._sessions.values():
                if wanted.clone_session_entry.session_id in (0, session.session_id):
                    entries.append(p4r.PacketReplicationEngineEntry(clone_session_entry=session))
        for entry in entries:
            yield p4r.Entity(packet_replication_engine_entry=entry)


def _check_presence(kind: int, present: bool, what: str) -> None:
    if kind == _INSERT and present:
        raise Fault(rpc_code.ALREADY_EXISTS, f"{what} exists")
    if kind != _INSERT and not present:
        raise unknown(f"there is no {what}")


def _replicas(given: Any) -> tuple[Replica, ...]:
    ports = (
        int.from_bytes(r.port, "big") if r.WhichOneof("port_kind") == "port" else r.egress_port for r in given
    )
    return tuple(Replica(port, replica.instance) for port, replica in zip(ports, given, strict=True))


def _indices(message: Any, size: int) -> range:
    """The cells that a message names: one, or all."""
    if not message.HasField("index"):
        return range(size)
    if not 0 <= message.index.index < size:
        raise Fault(rpc_code.OUT_OF_RANGE, f"index {message.index.index} of {size}")
    return range(message.index.index, message.index.index + 1)


def _encoded_data(value: Any, kind: types.Type) -> p4d.P4Data:
    """A register's cell of this type."""
    kind = types.base_of(kind)
    if isinstance(kind, types.Record):
        members = [_encoded_data(part, of) for part, of in zip(value, kind.fields.values(), strict=True)]
        return p4d.P4Data(struct=p4d.P4StructLike(members=members))
    if isinstance(kind, types.Bits):
        size = max(1, (value.bit_length() + kind.signed + 7) // 8)  # a sign takes a bit
        return p4d.P4Data(bitstring=value.to_bytes(size, "big", signed=kind.signed))
    return p4d.P4Data(bool=bool(value))


def _decoded_data(data: p4d.P4Data, kind: types.Type) -> Any:
    """The value that a controller gives for a cell of this type."""
    kind = types.base_of(kind)
    given = data.WhichOneof("data")
    if isinstance(kind, types.Record):
        if given != "struct" or len(data.struct.members) != len(kind.fields):
            raise invalid(f"a cell of {kind} takes a struct of {len(kind.fields)} members")
        return tuple(
            _decoded_data(part, of) for part, of in zip(data.struct.members, kind.fields.values(), strict=True)
        )
    if given != ("bitstring" if isinstance(kind, types.Bits) else "bool"):
        raise invalid(f"a cell of {kind} takes no {given}")
    if not isinstance(kind, types.Bits):
        return data.bool
    value = int.from_bytes(data.bitstring, "big", signed=kind.signed)
    low, high = kind.limits
    if not low <= value <= high:
        raise Fault(rpc_code.OUT_OF_RANGE, f"{value} does not fit in {kind}")
    return value
