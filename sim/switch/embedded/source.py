"""Generated Python text, with the position in the P4 text for each line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fanin.sim.switch.embedded.errors import Position


class Source:
    """Lines of Python; ``positions[i]`` is the P4 position of line i + 1."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.positions: list[Position | None] = []
        self.position: Position | None = None
        self._indent = 0
        self._names = 0

    def emit(self, line: str) -> None:
        """Append a line at the current indentation and position."""
        self.lines.append("    " * self._indent + line)
        self.positions.append(self.position)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Emit ``header`` and, indented, the lines of the body."""
        self.emit(header)
        first = len(self.lines)
        self._indent += 1
        yield
        if len(self.lines) == first:
            self.emit("pass")
        self._indent -= 1

    def unique_name(self, name: str) -> str:
        """Return a unique Python name that begins with ``name``."""
        self._names += 1
        return f"{name}_{self._names}"

    def extend(self, other: Source) -> None:
        """Append the lines of ``other``."""
        self.lines += other.lines
        self.positions += other.positions
