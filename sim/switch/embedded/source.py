"""Python text as it is generated, with the P4 place of each line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fanin.sim.switch.embedded.errors import Position


class Source:
    """Lines of Python; ``places[i]`` is where line i + 1 comes from."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: list[Position | None] = []
        self.place: Position | None = None
        self._indent = 0
        self._names = 0

    def emit(self, line: str) -> None:
        """Append a line at the current indentation and place."""
        self.lines.append("    " * self._indent + line)
        self.places.append(self.place)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """``header`` and, indented, what the body emits."""
        self.emit(header)
        before = len(self.lines)
        self._indent += 1
        yield
        if len(self.lines) == before:
            self.emit("pass")
        self._indent -= 1

    def fresh(self, name: str) -> str:
        """A Python name that nothing else has; ``name`` is a part of it."""
        self._names += 1
        return f"{name}_{self._names}"

    def extend(self, other: Source) -> None:
        """Append another's lines."""
        self.lines += other.lines
        self.places += other.places
