"""Request from one process to another to end its simulation, which has no end of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

_POLL_S = 0.05


@dataclass
class Stop:
    """A request to stop: one process creates the file ``path``, the other polls for it."""

    path: Path
    _checked: float = field(default=-1.0, repr=False)
    _requested: bool = field(default=False, repr=False)

    def request(self) -> None:
        """Request the other process to end."""
        self.path.touch()

    @property
    def requested(self) -> bool:
        """Whether the stop has been requested."""
        if not self._requested and time.monotonic() > self._checked + _POLL_S:
            self._checked = time.monotonic()
            self._requested = self.path.exists()
        return self._requested
