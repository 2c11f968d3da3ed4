"""Values of rows, as functions of the figures of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fanin.evaluation.origins.graph import fitting

Figures = Mapping[str, float]  # numbers in a command's output, by identifier or by path in its JSON


@dataclass(frozen=True)
class Value:
    """Number that is computed from a command's figures.

    - ``text``: formula, for a reader.
    - ``figures``: identifiers of the figures, or patterns with ``*``.
    - ``take``: function that computes the number; raises KeyError for a missing figure.
    """

    text: str
    figures: tuple[str, ...]
    take: Callable[[Figures], float]

    def __call__(self, figures: Figures) -> float:
        """Return the number. Raises KeyError for a missing figure."""
        return self.take(figures)


def one(figure: str, scale: float = 1.0) -> Value:
    """Return the value of a figure times ``scale``."""
    text = figure if scale == 1 else f"{scale:g} × {figure}"
    return Value(text, (figure,), lambda figures: scale * figures[figure])


def inverse(figure: str) -> Value:
    """Return the reciprocal of a figure as a value."""
    return Value(f"1 ÷ {figure}", (figure,), lambda figures: 1 / figures[figure])


def ratio(over: str, under: str) -> Value:
    """Return the value ``over`` ÷ ``under`` of two figures."""
    return Value(f"{over} ÷ {under}", (over, under), lambda figures: figures[over] / figures[under])


def percent(part: str, whole: str) -> Value:
    """Return the figure ``part`` in % of the figure ``whole``, as a value."""
    return Value(f"100 × {part} ÷ {whole}", (part, whole), lambda f: 100 * f[part] / f[whole])


def saved(now: str, before: str) -> Value:
    """Return the saving of ``now`` relative to ``before`` in %, as a value."""
    text = f"100 × (1 − {now} ÷ {before})"
    return Value(text, (now, before), lambda figures: 100 * (1 - figures[now] / figures[before]))


def extreme(pick: Callable[[Iterable[float]], float], *patterns: str) -> Value:
    """Return the minimum or maximum (``pick``) of the matching figures; each pattern must match a figure."""

    def take(figures: Figures) -> float:
        return pick(figures[name] for pattern in patterns for name in fitting(pattern, figures))

    return Value(f"{pick.__name__} of {', '.join(patterns)}", patterns, take)


def total(pattern: str) -> Value:
    """Return the sum of the figures that match a pattern, as a value."""
    return Value(f"sum of {pattern}", (pattern,), lambda f: sum(f[name] for name in fitting(pattern, f)))


def quotient(over: Value, under: Value) -> Value:
    """Return the quotient of two values."""
    text = f"{over.text} ÷ {under.text}"
    return Value(text, (*over.figures, *under.figures), lambda figures: over(figures) / under(figures))


def times(scale: float, value: Value, text: str) -> Value:
    """Return a value times ``scale``. ``text``: formula of the result."""
    return Value(text, value.figures, lambda figures: scale * value(figures))
