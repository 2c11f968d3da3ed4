"""Ring engine: descriptors, sequencer, four data paths and the adders between them.

The sequencer turns each descriptor into orders for the four paths, one order per frame. ``local`` reads this
node's words from memory, ``receive`` takes frames from the previous node, ``send`` gives frames to the next
node, and ``store`` writes sums to memory. The adders (*lanes*) lie between ``local`` and ``receive`` before and
``send`` after them. Complete sums reach ``store`` from ``send`` (those completed here) or from ``receive``.
"""

from typing import Any

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import AXI4ReadSignature, AXI4WriteSignature
from fanin.hdl.ring.codec import CodecSettings
from fanin.hdl.ring.descriptors import DescriptorQueue, Post
from fanin.hdl.ring.lanes import RingLanes
from fanin.hdl.ring.link_job import NODE_BITS, Difference, link_beat
from fanin.hdl.ring.local import LocalPath
from fanin.hdl.ring.orders import PATH_STEPS
from fanin.hdl.ring.receive import ReceivePath
from fanin.hdl.ring.send import SendPath
from fanin.hdl.ring.sequencer import RingSequencer
from fanin.hdl.ring.store import StorePath
from fanin.hdl.ring.totals import TOLD, TotalsCheck
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.ring.facts import RingConfig


class RingEvents(data.Struct):
    """One-cycle pulses for measurement, one cycle after the event.

    ``accepted``: a descriptor was accepted.
    ``refused``: a descriptor was refused.
    ``finished``: all sums of the oldest descriptor are in memory.
    ``added``: a word was added.
    ``stored``: a word was given to the memory writer.
    ``sent``: a beat was given to the link.
    ``received``: a beat was taken from the link.
    ``agreed``: the next node has stored the same sums.
    """

    accepted: 1
    refused: 1
    finished: 1
    added: 1
    stored: 1
    sent: 1
    received: 1
    agreed: 1


