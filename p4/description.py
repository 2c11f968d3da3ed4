"""The parts that a switch program is described by; :mod:`fanin.p4.printer` makes P4 of them.

Expressions are P4 text that both targets understand, with what differs in braces: a register's words in an
operation (``{round}``), the target's own names elsewhere (``{ingress_port}``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fanin.wire.fields import Field

WORD_BITS = 32  # of a register's word


@dataclass(frozen=True)
class Header:
    """A header type and the name under which packets have it."""

    name: str
    fields: tuple[Field, ...]
    why: str


@dataclass(frozen=True)
class Register:
    """An array with an entry of one or two 32-bit words per slot. A stateful ALU takes no more."""

    name: str
    words: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Case:
    """What an operation does where ``when`` holds (or always): its result, then new words in this order.

    Result and conditions are of the words as they were; a new word, of itself and of the packet.
    """

    name: str
    when: str | None
    result: str | None = None
    update: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """A read-modify-write of one entry by the first case that holds; where none has a result, it is 0."""

    name: str
    register: Register
    cases: tuple[Case, ...]
    why: str

    @property
    def results(self) -> bool:
        """Whether anything comes of it."""
        return any(case.result for case in self.cases)


@dataclass(frozen=True)
class Execute:
    """Carry out an operation on the entry of ``index`` and keep its result, if it has one."""

    operation: Operation
    into: str | None
    index: str = "hdr.aggregation.slot"


@dataclass(frozen=True)
class Assign:
    """Set a field."""

    field: str
    value: str


@dataclass(frozen=True)
class Drop:
    """The packet goes nowhere."""


@dataclass(frozen=True)
class Multicast:
    """The packet goes to a group."""

    group: str


@dataclass(frozen=True)
class Flood:
    """The packet goes to every port but the one that it came from."""


@dataclass(frozen=True)
class Unicast:
    """The packet goes to a port."""

    port: str


Statement = Execute | Assign | Drop | Multicast | Flood | Unicast


@dataclass(frozen=True)
class Action:
    """What a table's entry does; its parameters are (name, bits), or (name, one of the target's types)."""

    name: str
    body: tuple[Statement, ...]
    parameters: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True)
class Key:
    """A field that a table looks at: its name for the control plane, the expression, and how it is matched."""

    name: str
    expression: str
    kind: str = "ternary"


@dataclass(frozen=True)
class ConstEntry:
    """An entry that is part of the program; ``match`` is P4's, a value per key."""

    match: tuple[str, ...]
    action: str
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``counted`` ones count the packets of each entry (not those that miss).

    ``size`` is for the entries that a control plane installs; a table has these, or ``entries`` of its own.
    """

    name: str
    keys: tuple[Key, ...]
    actions: tuple[Action, ...]
    why: str
    size: int = 0
    counted: bool = False
    entries: tuple[ConstEntry, ...] = ()


@dataclass(frozen=True)
class Control:
    """A control: what it keeps, its tables, and ``apply``, lines of P4 with the target's names in braces."""

    name: str
    why: str
    tables: tuple[Table, ...]
    apply: tuple[str, ...]
    registers: tuple[Register, ...] = ()
    instances: tuple[tuple[str, str], ...] = ()  #: (control, name) of the controls that this one contains

    @property
    def actions(self) -> tuple[Action, ...]:
        """Those of all tables; names are unique in a control."""
        return tuple(action for table in self.tables for action in table.actions)

    def operations(self, register: Register) -> tuple[Operation, ...]:
        """Those on a register, each once."""
        found = [s.operation for a in self.actions for s in a.body if isinstance(s, Execute)]
        return tuple({o.name: o for o in found if o.register == register}.values())


@dataclass(frozen=True)
class State:
    """A parser's state: what it sets and extracts, then where it goes, by a select's cases (match, state)."""

    name: str
    extract: str | None = None
    on: tuple[str, ...] = ()
    cases: tuple[tuple[str, str], ...] = ()
    then: str = "accept"
    before: tuple[Assign, ...] = ()
    why: str = ""
