"""Objects that a control plane installs in any switch: table entries and multicast groups.

The embedded switch uses these objects directly; for P4Runtime (BMv2) and BFRuntime (Tofino) they are
translated. Names are P4's within the program, as in P4Info: ``Aggregation.forward``, ``hdr.ethernet.source``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Exact:
    """Matches one value."""

    value: int


@dataclass(frozen=True)
class Ternary:
    """Matches where ``key & mask == value & mask``; a mask of 0 matches everything."""

    value: int
    mask: int


@dataclass(frozen=True)
class Lpm:
    """Matches the first ``length`` bits of a key; of several entries, the longest match wins."""

    value: int
    length: int


@dataclass(frozen=True)
class Range:
    """Matches from ``low`` to ``high``, inclusive."""

    low: int
    high: int


Match = Exact | Ternary | Lpm | Range


@dataclass(frozen=True)
class TableEntry:
    """A table entry. Keys that are missing in ``match`` match any value; exact keys must not be missing.

    ``priority`` orders ternary and range matches: the largest number wins. It is 0 in other tables.
    """

    table: str
    match: Mapping[str, Match]
    action: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True)
class Replica:
    """A copy of a multicast packet: its egress port, and its id (``egress_rid``).

    On Tofino, a packet whose ``level1_exclusion_id`` is ``exclusion`` makes no such copy.
    """

    port: int
    id: int = 0
    exclusion: int | None = None


@dataclass(frozen=True)
class MulticastGroup:
    """Destinations, in order, of a packet sent to group ``id``."""

    id: int
    replicas: tuple[Replica, ...]
