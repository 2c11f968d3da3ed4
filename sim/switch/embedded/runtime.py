"""What generated code finds around it, and what all architectures share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from fanin.p4.control import MulticastGroup, Replica
from fanin.sim.switch.embedded import packet, values
from fanin.sim.switch.embedded.errors import RunRefused
from fanin.sim.switch.embedded.types import Bits, Type, base_of

MAX_STATES = 4096  # that a parser may go through for one packet
MAX_PASSES = 256  # of one frame: resubmitted, recirculated, cloned, replicated
GROUP_BITS = REPLICA_BITS = 16  # of multicast groups and egress_rid, in v1model and TNA
MAX_SECONDS = 20  # for one frame; what is left when the bounds on states and passes are used up
NAMES: Mapping[str, Any] = {
    name: getattr(module, name)
    for module, names in (
        (values, "UNDEFINED Exit Reject shift_left clamp divide modulo equal_parts pack"),
        (packet, "HeaderStack NO_MATCH"),
    )
    for name in names.split()
} | {"RunRefused": RunRefused, "monotonic_ns": time.monotonic_ns}


class Tracer(Protocol):
    """What is told of externs."""

    def changed(self, register: str, index: int, value: Any) -> None:
        """A register's entry has been written."""

    def chooses(self, selector: str, place: int, count: int, action: str) -> None:
        """Of a group of ``count`` actions, one has been chosen."""


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
    """What a table without a default action does on a miss."""


def zero_of(kind: Type, fresh: Callable[[], Any]) -> Any:
    """The value that a register begins with."""
    base = base_of(kind)
    if isinstance(base, Bits):
        return 0
    value = fresh()
    if hasattr(value, "zero"):
        value.zero()
        return value
    return False


def takes_widths(method: Any) -> Any:
    """Mark a method of an extern that is told the widths of its arguments, as ``widths``."""
    method.takes_widths = True
    return method


def takes_frame(method: Any) -> Any:
    """Mark a method of an extern that is given the caller's frame first."""
    method.takes_frame = True
    return method


class ExternObject:
    """An instance of an extern. Subclasses take the constructor's arguments first."""

    def __init__(self, *, name: str, types: tuple[Type, ...], fresh: tuple[Callable[[], Any], ...], arch: Any):
        self.name = name
        self.types = types
        self.fresh = fresh
        self.arch = arch


class RegisterArray(ExternObject):
    """An array of values: integers, or records, which are seen from outside as tuples of their fields."""

    def __init__(self, size: int, **rest: Any):
        super().__init__(**rest)
        if size > 1 << 24:
            raise RunRefused(f"a register of {size} entries")
        self.kind = base_of(self.types[0])
        zero = zero_of(self.types[0], self.fresh[0])
        self.values = [zero.copy() for _ in range(size)] if hasattr(zero, "copy") else [zero] * size
        self.tracer: Tracer | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return _plain(self.values[index])

    def __setitem__(self, index: int, value: Any) -> None:
        present = self.values[index]
        if hasattr(present, "__slots__"):
            _fill(present, value)
        else:
            low, high = self.kind.limits if isinstance(self.kind, Bits) else (0, 1)
            if not low <= value <= high:
                raise ValueError(f"{self.name}[{index}]: {value} does not fit in {self.kind}")
            self.values[index] = value

    def changed(self, index: int, value: Any) -> None:
        """Tell the tracer."""
        if self.tracer is not None:
            self.tracer.changed(self.name, index, value)


def _plain(value: Any) -> Any:
    """Records as tuples of their fields."""
    if hasattr(value, "__slots__"):
        return tuple(_plain(getattr(value, field)) for field in value.__slots__)
    return value


def _fill(record: Any, values: tuple[Any, ...]) -> None:
    for field, part in zip(record.__slots__, values, strict=True):
        if isinstance(part, tuple):
            _fill(getattr(record, field), part)
        else:
            setattr(record, field, part)


class CounterArray(ExternObject):
    """Packets and bytes, per index."""

    def __init__(self, size: int, _kind: str = "packets_and_bytes", **rest: Any):
        super().__init__(**rest)
        if size > 1 << 24:
            raise RunRefused(f"a counter of {size} entries")
        self.packets = [0] * size
        self.bytes = [0] * size

    def count(self, index: int) -> None:
        """Count the packet; nothing where there is no such index."""
        if index is values.UNDEFINED:
            raise RunRefused("an undefined index of a counter")
        if 0 <= index < len(self.packets):
            self.packets[index] += 1
            self.bytes[index] += self.arch.frame_length

    def __len__(self) -> int:
        return len(self.packets)


class Session(NamedTuple):
    """Where the clones of a session go."""

    replicas: tuple[Replica, ...] = ()
    group: int | None = None


class Replication:
    """Multicast groups; ``exclusion``: whether a replica may have an exclusion id."""

    def __init__(self, *, exclusion: bool = False) -> None:
        self.groups: dict[int, MulticastGroup] = {}
        self._exclusion = exclusion

    def set(self, group: MulticastGroup) -> None:
        """Install or replace a group. Raises ValueError."""
        what = f"multicast group {group.id}"
        if not group.id:
            raise ValueError(f"{what}: 0 stands for none")
        _check_width(what, group.id, GROUP_BITS)
        self.check(what, group.replicas)
        self.groups[group.id] = group

    def check(self, what: str, replicas: Iterable[Replica]) -> None:
        """Raise ValueError where one of the replicas of ``what`` has an id that no packet can have."""
        for replica in replicas:
            _check_width(f"{what}: replica id", replica.id, REPLICA_BITS)
            if replica.exclusion is not None:
                if not self._exclusion:
                    raise ValueError(f"{what}: port {replica.port}: only TNA has an exclusion id")
                _check_width(f"{what}: exclusion id", replica.exclusion, REPLICA_BITS)

    def delete(self, number: int) -> None:
        """Remove a group. Raises ValueError."""
        if number not in self.groups:
            raise ValueError(f"there is no multicast group {number}")
        del self.groups[number]


def _check_width(what: str, number: int, bits: int) -> None:
    if number not in range(1 << bits):
        raise ValueError(f"{what}: {number} does not fit in {bits} bits")
