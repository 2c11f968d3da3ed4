"""Log of a host's first spans of work in a run, for its timeline; later spans are only counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

MOST_SPANS = 2_000  # limit of logged spans, per host

T = TypeVar("T")


@dataclass
class FirstSpans(Generic[T]):
    """First ``MOST_SPANS`` spans, in ``kept``; ``left_out`` counts the later ones."""

    kept: list[T] = field(default_factory=list)
    left_out: int = 0

    def note(self, span: T) -> None:
        """Log a span, or only count it once ``MOST_SPANS`` spans are logged."""
        if len(self.kept) < MOST_SPANS:
            self.kept.append(span)
        else:
            self.left_out += 1
