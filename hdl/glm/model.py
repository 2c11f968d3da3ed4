"""Model memories of an engine, with their host port.

During a mini-batch forward must see the weights of its start, while backward already changes them. An engine
therefore has two copies of its weights. Backward updates the accumulating copy with every micro-batch; its last
update of the mini-batch also goes to the architectural copy, which forward reads.
"""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.glm.replay import update_layout
from fanin.hdl.glm.shapes import WEIGHT, ModelPortSignature, check_engine
from fanin.hdl.memory import NEVER_READ_AS_WRITTEN


class ModelMemories(wiring.Component):
    """Two model memories of an engine: the architectural one of forward, the accumulating one of backward.

    An update is written to the memories one cycle after its announcement. Writes of the host and of ``clear``
    override the weights that backward's lanes put out, so the wide write data need no multiplexer.

    Members
    -------
    ``forward_chunk`` : In, range(depth)
        Chunk to read for forward.
    ``forward_weights`` : Out, ``ArrayLayout(signed(32), lanes)``
        Architectural weights, two cycles after ``forward_chunk``.
    ``backward_chunk`` : In, range(depth)
        Chunk to read for backward.
    ``backward_weights`` : Out, ``ArrayLayout(signed(32), lanes)``
        Accumulating weights, one cycle after ``backward_chunk``. Undefined if that chunk is being written.
    ``update`` : In, ``update_layout(depth)``
        Address and destination of ``weights`` in the next cycle.
    ``weights`` : In, ``ArrayLayout(signed(32), lanes)``
        Weights to write.
    ``written`` : Out(1)
        An update is being written to both memories; a ``forward_chunk`` of the next cycle reads it.
    ``override`` : Out(1)
        Request that all ``weights`` of the next cycle be ``override_value``.
    ``override_value`` : Out(signed(32))
        Weight for ``override``.
    ``host`` : In, ``ModelPortSignature``
        Access of the host to single weights.
    ``clear`` : In(1)
        Pulse: set both memories to zero.
    ``clearing`` : Out(1)
        High until the cycle before the last row is in memory.

    Parameters
    ----------
    ``depth`` : int, 1 to 4096
        Number of chunks.
    ``lanes`` : int, a power of two, 2 to 64
        Weights of a chunk.

    Latency
    -------
    An ``update`` is in memory 2 cycles after its announcement; a host's write, too. A host's read takes
    ``ModelPortSignature.READ_LATENCY`` cycles. ``clear`` takes ``depth`` + 2. One access a cycle on each path.

    Source
    ------
    P4SGD, section IV-A2 ("model update"); docs/systems/glm.md.
    """

    def __init__(self, *, depth: int = 4096, lanes: int = 64):
        check_engine(lanes=lanes, banks=2, depth=depth)
        self.depth = depth
        self.lanes = lanes
        row = data.ArrayLayout(WEIGHT, lanes)
        super().__init__(
            {
                "forward_chunk": In(range(depth)),
                "forward_weights": Out(row),
                "backward_chunk": In(range(depth)),
                "backward_weights": Out(row),
                "update": In(update_layout(depth)),
                "weights": In(row),
                "written": Out(1),
                "override": Out(1),
                "override_value": Out(WEIGHT),
                "host": In(ModelPortSignature(depth=depth, lanes=lanes)),
                "clear": In(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Select the write of this cycle (``clear``, host or update) in one register for both memories."""
        m = Module()
        host = self.host
        chunk = Signal(range(self.depth))
        lanes = Signal(self.lanes)  # lanes to write
        both_memories = Signal()
        sweep = Signal(range(self.depth))
        m.d.sync += [
            self.written.eq(self.update.valid & self.update.both),
            chunk.eq(self.update.chunk),
            lanes.eq(self.update.valid.replicate(self.lanes)),
            both_memories.eq(self.update.both),
        ]
        with m.If(self.clearing):
            m.d.comb += self.override.eq(1)
            m.d.sync += [
                chunk.eq(sweep),
                lanes.eq(-1),
                both_memories.eq(1),
                sweep.eq(sweep + 1),
                self.clearing.eq(sweep != self.depth - 1),
            ]
        with m.Elif(host.write):
            m.d.comb += [self.override.eq(1), self.override_value.eq(host.write_data)]
            m.d.sync += [chunk.eq(host.chunk), lanes.eq(1 << host.lane), both_memories.eq(1)]
        with m.If(self.clear):
            m.d.sync += [sweep.eq(0), self.clearing.eq(1)]

        address = Mux(host.read, host.chunk, self.forward_chunk)
        read = self._memory(m, "architectural", address, chunk, lanes & both_memories.replicate(self.lanes))
        accumulating = self._memory(m, "accumulating", self.backward_chunk, chunk, lanes)
        forward = Signal.like(self.forward_weights, reset_less=True)
        m.d.sync += forward.as_value().eq(read)
        m.d.comb += [
            self.forward_weights.eq(forward),
            self.backward_weights.as_value().eq(accumulating),
        ]
        self._host_read(m, forward)
        return m

    def _host_read(self, m: Module, row: Any) -> None:
        """Select a lane in two steps: one lane of every eight, then one of these."""
        width = WEIGHT.width
        lane = delayed(m, self.host.lane, ModelPortSignature.READ_LATENCY - 1, name="lane")
        inner, outer = lane[-2][:3], lane[-1][3:]
        groups = [
            row.as_value()[offset : offset + 8 * width] for offset in range(0, self.lanes * width, 8 * width)
        ]
        group_weights = Signal(data.ArrayLayout(WEIGHT, len(groups)), reset_less=True)
        m.d.sync += [group_weights[n].eq(group.word_select(inner, width)) for n, group in enumerate(groups)]
        m.d.sync += self.host.read_data.eq(group_weights[outer] if len(groups) > 1 else group_weights[0])

    def _memory(self, m: Module, name: str, address: Any, chunk: Signal, lanes: Any) -> Any:
        """Add a memory with one read and one write port; return its read data.

        No read needs the word being written. Forward reads a chunk at the earliest one cycle after its write.
        Backward's lanes forward updates that the memory does not return yet.
        """
        width = WEIGHT.width
        m.submodules[name] = memory = Memory(
            shape=self.lanes * width, depth=self.depth, init=[], attrs=NEVER_READ_AS_WRITTEN
        )
        write, read = memory.write_port(granularity=width), memory.read_port()
        m.d.comb += [
            write.addr.eq(chunk),
            write.data.eq(self.weights),
            write.en.eq(lanes),
            read.addr.eq(address),
        ]
        return read.data
