"""First-in, first-out queue between two streams."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.memory import NEVER_READ_AS_WRITTEN

# Up to this depth the words are in distributed RAM (64 words a LUT), above it in block RAM.
DISTRIBUTED_DEPTH = 64


class StreamFIFO(wiring.Component):
    """Queue of a stream's payloads.

    Payloads leave in the order of arrival. The queue holds ``depth`` payloads, for any ``depth``.

    Outputs are registered: the oldest payload is in a head register. Above 64 words the head register is the
    output register of the block RAM. A payload that enters an empty queue goes to a second register instead,
    and one LUT before ``o`` selects between the two. At ``depth`` 1 ``i.ready`` follows ``o.ready`` within the
    cycle; full rate requires it.

    Members
    -------
    ``i`` : In, stream of ``shape``
        Payloads to queue.
    ``o`` : Out, stream of ``shape``
        Payloads in the order of arrival.
    ``level`` : Out, range(depth + 1)
        Payloads held; registered.

    Parameters
    ----------
    ``shape`` : any shape
        Shape of the payload.
    ``depth`` : int, at least 1
        Payloads that the queue holds.

    Latency
    -------
    1 cycle from ``i`` to ``o`` when empty; one transfer in and one out a cycle. A full queue accepts again one
    cycle after a transfer on ``o`` (at ``depth`` 1, in the same cycle).

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: ShapeLike, depth: int):
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self.shape = shape
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a head register after the memory; a payload bypasses the memory while the memory is empty."""
        m = Module()
        valid = Signal()  # the head register holds a payload
        has_stored = Signal()  # the memory holds at least one payload
        writable = Signal(init=1)
        push = Signal()
        pop = Signal()
        load = Signal()
        bypass = Signal()
        store = Signal()

        head_free = ~valid | self.o.ready
        m.d.comb += [
            self.i.ready.eq(writable | self.o.ready if self.depth == 1 else writable),
            self.o.valid.eq(valid),
            push.eq(self.i.valid & self.i.ready),
            pop.eq(valid & self.o.ready),
            load.eq(head_free & has_stored),
            bypass.eq(push & head_free & ~has_stored),
            store.eq(push & ~(head_free & ~has_stored)),
        ]

        with m.If(head_free):
            m.d.sync += valid.eq(load | bypass)
        with m.If(push != pop):  # the sum depends on ``push`` alone, which settles sooner
            m.d.sync += [
                self.level.eq(Mux(push, self.level + 1, self.level - 1)),
                writable.eq(~push | (self.level != self.depth - 1)),
            ]
        with m.If(store & ~load):
            m.d.sync += has_stored.eq(1)
        with m.Elif(load & ~store):
            m.d.sync += has_stored.eq(self.level != 2)

        head = Signal(self.shape, reset_less=True)
        incoming = Signal.like(head)
        with m.If(load | bypass):
            m.d.sync += head.eq(incoming)
        m.d.comb += [incoming.eq(self.i.payload), self.o.payload.eq(head)]
        if self.depth > 1:
            self._memory(m, incoming, has_stored, load, bypass, store)
        return m

    def _memory(
        self, m: Module, incoming: Any, has_stored: Signal, load: Signal, bypass: Signal, store: Signal
    ) -> None:
        """Build the memory and its pointers; drive ``incoming``, or with block RAM the payload of ``o``."""
        m.submodules.storage = storage = Memory(
            shape=self.shape, depth=self.depth, init=[], attrs=NEVER_READ_AS_WRITTEN
        )
        distributed = self.depth <= DISTRIBUTED_DEPTH
        write = storage.write_port()
        read = storage.read_port(domain="comb" if distributed else "sync")
        produce = Signal(range(self.depth))
        consume = Signal(range(self.depth))
        m.d.comb += [
            write.addr.eq(produce),
            write.data.eq(self.i.payload),
            write.en.eq(store),
            read.addr.eq(consume),
        ]
        for pointer, step in (produce, store), (consume, load):
            with m.If(step):
                m.d.sync += pointer.eq(pointer + 1)
                if self.depth & (self.depth - 1):
                    with m.If(pointer == self.depth - 1):
                        m.d.sync += pointer.eq(0)
        if distributed:
            # ``has_stored``, not ``load``: only the register's enable may depend on ``o.ready``, not its data.
            with m.If(has_stored):
                m.d.comb += incoming.eq(read.data)
        else:
            from_memory = Signal()
            m.d.comb += read.en.eq(load)
            with m.If(load | bypass):
                m.d.sync += from_memory.eq(load)
            with m.If(from_memory):
                m.d.comb += self.o.payload.eq(read.data)
