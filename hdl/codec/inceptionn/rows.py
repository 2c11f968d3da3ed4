"""From group to group through the rows of a start table."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.codec import FLOAT_BITS, Inceptionn
from fanin.hdl.codec.inceptionn.shifter import looked_up, picked, picked_quickly

SLOTS = 16  # bursts that are held
BURST_BITS = (SLOTS - 1).bit_length()  # bursts are numbered by their slots
REACH = 3  # bursts; no group spans more
NUMBERS = data.ArrayLayout(BURST_BITS, REACH)  # of a burst and of those behind it: side by side, for speed


def place_bits(group: int) -> int:
    """Bits of a byte's place in a burst."""
    return (FLOAT_BITS // 8 * group).bit_length() - 1


def row_layout(group: int) -> data.ArrayLayout:
    """For every byte of a burst: the ``place`` at which a group that begins there ends, and if it goes ``on``.

    A group goes on where it ends in the burst behind the one in which its tags end.
    """
    return data.ArrayLayout(data.StructLayout({"place": place_bits(group), "on": 1}), FLOAT_BITS // 8 * group)


class RowWalk(wiring.Component):
    """Keep the rows of bursts, of which one is open, and go from group to group: a multiplexer a cycle.

    Where a group ends is known late in the cycle, with no time to choose a row by it. So what would be opened
    if the group leaves the burst is chosen early, and that it leaves only enables the registers. They are
    enabled, too, for a turn and while the open row is not there, and take what they have if nothing is due.

    Rows come in the order of their bursts, which are numbered modulo 16.

    Members
    -------
    ``row`` : In, ``valid`` and ``ends``, :func:`row_layout`
        The next burst's row. Its slot must not be wanted any more.
    ``go`` : In, 1
        Go on to where the group at ``place`` ends; the open row must be there.
    ``turn`` : In, 1
        Go to the first place of another burst; not together with ``go``.
    ``to`` : In, ``valid``, ``last`` and ``numbers``
        That burst and the two behind it, and the one in front of it. It is at most two behind the one whose row
        comes next. If it is not known, what is open will not be there.
    ``outside`` : In, 3
        The open burst, and the two behind it, are not of the frame. Of one whose row is there this stays.
    ``open`` : Out, numbers of the open row's burst and of the two behind it
    ``valid`` : Out, 1
        The open row is there.
    ``past`` : Out, 1
        What ``outside`` said of the open burst in the cycle before; 0 behind a ``turn``.
    ``place`` : Out
        In the open burst.
    ``tail`` : Out, 1
        The tags of a group at ``place`` end in the next burst.
    ``end`` : Out, an entry of :func:`row_layout`
        That of the open row at ``place``; late.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    1 cycle from ``row``, ``go`` and ``turn`` to all outputs.

    Source
    ------
    docs/codecs.md.
    """

    def __init__(self, *, group: int = 8):
        row = row_layout(group)
        self.span = Inceptionn(group=group).tag_bytes
        super().__init__(
            {
                "row": In(data.StructLayout({"valid": 1, "ends": row})),
                "go": In(1),
                "turn": In(1),
                "to": In(data.StructLayout({"valid": 1, "last": BURST_BITS, "numbers": NUMBERS})),
                "outside": In(REACH),
                "open": Out(NUMBERS, init=range(REACH)),
                "valid": Out(1),
                "past": Out(1),
                "place": Out(place_bits(group)),
                "tail": Out(1),
                "end": Out(row.elem_shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """What may be opened next is read, and chosen from, while the multiplexers find out where to go."""
        m = Module()
        number = Signal(BURST_BITS)  # of the burst whose row comes next
        m.d.sync += number.eq(number + self.row.valid)
        ends = Signal(self.row.ends.shape(), reset_less=True)
        inside = len(ends) - self.span  # places at which a group's tags end in the burst
        fine = self.span.bit_length() - 1
        far = Signal()  # by two bursts, which is known early: only few places lead there
        m.d.comb += [
            self.tail.eq(self.place[fine:].all()),
            self.end.eq(picked_quickly([it.as_value() for it in ends], self.place)),
            far.eq(
                self.go & self.tail & picked([ends[inside + n].on for n in range(self.span)], self.place[:fine])
            ),
        ]
        with m.If(self.turn):
            m.d.sync += self.place.eq(0)
        with m.Elif(self.go):
            m.d.sync += self.place.eq(self.end.place)
        self._open(m, number, ends, far)
        return m

    def _open(self, m: Module, number: Signal, ends: Any, far: Signal) -> None:
        """The registers that change with the open row."""
        go, turn, comes, to = self.go, self.turn, self.row.valid, self.to
        inside = len(ends) - self.span
        before, moved = self._counted(m, number)
        # by how much the row that comes next is ahead of the open one, where it is not far ahead
        ahead = [before == Cat(moved ^ (rows & 1), moved & (rows & 1) | rows >> 1) for rows in range(REACH)]
        # what comes is taken by what is near, by the other one or by the open one, whichever is to be opened
        taken = comes & Mux(turn, number == to.numbers[0], before == Cat(moved ^ go, moved & go))

        def following(second: Any, turned: Any, here: Any) -> Value:
            # gates, since of a multiplexer that has the register as input synthesis makes an enable of it
            return Mux(go, second, 0) | Mux(turn, turned, 0) | Mux(turn | go, 0, here)

        def row(coming: Any, third: Any, second: Any, turned: Any, here: Any) -> Value:
            """Two LUTs, of which the second has what is late."""
            near = Mux(taken, coming, following(second, turned, here))
            return Mux(far, Mux(comes & ahead[2], coming, third), near)

        second, third, turned = (
            self._read(m, name, number, burst)
            for name, burst in (("second", self.open[1]), ("third", self.open[2]), ("other", to.numbers[0]))
        )
        rows = [self.row.ends, third, second, turned, ends]
        behind = [*self.open, _one_more(self.open[2], Const(1))]
        behind.append(Cat(self.open[2][0], _one_more(self.open[2][1:], Const(1))))
        # from the last places a group always leaves the burst
        leaves = picked_quickly([*(ends[n].on for n in range(inside)), *[Const(1)] * self.span], self.place)
        with m.If(leaves | turn | ~self.valid):
            m.d.sync += [
                ends.eq(row(*(Value.cast(it) for it in rows))),
                self.valid.eq(Mux(go, ~ahead[1] | comes, Mux(turn, to.valid, self.valid | ahead[0] & comes))),
                self.past.eq(Mux(far, self.outside[2], Mux(go, self.outside[1], ~turn & self.outside[0]))),
                *(
                    burst.eq(Mux(far, behind[n + 2], following(behind[n + 1], to.numbers[n], burst)))
                    for n, burst in enumerate(self.open)
                ),
            ]
        # where the open row is there, what comes next is one ahead at least
        missing = turn & _misses(number, comes, to.last) | far & (ahead[1] | ahead[2] & ~comes)
        with m.If(missing):
            m.d.sync += self.valid.eq(0)

    def _counted(self, m: Module, number: Signal) -> tuple[Signal, Signal]:
        """By how much the coming row is ahead of the open one, from -2, modulo 16; one less if ``moved``.

        That a group goes on is known too late to be counted in its cycle.
        """
        before = Signal(BURST_BITS)
        moved = Signal()
        with m.If(self.go):
            m.d.sync += moved.eq(self.end.on)
        with m.Else():
            m.d.sync += moved.eq(0)
        turned = _behind_last(number, self.row.valid, self.to.last)
        here = _one_less(_one_more(_one_less(before, moved), self.row.valid), self.go & self.tail)
        m.d.sync += before.eq(Mux(self.turn, turned, here))
        return before, moved

    def _read(self, m: Module, name: str, number: Signal, burst: Value) -> Any:
        """A burst's row, out of a memory of its own, since synthesis would share a port, and choose late."""
        m.submodules[name] = rows = Memory(shape=self.row.ends.shape(), depth=SLOTS, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.row.valid),
            write.addr.eq(number),
            write.data.eq(self.row.ends),
            read.addr.eq(burst),
        ]
        return read.data


def _one_more(value: Value, one: Value) -> Value:
    """A sum without a carry chain, which takes longer where there are but few bits."""
    return Cat(bit ^ (one & value[:n].all()) for n, bit in enumerate(value))


def _one_less(value: Value, one: Value) -> Value:
    return Cat(bit ^ (one & ~value[:n].any()) for n, bit in enumerate(value))


def _behind_last(number: Value, comes: Value, last: Value) -> Value:
    """By how much the next row will be ahead of the burst behind ``last``: by halves, to be quick."""
    half = BURST_BITS // 2
    part = (1 << half) - 1

    def difference(index: Value) -> Value:
        words = range(1 << len(index))
        rests = [(word & part) - (word >> half & part) - 1 + (word >> 2 * half) for word in words]
        return Cat(looked_up(index, (rest >> bit & 1 for rest in rests)) for bit in range(half + 1))

    low = difference(Cat(number[:half], last[:half], comes))
    high = difference(Cat(number[half:], last[half:], ~low[half]))
    return Cat(low[:half], high[:half])


def _misses(number: Value, comes: Value, last: Value) -> Value:
    """Whether the row behind ``last`` has not come: one of the next three, of which the first may come now."""
    half = BURST_BITS // 2
    whole, part = 1 << half, (1 << half) - 1
    low, high = Cat(number[:half], last[:half], comes), Cat(number[half:], last[half:])

    def further(word: int) -> int:
        """How far the last burst is ahead, in these halves."""
        return (word >> half & part) - (word & part)

    terms = []
    for carried in (-1, 0, 1):
        fits = [
            word >> 2 * half <= further(word) + 1 + carried * whole < REACH for word in range(1 << len(low))
        ]
        equal = [(further(word) - carried) % whole == 0 for word in range(1 << len(high))]
        terms.append(looked_up(low, fits) & looked_up(high, equal))
    return reduce(or_, terms)