class RingEngine(wiring.Component):
    """Ring all-reduce engine of one node; reduces vectors in memory, one descriptor after the other.

    Members
    -------
    ``nodes``, ``rank`` : In, 8 bits
        Number of nodes N and this node's rank, 0 … N - 1; constant from one reset to the next.
    ``settings`` : In, CodecSettings
        Settings of the codec; constant from one reset to the next.
    ``post`` : In, stream of Post, always ready
        Descriptors of the host; at most one in 4 cycles.
    ``rx`` : In, stream of :func:`link_beat`
        Beats from the previous node.
    ``tx`` : Out, stream of :func:`link_beat`
        Beats for the next node.
    ``read`` : Out, :class:`AXI4ReadSignature`
        Reads of the node's own vectors.
    ``write`` : Out, :class:`AXI4WriteSignature`
        Writes of the sums.
    ``halt`` : In, 1
        Stop issuing memory requests. Must stay high until ``moving`` falls; a reset must follow.
    ``moving`` : Out, 1
        Memory has not answered all requests.
    ``memory_error`` : Out, 1
        Memory answered with an error.
    ``differs`` : Out, Difference
        The previous node sent an unexpected frame, or the next node has stored other sums.
    ``told`` : Out, ``TOLD``
        Content of answers to the previous node: number of descriptors stored here, and a checksum.
    ``news`` : Out, 1
        Pulse: ``told`` has changed.
    ``heard`` : In, ``valid`` and the members of ``told``
        Content of an answer from the next node.
    ``unfinished`` : Out, range(queue + 1)
        Descriptors accepted and not finished.
    ``events`` : Out, RingEvents
        Pulses for measurement.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths, codec and buffer sizes.
    ``queue`` : int
        Descriptors that may be unfinished, at least 1.

    Latency
    -------
    All figures are without a codec, with 8 lanes, and exclude memory's own latency. ``FIRST_BEAT``: 71 cycles
    from ``accepted`` to the first beat on ``tx``. ``HOP``: 16 cycles from a beat on ``rx`` to its sum on
    ``tx``. ``LAST_WORD``: 11 cycles plus the words of the last frame, from the last stored word to
    ``finished``.
    docs/systems/ring.md, "The engine", lists the cycles that a codec adds. ``tx`` carries one beat a cycle
    (with a codec one word a cycle) across steps, segments and descriptors, while memory and the previous node
    keep up.

    Source
    ------
    AI Smart NIC, section IV-A; docs/systems/ring.md.
    """

    FIRST_BEAT, HOP, LAST_WORD = 71, 16, 11

    def __init__(self, *, config: RingConfig, queue: int = 8):
        self.config = config
        self.queue = queue
        beats = stream.Signature(link_beat(config.width))
        axi: dict[str, int] = {"data_width": config.memory_width, "address_width": config.address_width}
        super().__init__(
            {
                "nodes": In(NODE_BITS),
                "rank": In(NODE_BITS),
                "settings": In(CodecSettings),
                "post": In(stream.Signature(Post, always_ready=True)),
                "rx": In(beats),
                "tx": Out(beats),
                "read": Out(AXI4ReadSignature(**axi)),
                "write": Out(AXI4WriteSignature(**axi)),
                "halt": In(1),
                "moving": Out(1),
                "memory_error": Out(1),
                "differs": Out(Difference),
                "told": Out(TOLD),
                "news": Out(1),
                "heard": In(data.StructLayout({"valid": 1, **TOLD.members})),
                "unfinished": Out(range(queue + 1)),
                "events": Out(RingEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the sequencer's orders to the four paths, and the paths to each other."""
        m = Module()
        config = self.config
        m.submodules.descriptors = descriptors = DescriptorQueue(config=config, queue=self.queue)
        m.submodules.sequencer = sequencer = RingSequencer(config=config)
        m.submodules.local = local = LocalPath(config=config)
        m.submodules.receive = receive = ReceivePath(config=config)
        m.submodules.lanes = lanes = RingLanes(lanes=config.lanes)
        m.submodules.send = send = SendPath(config=config)
        m.submodules.store = store = StorePath(config=config)
        m.submodules.totals_check = totals = TotalsCheck(width=config.width)
        connect_typed(m, flipped(self.post), descriptors.post)
        self._insert_slice(m, "descriptor", descriptors.o, sequencer.descriptor)
        paths: tuple[Any, ...] = (receive, local, send, store)
        for name, path in zip(PATH_STEPS, paths, strict=True):
            self._insert_slice(m, f"{name}_orders", getattr(sequencer, name), path.orders)
        self._insert_slice(m, "rx_beats", flipped(self.rx), receive.i)
        self._insert_slice(m, "added", receive.added, lanes.received)
        connect_typed(m, receive.verbatim, send.verbatim)
        connect_typed(m, receive.stored, store.received)
        self._insert_slice(m, "own", local.o, lanes.own)
        self._insert_slice(m, "sums", lanes.o, send.words)
        self._insert_slice(m, "tx_beats", send.o, flipped(self.tx))
        self._insert_slice(m, "totals", send.totals, store.totals)
        connect_typed(m, local.axi, flipped(self.read))
        connect_typed(m, store.axi, flipped(self.write))
        m.d.comb += [
            sequencer.nodes.eq(self.nodes),
            sequencer.rank.eq(self.rank),
            send.settings.eq(self.settings),
            local.stop.eq(self.halt),
            store.stop.eq(self.halt),
            descriptors.enable.eq(~self.halt),
            descriptors.finished.eq(store.finished),
            self.unfinished.eq(descriptors.unfinished),
            totals.word.eq(store.word),
            totals.heard.eq(self.heard),
            self.told.eq(totals.told),
            self.news.eq(totals.news),
        ]
        m.d.sync += [
            self.moving.eq(local.busy | store.busy),
            self.memory_error.eq(local.error | store.error),
            self.differs.eq(receive.differs),
            self.differs.words.eq(receive.differs.words | lanes.mismatch | store.mismatch),
            self.differs.totals.eq(totals.differs),
        ]
        m.d.sync += [
            self.events.accepted.eq(descriptors.accepted),
            self.events.refused.eq(descriptors.refused),
            self.events.finished.eq(store.finished),
            self.events.added.eq(lanes.added),
            self.events.stored.eq(store.word.valid),
            self.events.sent.eq(self.tx.valid & self.tx.ready),
            self.events.received.eq(self.rx.valid & self.rx.ready),
            self.events.agreed.eq(totals.agreed),
        ]
        return m

    @staticmethod
    def _insert_slice(m: Module, name: str, source: Any, target: Any) -> None:
        """Insert a register slice between two parts, so that no combinational path crosses."""
        m.submodules[name] = register_slice = RegisterSlice(shape=source.payload.shape())
        connect_typed(m, source, register_slice.i)
        connect_typed(m, register_slice.o, target)
