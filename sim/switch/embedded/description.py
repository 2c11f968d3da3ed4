"""Description of a program for a control plane: names, widths, match kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_SIZE = 1024  #: entries of a table without an explicit size, as in p4c
NO_ACTION_NAME = "NoAction"
ORDERED = ("ternary", "range", "optional")  #: match kinds whose tables have priorities


@dataclass(frozen=True)
class KeyInfo:
    """A key of a table, as the control plane names it; ``width`` in bits."""

    name: str
    kind: str
    width: int
    signed: bool = False
    id: int | None = None  #: value of ``@id``
    type: Any = None


@dataclass(frozen=True)
class ActionInfo:
    """An action: the parameters that an entry sets, with their widths and their types."""

    name: str
    parameters: dict[str, int]
    function: str  # the Python function that takes the frame and these
    number: int
    id: int | None = None
    ids: dict[str, int] = field(default_factory=dict)  #: of parameters with ``@id``
    types: dict[str, Any] = field(default_factory=dict)


#: Action on a miss in a table without a default action.
NO_ACTION = ActionInfo(NO_ACTION_NAME, {}, "no_action", -1)


@dataclass(frozen=True)
class RowInfo:
    """An entry of the program's text; a key that matches any value has the match None."""

    matches: tuple[tuple[int, int] | range | None, ...]  # (value, mask), or a range
    action: str
    arguments: tuple[int, ...]
    priority: int
    constant: bool


@dataclass(frozen=True)
class TableInfo:
    """Description of a table for the control plane.

    - ``default``: name and arguments of the default action.
    - ``limited_actions``: ``"entries"`` or ``"default"``, for each action that is limited to one of these uses.
    - ``direct_externs``: names of its direct counters and meters.
    - ``profile``: name of its action profile.
    - ``has_timeouts``: whether its entries have idle timeouts.
    """

    name: str
    keys: tuple[KeyInfo, ...]
    actions: dict[str, ActionInfo]
    default: tuple[str, tuple[int, ...]]
    default_constant: bool = False
    rows: tuple[RowInfo, ...] = ()
    constant: bool = False
    counters: tuple[str, ...] = field(default=())  # Python names of the direct counters that each hit counts
    size: int = DEFAULT_SIZE
    limited_actions: dict[str, str] = field(default_factory=dict)
    direct_externs: tuple[str, ...] = ()
    profile: str | None = None
    id: int | None = None
    has_timeouts: bool = False


@dataclass(frozen=True)
class ExternInfo:
    """An instance of an extern object: its kind, its name for the control plane, its construction."""

    kind: str
    name: str
    types: tuple[Any, ...] = ()  #: its type arguments
    arguments: tuple[Any, ...] = ()  #: the constructor's numbers and enum members; None for other arguments
    id: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  #: annotations of one word, by name


@dataclass(frozen=True)
class DigestInfo:
    """A digest of a program for its controller: messages of ``type``; the type gives the name."""

    name: str
    type: Any


@dataclass(frozen=True)
class ControllerHeader:
    """A header between the switch and its controller; ``kind`` is the value of ``@controller_header``."""

    name: str
    kind: str
    fields: tuple[KeyInfo, ...]  #: in order; their ``kind`` has no meaning here
    id: int | None = None
