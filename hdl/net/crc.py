"""CRC-32 of packets, a word a cycle, whatever the width."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.packet import kept_bytes, packet_layout

CRC_BITS = 32
POLYNOMIAL = 0xEDB88320  # IEEE 802.3's, the lowest bit first
PART = 36  # bits of a word that are added up in a cycle: two LUTs in series
STATE_LATENCY = 3  # cycles: the bytes that count, the sums of their pieces, the sum of those
PIECE = 16  # bits


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
    """The remainder after a message, neither preset nor complemented."""
    for byte in message:
        state = step(state ^ byte, 1)
    return state


def _rows(columns: list[int]) -> list[int]:
    """A matrix over GF(2) by rows: of each output bit, which input bits it adds up."""
    return [sum((column >> bit & 1) << n for n, column in enumerate(columns)) for bit in range(CRC_BITS)]


def _steps(count: int) -> list[int]:
    """The rows of a step over so many zero bytes."""
    return _rows([step(1 << bit, count) for bit in range(CRC_BITS)])


def after_byte(state: Value, byte: Value) -> Value:
    """The remainder a byte later: what :func:`remainder` does for each, as two LUTs in series."""
    mixed = [state[bit] ^ (byte[bit] if bit < 8 else 0) for bit in range(CRC_BITS)]
    return Cat(Cat(_picked(mixed, row)).xor() for row in _steps(1))


def _digits(width: int, unit: int) -> range:
    """The bits of the number of units that are missing in a last word."""
    return range((width // 8 // unit - 1).bit_length())


def crc_latency(width: int, unit: int = 1) -> int:
    """Cycles of :class:`PacketCrc` from a last word to its CRC."""
    return STATE_LATENCY + len(_digits(width, unit))


def _check(width: int, skip: int, trailer: int) -> None:
    if width < 64 or width > 1024 or width & (width - 1):
        raise ValueError(f"width must be a power of two, 64 to 1024, not {width!r}")
    if not 0 <= skip < width // 8:
        raise ValueError(f"skip must be 0 to {width // 8 - 1} bytes at width {width}, not {skip!r}")
    if trailer < 0:
        raise ValueError(f"trailer must be at least 0 bytes, not {trailer!r}")


class CrcState(wiring.Component):
    """The remainder of each packet that goes by, its last word taken as whole: what is not kept is zeros.

    It watches: nothing waits for it. All bytes of a packet but those of its last word are kept.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        A word of a packet.
    ``o`` : Out, ``valid`` and ``state``, 32
        Of a packet whose last word has come.

    Parameters
    ----------
    ``width`` : int, bits of a word; a power of two, 64 to 1024
    ``skip`` : int
        Bytes at the beginning that do not count; fewer than a word.
    ``prefix`` : bytes
        Counted in front of all.
    ``trailer`` : int
        Bytes at the end of the whole word that do not count, and must be zero.

    Latency
    -------
    3 cycles from the last word. One word a cycle.

    Source
    ------
    IEEE 802.3, clause 3.2.9.
    """

    def __init__(self, *, width: int = 512, skip: int = 0, prefix: bytes = b"", trailer: int = 0):
        _check(width, skip, trailer)
        self.width = width
        self.skip = skip
        self.prefix = prefix
        self.trailer = trailer
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "state": CRC_BITS})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The remainder of a word by itself, in two cycles; then its sum with what was ``before``.

        Only that sum is a loop: the word's own remainder needs no earlier word, since the CRC is linear.
        """
        m = Module()
        flags = Cat(self.i.valid, self.i.p.last)
        valid, last = delayed(m, flags, STATE_LATENCY - 1, name="flags", reset_less=False)[-1]
        sums = self._sums(m, self._counted(m))
        rows = _steps(self.width // 8)
        start = step(remainder(self.prefix, (1 << CRC_BITS) - 1), -self.skip - self.trailer)
        before = Signal(CRC_BITS, init=start)
        after = Signal(CRC_BITS)
        m.d.comb += after.eq(
            Cat(Cat(_picked(before, row), parts).xor() for row, parts in zip(rows, sums, strict=True))
        )
        # A last word sets the loop back: the register's set and reset choose the start, not a LUT.
        with m.If(valid):
            m.d.sync += before.eq(Mux(last, start, after))
        m.d.sync += [self.o.state.eq(after), self.o.valid.eq(valid & last)]
        return m

    def _counted(self, m: Module) -> list[Value]:
        """The bits of a word that count, the others zero; a cycle later."""
        size = self.width // 8
        first = Signal(init=1)
        with m.If(self.i.valid):
            m.d.sync += first.eq(self.i.p.last)
        keep = Signal(size)
        content = Signal(self.width)
        m.d.comb += [keep.eq(self.i.p.keep), content.eq(self.i.p.data)]
        kept = Cat(content.word_select(n, 8) & keep[n].replicate(8) for n in range(size))
        begun = (~first).replicate(8 * self.skip)
        counted = Signal(self.width)
        m.d.comb += counted.eq(Cat(kept[: 8 * self.skip] & begun, kept[8 * self.skip :]))
        # Narrow signals: whoever picks a bit of a wide one makes Amaranth look at all of them.
        return [
            bit
            for low in range(0, self.width, PIECE)
            for bit in delayed(m, counted[low : low + PIECE], 1, name=f"word{low}")[-1]
        ]

    def _sums(self, m: Module, word: list[Value]) -> list[Value]:
        """The remainder of a word by itself: of each of its bits a few parts, to be added up."""
        end = self.width // 8 - self.trailer
        sums = []
        for n, row in enumerate(_rows([step(1 << bit % 8, end - bit // 8) for bit in range(self.width)])):
            bits = _picked(word, row)
            parts = Cat(Cat(bits[at : at + PART]).xor() for at in range(0, len(bits), PART))
            sums.append(delayed(m, parts, 1, name=f"sums{n}")[-1])
        return sums


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
    ``width``, ``skip``, ``prefix`` : those of :class:`CrcState`
    ``trailer`` : int
        Bytes at the end that do not count, and must be zero.
    ``unit``, ``extra`` : int
        A packet is ``extra`` bytes longer than a multiple of ``unit``, a power of two, up to half a word.

    Latency
    -------
    ``latency`` cycles from the last word: 3, and one for every bit of the number of units that it may lack (at
    512 bits 9, for units of 4 bytes 7). One word a cycle.

    Source
    ------
    IEEE 802.3, clause 3.2.9; InfiniBand Architecture Specification, annex A17 (ICRC).
    """

    def __init__(
        self,
        *,
        width: int = 512,
        skip: int = 0,
        prefix: bytes = b"",
        trailer: int = 0,
        unit: int = 1,
        extra: int = 0,
    ):
        _check(width, skip, trailer)
        if not 1 <= unit <= width // 16 or unit & (unit - 1):
            raise ValueError(f"unit must be a power of two, 1 to {width // 16} at width {width}, not {unit!r}")
        if not 0 <= extra < unit:
            raise ValueError(f"extra must be 0 to {unit - 1} bytes at units of {unit}, not {extra!r}")
        self.width = width
        self.skip = skip
        self.prefix = prefix
        self.trailer = trailer
        self.unit = unit
        self.extra = extra
        self.latency = crc_latency(width, unit)
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "crc": CRC_BITS})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Take each last word as whole, then step back over what is not: one bit of its number a cycle."""
        m = Module()
        always = -self.extra % self.unit  # bytes that are missing whatever the length
        m.submodules.whole = whole = CrcState(
            width=self.width, skip=self.skip, prefix=self.prefix, trailer=self.trailer + always
        )
        m.d.comb += whole.i.eq(self.i)
        absent = Signal(self.width // 8 // self.unit)
        m.d.comb += absent.eq(~self.i.p.keep[self.unit - 1 - always :: self.unit][::-1])
        digits = _digits(self.width, self.unit)
        missing = delayed(m, kept_bytes(absent)[: len(digits)], STATE_LATENCY, name="missing")[-1]
        state = whole.o.state
        for digit in digits:
            earlier = Cat(Cat(_picked(state, row)).xor() for row in _steps(-self.unit << digit))
            state = delayed(m, Mux(missing[0], earlier, state), 1, name=f"stepped{digit}")[-1]
            missing = delayed(m, missing[1:], 1, name=f"missing{digit}")[-1]
        m.d.comb += [
            self.o.crc.eq(~state),
            self.o.valid.eq(delayed(m, whole.o.valid, len(digits), name="done", reset_less=False)[-1]),
        ]
        return m


def _picked(vector: Value | list[Value], row: int) -> list[Value]:
    """The bits of a vector that a row of a matrix adds up."""
    return [vector[n] for n in range(len(vector)) if row >> n & 1]
