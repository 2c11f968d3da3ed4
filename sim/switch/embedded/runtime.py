"""Names for generated code, and functions that all architectures share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from fanin.p4.control import MulticastGroup, Replica
from fanin.sim.switch.embedded import budget, loops, packet, values
from fanin.sim.switch.embedded.budget import MAX_VALUES
from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined
from fanin.sim.switch.embedded.types import BOOL, Bits, Record, Tuple, Type, base_of, parts_in, width_of

MAX_STATES = 4096  # maximum parser states for one packet
_STEP_ENTRIES = 512  # entries of an array per step
MAX_PASSES = 256  # maximum passes of one frame: resubmitted, recirculated, cloned, replicated
GROUP_BITS = REPLICA_BITS = 16  # widths of multicast groups and egress_rid, in v1model and TNA
NAMES: Mapping[str, Any] = {
    name: getattr(module, name)
    for module, names in (
        (values, "UNDEFINED Exit Reject shift_left clamp divide modulo equal_parts pack"),
        (packet, "HeaderStack NO_MATCH"),
        (loops, "rounds numbers"),
        (budget, "refuse_late"),
    )
    for name in names.split()
} | {"RunRefused": RunRefused, "monotonic_ns": time.monotonic_ns}


class Tracer(Protocol):
    """Tracer of registers and selectors."""

    def writes(self, register: str, index: int, value: Any) -> None:
        """Report a write to a register's entry."""

    def chooses(self, selector: str, index: int, count: int, action: str) -> None:
        """Report the choice of action ``index`` among ``count`` actions of a group."""


def run_states(frame: Any, state: Any) -> None:
    """Run a parser from ``state`` until it accepts; a state returns the next one."""
    for _ in range(MAX_STATES):
        state = state(frame)
        if state is None:
            return
    raise RunRefused(f"more than {MAX_STATES} parser states for one packet")


def run_block(block: Any, *arguments: Any) -> None:
    """Run a control or parser to its end or its ``exit``."""
    with contextlib.suppress(values.Exit):
        block(*arguments)


def no_action(_: Any) -> None:
    """Do nothing: the action of a table without a default action on a miss."""


def takes_widths(method: Any) -> Any:
    """Mark a method of an extern that takes the widths of its arguments as ``widths``."""
    method.takes_widths = True
    return method


def takes_frame(method: Any) -> Any:
    """Mark a method of an extern that takes the caller's frame as first argument."""
    method.takes_frame = True
    return method


def callable_names(names: str) -> dict[str, str]:
    """Return the Python names of extern functions that have the same name in P4."""
    return {name: name for name in names.split()}


class ExternObject:
    """An instance of an extern. Subclasses take the constructor's arguments first.

    - ``methods``: Python names of the methods that a program may call, by P4 name.
    - ``abstract``: functions that a program may define in the braces of an instance.
    - ``name``: name for the control plane.
    - ``types``: its type arguments.
    - ``makers``: for each type argument, a function that returns an undefined value.
    - ``zeros``: for each type argument, a function that returns the initial value of a register.
    - ``arch``: the running architecture.
    """

    methods: ClassVar[Mapping[str, str]] = {}
    abstract: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        name: str,
        types: tuple[Type, ...],
        makers: tuple[Callable[[], Any], ...],
        zeros: tuple[Callable[[], Any], ...],
        arch: Any,
    ):
        self.name = name
        self.types = types
        self.makers = makers
        self.zeros = zeros
        self.arch = arch

    def _reserve(self, values: int) -> None:
        """Count ``values`` of the program's registers and counters. Raises RunRefused above ``MAX_VALUES``."""
        self.arch.values_left -= values
        if self.arch.values_left < 0:
            raise RunRefused(f"{self.name}: registers and counters have more than {MAX_VALUES:,} values in all")


