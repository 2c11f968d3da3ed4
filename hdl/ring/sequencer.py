"""Sequencer: turns descriptors into orders for the engine's four paths, frame by frame.

A vector is cut into *segments* of N *slices*, one slice for each of the N nodes, and a slice into frames. A
node handles the slices of a segment in 2N − 1 steps:

- LOCAL: it sends its own slice.
- ADD, N − 2 times: it adds its words to a partial sum from the previous node, and sends the result on.
- TOTAL: its addition completes a sum, which it stores and sends on.
- FORWARD, N − 2 times: it stores a complete sum from the previous node, and sends it on.
- STORE: it stores the last complete sum.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.ring.link_job import NODE_BITS
from fanin.hdl.ring.orders import PATH_STEPS, Step, path_fields, path_layout
from fanin.hdl.ring.segments import RingSegments, descriptor_layout, segment_layout
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.ring.facts import RingConfig

SPARE_ORDERS = 16  # room in a path's queue, beyond the frames of two slices


class RingFrames(wiring.Component):
    """Sequencer of a segment's 2N − 1 steps; makes one order for each frame and path.

    Step t handles slice (rank − t) mod N.

    Members
    -------
    ``nodes``, ``rank`` : In, 8 bits
        N and this node's rank; constant while a segment is inside.
    ``i`` : In, stream of :func:`segment_layout`
        Segments.
    ``rx``, ``local``, ``tx``, ``store`` : Out, streams of :func:`path_layout`
        Orders for each path. The next order is offered after all paths have taken the current one.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths and frame size.

    Latency
    -------
    The first order leaves 5 cycles after the segment arrived. Then a frame takes 3 cycles; a change of slice
    takes 2 more.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        orders = {path: Out(stream.Signature(path_layout(config, path))) for path in PATH_STEPS}
        segments = stream.Signature(segment_layout(config))
        super().__init__({"nodes": In(NODE_BITS), "rank": In(NODE_BITS), "i": In(segments), **orders})

    def elaborate(self, platform: Any) -> Module:
        """Begin each slice in SLICE; MEASURE, COMPARE and OFFER then make one order for each of its frames.

        MEASURE computes the frame's ``words``. COMPARE locates the frame relative to the vector's end.
        OFFER waits until all paths have taken the previous order, then offers this one to the paths of its
        step. ADVANCE moves to the previous slice of the segment, the slice of the next step.

        ``vector_left``: words of the vector after the frame's first word; negative if the vector ends before
        the frame.
        ``beyond_frame``: words of the vector after the frame, less 1; negative if the vector ends inside or
        before the frame.
        """
        m = Module()
        segment, frame_words = self.i.payload, self.config.frame_words
        step = Signal(Step)
        offset = Signal.like(segment.own)  # offset of the slice in the segment, in words
        slice_left = Signal(range(self.config.slice_words))  # words of the slice after the frame's first
        address = Signal.like(segment.address)  # number of the frame's first word in memory
        vector_left = Signal.like(segment.rest)
        words = Signal(range(frame_words + 1))
        beyond_frame = Signal(signed(len(vector_left) + 1))
        ends_slice = Signal()  # the frame is the slice's last
        pending = Signal(len(PATH_STEPS))  # one bit for each path that has not taken its order yet
        with m.FSM() as fsm:
            with m.State("IDLE"), m.If(self.i.valid):
                m.d.sync += [offset.eq(segment.own), step.eq(Step.LOCAL)]
                m.next = "SLICE"
            with m.State("SLICE"):
                m.d.sync += [address.eq(segment.address + offset), vector_left.eq(segment.rest - offset)]
                m.d.sync += slice_left.eq(segment.size - 1)
                m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += [words.eq(frame_words), ends_slice.eq(slice_left < frame_words)]
                with m.If(slice_left < frame_words):
                    m.d.sync += words.eq(slice_left + 1)
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += beyond_frame.eq(vector_left - words)
                m.next = "OFFER"
            with m.State("OFFER"), m.If(~pending.any()):
                m.d.sync += [address.eq(address + frame_words), vector_left.eq(vector_left - frame_words)]
                m.d.sync += slice_left.eq(slice_left - frame_words)
                m.next = "MEASURE"
                with m.If(ends_slice):
                    m.next = "ADVANCE"
            with m.State("ADVANCE"):
                m.next = "SLICE"
                with m.If(step == Step.STORE):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"
            idle, advance = fsm.ongoing("IDLE"), fsm.ongoing("ADVANCE")
            offering = fsm.ongoing("OFFER") & ~pending.any()
        index = self._advance(m, idle, advance, step, offset)
        partial = Signal()  # the slice comes as the previous node's ADD
        with m.If(advance):
            m.d.sync += partial.eq(step == Step.ADD)
        order = {
            "step": step,
            "words": words,
            "inside": Mux(vector_left[-1], 0, Mux(beyond_frame[-1], vector_left[: len(words)] + 1, words)),
            "lanes": Mux(beyond_frame[-1] & ~vector_left[-1], segment.lanes, 0),
            "address": address,
            "operation": segment.operation,
            "count": segment.count,
            "slice": index,
            "final": ends_slice & segment.final & (step == Step.STORE),
            "partial": partial,
        }
        self._offer(m, offering, order, pending)
        return m

    def _offer(self, m: Module, offering: Any, order: dict[str, Any], pending: Signal) -> None:
        """Hold the order in registers that all paths share; a path's bit of ``pending`` is its ``valid``."""
        step = order["step"]
        for name, value in order.items():
            ports = [
                getattr(self, path).payload[name]
                for path in PATH_STEPS
                if name in path_fields(self.config, path)
            ]
            if not ports:
                continue
            register = Signal.like(ports[0], name=name, reset_less=True)
            with m.If(offering):
                m.d.sync += register.eq(value)
            m.d.comb += [port.eq(register) for port in ports]
        for bit, (path, steps) in zip(pending, PATH_STEPS.items(), strict=True):
            port = getattr(self, path)
            m.d.comb += port.valid.eq(bit)
            with m.If(offering):
                m.d.sync += bit.eq(step.as_value().matches(*steps))
            with m.Elif(port.ready):
                m.d.sync += bit.eq(0)

    def _advance(self, m: Module, idle: Any, advance: Any, step: Signal, offset: Signal) -> Signal:
        """Move to the next step and the previous slice (from 0 to the last); return the slice's number.

        ``repeats_left`` counts the ADDs or FORWARDs that follow the current one, less 1, so that its sign bit
        marks the last. LOCAL and TOTAL set it for the first of N − 2 steps, which N − 3 others follow: N − 4.
        """
        segment = self.i.payload
        index = Signal(NODE_BITS)  # number of the slice
        # ``index`` is constant for several cycles before ``advance``, so the comparison may have a register.
        at_slice_0 = Signal()
        repeats_left = Signal(signed(NODE_BITS + 1))
        two_nodes = Signal()  # the ring has neither ADD nor FORWARD
        m.d.sync += at_slice_0.eq(index == 0)
        with m.If(idle):
            m.d.sync += [index.eq(self.rank), two_nodes.eq(self.nodes == 2)]
        with m.If(advance):
            m.d.sync += [
                index.eq(index - 1),
                offset.eq(offset - segment.size),
                repeats_left.eq(repeats_left - 1),
            ]
            with m.If(at_slice_0):
                m.d.sync += [index.eq(self.nodes - 1), offset.eq(segment.top)]
            with m.Switch(step):
                with m.Case(Step.LOCAL, Step.TOTAL):
                    m.d.sync += repeats_left.eq(self.nodes - 4)
                    next_step = Mux(step == Step.LOCAL, Step.ADD, Step.FORWARD)
                    m.d.sync += step.eq(next_step)
                    with m.If(two_nodes):
                        m.d.sync += step.eq(Mux(step == Step.LOCAL, Step.TOTAL, Step.STORE))
                with m.Case(Step.ADD), m.If(repeats_left[-1]):
                    m.d.sync += step.eq(Step.TOTAL)
                with m.Case(Step.FORWARD), m.If(repeats_left[-1]):
                    m.d.sync += step.eq(Step.STORE)
        return index


