"""Register maps, declared once: RTL, host driver, C header and documentation derive from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

WORD_BYTES = 4
WORD_BITS = 8 * WORD_BYTES


class Access(StrEnum):
    """Access to a register by host and hardware; the value appears in the documentation."""

    RO = "ro"  #: the host reads a value that the hardware drives
    RW = "rw"  #: the host writes and reads back, the hardware reads
    PULSE = "pulse"  #: a one that is written is high for one cycle; reads as 0
    COUNTER = "counter"  #: the hardware adds to it; the host reads
    WINDOW = "window"  #: every access is passed to the hardware, which answers when it is ready


@dataclass(frozen=True)
class Field:
    """Bits of a register; fields are adjacent in the order of declaration, from bit 0 up."""

    name: str
    bits: int
    doc: str
    reset: int = 0

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"name of a field must be an identifier, not {self.name!r}")
        if not 1 <= self.bits <= 2 * WORD_BITS:
            raise ValueError(f"bits of field {self.name} must be from 1 to 64, not {self.bits!r}")
        if not 0 <= self.reset < 1 << self.bits:
            raise ValueError(f"reset of field {self.name} must fit {self.bits} bits, not {self.reset!r}")


@dataclass(frozen=True)
class Register:
    """Register of one or two 32-bit words, or an array of ``count`` such elements.

    Without ``fields`` the register is one value of ``bits`` bits. Limits by access:

    - ``rw`` and ``counter`` may have 64 bits, in two words, the low one first.
    - ``counter`` has 32 or 64 bits and wraps; the hardware adds a number of ``step`` bits in every cycle.
    - ``window`` is one word.
    """

    name: str
    access: Access
    doc: str
    fields: tuple[Field, ...] = ()
    bits: int = WORD_BITS
    reset: int = 0
    count: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "access", Access(self.access))
        object.__setattr__(self, "fields", tuple(self.fields))
        total = sum(field.bits for field in self.parts)
        limit = 2 * WORD_BITS if self.access in (Access.RW, Access.COUNTER) and not self.fields else WORD_BITS
        if total > limit:
            raise ValueError(f"bits of register {self.name} must be at most {limit}, not {total}")
        if self.access in (Access.COUNTER, Access.WINDOW) and (self.fields or self.bits % WORD_BITS):
            raise ValueError(f"{self.access} register {self.name} must have whole words and no fields")
        if self.count < 1:
            raise ValueError(f"count of register {self.name} must be at least 1, not {self.count!r}")
        if not 1 <= self.step <= WORD_BITS:
            raise ValueError(f"step of register {self.name} must be from 1 to 32 bits, not {self.step!r}")

    @property
    def parts(self) -> tuple[Field, ...]:
        """Return the fields; for a register without fields, its value as a field."""
        return self.fields or (Field(self.name, self.bits, self.doc, self.reset),)

    @property
    def words(self) -> int:
        """Return the number of words of one element."""
        return -(-sum(field.bits for field in self.parts) // WORD_BITS)

    def shifts(self) -> Iterator[tuple[Field, int]]:
        """Yield every field with its lowest bit."""
        shift = 0
        for field in self.parts:
            yield field, shift
            shift += field.bits

    @property
    def reset_word(self) -> int:
        """Return the value of a register of one word after reset; 0 if the hardware drives another."""
        return sum(field.reset << shift for field, shift in self.shifts())

    def word_name(self, word: int) -> str:
        """Return the name of a single word: ``x``, or ``x_low`` and ``x_high``."""
        return self.name + (("_low", "_high")[word] if self.words > 1 else "")

    def word_shifts(self, word: int) -> Iterator[tuple[Field, int]]:
        """Yield the fields in a word with their lowest bits; only a value without fields has two words."""
        if self.words == 1:
            yield from self.shifts()
            return
        (value,) = self.parts
        bits = min(WORD_BITS, value.bits - word * WORD_BITS)
        yield Field(value.name, bits, value.doc, value.reset >> word * WORD_BITS & (1 << bits) - 1), 0

    def pack(self, values: dict[str, int]) -> int:
        """Return the bits of one element. Missing ``pulse`` fields are 0; ``rw`` fields must all be given.

        Raises ValueError for a missing or unknown field, or for a value that does not fit, signed or unsigned.
        """
        names = {field.name for field in self.parts}
        missing = names - values.keys() if self.access is Access.RW else set()
        for problem, wrong_names in ("unknown", values.keys() - names), ("missing", missing):
            if wrong_names:
                raise ValueError(f"register {self.name}: {problem} field {', '.join(sorted(wrong_names))}")
        word = 0
        for field, shift in self.shifts():
            value = int(values.get(field.name, 0))
            if not -(1 << field.bits) >> 1 <= value < 1 << field.bits:
                raise ValueError(f"field {field.name} must fit {field.bits} bits, not {value}")
            word |= (value & ((1 << field.bits) - 1)) << shift
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """Return the fields of one element's bits, unsigned."""
        return {field.name: word >> shift & ((1 << field.bits) - 1) for field, shift in self.shifts()}


