"""CRC-32 of packets, a word a cycle, whatever the width."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.packet import kept_bytes, packet_layout

CRC_BITS = 32
POLYNOMIAL = 0xEDB88320  # IEEE 802.3's, the lowest bit first
PIECE = 36  # bits that two LUTs in series can add up
ALIGN_CYCLES, SUM_CYCLES = 2, 2  # of a last word; of a word's bits


def step(state: int, count: int) -> int:
    """The remainder ``count`` zero bytes later, or earlier: the step is invertible."""
    for _ in range(8 * abs(count)):
        if count > 0:
            state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
        else:
            odd = state >> (CRC_BITS - 1)
            state = (state ^ (POLYNOMIAL if odd else 0)) << 1 & (1 << CRC_BITS) - 1 | odd
    return state


def remainder(message: bytes, state: int = 0) -> int:
    """The remainder behind a message, neither preset nor complemented."""
    for byte in message:
        state = step(state ^ byte, 1)
    return state


def _rows(columns: list[int]) -> list[int]:
    """A matrix over GF(2) by rows: of each output bit, which input bits it adds up."""
    return [sum((column >> bit & 1) << n for n, column in enumerate(columns)) for bit in range(CRC_BITS)]


def _applied(columns: list[int], vector: Value) -> Value:
    """A matrix, given by its columns, times a vector of bits."""
    return Cat((vector & Const(row, len(vector))).xor() for row in _rows(columns))


class PacketCrc(wiring.Component):
    """The CRC-32 of each packet that goes by: of a prefix, and of the packet without its first bytes.

    It watches: nothing waits for it. All bytes of a packet but those of its last word are kept.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        A word of a packet.
    ``o`` : Out, ``valid`` and ``crc``, 32
        The complemented remainder; its lowest byte is the first one on the wire.

    Parameters
    ----------
    ``width`` : int, bits of a word; a power of two, 64 to 1024
    ``skip`` : int
        Bytes at the beginning that do not count; fewer than a word.
    ``prefix`` : bytes
        Counted in front of all.

    Latency
    -------
    ``latency`` cycles from the last word: 6 for the word, and one for every two bits of its number of bytes (at
    512 bits 10). One word a cycle.

    Source
    ------
    IEEE 802.3, clause 3.2.9; InfiniBand Architecture Specification, annex A17 (ICRC).
    """

    def __init__(self, *, width: int = 512, skip: int = 0, prefix: bytes = b""):
        if width < 64 or width > 1024 or width & (width - 1):
            raise ValueError(f"width must be a power of two, 64 to 1024, not {width!r}")
        if not 0 <= skip < width // 8:
            raise ValueError(f"skip must be 0 to {width // 8 - 1} bytes at width {width}, not {skip!r}")
        self.width = width
        self.skip = skip
        self.prefix = prefix
        self._digits = range(0, (width // 8).bit_length(), 2)
        self.latency = ALIGN_CYCLES + SUM_CYCLES + 2 + len(self._digits)
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "crc": CRC_BITS})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Sum up each word by itself; add the sums up, moved on by a word each time, at last by a few bytes."""
        m = Module()
        size = self.width // 8
        valid, last, keep = self.i.valid, self.i.p.last, self.i.p.keep
        first = Signal(init=1)
        with m.If(valid):
            m.d.sync += first.eq(last)
        kept = Cat(self.i.p.data.word_select(n, 8) & keep[n].replicate(8) for n in range(size))
        begun = (~first).replicate(8 * self.skip)
        counted = Cat(kept[: 8 * self.skip] & begun, kept[8 * self.skip :])
        word = delayed(m, counted, 1, name="word")[-1]
        count = delayed(m, kept_bytes(keep), 1, name="count")[-1]
        before = 1 + ALIGN_CYCLES + SUM_CYCLES
        flags = delayed(m, Cat(valid, last, first), before, name="flags", reset_less=False)[-1]
        total = self._sum(m, self._aligned(m, word, count))
        self._finish(m, flags, total, delayed(m, count, before - 1, name="length")[-1])
        return m

    def _aligned(self, m: Module, word: Value, count: Value) -> Value:
        """The word moved up until it ends with its last byte: zeros in front of it add nothing."""
        missing = Signal((self.width // 8).bit_length() - 1, reset_less=True)
        m.d.comb += missing.eq(-count)
        first = _moved_up(_moved_up(word, missing[:2], 0), missing[2:4], 2)
        later = delayed(m, Cat(missing[4:], first), 1, name="turned")[-1]
        rest, second = later[: len(missing[4:])], later[len(missing[4:]) :]
        for low in range(4, len(missing), 2):
            second = _moved_up(second, rest[low - 4 : low - 2], low)
        return delayed(m, second, 1, name="aligned")[-1]

    def _sum(self, m: Module, word: Value) -> Value:
        """The remainder of a word by itself: of each piece of it, then of all."""
        size = self.width // 8
        columns = [step(1 << bit % 8, size - bit // 8) for bit in range(self.width)]
        pieces = [
            delayed(m, _applied(columns[low : low + PIECE], word[low : low + PIECE]), 1, name=f"piece{low}")[-1]
            for low in range(0, self.width, PIECE)
        ]
        return delayed(m, reduce(xor, pieces), 1, name="total")[-1]

    def _finish(self, m: Module, flags: Value, total: Value, count: Value) -> None:
        """Keep the state up to the last word, then move on by its bytes, two bits of their number a cycle."""
        valid, last, first = flags
        start = step(remainder(self.prefix, (1 << CRC_BITS) - 1), -self.skip)
        state = Signal(CRC_BITS, reset_less=True)
        now = Mux(first, start, state)
        with m.If(valid):
            m.d.sync += state.eq(_moved_on(now, self.width // 8) ^ total)
        done = valid & last
        later = delayed(m, Cat(now, total, count), 1, name="last_word")[-1]
        now, total, count = later[:CRC_BITS], later[CRC_BITS : 2 * CRC_BITS], later[2 * CRC_BITS :]
        for digit in self._digits:
            bits = count[digit : digit + 2]
            moved = [_moved_on(now, n << digit) for n in range(1 << len(bits))]
            later = delayed(m, Cat(_chosen(moved, bits), total, count), 1, name=f"moved{digit}")[-1]
            now, total, count = later[:CRC_BITS], later[CRC_BITS : 2 * CRC_BITS], later[2 * CRC_BITS :]
        steps = 1 + len(self._digits)
        m.d.comb += [
            self.o.valid.eq(delayed(m, done, steps, name="done", reset_less=False)[-1]),
            self.o.crc.eq(~(now ^ total)),
        ]


def _moved_up(word: Value, places: Value, low: int) -> Value:
    """A word, ``places`` times ``1 << low`` bytes further up."""
    return _chosen([word << (8 * n << low) for n in range(1 << len(places))], places)[: len(word)]


def _moved_on(state: Value, count: int) -> Value:
    """The state so many zero bytes later."""
    return _applied([step(1 << bit, count) for bit in range(CRC_BITS)], state)


def _chosen(choices: list[Value], index: Value) -> Value:
    """One of two or four: a multiplexer."""
    low = [Mux(index[0], choices[n + 1], choices[n]) for n in range(0, len(choices), 2)]
    return low[0] if len(low) == 1 else Mux(index[1], low[1], low[0])
