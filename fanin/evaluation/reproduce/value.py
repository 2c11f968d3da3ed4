"""Values: what a row takes of the figures of its command, with their identifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fanin.evaluation.origins.graph import fitting

Figures = Mapping[str, float]  # what a command prints, by identifier, or by the path in its JSON


@dataclass(frozen=True)
class Value:
    """A number of a command's figures.

    ``text``: how it is computed, for a reader. ``figures``: identifiers of the figures, or patterns with ``*``.
    ``take``: computes it; KeyError for a figure that is missing.
    """

    text: str
    figures: tuple[str, ...]
    take: Callable[[Figures], float]

    def __call__(self, figures: Figures) -> float:
        """Return the number. Raises KeyError for a figure that is missing."""
        return self.take(figures)


def one(figure: str, scale: float = 1.0) -> Value:
    """The figure itself, times ``scale``."""
    text = figure if scale == 1 else f"{scale:g} × {figure}"
    return Value(text, (figure,), lambda figures: scale * figures[figure])


def inverse(figure: str) -> Value:
    """One over the figure."""
    return Value(f"1 ÷ {figure}", (figure,), lambda figures: 1 / figures[figure])


def ratio(over: str, under: str) -> Value:
    """One figure over another."""
    return Value(f"{over} ÷ {under}", (over, under), lambda figures: figures[over] / figures[under])


def percent(part: str, whole: str) -> Value:
    """One figure in % of another."""
    return Value(f"100 × {part} ÷ {whole}", (part, whole), lambda f: 100 * f[part] / f[whole])


def saved(now: str, before: str) -> Value:
    """What is saved of ``before``, in %."""
    text = f"100 × (1 − {now} ÷ {before})"
    return Value(text, (now, before), lambda figures: 100 * (1 - figures[now] / figures[before]))


def extreme(pick: Callable[[Iterable[float]], float], *patterns: str) -> Value:
    """The least or the most (``pick``: min, max) of the figures that fit a pattern; some must fit each."""

    def take(figures: Figures) -> float:
        return pick(figures[name] for pattern in patterns for name in fitting(pattern, figures))

    return Value(f"{pick.__name__} of {', '.join(patterns)}", patterns, take)


def total(pattern: str) -> Value:
    """The sum of the figures that fit a pattern."""
    return Value(f"sum of {pattern}", (pattern,), lambda f: sum(f[name] for name in fitting(pattern, f)))


def quotient(over: Value, under: Value) -> Value:
    """One value over another."""
    text = f"{over.text} ÷ {under.text}"
    return Value(text, (*over.figures, *under.figures), lambda figures: over(figures) / under(figures))


def times(scale: float, value: Value, text: str) -> Value:
    """A value times ``scale``, which ``text`` explains."""
    return Value(text, value.figures, lambda figures: scale * value(figures))
