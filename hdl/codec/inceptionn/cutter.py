"""Groups cut out of a compressed stream, one a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.codec import FLOAT_BITS, TAG_BITS, Inceptionn
from fanin.hdl.arith.delay import Pipeline, delayed
from fanin.hdl.codec.inceptionn.counter import LENGTH_BITS
from fanin.hdl.codec.inceptionn.rows import BURST_BITS, SLOTS, place_bits
from fanin.hdl.codec.inceptionn.shifter import decoded, picked
from fanin.hdl.codec.inceptionn.starts import StartTable, low_layout, table_stages
from fanin.hdl.codec.inceptionn.stepper import GroupStepper
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream


def group_layout(group: int) -> data.StructLayout:
    """A group: its ``tags``, its values' bytes in a row, from the lowest of ``data``.

    ``low``: the :func:`~fanin.hdl.codec.inceptionn.shifter.rank` of the lower half of the tags, ``others``: its
    bits but the top two, decoded. ``last``: it ends its frame, of whose last beat ``tail`` + 1 bytes are
    wanted. ``missing``: the frame ended before the group did; all tags are 00, then, and ``low`` is any.
    """
    low = low_layout(group).elem_shape
    return data.StructLayout(
        {
            "tags": TAG_BITS * group,
            "low": low,
            "others": 1 << low - 2,
            "data": FLOAT_BITS * group,
            "tail": place_bits(group),
            "last": 1,
            "missing": 1,
        }
    )


class GroupCutter(wiring.Component):
    """Cut the groups of compressed frames apart.

    Where a group begins follows from the tags of the one before, within a cycle: a table has, for every byte of
    a burst, where a group that began there would end, so that one multiplexer steps from group to group. The
    table runs ahead of the steps, and the groups' bytes are fetched behind them.

    A frame of n bytes, decompressed, has ceil(n / 4 · ``group``) groups. A group whose bytes are not all in the
    frame, and every one behind it, is missing; bytes behind the last group are dropped.

    Members
    -------
    ``length`` : In, stream(32)
        Bytes of a frame when decompressed, at least 1; one for each frame.
    ``i`` : In, packet stream of 32 · ``group`` bits
        ``ready`` comes from a register.
    ``o`` : Out, stream of :func:`group_layout`
        ``ready`` enables the registers behind the steps.

    Parameters
    ----------
    ``group`` : int, 8 or 16
        Values of a group.

    Latency
    -------
    From the burst in which a group begins, with the one behind it a cycle later or the frame's end in it, to
    ``o``: 6 cycles (``group`` 16: 7), and one more for a group that reaches into a third burst. One group
    a cycle.

    Source
    ------
    docs/systems/codec.md; INCEPTIONN, section VI-A and figure 10 (burst buffer and tag decoder).
    """

    def __init__(self, *, group: int = 8):
        self.config = Inceptionn(group=group)
        self.group = group
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(FLOAT_BITS * group)),
                "o": Out(stream.Signature(group_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Bursts go to the table, which steps through them, and to the store, from which groups are cut."""
        m = Module()
        m.submodules.table = table = StartTable(group=self.group)
        m.submodules.stepper = stepper = GroupStepper(group=self.group)
        connect_typed(m, wiring.flipped(self.length), stepper.length)
        connect_typed(m, table.ends, stepper.ends)
        taken = Signal(BURST_BITS)
        room = Signal(init=1)
        write = Signal()
        m.d.comb += [
            write.eq(self.i.valid & room),
            self.i.ready.eq(room),
            table.i.valid.eq(write),
            table.i.p.eq(self.i.p),
            stepper.row.eq(table.row),
            # not before the end of a frame that ends there could be known
            stepper.there.eq(delayed(m, taken, table_stages(self.group), name="there", reset_less=False)[-1]),
        ]
        # Full with 8: two more still come, and ``oldest`` may be one ahead of ``taken``, and go back. So,
        # modulo 16, 11 are held at most, and 15 is that lead.
        held = (taken - stepper.oldest)[:BURST_BITS]
        m.d.sync += [taken.eq(taken + write), room.eq(~held[3] | held[1:3].all())]
        bursts = stepper.o.p.bursts
        self._cut(m, stepper.o, self._store(m, write, taken, bursts), self._lows(m, table, bursts[0]))
        return m

    def _store(self, m: Module, write: Signal, taken: Signal, bursts: Any) -> Value:
        """Three bursts in a row, of the last what a group can reach; a memory for each, so that none moves."""
        size = FLOAT_BITS * self.group
        sizes = [size, size, 8 * (self.config.max_group_bytes - 1) - size]
        word = self.i.p.data
        return Cat(
            _kept(m, f"burst{n}", write, taken, word[:width], bursts[n]) for n, width in enumerate(sizes)
        )

    def _lows(self, m: Module, table: StartTable, burst: Value) -> Value:
        number = Signal(BURST_BITS)  # of the burst whose row comes next
        m.d.sync += number.eq(number + table.row.valid)
        return _kept(m, "lows", table.row.valid, number, table.lows.as_value(), burst)

    def _cut(self, m: Module, step: Any, window: Value, lows: Value) -> None:
        """Two cycles, of which the first shifts bytes by quarters of a burst, the second by the rest."""
        pipeline = Pipeline(m, self.o.ready)
        register = pipeline.register
        place = step.p.place
        fine = len(place) - 2
        late = register(place[:fine], name="fine_place")
        # of the ranks one is wanted, no row: the first cycle leaves four, and the second has time to decode it
        width = len(self.o.p.low)
        ranks = [lows.word_select(n, width) for n in range(1 << len(place))]
        held = [register(picked(ranks[n::4], place[2:]), name=f"low{n}") for n in range(4)]
        low = picked(held, late[:2])
        size = 8 * self.config.max_group_bytes
        kept = size + 8 * ((1 << fine) - 1)
        quarters = [window[8 * n << fine :][:kept] for n in range(4)]
        coarse = register(picked(quarters, place[fine:]), name="bytes")
        values = picked([coarse[8 * n :][:size] for n in range(1 << fine)], late)
        tags = TAG_BITS * self.group
        missing = register(step.p.missing, name="missing")
        fields = {
            "tags": Mux(missing, 0, values[:tags]),
            "low": low,
            "others": Cat(decoded(low[:-2])),
            "data": values[tags:],
            "tail": register(step.p.tail, name="tail"),
            "last": register(step.p.last, name="last"),
            "missing": missing,
        }
        m.d.comb += [
            getattr(self.o.p, name).eq(register(value, name=f"o_{name}")) for name, value in fields.items()
        ]
        m.d.comb += [
            step.ready.eq(self.o.ready),
            self.o.valid.eq(pipeline.delay(step.valid, 2, name="valid", reset_less=False)),
        ]


def _kept(m: Module, name: str, write: Value, at: Value, word: Value, burst: Value) -> Value:
    """What was written at a burst's slot."""
    m.submodules[name] = store = Memory(shape=len(word), depth=SLOTS, init=[])
    port, read = store.write_port(), store.read_port(domain="comb")
    m.d.comb += [port.en.eq(write), port.addr.eq(at), port.data.eq(word), read.addr.eq(burst)]
    return read.data
