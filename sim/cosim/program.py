"""Programs of the host bus master in the simulated top: sequences of register accesses."""

from __future__ import annotations

import functools
import operator
from array import array
from collections.abc import Iterable
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fanin.hdl.bus.register_map import RegisterMap
from fanin.host.driver import Operation

_ALL = 0xFFFF_FFFF


class Action(IntEnum):
    """Actions of the host; numbers as in dpi.cpp."""

    WRITE = 0
    READ = 1
    POLL = 2
    CHECK = 3
    AWAIT = 4


class HostProgram:
    """Register accesses in order, carried out by the top without Python, about 4 cycles each."""

    def __init__(self) -> None:
        self._words = array("I")

    def __len__(self) -> int:
        return len(self._words) // 4

    def _add(self, action: Action, address: int, data: int = 0, mask: int = _ALL) -> HostProgram:
        self._words.extend((action, address, data & _ALL, mask))
        return self

    def write(self, address: int, data: int) -> HostProgram:
        """Write a word."""
        return self._add(Action.WRITE, address, data)

    def read(self, address: int) -> HostProgram:
        """Read a word and append it to the program's reads."""
        return self._add(Action.READ, address)

    def poll(self, address: int, value: int, mask: int = _ALL) -> HostProgram:
        """Read a word until its bits under ``mask`` equal ``value``; only the simulation's watchdog ends it."""
        return self._add(Action.POLL, address, value, mask)

    def await_change(self, registers: RegisterMap, register: str, **fields: int) -> HostProgram:
        """Read a register until one of the given fields has another value; append that word to the reads.

        Raises KeyError for an unknown field.
        """
        fields_of_register = [_field(registers, register, name, value) for name, value in fields.items()]
        data, mask = (
            functools.reduce(operator.or_, part) for part in list(zip(*fields_of_register, strict=True))[1:]
        )
        return self._add(Action.AWAIT, fields_of_register[0][0], data, mask)

    def check(self, address: int, value: int, mask: int = _ALL) -> HostProgram:
        """Read a word; the simulation fails unless its bits under ``mask`` equal ``value``."""
        return self._add(Action.CHECK, address, value, mask)

    def poll_field(self, registers: RegisterMap, register: str, field: str, value: int) -> HostProgram:
        """``poll`` until a field of a register has a value. Raises KeyError for an unknown field."""
        return self.poll(*_field(registers, register, field, value))

    def check_field(self, registers: RegisterMap, register: str, field: str, value: int) -> HostProgram:
        """``check`` that a field of a register has a value. Raises KeyError for an unknown field."""
        return self.check(*_field(registers, register, field, value))

    def extend(self, operations: Iterable[Operation]) -> HostProgram:
        """Add bus operations, for instance of a register driver's batch."""
        for address, data in operations:
            self._add(Action.READ, address) if data is None else self._add(Action.WRITE, address, data)
        return self

    def words(self) -> npt.NDArray[np.uint32]:
        """Return the program in dpi.cpp's format: rows of action, address, data and mask."""
        return np.array(self._words, dtype=np.uint32).reshape(-1, 4)


def _field(registers: RegisterMap, register: str, name: str, value: int) -> tuple[int, int, int]:
    """Return address, value and mask of a register's field."""
    for field, shift in registers[register].shifts():
        if field.name == name:
            return registers.offset(register), value << shift, (1 << field.bits) - 1 << shift
    raise KeyError(f"register {register} has no field {name!r}")
