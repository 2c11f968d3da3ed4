"""Dense layer with parameters in memory, beside a model of that memory, for a bench of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.layers.interface import FRAME_BITS, Mode, layer_members, word_stream
from fanin.hdl.layers.streamed_dense import StreamedDense
from fanin.hdl.stream.credits import Credits

WRITTEN = ("new_weights", "new_velocities")  #: streams to memory


def read_streams(layer: Dense) -> tuple[str, ...]:
    """Return the names of the streams from memory."""
    return ("forward", "velocities", *layer.gradient * ["backward"])


def memory_loops(layer: Dense) -> dict[str, str]:
    """Return the loops of a bench that carry words from memory to the layer, and back."""
    return {f"{name}_read": name for name in read_streams(layer)} | {name: f"{name}_write" for name in WRITTEN}


class PassMemory(wiring.Component):
    """Memory of ``depth`` rows that are written and read in passes, from the first row to the last.

    A pulse of ``ask_write``, or of a bit of ``ask_read``, requests a pass. Without a request no row is taken or
    given. ``settled`` is high while no requested write is left.
    """

    def __init__(self, *, lanes: int, depth: int, readers: int):
        self.lanes, self.depth, self.readers = lanes, depth, readers
        words = word_stream(lanes)
        super().__init__(
            {
                "ask_write": In(1),
                "write": In(words),
                "settled": Out(1),
                "ask_read": In(readers),
                "reads": Out(words).array(readers),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a memory whose rows are read without latency."""
        m = Module()
        word = data.ArrayLayout(WORD_BITS, self.lanes)
        m.submodules.rows = rows = Memory(shape=word, depth=self.depth, init=[])
        write_port = rows.write_port()
        row, requested = self._passes(m, "write", self.ask_write, self.write)
        m.d.comb += [
            self.write.ready.eq(requested),
            self.settled.eq(~requested),
            write_port.addr.eq(row),
            write_port.data.eq(self.write.payload),
            write_port.en.eq(self.write.valid & requested),
        ]
        for n, stream in enumerate(self.reads):
            read_port = rows.read_port(domain="comb")
            row, requested = self._passes(m, f"read{n}", self.ask_read[n], stream)
            m.d.comb += [
                read_port.addr.eq(row),
                stream.payload.eq(read_port.data),
                stream.valid.eq(requested),
            ]
        return m

    def _passes(self, m: Module, name: str, ask: Value, stream: Any) -> tuple[Signal, Value]:
        """Return the current row of a pass, and whether a pass is requested."""
        m.submodules[name] = passes = Credits(limit=(1 << FRAME_BITS) - 1)
        row, taken = Signal(range(max(2, self.depth)), name=f"{name}_row"), stream.valid & stream.ready
        ends = taken & (row == self.depth - 1)
        with m.If(taken):
            m.d.sync += row.eq(Mux(ends, 0, row + 1))
        m.d.comb += [passes.give.eq(ask), passes.take.eq(ends)]
        return row, passes.ok


