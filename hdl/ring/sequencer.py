"""What a node does, frame by frame: descriptors in, orders for the engine's four paths out."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.ring.link_job import NODE_BITS
from fanin.hdl.ring.orders import PATH_FIELDS, PATH_STEPS, Step, path_layout
from fanin.hdl.ring.segments import RingSegments, descriptor_layout, segment_layout
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.ring import RingConfig

SPARE_ORDERS = 16  # room in a path's queue beyond two slices' frames


class RingFrames(wiring.Component):
    """A segment's 2N − 1 steps, frame by frame, as orders for the paths that they concern.

    Step t is about slice (rank − t) mod N: LOCAL, N − 2 times ADD, TOTAL, N − 2 times FORWARD, STORE.

    Members
    -------
    ``nodes``, ``rank`` : In, 8 bits
    ``i`` : In, stream of :func:`segment_layout`
    ``rx``, ``local``, ``tx``, ``store`` : Out, streams of :func:`path_layout`
        Each takes an order when it can; the next one is made when all have.

    Parameters
    ----------
    ``config`` : RingConfig

    Latency
    -------
    The first order is out 5 cycles after the segment came; then a frame every 3 cycles, and 2 more
    between slices.

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
        """A slice begins with SLICE; then MEASURE, COMPARE and OFFER make an order for each of its frames.

        MEASURE finds the frame's ``words``, COMPARE how they lie to the vector's end: ``rest`` counts the
        vector's words after the frame's first (negative: the vector ends before the frame), ``excess`` is
        ``rest`` less ``words`` (negative: the vector ends inside the frame or with it). OFFER waits until all
        paths have taken the order before, and hands this one to those that it concerns. ADVANCE goes on to the
        slice before this one in the segment, which the next step is about.
        """
        m = Module()
        segment, frame_words = self.i.payload, self.config.frame_words
        step = Signal(Step)
        offset = Signal.like(segment.own)  # of the slice in the segment
        left = Signal(range(self.config.slice_words))  # words of the slice after the frame's first
        address = Signal.like(segment.address)  # of the frame's first word
        rest = Signal.like(segment.rest)
        words = Signal(range(frame_words + 1))
        excess = Signal(signed(len(rest) + 1))
        last = Signal()
        pending = Signal(len(PATH_STEPS))
        with m.FSM() as fsm:
            with m.State("IDLE"), m.If(self.i.valid):
                m.d.sync += [offset.eq(segment.own), step.eq(Step.LOCAL)]
                m.next = "SLICE"
            with m.State("SLICE"):
                m.d.sync += [address.eq(segment.address + offset), rest.eq(segment.rest - offset)]
                m.d.sync += left.eq(segment.size - 1)
                m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += [words.eq(frame_words), last.eq(left < frame_words)]
                with m.If(left < frame_words):
                    m.d.sync += words.eq(left + 1)
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += excess.eq(rest - words)
                m.next = "OFFER"
            with m.State("OFFER"), m.If(~pending.any()):
                m.d.sync += [address.eq(address + frame_words), rest.eq(rest - frame_words)]
                m.d.sync += left.eq(left - frame_words)
                m.next = "MEASURE"
                with m.If(last):
                    m.next = "ADVANCE"
            with m.State("ADVANCE"):
                m.next = "SLICE"
                with m.If(step == Step.STORE):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"
            idle, advance = fsm.ongoing("IDLE"), fsm.ongoing("ADVANCE")
            offering = fsm.ongoing("OFFER") & ~pending.any()
        self._advance(m, idle, advance, step, offset)
        order = {
            "step": step,
            "words": words,
            "inside": Mux(rest[-1], 0, Mux(excess[-1], rest[: len(words)] + 1, words)),
            "lanes": Mux(excess[-1] & ~rest[-1], segment.lanes, 0),
            "address": address,
            "operation": segment.operation,
            "count": segment.count,
            "final": last & segment.final & (step == Step.STORE),
        }
        self._offer(m, offering, order, pending)
        return m

    def _offer(self, m: Module, offering: Any, order: dict[str, Any], pending: Signal) -> None:
        """One set of registers, and a bit of ``pending`` for each path that has not yet taken them."""
        step = order["step"]
        for name, value in order.items():
            ports = [getattr(self, path).payload[name] for path in PATH_STEPS if name in PATH_FIELDS[path]]
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

    def _advance(self, m: Module, idle: Any, advance: Any, step: Signal, offset: Signal) -> None:
        """From a slice to the one before it, and from its step to the next."""
        segment = self.i.payload
        index = Signal(NODE_BITS)  # of the slice
        first = Signal()  # it was 0 a cycle ago
        repeats = Signal(signed(NODE_BITS + 1))  # ADDs or FORWARDs after this one, less 1: negative at the last
        pair = Signal()  # N = 2: there is neither ADD nor FORWARD
        m.d.sync += first.eq(index == 0)
        with m.If(idle):
            m.d.sync += [index.eq(self.rank), repeats.eq(self.nodes - 4), pair.eq(self.nodes == 2)]
        with m.If(advance):
            m.d.sync += [index.eq(index - 1), offset.eq(offset - segment.size), repeats.eq(repeats - 1)]
            with m.If(first):
                m.d.sync += [index.eq(self.nodes - 1), offset.eq(segment.top)]
            with m.Switch(step):
                with m.Case(Step.LOCAL, Step.TOTAL):
                    m.d.sync += repeats.eq(self.nodes - 4)
                    middle = Mux(step == Step.LOCAL, Step.ADD, Step.FORWARD)
                    m.d.sync += step.eq(middle)
                    with m.If(pair):
                        m.d.sync += step.eq(Mux(step == Step.LOCAL, Step.TOTAL, Step.STORE))
                with m.Case(Step.ADD), m.If(repeats[-1]):
                    m.d.sync += step.eq(Step.TOTAL)
                with m.Case(Step.FORWARD), m.If(repeats[-1]):
                    m.d.sync += step.eq(Step.STORE)


class RingSequencer(wiring.Component):
    """From descriptors to orders, with a queue for each path.

    Each path takes its orders in the ring's order, at its own pace. A queue holds two slices' frames and some:
    STORE of one segment never keeps LOCAL of the next from beginning.

    Members
    -------
    ``nodes``, ``rank`` : In, 8 bits
        N, 2…255, and the node's place in the ring; they hold while a descriptor is inside.
    ``descriptor`` : In, stream of :func:`descriptor_layout`
    ``rx``, ``local``, ``tx``, ``store`` : Out, streams of :func:`path_layout`
        In the order of the steps, without those that do not concern the path (``PATH_STEPS``).

    Parameters
    ----------
    ``config`` : RingConfig

    Latency
    -------
    ``LATENCY`` + the bits of a word's number in the vector (28 with 16 lanes, 29 with 8) cycles from a
    descriptor to its first order; then a frame every 3 cycles, 2 more between slices, and 2 more between
    segments. The next segment, also that of the next descriptor, is prepared meanwhile.

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
        """Descriptor, segment, frame, queues."""
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
