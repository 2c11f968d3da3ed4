"""Packets for parsers (``PacketIn``) and from deparsers (a list of byte strings); header stacks."""

from __future__ import annotations

from typing import Any

from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined
from fanin.sim.switch.embedded.values import UNDEFINED, Reject

NO_ERROR, TOO_SHORT, NO_MATCH, OUT_OF_BOUNDS, HEADER_TOO_SHORT, TIMEOUT, INVALID_ARGUMENT = range(7)


class PacketIn:
    """A frame and its read position in bits."""

    __slots__ = ("bits", "data", "position")

    def __init__(self, data: bytes):
        self.data = data
        self.position = 0
        self.bits = len(data) * 8

    def take(self, width: int) -> int:
        """Return the next ``width`` bits. Raises Reject if there are fewer."""
        value = self.peek(width)
        self.position += width
        return value

    def peek(self, width: int) -> int:
        """Return the next ``width`` bits without advancing. Raises Reject if there are fewer."""
        start = self.position
        end = start + width
        if end > self.bits:
            raise Reject(TOO_SHORT)
        value = int.from_bytes(self.data[start >> 3 : (end + 7) >> 3], "big")
        return value >> (-end & 7) & ((1 << width) - 1)

    def advance(self, width: int) -> None:
        """Skip ``width`` bits, a multiple of 8. Raises Reject beyond the end."""
        if width is UNDEFINED:
            raise RunUndefined("advance by an undefined length")
        if width % 8:
            raise Reject(INVALID_ARGUMENT)
        if self.position + width > self.bits:
            raise Reject(TOO_SHORT)
        self.position += width

    def length(self) -> int:
        """Return the bytes of the frame."""
        return len(self.data)

    def varbit_width(self, width: int, fixed: int, maximum: int) -> int:
        """Return ``width``, in bits, if a varbit field may have it. Raises Reject if not.

        - ``fixed``: number of the header's other bits.
        - ``maximum``: the field's declared width.
        """
        if width is UNDEFINED:
            raise RunUndefined("a varbit of an undefined length")
        if width % 8:
            raise Reject(INVALID_ARGUMENT)
        if self.position + fixed + width > self.bits:
            raise Reject(TOO_SHORT)
        if width > maximum:
            raise Reject(HEADER_TOO_SHORT)
        return width

    def remainder(self) -> bytes:
        """Return the payload: the bytes that were not read. Raises RunRefused within a byte."""
        if self.position & 7:
            raise RunRefused("a payload that begins within a byte")
        return self.data[self.position >> 3 :]


class HeaderStack:
    """A stack of headers or unions."""

    __slots__ = ("elements", "kind", "next")

    def __init__(self, kind: Any, size: int):
        self.kind = kind
        self.elements = [kind() for _ in range(size)]
        self.next = 0

    def element(self, index: int) -> Any:
        """Return element ``index``."""
        if index is UNDEFINED or not 0 <= index < len(self.elements):
            error = RunUndefined if index is UNDEFINED else RunRefused
            raise error(f"element {index!r} of a stack of {len(self.elements)}")
        return self.elements[index]

    def next_element(self) -> Any:
        """Return the element that ``next`` names. Raises Reject beyond the end."""
        if self.next >= len(self.elements):
            raise Reject(OUT_OF_BOUNDS)
        return self.elements[self.next]

    def last_element(self) -> Any:
        """Return the element that ``last`` names. Raises Reject if no element was extracted."""
        if not 0 < self.next <= len(self.elements):
            raise Reject(OUT_OF_BOUNDS)
        return self.elements[self.next - 1]

    def last_index(self) -> Any:
        """Return ``lastIndex``; undefined for an empty stack."""
        return self.next - 1 if self.next else UNDEFINED

    def push_front(self, count: int) -> None:
        """Insert ``count`` invalid elements in front; the last ones are dropped."""
        count = min(count, len(self.elements))
        self.elements = [self.kind() for _ in range(count)] + self.elements[: len(self.elements) - count]
        self.next = min(self.next + count, len(self.elements))

    def pop_front(self, count: int) -> None:
        """Drop ``count`` elements in front; append the same number of invalid ones."""
        count = min(count, len(self.elements))
        self.elements = self.elements[count:] + [self.kind() for _ in range(count)]
        self.next = max(self.next - count, 0)

    def copy(self) -> HeaderStack:
        """Return a copy with copies of all elements."""
        new = HeaderStack.__new__(HeaderStack)
        new.kind, new.next = self.kind, self.next
        new.elements = [element.copy() for element in self.elements]
        return new

    def set(self, other: HeaderStack) -> None:
        """Copy the elements of ``other``, a stack of the same size."""
        self.next = other.next
        for element, source in zip(self.elements, other.elements, strict=True):
            element.set(source)

    def equals(self, other: HeaderStack) -> Any:
        """Return whether all elements are equal."""
        all_equal: Any = True
        for element, counterpart in zip(self.elements, other.elements, strict=True):
            is_equal = element.equals(counterpart)
            if is_equal is UNDEFINED:
                all_equal = is_equal
            elif not is_equal:
                return False
        return all_equal

    def emit(self, output: list[bytes]) -> None:
        """Append the bytes of the valid elements to ``output``."""
        for element in self.elements:
            element.emit(output)
