"""Per-channel state of a layer: memories, sums over a frame, and the update at the frame's end.

Channels are stored in groups of ``lanes``, in stream order. A group is one row of a memory.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.arith.datapath import Datapath, Number
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.select import one_hot
from fanin.hdl.emit import shared


def group_range(groups: int) -> range:
    """Return the shape of a group's number, at least one bit: a memory of one group also needs an address."""
    return range(max(2, groups))


def products(lanes: int) -> LaneArray:
    """Return an array that multiplies lane by lane."""
    return LaneArray(trees=tuple(((lane, lane),) for lane in range(lanes)))


def negated(row: Any) -> Value:
    """Return the row's words with inverted sign bits."""
    return Cat(Cat(word[:-1], ~word[-1]) for word in row)


class ChannelMemory(wiring.Component):
    """Memory of one word per channel. A read returns a word that is written in the same cycle.

    Members
    -------
    ``read_group`` : In
        The group to read.
    ``read`` : Out, ``ArrayLayout(32, lanes)``
        Words of the group that ``read_group`` named one cycle earlier.
    ``write_group`` : In
        The group to write.
    ``enables`` : In(lanes)
        Write enable of each lane of ``write_group``.
    ``write`` : In, ``ArrayLayout(32, lanes)``
        Words to write, by lane.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    1 cycle from ``read_group`` to ``read``; a read and a write a cycle.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, groups: int, lanes: int):
        self.groups = groups
        self.lanes = lanes
        self.row = data.ArrayLayout(FLOAT_BITS, lanes)
        super().__init__(
            {
                "read_group": In(group_range(groups)),
                "read": Out(self.row),
                "write_group": In(group_range(groups)),
                "enables": In(lanes),
                "write": In(self.row),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build one memory with a write enable per lane."""
        m = Module()
        depth = len(group_range(self.groups))
        m.submodules.storage = storage = Memory(shape=self.row, depth=depth, init=[])
        write = storage.write_port(granularity=1)
        read = storage.read_port(transparent_for=(write,))
        m.d.comb += [
            read.addr.eq(self.read_group),
            self.read.eq(read.data),
            write.addr.eq(self.write_group),
            write.en.eq(self.enables),
            write.data.eq(self.write),
        ]
        return m


class ChannelSums(wiring.Component):
    """Sums of the incoming values per channel, each added in order of arrival (a fold).

    Members
    -------
    ``group`` : In
        The group of the next cycle's values, or the group whose sums are to be read.
    ``value`` : In, ``ArrayLayout(32, lanes)``
        Values of the group that ``group`` named one cycle earlier. A group may repeat after 8 cycles.
    ``first`` : In(1)
        With ``value``: the sums restart from +0.
    ``valid`` : In(1)
        ``value`` holds values to add.
    ``sums`` : Out, ``ArrayLayout(32, lanes)``
        Sums of the group that ``group`` named one cycle earlier.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    ``latency``, 7 cycles from ``value`` to the cycle in which ``group`` may name its group to read the sums.

    Source
    ------
    Chiley et al., algorithm 1: a frame's mean and variance; docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, groups: int, lanes: int):
        self.groups = groups
        self.lanes = lanes
        row = data.ArrayLayout(FLOAT_BITS, lanes)
        super().__init__(
            {
                "group": In(group_range(groups)),
                "value": In(row),
                "first": In(1),
                "valid": In(1),
                "sums": Out(row),
            }
        )

    latency = 7

    def elaborate(self, platform: Any) -> Module:
        """Read the old sum, add, and write the new sum."""
        m = Module()
        m.submodules.memory = memory = ChannelMemory(groups=self.groups, lanes=self.lanes)
        m.submodules.adders = adders = shared(AdderArray(lanes=self.lanes))
        assert adders.latency == self.latency
        groups = delayed(m, self.group, 1 + self.latency, name="group")
        valid = delayed(m, self.valid, self.latency, name="valid", reset_less=False)
        m.d.comb += [
            memory.read_group.eq(self.group),
            self.sums.eq(memory.read),
            adders.a.eq(Mux(self.first, 0, memory.read.as_value())),
            adders.b.eq(self.value),
            adders.valid.eq(self.valid),
            memory.write_group.eq(groups[-1]),
            memory.write.eq(adders.o),
            memory.enables.eq(valid[-1].replicate(self.lanes)),
        ]
        return m


class ChannelCursor(wiring.Component):
    """Pointer to each channel in turn; it wraps from the last channel to the first.

    Members
    -------
    ``step`` : In(1)
        Move to the next channel.
    ``group`` : Out
        The channel's group; registered.
    ``lane`` : Out(lanes)
        The channel's lane in its group, one-hot; registered.
    ``last`` : Out(1)
        The channel is the last one.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    The outputs follow ``step`` after 1 cycle.

    Source
    ------
    docs/systems/layers.md, "Interface of a layer".
    """

    def __init__(self, *, groups: int, lanes: int):
        self.groups = groups
        self.lanes = lanes
        super().__init__(
            {"step": In(1), "group": Out(group_range(groups)), "lane": Out(lanes, init=1), "last": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Rotate the one-hot lane; its wrap increments the group."""
        m = Module()
        last_group = self.group == self.groups - 1
        m.d.comb += self.last.eq(self.lane[-1] & last_group)
        with m.If(self.step):
            m.d.sync += self.lane.eq(self.lane.rotate_left(1))
            with m.If(self.lane[-1]):
                m.d.sync += self.group.eq(Mux(last_group, 0, self.group + 1))
        return m


