"""Observer of a run's frames. A protocol's observer (``fanin.sim.switch.operations``) derives from it."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Watch:
    """Counter of the frames that nodes send, and base of a protocol's observer.

    The exchange calls the methods in the order of cycles. ``nodes``: number of nodes.
    """

    def __init__(self, nodes: int):
        #: Frames that nodes sent, by kind; this class knows one kind.
        self.sent: Counter[str] = Counter()

    @property
    def operations(self) -> int:
        """Number of operations that have ended, of all nodes; the progress of a run."""
        return 0

    def note_configured(self, cycle: int) -> None:
        """Note the end of a phase. The first phase configures the nodes."""

    def note_sent(self, node: int, cycle: int, frame: bytes) -> None:
        """Note a frame that left a node."""
        self.sent["other"] += 1

    def note_reached(self, node: int, cycle: int) -> None:
        """Note the arrival of a node's first frame at the switch."""

    def note_delivered(self, tag: int, node: int, frame: bytes) -> None:
        """Note an intact frame on its last link to a node. ``tag`` identifies it in ``note_taken``."""

    def note_taken(self, tag: int, cycle: int) -> None:
        """Note that a node has taken the last beat of a frame."""

    def result(self, end: int) -> Any:
        """Return the result of the observation up to cycle ``end``: ``RunResult.watched``."""
        return None
