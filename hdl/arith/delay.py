"""Delay lines: registers in a row for signals that accompany a pipeline."""

from typing import Any

from amaranth import Module, Signal, Value


def delayed(m: Module, value: Any, cycles: int, *, name: str, reset_less: bool = True) -> list[Any]:
    """Return ``value`` with delays of 0, 1, … ``cycles`` cycles.

    Flags that trigger an action need ``reset_less=False``; data that such flags qualify do not.
    """
    stages = [value]
    for cycle in range(1, cycles + 1):
        stage = Signal.like(value, name=f"{name}_{cycle}", reset_less=reset_less)
        m.d.sync += stage.eq(stages[-1])
        stages.append(stage)
    return stages


class Pipeline:
    """Registers that advance together, in the cycles in which ``enable`` is high."""

    def __init__(self, m: Module, enable: Value):
        self.m = m
        self.enable = enable

    def register(self, value: Any, *, name: str, reset_less: bool = True) -> Signal:
        """Return ``value`` delayed by one step."""
        register = Signal(Value.cast(value).shape(), name=name, reset_less=reset_less)
        with self.m.If(self.enable):
            self.m.d.sync += register.eq(value)
        return register

    def delay(self, value: Any, steps: int = 1, *, name: str, reset_less: bool = True) -> Any:
        """Return ``value`` delayed by ``steps`` steps."""
        for step in range(1, steps + 1):
            value = self.register(value, name=f"{name}_{step}", reset_less=reset_less)
        return value
