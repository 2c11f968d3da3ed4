"""Where a group would end, for every byte of a burst in which it may begin."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import FLOAT_BITS, Inceptionn
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.inceptionn.rows import BURST_BITS, NUMBERS, SLOTS, place_bits, row_layout
from fanin.hdl.codec.inceptionn.shifter import bytes_of, totals
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import kept_bytes, packet_stream


def end_layout(position_bits: int) -> data.StructLayout:
    """End of a frame: ``position`` behind its last byte, ``last`` burst, and ``into``: the first behind it."""
    return data.StructLayout({"position": position_bits, "last": BURST_BITS, "into": NUMBERS})


def low_layout(group: int) -> data.ArrayLayout:
    """For every byte of a burst: the rank of a group's lower half, as its values' bytes are as many as this."""
    return data.ArrayLayout((len(totals(group // 2)) - 1).bit_length(), FLOAT_BITS // 8 * group)


def table_stages(group: int) -> int:
    """Cycles from a burst and the next one to its row: each adds up twice as many tags as the one before."""
    return Inceptionn(group=group).tag_bytes.bit_length() - 1


class StartTable(wiring.Component):
    """For every byte of a burst: where a group that begins there ends.

    Bursts are numbered, modulo 16; a position is a burst's number and, in the low bits, a byte's in the burst.
    Tags that go on in the next burst are found there, so that the row of a burst follows when that has come, or
    when the burst is the last of its frame; bytes that a frame has not are tags of zeros.

    Members
    -------
    ``i`` : In, packet stream of 32 · ``group`` bits
        Always ready.
    ``row`` : Out, ``valid`` and ``ends``, :func:`~fanin.hdl.codec.inceptionn.rows.row_layout`
        One for each burst.
    ``lows`` : Out, of each byte
        With a row: how the lower half of a group that begins there ranks among
        :func:`~fanin.hdl.codec.inceptionn.shifter.totals`.
    ``ends`` : Out, stream of :func:`end_layout`
        One for each frame.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    A row: 1 cycle after the burst behind it, or after a frame's last burst 2 cycles (``group`` 16: one more).
    An end: with the last burst's row. One burst a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.config = Inceptionn(group=group)
        self.group = group
        self.size = FLOAT_BITS // 8 * group  # bytes of a burst
        self.place = place_bits(group)
        self.position_bits = BURST_BITS + self.place
        super().__init__(
            {
                "i": In(packet_stream(8 * self.size)),
                "row": Out(data.StructLayout({"valid": 1, "ends": row_layout(group)})),
                "lows": Out(low_layout(group)),
                "ends": Out(stream.Signature(end_layout(self.position_bits))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A burst waits for the next one's first bytes; behind that, all flows."""
        m = Module()
        i = self.i
        valid = Signal()
        held = Signal(i.p.shape(), reset_less=True)
        number = Signal(BURST_BITS)  # of the next burst
        complete = Signal()
        tags = [i.p.data.word_select(n, 8) for n in range(self.size)]
        m.d.comb += [i.ready.eq(1), complete.eq(valid & (held.last | i.valid))]
        m.d.sync += valid.eq(i.valid | valid & ~complete)
        with m.If(i.valid):
            m.d.sync += [
                held.eq(i.p),
                held.data.eq(Cat(Mux(keep, byte, 0) for byte, keep in zip(tags, i.p.keep, strict=True))),
                number.eq(number + 1),
            ]
        # Tags that are not of the frame have no bytes. Cleared behind the lookup, that is a register's reset.
        ahead = [Mux(~held.last & i.p.keep[n], bytes_of(tags[n]), 0) for n in range(self.config.tag_bytes - 1)]
        self._rows(m, complete, [held.data.word_select(n, 8) for n in range(self.size)], ahead)

        m.submodules.ends = ends = StreamFIFO(shape=end_layout(self.position_bits), depth=SLOTS)
        m.submodules.slice = end = RegisterSlice(shape=end_layout(self.position_bits))
        connect_typed(m, ends.o, end.i)
        connect_typed(m, end.o, wiring.flipped(self.ends))
        found = Signal(end_layout(self.position_bits))
        m.d.comb += [
            found.position.eq(Cat(kept_bytes(i.p.keep)[:-1], number + i.p.keep[-1])),
            found.last.eq(number),
            *(burst.eq(number + n) for n, burst in enumerate(found.into, start=1)),
        ]
        stages = table_stages(self.group) - 1  # with the queue as many as its last row's
        came = delayed(m, i.valid & i.p.last, stages, name="end_valid", reset_less=False)[-1]
        m.d.comb += [ends.i.valid.eq(came), ends.i.p.eq(delayed(m, found, stages, name="end")[-1])]
        return m

    def _rows(self, m: Module, complete: Signal, tags: list[Value], ahead: list[Value]) -> None:
        """Add up the bytes behind the tags at each place, the place in the first sum; ``ahead`` is known."""
        span = self.config.tag_bytes
        sizes = [*(bytes_of(its_tags) for its_tags in tags), *ahead]
        ends = [bytes_of(its_tags, n + span) for n, its_tags in enumerate(tags)]
        reach = 1
        while reach < span:
            complete, sizes, ends = _later(m, complete, sizes, ends, name=f"tags{reach}")
            halves = sizes
            ends = [ends[n] + sizes[n + reach] for n in range(self.size)]
            sizes = [sizes[n] + sizes[n + reach] for n in range(len(sizes) - reach)]
            reach *= 2
        # all totals are possible up to the greatest, but the one below it
        m.d.comb += [
            low.eq(half[:-1] | half[-1].replicate(len(low)))
            for low, half in zip(self.lows, halves, strict=False)
        ]
        m.d.comb += self.row.valid.eq(complete)
        for n, end in enumerate(ends):
            beyond = n + span >= self.size  # it ends in the next burst or in the one behind that
            m.d.comb += self.row.ends[n].eq(Cat(end[: self.place], end[self.place + beyond]))


def _later(m: Module, valid: Signal, *words: list[Value], name: str) -> tuple[Signal, list[Value], list[Value]]:
    """A register for each."""
    registers = [
        [Signal(word.shape(), name=f"{name}_{k}_{n}", reset_less=True) for n, word in enumerate(row)]
        for k, row in enumerate(words)
    ]
    for row, later in zip(words, registers, strict=True):
        m.d.sync += [register.eq(word) for register, word in zip(later, row, strict=True)]
    flag = Signal(name=f"{name}_valid")
    m.d.sync += flag.eq(valid)
    return flag, *registers
