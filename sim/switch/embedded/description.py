"""What a program offers to a control plane: names, widths, match kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_SIZE = 1024  #: entries of a table that does not say how many, as p4c has it
NOTHING = "NoAction"
ORDERED = ("ternary", "range", "optional")  #: a table with a key of such a kind goes by priority


@dataclass(frozen=True)
class KeyInfo:
    """A key of a table."""

    name: str
    kind: str
    width: int
    signed: bool = False
    id: int | None = None  #: what ``@id`` says
    type: Any = None


@dataclass(frozen=True)
class ActionInfo:
    """An action: the parameters that an entry gives, with their widths and their types."""

    name: str
    parameters: dict[str, int]
    function: str  # the Python function that takes the frame and these
    number: int
    id: int | None = None
    ids: dict[str, int] = field(default_factory=dict)  #: of parameters that have ``@id``
    types: dict[str, Any] = field(default_factory=dict)


NO_ACTION = ActionInfo(NOTHING, {}, "no_action", -1)  #: what a table without a default action does on a miss


@dataclass(frozen=True)
class RowInfo:
    """An entry of the program's text; a key that is not cared about has no match."""

    matches: tuple[tuple[int, int] | range | None, ...]  # (value, mask), or a range
    action: str
    arguments: tuple[int, ...]
    priority: int
    constant: bool


@dataclass(frozen=True)
class TableInfo:
    """A table. ``default`` is an action's name and arguments; ``only`` says of actions that they are for
    ``"entries"`` or for the ``"default"``; ``attached`` names its direct counters and meters, ``profile`` its
    action profile; ``ages``: its entries have idle timeouts.
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
    only: dict[str, str] = field(default_factory=dict)
    attached: tuple[str, ...] = ()
    profile: str | None = None
    id: int | None = None
    ages: bool = False


@dataclass(frozen=True)
class ExternInfo:
    """An instance of an extern object: its kind, its name for the control plane, how it was made."""

    kind: str
    name: str
    types: tuple[Any, ...] = ()  #: its type arguments
    arguments: tuple[Any, ...] = ()  #: the constructor's numbers and enum members; None for others
    id: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  #: those of one word each, by name


@dataclass(frozen=True)
class DigestInfo:
    """What a program sends its controller by ``digest``: messages of ``type``, named after it."""

    name: str
    type: Any


@dataclass(frozen=True)
class ControllerHeader:
    """A header between the switch and its controller: ``kind`` is what ``@controller_header`` says."""

    name: str
    kind: str
    fields: tuple[KeyInfo, ...]  #: in order; their ``kind`` means nothing here
    id: int | None = None