class RingSequencer(wiring.Component):
    """Sequencer of the engine: turns descriptors into orders, with a queue for each path.

    Each path takes its orders in order and at its own pace. A queue holds the frames of two slices and
    ``SPARE_ORDERS`` more, so that STORE of one segment never delays LOCAL of the next.

    Members
    -------
    ``nodes``, ``rank`` : In, 8 bits
        N, 2…255, and this node's rank; constant while a descriptor is inside.
    ``descriptor`` : In, stream of :func:`descriptor_layout`
        Accepted descriptors.
    ``rx``, ``local``, ``tx``, ``store`` : Out, streams of :func:`path_layout`
        Orders of the steps that concern each path (``PATH_STEPS``), in the order of the steps.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths, frame and slice sizes.

    Latency
    -------
    From a descriptor to its first order: ``LATENCY`` cycles, and one for each bit of a word's number in the
    vector (28 with 16 lanes, 29 with 8). Then a frame takes 3 cycles; a change of slice takes 2 more
    and a change of segment 2 more. The next segment is prepared meanwhile, also that of the next descriptor.

    Source
    ------
    docs/systems/ring.md, "The engine"; AI Smart NIC, section IV-A.
    """

    LATENCY = 20

    def __init__(self, *, config: RingConfig):
        self.config = config
        orders = {path: Out(stream.Signature(path_layout(config, path))) for path in PATH_STEPS}
        descriptors = stream.Signature(descriptor_layout(config))
        super().__init__(
            {"nodes": In(NODE_BITS), "rank": In(NODE_BITS), "descriptor": In(descriptors), **orders}
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect segments, frames and queues."""
        m = Module()
        m.submodules.segments = segments = RingSegments(config=self.config)
        m.submodules.frames = frames = RingFrames(config=self.config)
        m.submodules.segment = segment = RegisterSlice(shape=segments.o.payload.shape())
        connect_typed(m, flipped(self.descriptor), segments.i)
        connect_typed(m, segments.o, segment.i)
        connect_typed(m, segment.o, frames.i)
        for part in segments, frames:
            m.d.comb += [part.nodes.eq(self.nodes), part.rank.eq(self.rank)]
        for path in PATH_STEPS:
            queue = StreamFIFO(
                shape=path_layout(self.config, path),
                depth=2 * self.config.slice_frames + SPARE_ORDERS,
            )
            m.submodules[path] = queue
            connect_typed(m, getattr(frames, path), queue.i)
            connect_typed(m, queue.o, flipped(getattr(self, path)))
        return m