class ChannelUpdate(wiring.Component):
    """Update that applies a subclass's formula to every channel once, one channel every ``interval`` cycles.

    Members
    -------
    ``start`` : In(1)
        Pulse: begin an update; only while not ``busy``.
    ``busy`` : Out(1)
        High from the cycle after ``start`` to the cycle of ``done``; registered.
    ``done`` : Out(1)
        Pulse: ``words`` holds the last channel's results.
    ``read_group`` : Out
        The group of the next channel; registered.
    ``rows`` : In, ``operands`` of ``ArrayLayout(32, lanes)``
        Operands of the channels of ``read_group``, one cycle later.
    ``write`` : Out(1)
        ``words`` holds a channel's results.
    ``write_group`` : Out
        Group of the channel that is written.
    ``write_lane`` : Out(lanes)
        Lane of the channel that is written, one-hot.
    ``words`` : Out, ``ArrayLayout(32, results)``
        Results of the channel that is written.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1
    ``operands``, ``results`` : int, at least 1
        Words per channel that the formula takes and returns.
    ``interval`` : int, at least 2
        Cycles per channel.

    Latency
    -------
    From ``start`` to ``done``: ``interval`` · (channels − 1) cycles plus the formula's latency.

    Source
    ------
    docs/systems/layers.md, "Numbers": online normalisation at the end of a frame.
    """

    multipliers = 1  #: multipliers that the formula shares in time
    adders = 1  #: adders that the formula shares in time

    def __init__(self, *, groups: int, lanes: int, operands: int, results: int, interval: int):
        self.groups = groups
        self.lanes = lanes
        self.operands = operands
        self.results = results
        self.interval = interval
        super().__init__(
            {
                "start": In(1),
                "busy": Out(1),
                "done": Out(1),
                "read_group": Out(group_range(groups)),
                "rows": In(data.ArrayLayout(data.ArrayLayout(FLOAT_BITS, lanes), operands)),
                "write": Out(1),
                "write_group": Out(group_range(groups)),
                "write_lane": Out(lanes),
                "words": Out(data.ArrayLayout(FLOAT_BITS, results)),
            }
        )

    def formula(self, path: Datapath, *operands: Number) -> tuple[Number, ...]:
        """Return the results of a channel: by default, its first operands unchanged."""
        return operands[: self.results]

    def elaborate(self, platform: Any) -> Module:
        """Delay a token per channel alongside the formula.

        ``slot`` counts the cycles of a channel's interval; a channel begins in slot 0. The cursor ``reading``
        is at the channel whose operands are read, ``writing`` at the channel whose token arrives next.
        """
        m = Module()
        m.submodules.reading = reading = ChannelCursor(groups=self.groups, lanes=self.lanes)
        m.submodules.writing = writing = ChannelCursor(groups=self.groups, lanes=self.lanes)
        issuing = Signal()
        slot = Signal(range(self.interval))
        last_slot = slot == self.interval - 1
        phase = delayed(m, slot, _CHOICE, name="slot")[-1]
        results = self._evaluated(m, phase, reading.lane)
        latency = max(result.step for result in results)
        begins = issuing & (slot == 0)
        token = delayed(m, begins, _CHOICE + latency, name="token", reset_less=False)[-1]
        m.d.comb += [
            reading.step.eq(issuing & last_slot),
            self.read_group.eq(reading.group),
            self.write.eq(token),
            writing.step.eq(token),
            self.write_group.eq(writing.group),
            self.write_lane.eq(writing.lane),
            self.done.eq(token & writing.last),
        ]
        m.d.comb += [word.eq(result.at(latency)) for word, result in zip(self.words, results, strict=True)]
        with m.If(self.busy):
            m.d.sync += slot.eq(Mux(last_slot, 0, slot + 1))
        with m.If(reading.step & reading.last):
            m.d.sync += issuing.eq(0)
        with m.If(self.done):
            m.d.sync += self.busy.eq(0)
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), issuing.eq(1), slot.eq(0)]
        return m

    def _evaluated(self, m: Module, phase: Value, lane: Value) -> tuple[Number, ...]:
        """Return the formula's results for the words of ``lane``, selected one cycle after ``lane``."""
        path = Datapath(
            m,
            name="formula",
            phase=phase,
            busy=self.busy,
            interval=self.interval,
            multipliers=self.multipliers,
            adders=self.adders,
        )
        lane = delayed(m, lane, 1, name="lane")[-1]
        operands = []
        for index, row in enumerate(self.rows):
            word = Signal(FLOAT_BITS, name=f"operand_{index}", reset_less=True)
            m.d.sync += word.eq(one_hot(row, lane))
            operands.append(path.operand(word))
        results = self.formula(path, *operands)
        path.connect()
        return results


_CHOICE = 2  # cycles from a channel's address to its operands: memory read and lane selection
