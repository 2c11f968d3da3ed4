"""From group to group through the rows of a start table."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from itertools import product
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.codec import FLOAT_BITS, Inceptionn
from fanin.hdl.codec.inceptionn.shifter import decoded, looked_up, picked, picked_quickly
from fanin.hdl.emit import shared

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


def open_layout(group: int) -> data.StructLayout:
    """A row's ``ends``; the ``numbers`` of its burst and of the two behind it.

    ``valid``: the row is there. ``past``: the burst is not of the frame.
    """
    return data.StructLayout({"ends": row_layout(group), "numbers": NUMBERS, "valid": 1, "past": 1})


class OpenRow(wiring.Component):
    """The open row, the place in it, and where a group there ends: what is late, and nothing else.

    Synthesis maps it apart. Its multiplexers take longer than all around them; in one mapping with them all the
    rest would be given as much time, and be built of fewer LUTs, but more of them in series.

    Members
    -------
    ``next`` : In, :func:`open_layout`
        Opened with ``go`` to another burst, with ``turn``, and while the open row is not there.
    ``go`` : In, 1
        To where the group at ``place`` ends.
    ``turn`` : In, 1
        To the first place.
    ``row`` : Out, :func:`open_layout`
    ``place`` : Out
    ``end`` : Out, an entry of :func:`row_layout`
        That at ``place``; late, so that only a register should have it.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    1 cycle; ``end`` follows ``place`` and ``row`` within the cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    keep_hierarchy = True

    def __init__(self, *, group: int = 8):
        self.group = group
        super().__init__(
            {
                "next": In(open_layout(group)),
                "go": In(1),
                "turn": In(1),
                "row": Out(open_layout(group)),
                "place": Out(place_bits(group)),
                "end": Out(row_layout(group).elem_shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Two multiplexers: to where, and if that enables the registers."""
        m = Module()
        row, following = self.row, self.next
        ends = Signal(row.ends.shape(), reset_less=True)
        valid, past = Signal(), Signal()
        numbers = Signal(NUMBERS, init=range(REACH))
        m.d.comb += [row.ends.eq(ends), row.numbers.eq(numbers), row.valid.eq(valid), row.past.eq(past)]
        span = Inceptionn(group=self.group).tag_bytes
        # from the last places, where its tags end in the next burst, a group always leaves this one
        inside = [ends[n].on for n in range(len(ends) - span)]
        leaves = picked_quickly([*inside, *[Const(1)] * span], self.place, decoded(self.place[:-2]))
        opens = leaves & self.go | self.turn | ~valid
        m.d.comb += self.end.eq(picked([end.as_value() for end in ends], self.place))
        with m.If(self.turn):
            m.d.sync += self.place.eq(0)
        with m.Elif(self.go):
            m.d.sync += self.place.eq(self.end.place)
        with m.If(opens):
            m.d.sync += [
                ends.eq(following.ends),
                numbers.eq(following.numbers),
                valid.eq(following.valid),
                past.eq(following.past),
            ]
        return m


class RowWalk(wiring.Component):
    """Keep the rows of bursts, of which one is open, and go from group to group: a multiplexer a cycle.

    Where a group ends is known late in the cycle, with no time to choose a row by it. So what would be opened
    if the group leaves the burst is chosen early, and that it leaves only enables the registers
    (:class:`OpenRow`). They are enabled, too, for a turn and while the open row is not there.

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
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        row = row_layout(group)
        self.group = group
        self.span = Inceptionn(group=group).tag_bytes
        super().__init__(
            {
                "row": In(data.StructLayout({"valid": 1, "ends": row})),
                "go": In(1),
                "turn": In(1),
                "to": In(data.StructLayout({"valid": 1, "last": BURST_BITS, "numbers": NUMBERS})),
                "outside": In(REACH),
                "open": Out(NUMBERS),
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
        m.submodules.opened = opened = shared(OpenRow(group=self.group))
        ends = opened.row.ends
        inside = len(ends) - self.span  # places at which a group's tags end in the burst
        fine = self.span.bit_length() - 1
        beyond = Signal()  # the group ends two bursts on, which is known early: only few places lead there
        m.d.comb += [
            opened.go.eq(self.go),
            opened.turn.eq(self.turn),
            self.open.eq(opened.row.numbers),
            self.valid.eq(opened.row.valid),
            self.past.eq(opened.row.past),
            self.place.eq(opened.place),
            self.tail.eq(self.place[fine:].all()),
            self.end.eq(opened.end),
            beyond.eq(self.tail & picked([ends[inside + n].on for n in range(self.span)], self.place[:fine])),
        ]
        self._open(m, number, opened, beyond)
        return m

    def _open(self, m: Module, number: Signal, opened: OpenRow, beyond: Signal) -> None:
        """What is opened next."""
        go, turn, comes, to = self.go, self.turn, self.row.valid, self.to
        far = go & beyond
        ahead = self._ahead(m, number)
        # what comes is what is to be opened; of a row that is not there anything may be opened
        gone = go & comes & Mux(beyond, ahead[2], ahead[1])
        taken = ~go & comes & (~turn | (number == to.numbers[0]))

        def row(coming: Any, third: Any, second: Any, turned: Any) -> Value:
            """Two LUTs, of which the second has what is late."""
            return Mux(taken | gone, coming, Mux(far, third, Mux(go, second, turned)))

        def number_of(third: Any, second: Any, turned: Any, here: Any) -> Value:
            return Mux(far, third, Mux(go, second, 0) | Mux(turn, turned, 0) | Mux(turn | go, 0, here))

        second, third, turned = (
            self._read(m, name, number, burst)
            for name, burst in (("second", self.open[1]), ("third", self.open[2]), ("other", to.numbers[0]))
        )
        rows = [self.row.ends, third, second, turned]
        behind = [*self.open, _one_more(self.open[2], Const(1))]
        behind.append(Cat(self.open[2][0], _one_more(self.open[2][1:], Const(1))))
        coming = opened.next
        missing = {0, SLOTS - 1, SLOTS - 2}  # of the other burst, if its row is one of the next three to come
        m.d.comb += [
            coming.ends.eq(row(*(Value.cast(it) for it in rows))),
            # where the open row is there, what comes next is one ahead at least
            coming.valid.eq(
                go & Mux(beyond, ~(ahead[1] | ahead[2] & ~comes), ~ahead[1] | comes)
                | turn & to.valid & ~_is_behind_last(number, comes, to.last, missing)
                | ~(go | turn) & ahead[0] & comes
            ),
            coming.past.eq(Mux(far, self.outside[2], Mux(go, self.outside[1], ~turn & self.outside[0]))),
            *(
                it.eq(number_of(behind[n + 2], behind[n + 1], to.numbers[n], self.open[n]))
                for n, it in enumerate(coming.numbers)
            ),
        ]

    def _ahead(self, m: Module, number: Signal) -> list[Value]:
        """Whether the row that comes next is 0, 1 or 2 ahead of the open one.

        How many it is ahead, from -2, modulo 16, is counted ``before`` the last step moved, if it did: that a
        group goes on is known too late to be counted in its cycle.
        """
        before = Signal(BURST_BITS)
        near = Signal(REACH + 1, init=1)  # a one where ``before`` is that
        moved = Signal()
        comes, turn, last = self.row.valid, self.turn, self.to.last
        with m.If(self.go):
            m.d.sync += moved.eq(self.end.on)
        with m.Else():
            m.d.sync += moved.eq(0)
        one = self.go & self.tail
        here = _one_less(_one_more(_one_less(before, moved), comes), one)
        m.d.sync += before.eq(Mux(turn, _behind_last(number, comes, last), here))
        index = Cat(before, moved, comes)
        sums = [(word % SLOTS - (word // SLOTS & 1) + word // SLOTS // 2) % SLOTS for word in range(4 * SLOTS)]
        equal = [looked_up(index, (count == n for count in sums)) for n in range(REACH + 2)]
        for n, bit in enumerate(near):
            turned = _is_behind_last(number, comes, last, {n})
            m.d.sync += bit.eq(turn & turned | one & equal[n + 1] | ~(turn | one) & equal[n])
        return [Mux(moved, near[n + 1], near[n]) for n in range(REACH)]

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


def _is_behind_last(number: Value, comes: Value, last: Value, wanted: Collection[int]) -> Value:
    """Whether :func:`_behind_last` is one of those ``wanted``: by halves, too."""
    half = BURST_BITS // 2
    part = (1 << half) - 1
    low, high = Cat(number[:half], last[:half], comes), Cat(number[half:], last[half:])
    rests = [(word & part) - (word >> half & part) - 1 + (word >> 2 * half) for word in range(1 << len(low))]
    terms = []
    for borrow, top in product(range(2), range(part + 1)):
        fits = [(rest < 0) == borrow and top << half | rest & part in wanted for rest in rests]
        equal = [((word & part) - (word >> half) - borrow) & part == top for word in range(1 << len(high))]
        if any(fits):
            terms.append(looked_up(low, fits) & looked_up(high, equal))
    return reduce(or_, terms)
