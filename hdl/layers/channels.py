"""State that a layer has of every channel: memories, sums over a frame, and what an update makes of them.

Channels lie in groups of ``lanes``, as they come in a stream; a group is a row of a memory.
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
    """Shape of a group's number; it has one bit at least, so that a memory of one group has an address."""
    return range(max(2, groups))


def products(lanes: int) -> LaneArray:
    """An array that multiplies lane by lane."""
    return LaneArray(trees=tuple(((lane, lane),) for lane in range(lanes)))


def negated(row: Any) -> Value:
    """Words with the other sign."""
    return Cat(Cat(word[:-1], ~word[-1]) for word in row)


class ChannelMemory(wiring.Component):
    """A word of every channel. A read sees what is written in the same cycle.

    Members
    -------
    ``read_group`` : In
        The group to read.
    ``read`` : Out, ``ArrayLayout(32, lanes)``
        Its words.
    ``write_group`` : In
        The group to write.
    ``enables`` : In(lanes)
        The lanes of it that are written.
    ``write`` : In, ``ArrayLayout(32, lanes)``
        Their words.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    1 cycle from ``read_group`` to ``read``; a read and a write a cycle.

    Source
    ------
    docs/systems/cluster.md, "Numbers".
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
        """A write enable per lane."""
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
    """Sums per channel of what comes, each in the order in which it comes (a fold).

    Members
    -------
    ``group`` : In
        The group of the values that come in the next cycle; or one whose sums are to be read.
    ``value`` : In, ``ArrayLayout(32, lanes)``
        Values of the group that was named in the cycle before. It may come again 8 cycles later.
    ``first`` : In(1)
        The sums begin with them, from +0.
    ``valid`` : In(1)
        There are values.
    ``sums`` : Out, ``ArrayLayout(32, lanes)``
        The sums of the group that was named in the cycle before.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    ``latency``, 7 cycles from ``value`` to the cycle in which ``group`` may name it to read the sums.

    Source
    ------
    Chiley et al., algorithm 1: a frame's mean and variance; docs/systems/cluster.md, "Numbers".
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
        """Read, add, write."""
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
    """Points at every channel in turn, and then at the first again.

    Members
    -------
    ``step`` : In(1)
        Go on to the next channel.
    ``group`` : Out
        The channel's group; registered.
    ``lane`` : Out(lanes)
        Its lane in there, one-hot; registered.
    ``last`` : Out(1)
        It is the last channel.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    1 cycle from ``step``.

    Source
    ------
    docs/systems/cluster.md, "Interface of a layer".
    """

    def __init__(self, *, groups: int, lanes: int):
        self.groups = groups
        self.lanes = lanes
        super().__init__(
            {"step": In(1), "group": Out(group_range(groups)), "lane": Out(lanes, init=1), "last": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        """The one goes round."""
        m = Module()
        last_group = self.group == self.groups - 1
        m.d.comb += self.last.eq(self.lane[-1] & last_group)
        with m.If(self.step):
            m.d.sync += self.lane.eq(self.lane.rotate_left(1))
            with m.If(self.lane[-1]):
                m.d.sync += self.group.eq(Mux(last_group, 0, self.group + 1))
        return m


class ChannelUpdate(wiring.Component):
    """Takes every channel once, one every ``interval`` cycles, through a formula that a subclass states.

    Members
    -------
    ``start`` : In(1)
        Begin; not before the last one is done.
    ``busy`` : Out(1)
        From the cycle after ``start`` to that of ``done``; registered.
    ``done`` : Out(1)
        The last channel's results are there.
    ``read_group`` : Out
        The group of the channel that comes next; registered.
    ``rows`` : In, ``operands`` of ``ArrayLayout(32, lanes)``
        The operands of that group's channels, in the next cycle.
    ``write`` : Out(1)
        A channel's results are there.
    ``write_group`` : Out
        The channel's group.
    ``write_lane`` : Out(lanes)
        Its lane, one-hot.
    ``words`` : Out, ``ArrayLayout(32, results)``
        Its results.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1
    ``operands``, ``results`` : int, at least 1
        Words of a channel that the formula takes and gives.
    ``interval`` : int, at least 2

    Latency
    -------
    ``done`` comes ``interval`` · (channels − 1) cycles and the formula's latency after ``start``.

    Source
    ------
    docs/systems/cluster.md, "Numbers": what online normalisation does at the end of a frame.
    """

    multipliers = 1  #: that the formula needs, in turn
    adders = 1

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
        """The results of a channel; as they come here if no subclass says otherwise."""
        return operands[: self.results]

    def elaborate(self, platform: Any) -> Module:
        """A token per channel runs beside the formula; a cursor at either end says whose it is."""
        m = Module()
        m.submodules.reading = reading = ChannelCursor(groups=self.groups, lanes=self.lanes)
        m.submodules.writing = writing = ChannelCursor(groups=self.groups, lanes=self.lanes)
        entering = Signal()
        slot = Signal(range(self.interval))
        last_slot = slot == self.interval - 1
        phase = delayed(m, slot, _CHOICE, name="slot")[-1]
        results = self._evaluated(m, phase, reading.lane)
        latency = max(result.step for result in results)
        begins = entering & (slot == 0)
        token = delayed(m, begins, _CHOICE + latency, name="token", reset_less=False)[-1]
        m.d.comb += [
            reading.step.eq(entering & last_slot),
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
            m.d.sync += entering.eq(0)
        with m.If(self.done):
            m.d.sync += self.busy.eq(0)
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), entering.eq(1), slot.eq(0)]
        return m

    def _evaluated(self, m: Module, phase: Value, lane: Value) -> tuple[Number, ...]:
        """The formula of the words in ``lane``, chosen a cycle after it points at them."""
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


_CHOICE = 2  # cycles from a channel's address to its operands: the memory's, and the choice of a lane
