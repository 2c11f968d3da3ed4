"""CRC-32 of packets, a word a cycle, whatever the width."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.packet import kept_bytes, packet_layout

CRC_BITS = 32
POLYNOMIAL = 0xEDB88320  # IEEE 802.3's, the lowest bit first
LUT = 6  # inputs
BEFORE_STATE = 2  # cycles: the bytes that count; the sums of their pieces


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


def _steps(count: int) -> list[int]:
    """The rows of a step over so many zero bytes."""
    return _rows([step(1 << bit, count) for bit in range(CRC_BITS)])


def _digits(width: int) -> range:
    """The number of bytes that are missing in a last word, two bits at a time: the lower of each two."""
    return range(0, (width // 8 - 1).bit_length(), 2)


def crc_latency(width: int) -> int:
    """Cycles of :class:`PacketCrc` from a last word to its CRC."""
    return BEFORE_STATE + 1 + len(_digits(width))


PIECE = 16  # bits


class PacketCrc(wiring.Component):
    """The CRC-32 of each packet that goes by: of a prefix, and of the packet without its first and last bytes.

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
    ``trailer`` : int
        Bytes at the end that do not count, and must be zero.

    Latency
    -------
    ``latency`` cycles from the last word: 3, and one for every two bits of the number of its bytes that are not
    kept (at 512 bits 6). One word a cycle.

    Source
    ------
    IEEE 802.3, clause 3.2.9; InfiniBand Architecture Specification, annex A17 (ICRC).
    """

    def __init__(self, *, width: int = 512, skip: int = 0, prefix: bytes = b"", trailer: int = 0):
        if width < 64 or width > 1024 or width & (width - 1):
            raise ValueError(f"width must be a power of two, 64 to 1024, not {width!r}")
        if not 0 <= skip < width // 8:
            raise ValueError(f"skip must be 0 to {width // 8 - 1} bytes at width {width}, not {skip!r}")
        if trailer < 0:
            raise ValueError(f"trailer must be at least 0 bytes, not {trailer!r}")
        self.width = width
        self.skip = skip
        self.prefix = prefix
        self.trailer = trailer
        self.latency = crc_latency(width)
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "crc": CRC_BITS})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Sum up each word as if whole; at last step back over the zeros that stood for what is not there."""
        m = Module()
        size = self.width // 8
        valid, last = self.i.valid, self.i.p.last
        keep = Signal(size)
        content = Signal(self.width)
        m.d.comb += [keep.eq(self.i.p.keep), content.eq(self.i.p.data)]
        first = Signal(init=1)
        with m.If(valid):
            m.d.sync += first.eq(last)
        kept = Cat(content.word_select(n, 8) & keep[n].replicate(8) for n in range(size))
        begun = (~first).replicate(8 * self.skip)
        counted = Signal(self.width)
        m.d.comb += counted.eq(Cat(kept[: 8 * self.skip] & begun, kept[8 * self.skip :]))
        # Narrow signals: whoever picks a bit of a wide one makes Amaranth look at all of them.
        bits = [
            bit
            for low in range(0, self.width, PIECE)
            for bit in delayed(m, counted[low : low + PIECE], 1, name=f"word{low}")[-1]
        ]
        flags = delayed(m, Cat(valid, last, first), BEFORE_STATE, name="flags", reset_less=False)[-1]
        absent = Signal(size)
        m.d.comb += absent.eq(~keep[::-1])
        missing = kept_bytes(absent)[: (size - 1).bit_length()]
        state = self._state(m, flags, self._sums(m, bits))
        m.d.comb += [
            self.o.crc.eq(~self._stepped_back(m, state, missing)),
            self.o.valid.eq(delayed(m, valid & last, self.latency, name="done", reset_less=False)[-1]),
        ]
        return m

    def _sums(self, m: Module, word: list[Value]) -> list[Value]:
        """The remainder of a word by itself: of each of its bits a few parts, to be added up."""
        size = self.width // 8
        rows = _rows([step(1 << bit % 8, size - bit // 8) for bit in range(self.width)])
        sums = []
        for n, row in enumerate(rows):
            bits = _picked(word, row)
            parts = Cat(_added(bits[at : at + LUT**2]) for at in range(0, len(bits), LUT**2))
            sums.append(delayed(m, parts, 1, name=f"sums{n}")[-1])
        return sums

    def _state(self, m: Module, flags: Value, sums: list[Value]) -> Value:
        """The remainder of all words of a packet up to now."""
        valid, _, first = flags
        start = step(remainder(self.prefix, (1 << CRC_BITS) - 1), -self.skip)
        state = Signal(CRC_BITS, reset_less=True)
        before = Signal.like(state)
        m.d.comb += before.eq(Mux(first, start, state))
        rows = _steps(self.width // 8)
        with m.If(valid):
            m.d.sync += state.eq(
                Cat(_added([*_picked(before, row), *part]) for row, part in zip(rows, sums, strict=True))
            )
        return state

    def _stepped_back(self, m: Module, state: Value, missing: Value) -> Value:
        """The state without its last ``missing`` zeros and the trailer, two bits of their number a cycle."""
        missing = delayed(m, missing, BEFORE_STATE + 1, name="missing")[-1]
        always = self.trailer
        for digit in _digits(self.width):
            bits = missing[digit : digit + 2]
            counts = [-always - (n << digit) for n in range(1 << len(bits))]
            state = delayed(m, _stepped(m, state, counts, bits), 1, name=f"stepped{digit}")[-1]
            missing = delayed(m, missing, 1, name=f"missing{digit}")[-1]
            always = 0
        return state


def _picked(vector: Value | list[Value], row: int) -> list[Value]:
    """The bits of a vector that a row of a matrix adds up."""
    return [vector[n] for n in range(len(vector)) if row >> n & 1]


def _added(terms: list[Value]) -> Value:
    """The sum of bits, six by six: of a tree of pairs, a LUT covers four bits."""
    while len(terms) > 1:
        terms = [Cat(terms[at : at + LUT]).xor() for at in range(0, len(terms), LUT)]
    return terms[0]


def _stepped(m: Module, state: Value, counts: list[int], index: Value) -> Value:
    """The state one of two or four numbers of zero bytes later or earlier, as ``index`` says."""
    # Each bit of the state, where it counts: a mapper takes fewer LUTs for that than to choose between sums.
    functions: dict[int, Value] = {}  # of the index, by truth table

    def counts_where(table: int) -> Value:
        if table not in functions:
            functions[table] = Signal(name=f"index_in_{table:b}_{len(index)}_{-counts[-1]}")
            m.d.comb += functions[table].eq(Const(table, len(counts)).bit_select(index, 1))
        return functions[table]

    sums = []
    for rows in zip(*map(_steps, counts), strict=True):
        tables = [sum((row >> bit & 1) << n for n, row in enumerate(rows)) for bit in range(CRC_BITS)]
        terms = [(state[bit], counts_where(table)) for bit, table in enumerate(tables) if table]
        groups = [terms[at : at + LUT] for at in range(0, len(terms), LUT)]
        sums.append(_added([(Cat(s for s, _ in group) & Cat(c for _, c in group)).xor() for group in groups]))
    return Cat(sums)
