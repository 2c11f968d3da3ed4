"""P4Runtime's table entries: entries of a running switch's tables, default actions, direct counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from itertools import chain

from finsy.proto import p4i, p4r, rpc_code

from fanin.p4.control import TableEntry
from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.tables import Entry, Table
from fanin.sim.switch.service.data import counter_data
from fanin.sim.switch.service.faults import Fault, invalid, unimplemented, unknown
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.profiles import Profiles

_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
_NO_MISSES = "a direct counter counts hits, and has no cell of the default action"
_NEEDS_PRIORITY = "its entries have a priority above 0"
MAX_METADATA_BYTES = 1024  #: maximum metadata of an entry
NO_RATES = "meters are always green here: they take no rates"
NO_COLORS = "meters do not count colors here"


class TableEntries:
    """The entries of the tables of ``switch``, by the ids of ``names``. Calls raise Fault, or ValueError."""

    def __init__(self, switch: Switch, names: Names, profiles: Profiles):
        self._switch = switch
        self._names = names
        self._profiles = profiles
        self._metered = {info.direct_table_id for info in names.externs("direct_meters")}

    # writing

    def write(self, kind: int, message: p4r.TableEntry) -> None:
        """Insert, modify or delete an entry, or modify a default action."""
        info = self._names.table(message.table_id)
        table = self._switch.table(info.preamble.name)
        if message.is_const:
            raise invalid(f"table {table.info.name}: only the switch sets is_const")
        if message.is_default_action:
            self._write_default(kind, info, table, message)
            return
        entry = self._names.decode_entry(message)
        if table.by_priority != (entry.priority > 0):
            reason = _NEEDS_PRIORITY if table.by_priority else "this table has no priorities"
            raise invalid(f"table {entry.table}: {reason}")
        present = table.find_entry(entry.match, entry.priority)
        if kind == _DELETE:
            self._delete(info, table, present)
            return
        self._check_extras(info, table, message)
        if kind == _INSERT:
            self._insert(info, table, entry, message, present)
        else:
            self._modify(info, table, message, present)

    def _insert(
        self, info: p4i.Table, table: Table, entry: TableEntry, message: p4r.TableEntry, present: Entry | None
    ) -> None:
        name = table.info.name
        if table.info.constant:
            raise _denied_fault(f"table {name}: its entries are constant")
        if not table.info.keys:
            raise invalid(f"table {name} has no key: it has a default action only")
        if not message.HasField("action"):
            raise invalid(f"table {name}: an entry without an action")
        if present is not None:
            raise Fault(rpc_code.ALREADY_EXISTS, f"table {name} has this entry")
        if len(table) >= table.info.size:
            raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"table {name} is full: {table.info.size} entries")
        if info.implementation_id:
            target = self._profiles.target(info, message.action, None)
            inserted = table.insert(entry.match, "", {}, entry.priority)
            self._switch.profiles[table.info.profile or ""].point(table, inserted, target)
        else:
            inserted = table.insert(entry.match, *self._call(info, message), entry.priority)
        self._store_controller_fields(inserted, message)

    def _modify(self, info: p4i.Table, table: Table, message: p4r.TableEntry, present: Entry | None) -> None:
        name = table.info.name
        if present is None:
            raise unknown(f"table {name} has no such entry")
        if present.constant and (_has_controller_fields(message) or message.HasField("action")):
            raise _denied_fault(f"table {name}: the entry is constant")
        if message.HasField("action"):
            if info.implementation_id:
                old_target = present.target
                target = self._profiles.target(info, message.action, old_target)
                self._switch.profiles[table.info.profile or ""].point(table, present, target)
                self._profiles.release(info, old_target)
            else:
                table.rewrite(present, *self._call(info, message))
        self._store_controller_fields(present, message)

    def _delete(self, info: p4i.Table, table: Table, present: Entry | None) -> None:
        name = table.info.name
        if table.info.constant or (present is not None and present.constant):
            raise _denied_fault(f"table {name}: its entries are constant")
        if present is None:
            raise unknown(f"table {name} has no such entry")
        target = present.target
        table.remove(present)
        self._profiles.release(info, target)

    def _call(
        self, info: p4i.Table, message: p4r.TableEntry, *, default: bool = False
    ) -> tuple[str, dict[str, int]]:
        kind = message.action.WhichOneof("type")
        if kind != "action":
            raise invalid(f"table {info.preamble.name}: it has no action profile, and no {kind}")
        return self._names.decode_call(info, message.action.action, default=default)

    def _check_extras(self, info: p4i.Table, table: Table, message: p4r.TableEntry) -> None:
        """Raise Fault if a message has fields that do not apply to its table."""
        name = table.info.name
        if message.HasField("meter_config") or message.HasField("meter_counter_data"):
            if info.preamble.id not in self._metered:
                raise invalid(f"table {name} has no direct meter")
            raise unimplemented(f"table {name}: {NO_RATES if message.HasField('meter_config') else NO_COLORS}")
        if message.HasField("time_since_last_hit"):
            raise invalid(f"table {name}: only the switch sets time_since_last_hit")
        if len(message.metadata) > MAX_METADATA_BYTES:
            raise Fault(
                rpc_code.RESOURCE_EXHAUSTED, f"table {name}: metadata has {MAX_METADATA_BYTES} bytes at most"
            )
        if message.idle_timeout_ns and not table.info.has_timeouts:
            raise invalid(f"table {name}: its entries have no idle timeout (support_timeout)")
        if message.idle_timeout_ns < 0:
            raise invalid(f"table {name}: an idle timeout of {message.idle_timeout_ns} ns")
        if message.HasField("counter_data") and not table.info.counters:
            raise invalid(f"table {name} has no direct counter")

    @staticmethod
    def _store_controller_fields(entry: Entry, message: p4r.TableEntry) -> None:
        """Store the controller's own fields, restart the idle timeout, and set the counter if one is given."""
        entry.controller_fields = None
        if _has_controller_fields(message):
            entry.controller_fields = p4r.TableEntry(
                metadata=message.metadata,
                controller_metadata=message.controller_metadata,
                idle_timeout_ns=message.idle_timeout_ns,
            )
        entry.last_hit = time.monotonic_ns()
        if message.HasField("counter_data"):
            entry.packets, entry.bytes = message.counter_data.packet_count, message.counter_data.byte_count

    def _write_default(self, kind: int, info: p4i.Table, table: Table, message: p4r.TableEntry) -> None:
        name = table.info.name
        if kind != _MODIFY or message.match or message.priority:
            raise invalid(f"table {name}: a default action is modified, and has no match and no priority")
        if message.idle_timeout_ns:
            raise invalid(f"table {name}: a default action has no idle timeout")
        if message.HasField("counter_data"):
            raise invalid(f"table {name}: {_NO_MISSES}")
        self._check_extras(info, table, message)
        if table.info.default_constant:
            raise _denied_fault(f"table {name}: its default action is constant")
        if not message.HasField("action"):
            table.reset_default()
            return
        if info.implementation_id:
            raise _denied_fault(
                f"table {name}: its entries point to an action profile; its default action stays"
            )
        table.set_default(*self._call(info, message, default=True))
        self._store_controller_fields(table.default, message)

    # reading

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.Entity | None]:
        """Yield the entries that match, and None for each one that does not."""
        for info, table in self._tables(query.table_id):
            if query.table_id:
                _check_query(table, query)
            entries = iter([table.default]) if query.is_default_action else self._matching(table, query)
            for entry in entries:
                yield p4r.Entity(table_entry=self._encode(info, table, entry, query)) if entry else None

    def _tables(self, number: int) -> list[tuple[p4i.Table, Table]]:
        return [self._table(number) for number in ([number] if number else self._names.tables)]

    def _table(self, number: int) -> tuple[p4i.Table, Table]:
        info = self._names.table(number)
        return info, self._switch.table(info.preamble.name)

    def _matching(self, table: Table, query: p4r.TableEntry) -> Iterator[Entry | None]:
        """Yield the entries that fit the fields of ``query``, and None for each of the others.

        An entry removed meanwhile is left out.
        """
        tests: list[Callable[[Entry], bool]] = []
        if query.match:
            tests.append(table.matcher(self._names.decode_entry(query).match))
        if query.priority:
            tests.append(lambda entry: table.describe(entry).priority == query.priority)
        action = query.action.action.action_id
        if action:
            name = self._names.action(action)
            tests.append(lambda entry: entry.action_name == name and entry.target is None)
        if query.metadata or query.controller_metadata:
            tests.append(lambda entry: _has_metadata(entry, query))
        for entry in chain.from_iterable(table.pages()):
            yield entry if all(test(entry) for test in tests) and table.holds(entry) else None

    def _encode(self, info: p4i.Table, table: Table, entry: Entry, query: p4r.TableEntry) -> p4r.TableEntry:
        message = self.key(table, entry)
        if entry.target is not None:
            message.action.CopyFrom(self._profiles.encode_target(info, entry.target))
        else:
            call = table.describe(entry)
            message.action.action.CopyFrom(self._names.encode_call(call.action, call.parameters))
        message.is_default_action = not entry.hit
        message.is_const = entry.constant
        if query.HasField("counter_data") and table.info.counters and entry.hit:
            message.counter_data.CopyFrom(counter_data(entry.packets, entry.bytes))
        if query.HasField("time_since_last_hit") and table.info.has_timeouts and entry.hit:
            message.time_since_last_hit.elapsed_ns = time.monotonic_ns() - entry.last_hit
        return message

    def key(self, table: Table, entry: Entry) -> p4r.TableEntry:
        """Return the key of an entry for a controller, and the controller's own fields."""
        message = self._names.encode_entry(table.describe(entry))
        if entry.controller_fields is not None:
            message.MergeFrom(entry.controller_fields)
        return message

    # direct counters

    def write_counter(self, kind: int, message: p4r.DirectCounterEntry) -> None:
        """Set the counter of an entry, which continues from there."""
        if kind != _MODIFY:
            raise invalid("a direct counter is modified, not inserted or deleted")
        info, table = self._table(message.table_entry.table_id)
        if not table.info.counters:
            raise invalid(f"table {info.preamble.name} has no direct counter")
        entry = self._entry_of(table, message.table_entry)
        if message.HasField("data"):
            entry.packets, entry.bytes = message.data.packet_count, message.data.byte_count

    def read_counters(self, query: p4r.DirectCounterEntry) -> Iterator[p4r.Entity | None]:
        """Yield the counters of the entries that match, and None for each entry that does not."""
        counted = {number for number, info in self._names.tables.items() if self._has_counter(info)}
        for table, entry in self._with_direct(query.table_entry, counted, "counter"):
            if entry is None:
                yield None
                continue
            message = self._names.encode_entry(table.describe(entry))
            data = counter_data(entry.packets, entry.bytes)
            yield p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=message, data=data))

    def _has_counter(self, info: p4i.Table) -> bool:
        return bool(self._switch.table(info.preamble.name).info.counters)

    # direct meters

    def check_has_meter(self, message: p4r.TableEntry) -> None:
        """Raise Fault unless ``message`` is the key of an entry that has a direct meter."""
        info, table = self._table(message.table_id)
        if info.preamble.id not in self._metered:
            raise invalid(f"table {info.preamble.name} has no direct meter")
        self._entry_of(table, message)

    def entries_with_meters(self, query: p4r.TableEntry) -> Iterator[p4r.TableEntry | None]:
        """Yield the keys of matching entries with direct meters, None for each other entry. Raises Fault."""
        for table, entry in self._with_direct(query, self._metered, "meter"):
            yield self._names.encode_entry(table.describe(entry)) if entry else None

    # entries of direct resources

    def _entry_of(self, table: Table, message: p4r.TableEntry) -> Entry:
        """Return the entry whose direct resource is written. Raises Fault."""
        if message.is_default_action:
            raise invalid(f"table {table.info.name}: {_NO_MISSES}")
        key = self._names.decode_entry(message)
        entry = table.find_entry(key.match, key.priority)
        if entry is None:
            raise unknown(f"table {table.info.name} has no such entry")
        return entry

    def _with_direct(
        self, query: p4r.TableEntry, table_ids: Set[int], resource: str
    ) -> Iterator[tuple[Table, Entry | None]]:
        """Yield the matching entries of the tables ``table_ids``, and None for each of the others.

        Raises Fault if a key has no entry.
        """
        for info, table in self._tables(query.table_id):
            if info.preamble.id not in table_ids:
                if query.table_id:
                    raise invalid(f"table {info.preamble.name} has no direct {resource}")
                continue
            if query.is_default_action:
                raise invalid(f"table {info.preamble.name}: {_NO_MISSES}")
            has_match = False
            for entry in self._matching(table, query):
                has_match = has_match or entry is not None
                yield table, entry
            if query.match and not has_match:
                raise unknown(f"table {info.preamble.name} has no such entry")


def _check_query(table: Table, query: p4r.TableEntry) -> None:
    """Raise Fault if a read of one table asks for a field that its entries do not have."""
    name = table.info.name
    if query.HasField("time_since_last_hit"):
        if not table.info.has_timeouts:
            raise invalid(f"table {name}: its entries have no idle timeout (support_timeout)")
        if query.is_default_action:
            raise invalid(f"table {name}: a default action has no idle timeout")
    if query.HasField("meter_counter_data"):
        raise unimplemented(f"table {name}: {NO_COLORS}")


def _has_metadata(entry: Entry, query: p4r.TableEntry) -> bool:
    """Return whether an entry has the metadata in ``query``; empty fields match any."""
    fields = entry.controller_fields
    return fields is not None and all(
        getattr(query, field) in (b"", getattr(fields, field)) or getattr(query, field) == ""
        for field in ("metadata", "controller_metadata")
    )


def _has_controller_fields(message: p4r.TableEntry) -> bool:
    """Return whether a message has fields of the controller's own."""
    return bool(message.metadata or message.controller_metadata or message.idle_timeout_ns)


def _denied_fault(message: str) -> Fault:
    return Fault(rpc_code.PERMISSION_DENIED, message)
