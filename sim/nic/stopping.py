"""How one process asks another, whose simulation has no end of its own, to come to it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

_EVERY_S = 0.05


@dataclass
class Stop:
    """Asked for by a file that appears; looked for now and then."""

    path: Path
    _seen: float = field(default=-1.0, repr=False)
    _asked: bool = field(default=False, repr=False)

    def ask(self) -> None:
        """Let the other process come to its end."""
        self.path.touch()

    @property
    def asked(self) -> bool:
        """Whether anybody has."""
        if not self._asked and time.monotonic() > self._seen + _EVERY_S:
            self._seen = time.monotonic()
            self._asked = self.path.exists()
        return self._asked
