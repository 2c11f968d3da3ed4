"""CRC-32 of packets, one word a cycle, for any word width.

Each bit of the remainder after a word is an XOR of some bits of the previous remainder and of the word: a
matrix over GF(2). Columns and rows of such a matrix are numbers here. Bit n of a row selects input bit n for
the XOR that gives the row's output bit.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.packet import kept_bytes, packet_layout

CRC_BITS = 32
POLYNOMIAL = 0xEDB88320  # generator of IEEE 802.3, without x^32; bit 31 is x^0
PART = 36  # bits of a word that one XOR combines in a cycle: two LUTs in series
STATE_LATENCY = 3  # cycles: select the counted bytes, add up parts of the word, add the parts
SLICE_BITS = 16  # bits of each of the signals that hold a word


def step(state: int, count: int) -> int:
    """Return the remainder ``count`` zero bytes later.

    A negative ``count`` steps back, since the step is invertible.
    """
    for _ in range(8 * abs(count)):
        if count > 0:
            state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
        else:
            top_bit = state >> (CRC_BITS - 1)
            state = (state ^ (POLYNOMIAL if top_bit else 0)) << 1 & (1 << CRC_BITS) - 1 | top_bit
    return state


def remainder(message: bytes, state: int = 0) -> int:
    """Return the remainder after a message, without preset and without complement."""
    for byte in message:
        state = step(state ^ byte, 1)
    return state


def _rows(columns: list[int]) -> list[int]:
    """Return the rows of a matrix over GF(2); each row marks the input bits of one output bit."""
    return [sum((column >> bit & 1) << n for n, column in enumerate(columns)) for bit in range(CRC_BITS)]


def _steps(count: int) -> list[int]:
    """Return the rows of a step over ``count`` zero bytes."""
    return _rows([step(1 << bit, count) for bit in range(CRC_BITS)])


def after_byte(state: Value, byte: Value) -> Value:
    """Return the remainder one byte later, as in :func:`remainder`, through two LUTs in series."""
    mixed = [state[bit] ^ (byte[bit] if bit < 8 else 0) for bit in range(CRC_BITS)]
    return Cat(Cat(_selected_bits(mixed, row)).xor() for row in _steps(1))


def _digits(width: int, unit: int) -> range:
    """Return the bit positions of the number of units that a last word may lack."""
    return range((width // 8 // unit - 1).bit_length())


def crc_latency(width: int, unit: int = 1) -> int:
    """Return the cycles of :class:`PacketCrc` from a last word to its CRC."""
    return STATE_LATENCY + len(_digits(width, unit))


def _check(width: int, skip: int, trailer: int) -> None:
    if width < 64 or width > 1024 or width & (width - 1):
        raise ValueError(f"width must be a power of two, 64 to 1024, not {width!r}")
    if not 0 <= skip < width // 8:
        raise ValueError(f"skip must be 0 to {width // 8 - 1} bytes at width {width}, not {skip!r}")
    if trailer < 0:
        raise ValueError(f"trailer must be at least 0 bytes, not {trailer!r}")


class CrcState(wiring.Component):
    """CRC remainder of each packet; the last word counts as a whole, with zeros for bytes that are not kept.

    The component only observes packets and has no back-pressure. All bytes of a packet must be kept, except in
    its last word.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        A word of a packet.
    ``o`` : Out, ``valid`` and ``state``, 32
        Remainder of a packet after its last word.

    Parameters
    ----------
    ``width`` : int, bits of a word; a power of two, 64 to 1024
        512 by default.
    ``skip`` : int
        Bytes at the start of a packet that do not count; fewer than a word; 0 by default.
    ``prefix`` : bytes
        Bytes that count before each packet; none by default.
    ``trailer`` : int
        Bytes that do not count and must be zero, up to the end of the last word taken as a whole; 0 by default.

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
        """Compute a word's own remainder in two cycles, then add the ``previous_state``.

        Only that addition is a loop: the CRC is linear, so a word's own remainder needs no earlier word.
        """
        m = Module()
        flags = Cat(self.i.valid, self.i.p.last)
        valid, last = delayed(m, flags, STATE_LATENCY - 1, name="flags", reset_less=False)[-1]
        sums = self._sums(m, self._counted(m))
        rows = _steps(self.width // 8)
        start = step(remainder(self.prefix, (1 << CRC_BITS) - 1), -self.skip - self.trailer)
        previous_state = Signal(CRC_BITS, init=start)
        next_state = Signal(CRC_BITS)
        m.d.comb += next_state.eq(
            Cat(
                Cat(_selected_bits(previous_state, row), parts).xor()
                for row, parts in zip(rows, sums, strict=True)
            )
        )
        # After a last word the loop restarts: the register's set and reset give the start value, without a LUT.
        with m.If(valid):
            m.d.sync += previous_state.eq(Mux(last, start, next_state))
        m.d.sync += [self.o.state.eq(next_state), self.o.valid.eq(valid & last)]
        return m

    def _counted(self, m: Module) -> list[Value]:
        """Return the bits of a word with zeros for bytes that do not count, a cycle later."""
        size = self.width // 8
        first = Signal(init=1)
        with m.If(self.i.valid):
            m.d.sync += first.eq(self.i.p.last)
        keep = Signal(size)
        content = Signal(self.width)
        m.d.comb += [keep.eq(self.i.p.keep), content.eq(self.i.p.data)]
        kept_content = Cat(content.word_select(n, 8) & keep[n].replicate(8) for n in range(size))
        skip_mask = (~first).replicate(8 * self.skip)
        counted = Signal(self.width)
        m.d.comb += counted.eq(Cat(kept_content[: 8 * self.skip] & skip_mask, kept_content[8 * self.skip :]))
        # Narrow signals: a bit picked from a wide signal makes Amaranth process all of its bits.
        return [
            bit
            for low in range(0, self.width, SLICE_BITS)
            for bit in delayed(m, counted[low : low + SLICE_BITS], 1, name=f"word{low}")[-1]
        ]

    def _sums(self, m: Module, word: list[Value]) -> list[Value]:
        """Return a word's own remainder, each bit as a few parts to be added up."""
        end = self.width // 8 - self.trailer
        sums = []
        for n, row in enumerate(_rows([step(1 << bit % 8, end - bit // 8) for bit in range(self.width)])):
            bits = _selected_bits(word, row)
            parts = Cat(Cat(bits[at : at + PART]).xor() for at in range(0, len(bits), PART))
            sums.append(delayed(m, parts, 1, name=f"sums{n}")[-1])
        return sums


class PacketCrc(wiring.Component):
    """CRC-32 of each packet: over a prefix and the packet without its first and last bytes.

    The component only observes packets and has no back-pressure. All bytes of a packet must be kept, except in
    its last word.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        A word of a packet.
    ``o`` : Out, ``valid`` and ``crc``, 32
        Complemented remainder of a packet; the lowest byte is the first on the wire.

    Parameters
    ----------
    ``width``, ``skip``, ``prefix`` : see :class:`CrcState`
    ``trailer`` : int
        Bytes at the end of a packet that do not count and must be zero; 0 by default.
    ``unit`` : int
        A packet's length is a multiple of ``unit``, plus ``extra``. ``unit`` is a power of two, up to half a
        word; 1 by default.
    ``extra`` : int
        Bytes of a packet beyond a multiple of ``unit``; less than ``unit``; 0 by default.

    Latency
    -------
    ``latency`` cycles from the last word: 3 + log2(bytes of a word / ``unit``). Example: 9 at 512 bits, 7 with
    units of 4 bytes. One word a cycle.

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
        """Take each last word as whole, then step back over missing bytes, one bit of their number a cycle."""
        m = Module()
        always = -self.extra % self.unit  # bytes that any last word lacks
        m.submodules.full_words = full_words = CrcState(
            width=self.width, skip=self.skip, prefix=self.prefix, trailer=self.trailer + always
        )
        m.d.comb += full_words.i.eq(self.i)
        absent = Signal(self.width // 8 // self.unit)
        m.d.comb += absent.eq(~self.i.p.keep[self.unit - 1 - always :: self.unit][::-1])
        digits = _digits(self.width, self.unit)
        missing = delayed(m, kept_bytes(absent)[: len(digits)], STATE_LATENCY, name="missing")[-1]
        state = full_words.o.state
        for digit in digits:
            earlier = Cat(Cat(_selected_bits(state, row)).xor() for row in _steps(-self.unit << digit))
            state = delayed(m, Mux(missing[0], earlier, state), 1, name=f"stepped{digit}")[-1]
            missing = delayed(m, missing[1:], 1, name=f"missing{digit}")[-1]
        m.d.comb += [
            self.o.crc.eq(~state),
            self.o.valid.eq(delayed(m, full_words.o.valid, len(digits), name="done", reset_less=False)[-1]),
        ]
        return m


def _selected_bits(vector: Value | list[Value], row: int) -> list[Value]:
    """Return the bits of a vector that a row of a matrix adds up."""
    return [vector[n] for n in range(len(vector)) if row >> n & 1]
