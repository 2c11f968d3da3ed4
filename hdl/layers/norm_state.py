"""State of online normalisation: its memories, and its load and dump word by word."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers import online_norm
from fanin.codec.facts import FLOAT_BITS
from fanin.hdl.arith.select import one_hot
from fanin.hdl.layers.channels import ChannelCursor, ChannelMemory, group_range
from fanin.hdl.layers.interface import LayerControl, Mode

FORWARD, BACKWARD = online_norm.FORWARD_STATE, online_norm.BACKWARD_STATE  #: state words of a channel, by way


def state_access(groups: int, lanes: int, kinds: int) -> wiring.Signature:
    """Return the interface to one channel's state.

    - ``active``: ``group`` is read from all memories.
    - ``group``: the channel's group.
    - ``lane``: the channel's lane in its group, one-hot.
    - ``write``: a bit for each kind of word; 1: ``word`` is written to the channel.
    - ``word``: word to write, binary32.
    - ``read``: words of all lanes of ``group``, by kind, one cycle later.
    """
    return wiring.Signature(
        {
            "active": Out(1),
            "group": Out(group_range(groups)),
            "lane": Out(lanes),
            "write": Out(kinds),
            "word": Out(FLOAT_BITS),
            "read": In(data.ArrayLayout(data.ArrayLayout(FLOAT_BITS, lanes), kinds)),
        }
    )


class NormMemories(wiring.Component):
    """Memories of ``kinds`` state words per channel, written by a ``ChannelUpdate`` or a ``NormStateMover``.

    Members
    -------
    ``read_groups`` : In(group_range(groups)), array of ``kinds``
        Group to read, for each kind of word; ignored while ``access.active``.
    ``rows`` : Out, ``kinds`` × ``lanes`` × 32 bits
        Words of ``read_groups``, one cycle later.
    ``update`` : In(1)
        1: the ``ChannelUpdate`` writes. 0: ``access`` writes.
    ``write`` : In(1)
        ``words`` is written; only with ``update``.
    ``write_group`` : In(group_range(groups))
        Group of the channel that the update writes.
    ``write_lane`` : In(lanes)
        Lane of the channel that the update writes, one-hot.
    ``words`` : In, ``kinds`` × 32 bits
        Words that the update writes, by kind.
    ``access`` : In, ``state_access``
        Access of the ``NormStateMover``.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1
    ``kinds`` : int, at least 1
        State words of a channel.

    Latency
    -------
    1 cycle from ``read_groups`` to ``rows``.

    Source
    ------
    docs/systems/layers.md, "Interface of a layer".
    """

    def __init__(self, *, groups: int, lanes: int, kinds: int):
        self.groups = groups
        self.lanes = lanes
        self.kinds = kinds
        super().__init__(
            {
                "read_groups": In(group_range(groups)).array(kinds),
                "rows": Out(data.ArrayLayout(data.ArrayLayout(FLOAT_BITS, lanes), kinds)),
                "update": In(1),
                "write": In(1),
                "write_group": In(group_range(groups)),
                "write_lane": In(lanes),
                "words": In(data.ArrayLayout(FLOAT_BITS, kinds)),
                "access": In(state_access(groups, lanes, kinds)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a memory per kind of word."""
        m = Module()
        access = self.access
        lane = Mux(self.update, self.write_lane, access.lane)
        m.d.comb += access.read.eq(self.rows)
        for kind in range(self.kinds):
            m.submodules[f"memory_{kind}"] = memory = ChannelMemory(groups=self.groups, lanes=self.lanes)
            word = Mux(self.update, self.words[kind], access.word)
            m.d.comb += [
                memory.read_group.eq(Mux(access.active, access.group, self.read_groups[kind])),
                self.rows[kind].eq(memory.read),
                memory.write_group.eq(Mux(self.update, self.write_group, access.group)),
                memory.enables.eq(Mux(Mux(self.update, self.write, access.write[kind]), lane, 0)),
                memory.write.eq(word.replicate(self.lanes)),
            ]
        return m


def connect_update(m: Module, memories: Any, update: Any) -> None:
    """Connect the outputs of ``update`` to the write inputs of ``memories``."""
    m.d.comb += [
        memories.update.eq(update.busy),
        memories.write.eq(update.write),
        memories.write_group.eq(update.write_group),
        memories.write_lane.eq(update.write_lane),
        memories.words.eq(update.words),
    ]


class NormStateMover(wiring.Component):
    """Mover of online normalisation's state: the words of all channels, kind by kind of ``online_norm.STATE``.

    Members
    -------
    ``control`` : In, ``LayerControl``
        A start in mode LOAD or DUMP begins a transfer.
    ``idle`` : In(1)
        The layer changes no state; the mover waits until then.
    ``load`` : In, stream of 32 bits
    ``dump`` : Out, stream of 32 bits
    ``access`` : Out, ``state_access``
        ``active`` from the first word to the last. The layer then reads ``group`` from all its memories, and
        writes ``word`` to lane ``lane`` of the memories that ``write`` selects.

    Parameters
    ----------
    ``groups``, ``lanes`` : int, at least 1

    Latency
    -------
    A load moves a word a cycle, a dump a word every 3 cycles.

    Source
    ------
    docs/systems/layers.md, "Interface of a layer".
    """

    def __init__(self, *, groups: int, lanes: int):
        self.groups = groups
        self.lanes = lanes
        super().__init__(
            {
                "control": In(LayerControl),
                "idle": In(1),
                "load": In(stream.Signature(FLOAT_BITS)),
                "dump": Out(stream.Signature(FLOAT_BITS)),
                "access": Out(state_access(groups, lanes, len(online_norm.STATE))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Loop over the kinds of word, and within each kind over the channels."""
        m = Module()
        m.submodules.cursor = cursor = ChannelCursor(groups=self.groups, lanes=self.lanes)
        kind = Signal(len(online_norm.STATE), init=1)
        access, control = self.access, self.control
        m.d.comb += [
            access.group.eq(cursor.group),
            access.lane.eq(cursor.lane),
            access.word.eq(self.load.payload),
        ]
        loading = Signal()
        row = Signal(data.ArrayLayout(FLOAT_BITS, self.lanes), reset_less=True)
        end = cursor.step & cursor.last & kind[-1]
        with m.If(cursor.step & cursor.last):
            m.d.sync += kind.eq(kind.rotate_left(1))

        with m.FSM():
            with (
                m.State("IDLE"),
                m.If(control.start & ((control.mode == Mode.LOAD) | (control.mode == Mode.DUMP))),
            ):
                m.d.sync += loading.eq(control.mode == Mode.LOAD)
                m.next = "WAIT"
            with m.State("WAIT"), m.If(self.idle):
                m.next = "LOAD"
                with m.If(~loading):
                    m.next = "READ"
            with m.State("LOAD"):
                m.d.comb += [
                    access.active.eq(1),
                    self.load.ready.eq(1),
                    cursor.step.eq(self.load.valid),
                    access.write.eq(Mux(self.load.valid, kind, 0)),
                ]
                with m.If(end):
                    m.next = "IDLE"
            with m.State("READ"):
                m.d.comb += access.active.eq(1)
                m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.comb += access.active.eq(1)
                m.d.sync += row.eq(one_hot(access.read, kind))
                m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += [
                    access.active.eq(1),
                    self.dump.valid.eq(1),
                    self.dump.payload.eq(one_hot(row, cursor.lane)),
                    cursor.step.eq(self.dump.ready),
                ]
                with m.If(self.dump.ready):
                    m.next = "READ"
                with m.If(end):
                    m.next = "IDLE"
        return m
