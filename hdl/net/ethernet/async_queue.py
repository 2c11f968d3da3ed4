"""Queue between two clock domains, with a writer's side fast enough for a PHY's clock on a small device."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from amaranth import Cat, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.cdc import AsyncFFSynchronizer, FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

_FREE = 3  # free words for ``room``: two may have arrived since the level was computed, one arrives now


class AsyncQueue(wiring.Component):
    """Asynchronous FIFO like Amaranth's ``AsyncFIFO``, but with a registered ``room`` for the writer.

    In an ``AsyncFIFO`` the comparison of Gray codes, the next position and its Gray code follow one another
    within a cycle. These five LUTs in series are too slow for 125 MHz on an ECP5 of speed grade 6. The parts
    have the names of ``AsyncFIFO``'s, so that a check of a netlist recognises both.

    Members
    -------
    ``w_data`` : In, ``width``, in the domain ``write``
        Word to write.
    ``w_en`` : In, 1, in the domain ``write``
        Write ``w_data``; only while ``room`` is high.
    ``room`` : Out, 1, in the domain ``write``
        The queue has room; registered. Falls when ``capacity`` - 2 to ``capacity`` words are in the queue.
    ``r_data`` : Out, ``width``, in the domain ``read``
        Oldest word.
    ``r_rdy`` : Out, 1, in the domain ``read``
        ``r_data`` is valid.
    ``r_en`` : In, 1, in the domain ``read``
        Take ``r_data``.
    ``r_rst`` : Out, 1, in the domain ``read``
        A reset of ``write`` has emptied the queue.

    Parameters
    ----------
    ``width`` : int, bits
        Width of a word.
    ``capacity`` : int, words, a power of two from 4
        Size of the queue.

    Latency
    -------
    1 cycle of ``write`` and 1 to 2 of ``read``; a word a cycle in and out from a ``capacity`` of 16 on.

    Source
    ------
    C. E. Cummings, "Simulation and Synthesis Techniques for Asynchronous FIFO Design", SNUG 2002, style 2;
    resets as Amaranth has them.
    """

    domains = MappingProxyType(
        dict.fromkeys(("w_data", "w_en", "room"), "write")
        | dict.fromkeys(("r_data", "r_rdy", "r_en", "r_rst"), "read")
    )

    def __init__(self, *, width: int, capacity: int):
        check_capacity(capacity)
        self.width = width
        self.capacity = capacity
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "room": Out(1),
                "r_data": Out(width),
                "r_rdy": Out(1),
                "r_en": In(1),
                "r_rst": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep a counter on each side; the other side receives it as a Gray code, some cycles later.

        A counter has one bit more than a position, so that full and empty differ. A reset of the reader keeps
        its counters, since the writer's are kept, too. A reset of the writer sets the reader's counters to the
        writer's.
        """
        m = Module()
        m.submodules.storage = storage = Memory(shape=self.width, depth=self.capacity, init=[])
        produced = Signal(self.capacity.bit_length(), name="produce_w_gry")
        seen_by_reader = Signal.like(produced, name="produce_r_gry")
        consumed = Signal.like(produced, name="consume_r_gry", reset_less=True)
        seen_by_writer = Signal.like(produced, name="consume_w_gry")
        m.submodules.produce_cdc = FFSynchronizer(produced, seen_by_reader, o_domain="read")
        m.submodules.consume_cdc = FFSynchronizer(consumed, seen_by_writer, o_domain="write")
        self._write(m, storage.write_port(domain="write"), produced, seen_by_writer)
        self._read(m, storage.read_port(domain="read"), consumed, seen_by_reader)
        return m

    def _write(self, m: Module, port: Any, produced: Signal, consumed: Signal) -> None:
        """Build the writer's side; ``room`` depends on the level two cycles ago."""
        count, next_count, consumed_count, level = (
            Signal.like(produced, name=f"w_{name}")
            for name in ("count", "next_count", "consumed_count", "level")
        )
        m.d.comb += [
            next_count.eq(count + self.w_en),
            port.addr.eq(count[:-1]),
            port.data.eq(self.w_data),
            port.en.eq(self.w_en),
        ]
        m.d.write += [
            count.eq(next_count),
            produced.eq(_gray(next_count)),
            consumed_count.eq(_binary(consumed)),
            level.eq(count - consumed_count),
            self.room.eq(level <= self.capacity - _FREE),
        ]

    def _read(self, m: Module, port: Any, consumed: Signal, produced: Signal) -> None:
        """Build the reader's side; the memory's port outputs the word at the next position."""
        count = Signal.like(consumed, name="r_count", reset_less=True)
        next_count = Signal.like(consumed, name="r_next_count")
        emptied = Signal()
        m.submodules.rst_cdc = AsyncFFSynchronizer(
            ResetSignal("write", allow_reset_less=True), emptied, o_domain="read"
        )
        m.d.comb += [
            self.r_rdy.eq((consumed != produced) & ~emptied),
            next_count.eq(count + (self.r_rdy & self.r_en)),
            port.addr.eq(next_count[:-1]),
            self.r_data.eq(port.data),
        ]
        m.d.read += [count.eq(next_count), consumed.eq(_gray(next_count)), self.r_rst.eq(emptied)]
        with m.If(emptied):
            m.d.read += [count.eq(_binary(produced)), consumed.eq(produced)]


def check_capacity(capacity: int) -> None:
    """Raise ValueError unless a queue can have ``capacity`` words."""
    if capacity < 4 or capacity & (capacity - 1):
        raise ValueError(f"capacity must be a power of two from 4, not {capacity!r}")


def _gray(count: Value) -> Value:
    return count ^ count[1:]


def _binary(gray: Value) -> Value:
    """Return the binary number of a Gray code: bit n is the parity of the code's bits from n on."""
    return Cat(gray[n:].xor() for n in range(len(gray)))
