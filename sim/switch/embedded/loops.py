"""``for`` statements: their nodes in the tree, and their bounds at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fanin.sim.switch.embedded import ast
from fanin.sim.switch.embedded.budget import MAX_ROUNDS, Budget
from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined
from fanin.sim.switch.embedded.values import UNDEFINED

_TOO_MANY = f"more than {MAX_ROUNDS} rounds of loops for one frame"


@dataclass(slots=True, eq=False)
class ForLoop(ast.Statement):
    """``for (initial; condition; updates) body``."""

    initial: list[ast.Statement]
    condition: ast.Expression
    updates: list[ast.Statement]
    body: ast.Statement


@dataclass(slots=True, eq=False)
class ForIn(ast.Statement):
    """``for (variable in collection) body``; the collection is a range of numbers or a header stack."""

    variable: ast.Variable
    collection: ast.Expression
    body: ast.Statement


def rounds(switch: Budget) -> Iterator[None]:
    """Yield once per round of a loop. Raises RunRefused after MAX_ROUNDS rounds of the frame's loops."""
    while switch.rounds_left > 0:
        switch.rounds_left -= 1
        yield
    raise RunRefused(_TOO_MANY)


def numbers(switch: Budget, low: Any, high: Any) -> range:
    """Return the numbers from ``low`` to ``high``, both included. Raises RunRefused."""
    if low is UNDEFINED or high is UNDEFINED:
        raise RunUndefined("a loop over an undefined range")
    sequence = range(low, high + 1)
    switch.rounds_left -= len(sequence)
    if switch.rounds_left < 0:
        raise RunRefused(_TOO_MANY)
    return sequence
