"""A traced switch: one report per event of a packet, and a summary of all packets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fanin.sim.switch.embedded import types
from fanin.sim.switch.embedded.description import TableInfo
from fanin.sim.switch.embedded.tables import Entry, Table
from fanin.sim.switch.embedded.values import UNDEFINED

MAC_BITS, WORD_BITS = 48, 32


class Tracer:
    """Calls ``report`` with a line for each event of a packet, and counts events.

    ``words``: names of 32-bit words, by register, for registers whose entries pack several words into one
    number. The first word is the uppermost.
    """

    def __init__(self, report: Callable[[str], None], words: Mapping[str, Sequence[str]] | None = None):
        self._report = report
        self._words = words or {}
        self.packets = 0
        self._arrived: Counter[int] = Counter()  # frames, by port
        self._departed: Counter[int] = Counter()
        self._drops: Counter[str] = Counter()  # packets and copies that did not leave, by reason
        self._lookups: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])  # misses, hits
        self._writes: Counter[str] = Counter()

    def arrives(self, port: int, frame: bytes, timestamp: str) -> None:
        """Report an arriving packet; ``timestamp`` is the text of its time, empty if unknown."""
        self.packets += 1
        self._arrived[port] += 1
        suffix = f" at {timestamp}" if timestamp else ""
        self._report(f"packet {self.packets}{suffix}: port {port}, {len(frame)} bytes")

    def enters(self, state: str) -> None:
        """Report that the parser enters a state."""
        self._report(f"  parser {state}")

    def parses(self, name: str, kind: types.Type, value: Any) -> None:
        """Report the valid headers, decoded, at the end of the parser."""
        for line in _headers(name, kind, value):
            self._report(f"  header {line}")

    def finds(self, table: TableInfo, key: Mapping[str, str], entry: Entry) -> None:
        """Report a look-up in a table."""
        self._lookups[table.name][entry.hit] += 1
        keys = ", ".join(f"{name}={value}" for name, value in key.items())
        arguments = ", ".join(map(str, entry.arguments))
        outcome = "hit" if entry.hit else "miss"
        self._report(f"  table {table.name}({keys}): {outcome}, {entry.action_name}({arguments})")

    def writes(self, register: str, index: int, value: Any) -> None:
        """Report a write to an entry of a register."""
        self._writes[register] += 1
        self._report(f"  register {register}[{index}]{self._entry(register, value)}")

    def _entry(self, register: str, value: Any) -> str:
        if hasattr(value, "__slots__"):
            return ": " + ", ".join(f"{slot[2:]}={getattr(value, slot)}" for slot in _fields(value))
        names = self._words.get(register, ())
        if len(names) < 2:
            return f" = {value}"
        shifts = range(WORD_BITS * (len(names) - 1), -1, -WORD_BITS)
        words = (value >> shift & (1 << WORD_BITS) - 1 for shift in shifts)
        return ": " + ", ".join(f"{name}={word}" for name, word in zip(names, words, strict=True))

    def chooses(self, selector: str, index: int, count: int, action: str) -> None:
        """Report a selector's choice of an action of a group."""
        self._report(f"  selector {selector}: {index + 1} of {count}, {action}")

    def leaves(self, ports: Sequence[int], drops: Sequence[str]) -> None:
        """Report the end of a packet: the ports of its copies, and the reasons for lost copies."""
        self._departed.update(ports)
        if ports:
            self._report(f"  -> port{'s' * (len(ports) > 1)} {', '.join(map(str, ports))}")
        for reason in drops:
            self._report(f"  dropped: {reason}")
        self._drops.update(drops if drops or ports else ["no egress port"])

    def summary(self) -> list[str]:
        """Return a summary in lines: ports, drops, tables, registers."""
        lines = [
            f"  port {port}: {self._arrived[port]} in, {self._departed[port]} out"
            for port in sorted({*self._arrived, *self._departed})
        ]
        lines += [f"  dropped: {count} ({reason})" for reason, count in self._drops.most_common()]
        lines += [
            f"  table {name}: {hits} hit{'s' * (hits != 1)}, {misses} miss{'es' * (misses != 1)}"
            for name, (misses, hits) in sorted(self._lookups.items())
        ]
        return lines + [f"  register {name}: {count} written" for name, count in sorted(self._writes.items())]


class TracedTable(Table):
    """A table that reports its look-ups."""

    def __init__(self, info: TableInfo, functions: Mapping[str, Any], tracer: Tracer):
        super().__init__(info, functions)
        self._tracer = tracer

    def find(self, key: int) -> Entry:
        """Look up a key, and report the result."""
        entry = super().find(key)
        parts = {
            k.name: _number_text(key >> self._shifts[k.name] & ((1 << k.width) - 1), k.width)
            for k in self.info.keys
        }
        self._tracer.finds(self.info, parts, entry)
        return entry


def _headers(name: str, kind: types.Type, value: Any) -> Iterator[str]:
    """Yield a line for each valid header within a value."""
    kind = types.base_of(kind)
    if isinstance(kind, types.Stack):
        for index, element in enumerate(value.elements):
            yield from _headers(f"{name}[{index}]", kind.element, element)
    elif isinstance(kind, types.Record) and kind.kind == "header":
        if value.valid:
            fields = (
                f"{field}={_field_text(getattr(value, f'f_{field}'), field_kind)}"
                for field, field_kind in kind.fields.items()
            )
            yield f"{name}: {', '.join(fields)}"
    elif isinstance(kind, types.Record):
        for field, field_kind in kind.fields.items():
            yield from _headers(f"{name}.{field}", field_kind, getattr(value, f"f_{field}"))


def _fields(value: Any) -> list[str]:
    return [slot for slot in value.__slots__ if slot.startswith("f_")]


def _field_text(value: Any, kind: types.Type) -> str:
    """Return the text of a header field's value."""
    width = types.width_of(kind)
    if value is UNDEFINED:
        return "undefined"
    return _number_text(value, width) if isinstance(value, int) and width else str(value)


def _number_text(value: int, width: int) -> str:
    """Return a number in hexadecimal; one of a MAC address's width in that form."""
    return value.to_bytes(6, "big").hex(":") if width == MAC_BITS and value >= 0 else f"{value:#x}"