class RegisterArray(ExternObject):
    """An array of numbers, tuples or structs. Indexing from outside takes and returns structs as tuples."""

    def __init__(self, size: int, **extern: Any):
        super().__init__(**extern)
        self.kind = base_of(self.types[0])
        self._reserve(size * (parts_in(self.kind) + (width_of(self.kind) or 0) // 64))
        self.values: list[Any] = [None] * size
        self.clear()
        self.tracer: Tracer | None = None

    def __len__(self) -> int:
        return len(self.values)

    def clear(self) -> None:
        """Set all entries to 0."""
        zero = self.zeros[0]()
        self.values[:] = [zero.copy() if hasattr(zero, "copy") else zero for _ in self.values]

    def __getitem__(self, index: int) -> Any:
        return _as_tuple(self.values[index])

    def __setitem__(self, index: int, value: Any) -> None:
        present = self.values[index]
        _check(f"{self.name}[{index}]", self.kind, value)
        if hasattr(present, "__slots__"):
            _assign_fields(present, value)
        else:
            self.values[index] = value

    def fill(self, value: Any) -> Iterator[bool]:
        """Set all entries to ``value`` in steps of bounded time; packets see all of them change at once.

        Raises ValueError, before any change, if the value does not fit the register.
        """
        _check(self.name, self.kind, value)
        return self._fill_steps(value)

    def _fill_steps(self, value: Any) -> Iterator[bool]:
        new_values: list[Any] = []
        while count := min(_STEP_ENTRIES, len(self.values) - len(new_values)):
            new_values.extend(self._entry(value) for _ in range(count))
            yield True
        old_values, self.values = self.values, new_values
        yield from _free(old_values)

    def _entry(self, value: Any) -> Any:
        zero = self.zeros[0]()
        if not hasattr(zero, "__slots__"):
            return value
        _assign_fields(zero, value)
        return zero

    def trace_write(self, index: int, value: Any) -> None:
        """Report a write to the tracer."""
        if self.tracer is not None:
            self.tracer.writes(self.name, index, value)


def _free(values: list[Any]) -> Iterator[bool]:
    """Free a long list in steps."""
    while values:
        del values[-_STEP_ENTRIES:]
        yield True


def _as_tuple(value: Any) -> Any:
    """Return a value with records as tuples of their fields."""
    if hasattr(value, "__slots__"):
        return tuple(_as_tuple(getattr(value, field)) for field in value.__slots__)
    return value


def _check(subject: str, kind: Type, value: Any) -> None:
    """Raise ValueError unless ``value``, which comes from outside, has the type ``kind``."""
    base = base_of(kind)
    if isinstance(base, Record | Tuple):
        parts = tuple(base.fields.values() if isinstance(base, Record) else base.elements)
        if not isinstance(value, tuple) or len(value) != len(parts):
            raise ValueError(f"{subject}: a value of {kind} has {len(parts)} parts, not {value}")
        for number, (part, part_kind) in enumerate(zip(value, parts, strict=True)):
            _check(f"{subject}, part {number}", part_kind, part)
    elif isinstance(base, Bits) or base == BOOL:
        low, high = base.limits if isinstance(base, Bits) else (0, 1)
        if not low <= value <= high:
            raise ValueError(f"{subject}: {value} does not fit in {kind}")


def _assign_fields(record: Any, values: tuple[Any, ...]) -> None:
    for field, part in zip(record.__slots__, values, strict=True):
        if isinstance(part, tuple):
            _assign_fields(getattr(record, field), part)
        else:
            setattr(record, field, part)


class CounterArray(ExternObject):
    """Packets and bytes, by index."""

    methods = callable_names("count")

    def __init__(self, size: int, _kind: str = "packets_and_bytes", **extern: Any):
        super().__init__(**extern)
        self._reserve(2 * size)
        self.packets = [0] * size
        self.bytes = [0] * size

    def count(self, index: int) -> None:
        """Count the packet; ignore an index out of range."""
        if index is values.UNDEFINED:
            raise RunUndefined("an undefined index of a counter")
        if 0 <= index < len(self.packets):
            self.packets[index] += 1
            self.bytes[index] += self.arch.frame_length

    def fill(self, packets: int, octets: int) -> Iterator[bool]:
        """Set all entries to these values in steps of bounded time; packets see all of them change at once."""
        new_values: tuple[list[int], list[int]] = ([], [])
        while count := min(_STEP_ENTRIES, len(self) - len(new_values[0])):
            new_values[0].extend([packets] * count)
            new_values[1].extend([octets] * count)
            yield True
        old_values = self.packets, self.bytes
        self.packets, self.bytes = new_values
        for array in old_values:
            yield from _free(array)

    def __len__(self) -> int:
        return len(self.packets)


class Session(NamedTuple):
    """Destinations of a session's clones."""

    replicas: tuple[Replica, ...] = ()
    group: int | None = None


class Replication:
    """Multicast groups; ``exclusion``: whether a replica may have an exclusion id."""

    def __init__(self, *, exclusion: bool = False) -> None:
        self.groups: dict[int, MulticastGroup] = {}
        self._exclusion = exclusion

    def set(self, group: MulticastGroup) -> None:
        """Install or replace a group. Raises ValueError."""
        subject = f"multicast group {group.id}"
        if not group.id:
            raise ValueError(f"{subject}: 0 means none")
        _check_width(subject, group.id, GROUP_BITS)
        self.check(subject, group.replicas)
        self.groups[group.id] = group

    def check(self, subject: str, replicas: Iterable[Replica]) -> None:
        """Raise ValueError, with ``subject`` in front, if a replica has an id that no packet can have."""
        for replica in replicas:
            _check_width(f"{subject}: replica id", replica.id, REPLICA_BITS)
            if replica.exclusion is not None:
                if not self._exclusion:
                    raise ValueError(f"{subject}: port {replica.port}: only TNA has an exclusion id")
                _check_width(f"{subject}: exclusion id", replica.exclusion, REPLICA_BITS)

    def delete(self, number: int) -> None:
        """Remove a group. Raises ValueError."""
        if number not in self.groups:
            raise ValueError(f"there is no multicast group {number}")
        del self.groups[number]


def _check_width(subject: str, number: int, bits: int) -> None:
    if number not in range(1 << bits):
        raise ValueError(f"{subject}: {number} does not fit in {bits} bits")
