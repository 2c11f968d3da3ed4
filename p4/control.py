"""What a control plane installs in a switch: table entries and multicast groups, whichever switch it is.

The embedded switch takes these objects as they are; for P4Runtime (BMv2) and BFRuntime (Tofino) they are
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
    """Matches the first ``length`` bits of a key; of several, the longest wins."""

    value: int
    length: int


@dataclass(frozen=True)
class Range:
    """Matches from ``low`` to ``high``, both included."""

    low: int
    high: int


Match = Exact | Ternary | Lpm | Range


@dataclass(frozen=True)
class TableEntry:
    """An entry. A key that ``match`` does not name is not cared about (exact keys must all be named).

    ``priority`` decides between ternary and range matches: the larger number wins; it is 0 in other tables.
    """

    table: str
    match: Mapping[str, Match]
    action: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True)
class Replica:
    """A copy of a multicast packet: the port that it leaves at, and its id (``egress_rid``).

    On Tofino, a packet whose ``level1_exclusion_id`` is ``exclusion`` makes no such copy.
    """

    port: int
    id: int = 0
    exclusion: int | None = None


@dataclass(frozen=True)
class MulticastGroup:
    """Where a packet goes that is sent to group ``id``, in order."""

    id: int
    replicas: tuple[Replica, ...]
