"""Request from one process to another to end its simulation, which has no end of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

_EVERY_S = 0.05


@dataclass
class Stop:
    """A request to stop, made by creating a file, which is polled."""

    path: Path
    _seen: float = field(default=-1.0, repr=False)
    _asked: bool = field(default=False, repr=False)

    def ask(self) -> None:
        """Request the other process to end."""
        self.path.touch()

    @property
    def asked(self) -> bool:
        """Whether the stop has been requested."""
        if not self._asked and time.monotonic() > self._seen + _EVERY_S:
            self._seen = time.monotonic()
            self._asked = self.path.exists()
        return self._asked
