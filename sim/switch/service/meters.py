"""P4Runtime's meters of a switch whose meters are always green: the specification's default configuration.

The meters take no rates. A write may name the default configuration only, which P4Runtime represents by an
absent ``config``, so a write changes nothing. It is checked, and a wrong id, index or entry is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from fanin.sim.switch.service.data import check_index, indices
from fanin.sim.switch.service.faults import invalid, unimplemented
from fanin.sim.switch.service.names import Names
from fanin.sim.switch.service.tables import NO_COLORS, NO_RATES, TableEntries

_MODIFY = p4r.Update.MODIFY


class Meters:
    """Writes and reads of a pipeline's meters.

    Every method raises Fault:

    - INVALID_ARGUMENT: an update other than MODIFY, an index below 0, or a table without a direct meter.
    - OUT_OF_RANGE: an index beyond the meter.
    - NOT_FOUND: an unknown meter, table or entry.
    - UNIMPLEMENTED: a configuration of rates, or counts of colors.

    Parameters:

    - ``names``: ids of the pipeline's meters.
    - ``tables``: table entries, whose direct meters these are.
    """

    def __init__(self, names: Names, tables: TableEntries):
        self._names = names
        self._tables = tables

    def write(self, update: int, message: p4r.MeterEntry) -> None:
        """Set cells of a meter to the default configuration; refuse any other.

        ``update``: type of the update, a member of p4r.Update.Type.
        """
        _check(update, message)
        check_index(message, self._names.extern("meters", message.meter_id).size)
        if message.HasField("config"):
            raise unimplemented(NO_RATES)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Read one cell, or all cells of one meter or of all meters."""
        _check_colors(query)
        for info in self._names.select_externs("meters", query.meter_id):
            for index in indices(query, info.size) if query.meter_id else range(info.size):
                entry = p4r.MeterEntry(meter_id=info.preamble.id, index=p4r.Index(index=index))
                yield p4r.Entity(meter_entry=entry)

    def write_direct(self, update: int, message: p4r.DirectMeterEntry) -> None:
        """Set an entry's meter to the default configuration, like ``write``."""
        _check(update, message)
        self._tables.check_has_meter(message.table_entry)
        if message.HasField("config"):
            raise unimplemented(NO_RATES)

    def read_direct(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.Entity | None]:
        """Yield the meters of the entries that match, and None for each entry that does not.

        A large table may have few matches. With None the server can serve other calls in between.
        """
        _check_colors(query)
        for entry in self._tables.entries_with_meters(query.table_entry):
            direct = p4r.DirectMeterEntry(table_entry=entry)
            yield p4r.Entity(direct_meter_entry=direct) if entry else None


def _check(update: int, message: p4r.MeterEntry | p4r.DirectMeterEntry) -> None:
    if update != _MODIFY:
        raise invalid("a meter is modified, not inserted or deleted")
    _check_colors(message)


def _check_colors(message: p4r.MeterEntry | p4r.DirectMeterEntry) -> None:
    if message.HasField("counter_data"):
        raise unimplemented(NO_COLORS)
