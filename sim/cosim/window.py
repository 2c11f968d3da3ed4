"""Part of a run that a waveform shows: cycles, nodes and levels of modules."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.base.errors import InputError

CYCLES = 2_000  # default length of a window
ALL_LEVELS = 1_000  # above the depth of any hierarchy
_MAX_CYCLE = 1 << 40


@dataclass(frozen=True)
class Window:
    """Part of a run to record in a waveform. Raises ValueError for a value out of range.

    - ``first``: number of the first rising edge.
    - ``count``: number of rising edges.
    - ``nodes``: numbers of the nodes; None: all.
    - ``depth``: levels of modules in each node; the node's own module is the first.
    """

    first: int = 0
    count: int = CYCLES
    nodes: tuple[int, ...] | None = None
    depth: int = ALL_LEVELS

    def __post_init__(self) -> None:
        if not 0 <= self.first <= _MAX_CYCLE:
            raise ValueError(f"first must be 0 to {_MAX_CYCLE}, not {self.first!r}")
        if not 1 <= self.count <= _MAX_CYCLE:
            raise ValueError(f"count must be 1 to {_MAX_CYCLE}, not {self.count!r}")
        if not 1 <= self.depth <= ALL_LEVELS:
            raise ValueError(f"depth must be 1 to {ALL_LEVELS}, not {self.depth!r}")

    def selected_nodes(self, nodes: int) -> tuple[int, ...]:
        """Return the window's nodes in a run with ``nodes`` nodes. Raises InputError for an absent node."""
        if self.nodes is None:
            return tuple(range(nodes))
        if absent := [node for node in self.nodes if node >= nodes]:
            raise InputError(f"--wave-nodes {absent[0]}: the nodes are 0 to {nodes - 1}")
        return self.nodes


def scope_of(node: int) -> str:
    """Return the name of a node in a waveform."""
    return f"node{node}"
