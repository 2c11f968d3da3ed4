"""Elements of a switch program's description; :mod:`fanin.p4.printer` prints P4 from them.

Expressions are P4 text common to both targets. Parts that differ are in braces: a register's words in an
operation (``{round}``), the target's own names elsewhere (``{ingress_port}``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fanin.wire.fields import Field

WORD_BITS = 32  # bits of a register's word


@dataclass(frozen=True)
class Header:
    """A header type, and the name of its instance in packets."""

    name: str
    fields: tuple[Field, ...]
    comment: str


@dataclass(frozen=True)
class Register:
    """An array with an entry of one or two 32-bit words per slot, the most that a stateful ALU supports."""

    name: str
    words: tuple[str, ...]
    comment: str


@dataclass(frozen=True)
class Case:
    """Effect of an operation if ``condition`` holds (None: always): its result, and new words.

    Result and condition use the old words. A new word depends on its own old value and on the packet.
    """

    name: str
    condition: str | None
    result: str | None = None
    update: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """Read-modify-write of one entry by the first case whose condition holds.

    The result is 0 if no condition holds or the case has no result.
    """

    name: str
    register: Register
    cases: tuple[Case, ...]
    comment: str

    @property
    def has_result(self) -> bool:
        """True if the operation has a result."""
        return any(case.result for case in self.cases)


@dataclass(frozen=True)
class Execute:
    """Statement: execute an operation on the entry ``index``; store its result, if any, in ``destination``."""

    operation: Operation
    destination: str | None
    index: str = "hdr.aggregation.slot"


@dataclass(frozen=True)
class Assign:
    """Statement: set a field."""

    field: str
    value: str


@dataclass(frozen=True)
class Drop:
    """Statement: drop the packet."""


@dataclass(frozen=True)
class Multicast:
    """Statement: send the packet to a multicast group."""

    group: str


@dataclass(frozen=True)
class Flood:
    """Statement: send the packet to every port except its ingress port."""


@dataclass(frozen=True)
class Unicast:
    """Statement: send the packet to a port."""

    port: str


Statement = Execute | Assign | Drop | Multicast | Flood | Unicast


@dataclass(frozen=True)
class Action:
    """Action of a table; parameters are (name, bits) or (name, a type of the target)."""

    name: str
    body: tuple[Statement, ...]
    parameters: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True)
class Key:
    """Key of a table: its name for the control plane, its expression, and its match kind."""

    name: str
    expression: str
    kind: str = "ternary"


@dataclass(frozen=True)
class ConstEntry:
    """An entry that is part of the program; ``match`` is P4 text, a value per key."""

    match: tuple[str, ...]
    action: str
    comment: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``counted`` tables count packets per entry, except packets that miss.

    ``size``: entries that a control plane can install. A table has these, or constant ``entries``.
    """

    name: str
    keys: tuple[Key, ...]
    actions: tuple[Action, ...]
    comment: str
    size: int = 0
    counted: bool = False
    entries: tuple[ConstEntry, ...] = ()


@dataclass(frozen=True)
class Control:
    """A control block of the pipeline.

    ``apply``: lines of P4 text, with the target's names in braces.
    """

    name: str
    comment: str
    tables: tuple[Table, ...]
    apply: tuple[str, ...]
    registers: tuple[Register, ...] = ()
    instances: tuple[tuple[str, str], ...] = ()  #: (control, name) of contained controls

    @property
    def actions(self) -> tuple[Action, ...]:
        """Actions of all tables; names are unique within a control."""
        return tuple(action for table in self.tables for action in table.actions)

    def operations(self, register: Register) -> tuple[Operation, ...]:
        """Return the distinct operations on a register."""
        operations = [s.operation for a in self.actions for s in a.body if isinstance(s, Execute)]
        return tuple({o.name: o for o in operations if o.register == register}.values())


@dataclass(frozen=True)
class State:
    """A parser state: assignments, extraction of a header, then a select.

    - ``extract``: instance of the header to extract, if any.
    - ``select``: fields of that header (of ``aggregation`` without one) that choose the next state.
    - ``cases``: (match, next state).
    - ``default``: next state if no case matches.
    """

    name: str
    extract: str | None = None
    select: tuple[str, ...] = ()
    cases: tuple[tuple[str, str], ...] = ()
    default: str = "accept"
    assignments: tuple[Assign, ...] = ()
    comment: str = ""
