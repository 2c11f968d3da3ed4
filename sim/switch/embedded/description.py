"""What a program offers to a control plane: names, widths, match kinds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class KeyInfo:
    """A key of a table."""

    name: str
    kind: str
    width: int
    signed: bool = False


@dataclass(frozen=True)
class ActionInfo:
    """An action: the parameters that an entry gives, with their widths."""

    name: str
    parameters: dict[str, int]
    function: str  # the Python function that takes the frame and these
    number: int


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
    """A table. ``default`` is an action's name and arguments."""

    name: str
    keys: tuple[KeyInfo, ...]
    actions: dict[str, ActionInfo]
    default: tuple[str, tuple[int, ...]]
    default_constant: bool = False
    rows: tuple[RowInfo, ...] = ()
    constant: bool = False
    counters: tuple[str, ...] = field(default=())  # Python names of the direct counters that each hit counts


@dataclass(frozen=True)
class ExternInfo:
    """An instance of an extern object: its kind and its name for the control plane."""

    kind: str
    name: str
