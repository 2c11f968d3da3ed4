"""The rows of a start table between their making and their use."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.codec import FLOAT_BITS
from fanin.hdl.codec.inceptionn.shifter import picked

SLOTS = 16  # bursts that are held
BURST_BITS = (SLOTS - 1).bit_length()  # bursts are numbered by their slots
REACH = 3  # bursts; no group spans more
NUMBERS = data.ArrayLayout(BURST_BITS, REACH)  # of a burst and of those behind it: side by side, for speed


def place_bits(group: int) -> int:
    """Bits of a byte's place in a burst."""
    return (FLOAT_BITS // 8 * group).bit_length() - 1


def row_layout(group: int) -> data.ArrayLayout:
    """For every byte of a burst: how many ``bursts`` further, and where, a group that begins there ends."""
    end = data.StructLayout({"place": place_bits(group), "bursts": range(REACH)})
    return data.ArrayLayout(end, FLOAT_BITS // 8 * group)


class RowStore(wiring.Component):
    """Keep rows, of which one is open: go on by up to two bursts, or turn to any other one, within a cycle.

    The open row is in registers, since where to go is read from it and so known late: what may be opened next
    is read meanwhile. Rows come in the order of their bursts. A burst is numbered modulo 16.

    Members
    -------
    ``row`` : In, ``valid`` and ``ends``, :func:`row_layout`
        The next burst's row. Its slot must not be wanted any more.
    ``go`` : In, 1
        Go on by ``bursts``; the open row must be there.
    ``bursts`` : In, range(3)
        May come late in the cycle.
    ``turn`` : In, ``valid`` and ``to``
        Go to another burst, with the numbers of the two behind it; not together with ``go``. That burst is at
        most two behind the one whose row comes next.
    ``open`` : Out, numbers of the open row's burst and of the two behind it
    ``valid`` : Out, 1
        The open row is there.
    ``ends`` : Out, :func:`row_layout`
        The open row.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    1 cycle from ``row``, ``go`` and ``turn`` to ``open``, ``valid`` and ``ends``.

    Source
    ------
    docs/codecs.md.
    """

    def __init__(self, *, group: int = 8):
        row = row_layout(group)
        super().__init__(
            {
                "row": In(data.StructLayout({"valid": 1, "ends": row})),
                "go": In(1),
                "bursts": In(range(REACH)),
                "turn": In(data.StructLayout({"valid": 1, "to": NUMBERS})),
                "open": Out(NUMBERS, init=range(REACH)),
                "valid": Out(1),
                "ends": Out(row),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A row that comes in the cycle in which it could be opened is taken in place of the memory's."""
        m = Module()
        number = Signal(BURST_BITS)  # of the burst whose row comes next
        coming = Signal(SLOTS, init=0b111)  # a one for that and for the two behind it
        with m.If(self.row.valid):
            m.d.sync += [number.eq(number + 1), coming.eq(coming.rotate_left(1))]

        def comes(burst: Value) -> Value:
            return self.row.valid & (number == burst)

        def there(burst: Value) -> Value:
            return ~picked(list(coming), burst) | comes(burst)

        turn, far = self.turn, self.bursts[1]
        # A memory for each, since synthesis would share a port, and so choose its address late. While the open
        # row is not there, whatever comes is taken for it: the last one that is taken is the right one.
        second = self._read(m, "second", number, self.open[1], wanted=~self.valid)
        third = self._read(m, "third", number, self.open[2], wanted=~self.valid)
        other = self._read(m, "other", number, turn.to[0], wanted=Const(0))
        moves = self.go & self.bursts.any()
        with m.If(turn.valid | moves | ~self.valid):
            m.d.sync += self.ends.eq(Mux(turn.valid, other, Mux(far, third, second)))
        with m.If(turn.valid | moves):
            following = [self.open[1], self.open[2], self.open[2] + 1, self.open[2] + 2]
            m.d.sync += [
                burst.eq(Mux(turn.valid, turn.to[n], Mux(far, following[n + 1], following[n])))
                for n, burst in enumerate(self.open)
            ]
        stays = self.valid | comes(self.open[0])
        arrived = Mux(far, there(self.open[2]), ~self.bursts[0] | there(self.open[1]))
        m.d.sync += self.valid.eq(Mux(self.go, arrived, Mux(turn.valid, there(turn.to[0]), stays)))
        return m

    def _read(self, m: Module, name: str, number: Signal, burst: Value, wanted: Value) -> Value:
        """A burst's row out of a memory; the one that comes, if it is that burst's, or any is ``wanted``."""
        m.submodules[name] = rows = Memory(shape=self.row.ends.shape(), depth=SLOTS, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.row.valid),
            write.addr.eq(number),
            write.data.eq(self.row.ends),
            read.addr.eq(burst),
        ]
        return Mux(wanted | (number == burst), self.row.ends.as_value(), read.data.as_value())
