"""Registers in a row, for what travels beside a pipeline."""

from typing import Any

from amaranth import Module, Signal


def delayed(m: Module, value: Any, cycles: int, *, name: str, reset_less: bool = True) -> list[Any]:
    """``value`` now, one cycle ago, … ``cycles`` cycles ago.

    Flags that act on something need ``reset_less=False``; data that they guard do not.
    """
    stages = [value]
    for cycle in range(1, cycles + 1):
        stage = Signal.like(value, name=f"{name}_{cycle}", reset_less=reset_less)
        m.d.sync += stage.eq(stages[-1])
        stages.append(stage)
    return stages
