"""Registers in a row, for what travels beside a pipeline."""

from typing import Any

from amaranth import Module, Signal, Value


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


class Pipeline:
    """Registers that move on together, in the cycles in which ``enable`` is high."""

    def __init__(self, m: Module, enable: Value):
        self.m = m
        self.enable = enable

    def register(self, value: Any, *, name: str, reset_less: bool = True) -> Signal:
        """``value``, one step later."""
        later = Signal(Value.cast(value).shape(), name=name, reset_less=reset_less)
        with self.m.If(self.enable):
            self.m.d.sync += later.eq(value)
        return later

    def delay(self, value: Any, steps: int = 1, *, name: str, reset_less: bool = True) -> Any:
        """``value``, ``steps`` steps later."""
        for step in range(1, steps + 1):
            value = self.register(value, name=f"{name}_{step}", reset_less=reset_less)
        return value
