"""Values of rows, as functions of the figures of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fanin.evaluation.origins.graph import matching

Figures = Mapping[str, float]  # numbers in a command's output, by identifier or by path in its JSON


@dataclass(frozen=True)
class Value:
    """Number that is computed from a command's figures.

    - ``text``: formula, for a reader.
    - ``figures``: identifiers of the figures, or patterns with ``*``.
    - ``compute``: function that computes the number; raises KeyError for a missing figure.
    """

    text: str
    figures: tuple[str, ...]
    compute: Callable[[Figures], float]

    def __call__(self, figures: Figures) -> float:
        """Return the number. Raises KeyError for a missing figure."""
        return self.compute(figures)


def figure_value(figure: str, scale: float = 1.0) -> Value:
    """Return the value of a figure times ``scale``."""
    text = figure if scale == 1 else f"{scale:g} × {figure}"
    return Value(text, (figure,), lambda figures: scale * figures[figure])


def inverse(figure: str) -> Value:
    """Return the reciprocal of a figure as a value."""
    return Value(f"1 ÷ {figure}", (figure,), lambda figures: 1 / figures[figure])


def ratio(numerator: str, denominator: str) -> Value:
    """Return the quotient of two figures as a value."""
    return Value(
        f"{numerator} ÷ {denominator}",
        (numerator, denominator),
        lambda figures: figures[numerator] / figures[denominator],
    )


def percent(part: str, total: str) -> Value:
    """Return the figure ``part`` in % of the figure ``total``, as a value."""
    return Value(f"100 × {part} ÷ {total}", (part, total), lambda f: 100 * f[part] / f[total])


def saving(current: str, baseline: str) -> Value:
    """Return the saving of ``current`` relative to ``baseline`` in %, as a value."""
    text = f"100 × (1 − {current} ÷ {baseline})"
    return Value(text, (current, baseline), lambda figures: 100 * (1 - figures[current] / figures[baseline]))


def extreme(select: Callable[[Iterable[float]], float], *patterns: str) -> Value:
    """Return the minimum or maximum of the matching figures as a value.

    - ``select``: ``min`` or ``max``.
    - ``patterns``: patterns with ``*``; the value raises KeyError if one matches no figure.
    """

    def compute(figures: Figures) -> float:
        return select(figures[name] for pattern in patterns for name in matching(pattern, figures))

    return Value(f"{select.__name__} of {', '.join(patterns)}", patterns, compute)


def total(pattern: str) -> Value:
    """Return the sum of the figures that match a pattern, as a value."""
    return Value(f"sum of {pattern}", (pattern,), lambda f: sum(f[name] for name in matching(pattern, f)))


def quotient(numerator: Value, denominator: Value) -> Value:
    """Return the quotient of two values."""
    text = f"{numerator.text} ÷ {denominator.text}"
    return Value(
        text,
        (*numerator.figures, *denominator.figures),
        lambda figures: numerator(figures) / denominator(figures),
    )


def times(scale: float, value: Value, text: str) -> Value:
    """Return a value times ``scale``. ``text``: formula of the result."""
    return Value(text, value.figures, lambda figures: scale * value(figures))