@dataclass(frozen=True)
class Symbol:
    """Named number of a header: in hexadecimal with ``digits`` digits, or decimal if that is 0."""

    name: str
    value: int
    digits: int = 0
    doc: str = ""


@dataclass(frozen=True)
class RegisterMap:
    """Registers at consecutive offsets; a register of two words is at a multiple of 8.

    ``clear``: name of the ``pulse`` field that zeroes all counters, if any. ``address_bits``: address bits that
    the slave decodes; 12 are 4 KiB, the smallest region that interconnects assign.

    Raises ValueError for names used twice, a ``clear`` that is no pulse, and a map that does not fit.
    """

    registers: tuple[Register, ...]
    clear: str | None = None
    address_bits: int = 12

    def __post_init__(self) -> None:
        object.__setattr__(self, "registers", tuple(self.registers))
        for kind, names in (
            ("register", [register.name for register in self.registers]),
            ("field", [field.name for register in self.registers for field in register.parts]),
        ):
            duplicates = sorted({name for name in names if names.count(name) > 1})
            if duplicates:
                raise ValueError(f"{kind} name used twice: {', '.join(duplicates)}")
        pulses = [register for register in self.registers if register.access is Access.PULSE]
        clear_fields = [field.name for r in pulses if r.count == 1 for field in r.parts if field.bits == 1]
        if self.clear is not None and self.clear not in clear_fields:
            raise ValueError(
                f"clear must name a pulse of one bit ({', '.join(clear_fields)}), not {self.clear!r}"
            )
        if self.size > 1 << self.address_bits:
            raise ValueError(
                f"address_bits must cover the map's {self.size} bytes, not {1 << self.address_bits}"
            )

    @cached_property
    def _offsets(self) -> dict[str, int]:
        offsets, offset = {}, 0
        for register in self.registers:
            size = register.words * WORD_BYTES
            offset = -(-offset // size) * size
            offsets[register.name] = offset
            offset += size * register.count
        offsets[""] = offset
        return offsets

    @property
    def size(self) -> int:
        """Return the bytes from the first register to the end of the last."""
        return self._offsets[""]

    def __getitem__(self, name: str) -> Register:
        """Return the register with that name. Raises KeyError."""
        for register in self.registers:
            if register.name == name:
                return register
        raise KeyError(f"no register is called {name!r}")

    def offset(self, name: str, index: int = 0) -> int:
        """Return the byte offset of a register, or of element ``index`` of an array.

        Raises KeyError, IndexError.
        """
        register = self[name]
        if index not in range(register.count):
            raise IndexError(f"register {name} has {register.count} elements; there is no {index}")
        return self._offsets[name] + index * register.words * WORD_BYTES

    def words(self) -> Iterator[tuple[int, Register, int, int]]:
        """Yield every word as ``(word number, register, element, word of the element)``."""
        for register in self.registers:
            for index in range(register.count):
                for word in range(register.words):
                    yield self.offset(register.name, index) // WORD_BYTES + word, register, index, word

    def as_dict(self) -> dict[str, Any]:
        """Return the map for JSON: byte offsets, and the fields of every register, or its value."""
        return {
            "size": self.size,
            "address_bits": self.address_bits,
            "registers": [
                {
                    "name": register.name,
                    "offset": self.offset(register.name),
                    "access": str(register.access),
                    "count": register.count,
                    "stride": register.words * WORD_BYTES,
                    "description": register.doc,
                    "fields": [
                        {
                            "name": field.name,
                            "shift": shift,
                            "bits": field.bits,
                            "reset": field.reset,
                            "description": field.doc,
                        }
                        for field, shift in register.shifts()
                    ],
                }
                for register in self.registers
            ],
        }

    def markdown(self) -> str:
        """Return the map as a table for the documentation."""
        lines = [
            "| offset | register | access | bits | field | reset | meaning |",
            "|---|---|---|---|---|---|---|",
        ]
        for register in self.registers:
            name = register.name + (f"[{register.count}]" if register.count > 1 else "")
            head = f"| 0x{self.offset(register.name):03x} | `{name}` | {register.access}"
            if register.fields:
                lines.append(f"{head} | | | | {register.doc} |")
                head = "| | |"
            for field, shift in register.shifts():
                label = f"`{field.name}`" if register.fields else ""
                bits = f"{shift + field.bits - 1}…{shift}" if field.bits > 1 else f"{shift}"
                lines.append(f"{head} | {bits} | {label} | {field.reset:#x} | {field.doc} |")
        return "\n".join(lines) + "\n"

    def symbols(self, prefix: str) -> Iterator[tuple[Register, list[Symbol]]]:
        """Yield every register with its names and numbers for a header.

        They are the offset, the count and stride of an array, the reset value if it is not 0, and shift and
        mask of every field.
        """
        for register in self.registers:
            name = f"{prefix}_{register.name.upper()}"
            found = [Symbol(f"{name}_OFFSET", self.offset(register.name), 3)]
            if register.count > 1:
                found.append(Symbol(f"{name}_COUNT", register.count))
                found.append(Symbol(f"{name}_STRIDE", register.words * WORD_BYTES))
            if register.words == 1 and (reset := register.reset_word):
                found.append(Symbol(f"{name}_RESET", reset, 8))
            for field, shift in register.shifts() if register.fields else ():
                part = f"{name}_{field.name.upper()}"
                found.append(Symbol(f"{part}_SHIFT", shift, doc=field.doc))
                found.append(Symbol(f"{part}_MASK", ((1 << field.bits) - 1) << shift, 8))
            yield register, found

    def c_header(self, prefix: str = "FANIN") -> str:
        """Return the map as C macros: :meth:`symbols`."""
        guard = f"{prefix}_REGISTERS_H"
        lines = [f"#ifndef {guard}", f"#define {guard}", ""]
        for register, found in self.symbols(prefix):
            lines.append(f"/* {register.access}: {register.doc} */")
            for symbol in found:
                number = f"0x{symbol.value:0{symbol.digits}x}" if symbol.digits else f"{symbol.value}"
                unsigned = "u" if symbol.digits == 8 else ""
                note = f" /* {symbol.doc} */" if symbol.doc else ""
                lines.append(f"#define {symbol.name} {number}{unsigned}{note}")
            lines.append("")
        return "\n".join([*lines, f"#endif /* {guard} */", ""])

    def verilog_header(self, prefix: str = "FANIN") -> str:
        """Return the map as Verilog constants, :meth:`symbols`, for an `include in the body of a module."""
        lines = ["// Constants of a register map; include this file in the body of a module.", ""]
        lines += ["/* verilator lint_off UNUSEDPARAM */", ""]
        for register, found in self.symbols(prefix):
            lines.append(f"// {register.access}: {register.doc}")
            for symbol in found:
                number = f"'h{symbol.value:0{symbol.digits}x}" if symbol.digits else f"'d{symbol.value}"
                note = f"  // {symbol.doc}" if symbol.doc else ""
                lines.append(f"localparam [31:0] {symbol.name} = 32{number};{note}")
            lines.append("")
        return "\n".join([*lines, "/* verilator lint_on UNUSEDPARAM */", ""])
