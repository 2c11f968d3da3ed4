"""P4Runtime's meters of a switch whose meters are always green: the specification's default configuration.

The meters take no rates. A read finds the default configuration, which P4Runtime represents by an absent field.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from fanin.sim.switch.service.data import indices
from fanin.sim.switch.service.faults import invalid, missing
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.tables import NO_COLORS, NO_RATES, TableEntries

_MODIFY = p4r.Update.MODIFY


class Meters:
    """The meters of a pipeline, by the ids of ``names``; entries are those of ``tables``. Calls raise Fault."""

    def __init__(self, names: Names, tables: TableEntries):
        self._names = names
        self._tables = tables

    def write(self, kind: int, message: p4r.MeterEntry) -> None:
        """Set cells of a meter to the default configuration; refuse any other."""
        _check(kind, message)
        indices(message, self._names.extern("meters", message.meter_id).size)
        if message.HasField("config"):
            raise missing(NO_RATES)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Read one cell, or all cells of one meter or of all meters."""
        _check_colors(query)
        for info in self._names.select_externs("meters", query.meter_id):
            for index in indices(query, info.size) if query.meter_id else range(info.size):
                entry = p4r.MeterEntry(meter_id=info.preamble.id, index=p4r.Index(index=index))
                yield p4r.Entity(meter_entry=entry)

    def write_direct(self, kind: int, message: p4r.DirectMeterEntry) -> None:
        """Set the meter of a table entry to the default configuration; refuse any other."""
        _check(kind, message)
        self._tables.entry_with_meter(message.table_entry)
        if message.HasField("config"):
            raise missing(NO_RATES)

    def read_direct(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.Entity | None]:
        """Read the meters of the entries that match; None after an entry that does not."""
        _check_colors(query)
        for entry in self._tables.entries_with_meters(query.table_entry):
            direct = p4r.DirectMeterEntry(table_entry=entry)
            yield p4r.Entity(direct_meter_entry=direct) if entry else None


def _check(kind: int, message: p4r.MeterEntry | p4r.DirectMeterEntry) -> None:
    if kind != _MODIFY:
        raise invalid("a meter is modified, not inserted or deleted")
    _check_colors(message)


def _check_colors(message: p4r.MeterEntry | p4r.DirectMeterEntry) -> None:
    if message.HasField("counter_data"):
        raise missing(NO_COLORS)
