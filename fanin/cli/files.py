"""What a command that writes a folder reads and writes, by its options: what ``fanin rerun`` has to know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Files:
    """Options of a command, by their names in its arguments. A parser has it as its default ``files``.

    ``inputs`` name files and folders that it reads; ``output`` its folder. ``copies`` name places for what the
    folder holds, too; ``capture`` one for frames, which it does not hold.
    """

    inputs: tuple[str, ...] = ()
    output: str = "output"
    copies: tuple[str, ...] = ()
    capture: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """All options that name places."""
        capture = (self.capture,) if self.capture else ()
        return (*self.inputs, self.output, *self.copies, *capture)