class DenseAndMemory(wiring.Component):
    """``StreamedDense`` and the memory of its parameters. ``load`` and ``dump`` have the memory's width.

    Words that are read leave as ``NAME_read`` and must return as ``NAME``. Words that are written leave as
    ``NAME`` and must return as ``NAME_write``. A velocity is read only after the previous pass has written it.
    """

    def __init__(self, *, layer: Dense, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        schedule = layer.schedule(parallelism)
        self.lanes, self.depth = schedule.weight_lanes, schedule.weight_words
        words = word_stream(self.lanes)
        through = memory_loops(layer)
        super().__init__(
            layer_members(layer, parallelism)
            | {"load": In(words), "dump": Out(words)}
            | {name: Out(words) for name in through}
            | {name: In(words) for name in through.values()}
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the layer's streams to the ports, and its parameters to two memories."""
        m = Module()
        m.submodules.dense = dense = StreamedDense(layer=self.layer, parallelism=self.parallelism)
        for name, member in dense.signature.members.items():
            if member.is_signature and name != "memory":
                inner, outer = getattr(dense, name), getattr(self, name)
                if member.dimensions:
                    (inner,), (outer,) = inner, outer
                wiring.connect(m, inner, wiring.flipped(outer))
        for name in *read_streams(self.layer), *WRITTEN:
            wiring.connect(m, getattr(dense.memory, name), wiring.flipped(getattr(self, name)))
        ask, backward = dense.memory.ask, self.layer.gradient * ["backward"]
        weights = self._memory(m, "weights", ask.weights, {name: ask[name] for name in ("forward", *backward)})
        velocities = self._memory(m, "velocities", ask.velocities, {"velocities": ask.velocities})
        self._load_and_dump(m, weights, velocities)
        settled = weights.settled & velocities.settled
        m.d.comb += [
            dense.control.eq(self.control),
            dense.memory.settled.eq(settled),
            self.done.eq(dense.done & settled & ~self.dump.valid & ~self._evaluated(m, dense)),
        ]
        return m

    def _evaluated(self, m: Module, dense: Any) -> Value:
        """Discard gradients that a loop brings in evaluate mode. Return whether some are still to come."""
        control, left = self.control, Signal(32)
        with m.If(control.mode == Mode.EVALUATE):
            m.d.comb += [dense.gradients.valid.eq(0), self.gradients.ready.eq(1)]
            with m.If(control.start):
                m.d.sync += left.eq(control.frames * (self.layer.output.words // self.parallelism.po))
            with m.Elif(self.gradients.valid):
                m.d.sync += left.eq(left - 1)
        return left.any()

    def _memory(self, m: Module, kind: str, ask_write: Value, asks: Mapping[str, Value]) -> PassMemory:
        """Build a memory with a reader for each of ``asks``; its last reader is for ``dump``."""
        memory = PassMemory(lanes=self.lanes, depth=self.depth, readers=len(asks) + 1)
        m.submodules[kind] = memory
        control, written = self.control, getattr(self, f"new_{kind}_write")
        begins = {mode: control.start & (control.mode == mode) for mode in (Mode.LOAD, Mode.DUMP)}
        m.d.comb += [
            memory.ask_write.eq(ask_write | begins[Mode.LOAD]),
            memory.ask_read.eq(Cat(*asks.values(), begins[Mode.DUMP])),
            memory.write.payload.eq(written.payload),
            memory.write.valid.eq(written.valid),
            written.ready.eq(memory.write.ready & (control.mode == Mode.TRAIN)),
        ]
        for name, source in zip(asks, memory.reads, strict=False):
            stream, ok = getattr(self, f"{name}_read"), Const(1, 1)
            if name == "velocities":
                m.submodules.unread = unread = Credits(limit=self.depth, full=True)
                ok = unread.ok
                m.d.comb += [
                    unread.give.eq(written.valid & written.ready),
                    unread.take.eq(stream.valid & stream.ready),
                ]
            m.d.comb += [
                stream.payload.eq(source.payload),
                stream.valid.eq(source.valid & ok),
                source.ready.eq(stream.ready & ok),
            ]
        return memory

    def _load_and_dump(self, m: Module, *memories: PassMemory) -> None:
        """Connect ``load`` and ``dump`` to one memory after the other."""
        before: Any = Const(1, 1)
        for memory in memories:
            loads = (self.control.mode == Mode.LOAD) & before & ~memory.settled
            with m.If(loads):
                m.d.comb += [
                    memory.write.payload.eq(self.load.payload),
                    memory.write.valid.eq(self.load.valid),
                    self.load.ready.eq(memory.write.ready),
                ]
            before = before & memory.settled
        for memory in reversed(memories):  # the last assignment wins, so the first memory comes last
            source = memory.reads[-1]
            with m.If(source.valid):
                m.d.comb += [self.dump.payload.eq(source.payload), self.dump.valid.eq(1)]
        dumped: Any = Const(0, 1)
        for memory in memories:
            m.d.comb += memory.reads[-1].ready.eq(self.dump.ready & ~dumped)
            dumped = dumped | memory.reads[-1].valid
