"""Formulas of binary32 on a few time-shared operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth import Cat, Const, Module, Signal, Value

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.hdl.emit import shared


class Number:
    """Value inside a :class:`Datapath`.

    The value is valid in one cycle per set of operands, ``step`` cycles after the set enters.
    """

    def __init__(self, m: Module, value: Value, step: int, name: str):
        self._m = m
        self._stages = [value]
        self.step = step
        self.name = name

    def at(self, step: int) -> Value:
        """Return the value, delayed to ``step``.

        Raises ValueError if ``step`` is earlier than the value's own step.
        """
        if step < self.step:
            raise ValueError(f"{self.name} is valid from step {self.step} on, not in {step}")
        while len(self._stages) <= step - self.step:
            stage = Signal(self._stages[0].shape(), name=f"{self.name}_{len(self._stages)}", reset_less=True)
            self._m.d.sync += stage.eq(self._stages[-1])
            self._stages.append(stage)
        return self._stages[step - self.step]


class Constant(Number):
    """Number that is valid in every step, from a float that binary32 represents exactly."""

    def __init__(self, value: float):
        bits = np.float32(value)
        if float(bits) != float(value):
            raise ValueError(f"{value!r} is no binary32")
        self._value = Const(int(bits.view(np.uint32)), FLOAT_BITS)
        self.step = 0
        self.name = "constant"

    def at(self, step: int) -> Value:
        """Return the value; it is the same in every step."""
        return self._value


@dataclass
class _Unit:
    """Operator, with the operands that it takes in each phase."""

    o: Signal
    uses: dict[int, tuple[Value, Value]] = field(default_factory=dict)


class Datapath:
    """Schedule of a formula on shared operators; a set of operands enters at most every ``interval`` cycles.

    The formula is written once, as Python: each call of :meth:`multiply`, :meth:`add`, :meth:`subtract` or
    :meth:`logic` adds an operation and returns its result. An operation gets the first free phase of an
    operator after its operands are valid; registers hold operands that wait. An operator thus serves
    ``interval`` operations, and the datapath never stalls.

    Inputs of the constructor:

    - ``phase`` counts 0 … ``interval`` − 1 without a pause while the datapath holds operands, and is 0 when
      operands enter.
    - ``busy`` is high while the datapath holds operands.

    Call :meth:`connect` after the last operation. Raises ValueError for more operations than the operators have
    phases for.
    """

    def __init__(
        self,
        m: Module,
        *,
        name: str,
        phase: Value,
        busy: Value,
        interval: int,
        multipliers: int = 1,
        adders: int = 1,
    ):
        self._m = m
        self._name = name
        self._phase = phase
        self._busy = busy
        self._interval = interval
        self._count = 0
        self._multipliers = _units(f"{name}_multiplier", multipliers)
        self._adders = _units(f"{name}_adder", adders)

    def operand(self, value: Value) -> Number:
        """Return a Number for bits that enter in phase 0."""
        return self._number(value, 0)

    def multiply(self, a: Number, b: Number) -> Number:
        """Return a ⊗ b."""
        return self._operate(self._multipliers, FP32Multiplier.LATENCY, a, b)

    def add(self, a: Number, b: Number) -> Number:
        """Return a ⊕ b."""
        return self._operate(self._adders, FP32Adder.LATENCY, a, b)

    def subtract(self, a: Number, b: Number) -> Number:
        """Return a ⊖ b."""
        return self._operate(self._adders, FP32Adder.LATENCY, a, b, negate=True)

    def logic(self, function: Callable[..., Any], *operands: Number) -> Number:
        """Return the registered result of a combinational ``function`` of the operands' bits."""
        step = max(operand.step for operand in operands)
        value = Value.cast(function(*(operand.at(step) for operand in operands)))
        register = Signal(value.shape(), name=f"{self._name}_logic_{self._count}", reset_less=True)
        self._m.d.sync += register.eq(value)
        return self._number(register, step + 1)

    def polynomial(self, terms: tuple[float, ...], x: Number) -> Number:
        """Return Σ terms[k] · x^k by Horner's rule: (t ⊗ x) ⊕ next, from the last term."""
        total: Number = Constant(terms[-1])
        for term in reversed(terms[:-1]):
            total = self.add(self.multiply(total, x), Constant(term))
        return total

    def connect(self) -> None:
        """Connect each operator, in each phase, to the operands of the operation that owns the phase."""
        arrays = [(unit, shared(LaneArray(trees=(((0, 0),),)))) for unit in self._multipliers]
        arrays += [(unit, shared(AdderArray(lanes=1))) for unit in self._adders]
        m = self._m
        for unit, array in arrays:
            m.submodules[unit.o.name] = array
            m.d.comb += unit.o.eq(array.o[0])
            with m.Switch(self._phase):
                for phase, (a, b) in sorted(unit.uses.items()):
                    with m.Case(phase):
                        m.d.comb += [array.a[0].eq(a), array.b[0].eq(b), array.valid.eq(self._busy)]

    def _operate(
        self, units: list[_Unit], latency: int, a: Number, b: Number, *, negate: bool = False
    ) -> Number:
        """Reserve the first free phase of ``units`` from the operands' step on; return the operation's result.

        ``negate``: invert the sign of ``b``.
        """
        first_step = max(a.step, b.step)
        for step in range(first_step, first_step + self._interval):
            phase = step % self._interval
            for unit in units:
                if phase not in unit.uses:
                    second = b.at(step)
                    if negate:
                        second = Cat(second[:-1], ~second[-1])
                    unit.uses[phase] = a.at(step), second
                    return self._number(unit.o, step + latency)
        raise ValueError(f"{self._name}: {len(units)} operators have no phase left")

    def _number(self, value: Value, step: int) -> Number:
        self._count += 1
        return Number(self._m, Value.cast(value), step, f"{self._name}_{self._count}")


def _units(name: str, count: int) -> list[_Unit]:
    return [_Unit(Signal(FLOAT_BITS, name=f"{name}_{index}")) for index in range(count)]
