"""Spans of a host's work: the first ones of a run are kept for its timeline, the others counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

MOST_SPANS = 2_000  # kept per host

T = TypeVar("T")


@dataclass
class FirstSpans(Generic[T]):
    """The first ``MOST_SPANS`` spans; ``left_out`` counts the later ones."""

    kept: list[T] = field(default_factory=list)
    left_out: int = 0

    def note(self, span: T) -> None:
        """Keep a span, or count it."""
        if len(self.kept) < MOST_SPANS:
            self.kept.append(span)
        else:
            self.left_out += 1
