"""Store path: writes sums to memory and reports each descriptor whose sums are in memory."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import AXI4WriteSignature
from fanin.hdl.bus.axi_writer import AxiWriter
from fanin.hdl.ring.halves import HalfWriter
from fanin.hdl.ring.orders import Step, path_layout
from fanin.hdl.ring.words import BURST, FrameWords, word_layout
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.fork import StreamFork
from fanin.ring.facts import RingConfig

EXTRA_WORDS = 16  # words of the FIFO beyond two frames: the next frame arrives while the writer begins one
#: Frames in ``pending`` without memory latency; ``StorePath._pending_frames`` adds those that it needs with it.
FRAMES = 8
ANSWERS = 32  # maximum number of frames given to the writer and not yet answered by memory
#: Tag of a frame in ``FrameWords``. ``of_totals``: its words come from ``totals``, not ``received``. ``final``:
#: it is its descriptor's last frame.
_TAG = data.StructLayout({"of_totals": 1, "final": 1})


class StorePath(wiring.Component):
    """Writer of the ordered frames; reports each descriptor whose last write memory has answered.

    Words beyond the vector's end are dropped, and so, by write strobes, are lanes beyond it in the last word. A
    frame is written after it has arrived completely. Bursts therefore never wait for the network, and a job
    that ends leaves no burst open.

    Members
    -------
    ``orders`` : In, stream of ``path_layout(…, "store")``
        Frames to write.
    ``totals`` : In, stream of :func:`word_layout`
        Words of TOTAL.
    ``received`` : In, stream of :func:`word_layout`
        Words of FORWARD and STORE.
    ``axi`` : Out, :class:`AXI4WriteSignature`
        Memory port.
    ``stop`` : In, 1
        Stop issuing writes. Must stay high until ``busy`` falls; a reset of the path must follow.
    ``busy`` : Out, 1
        Memory has not answered all writes.
    ``error`` : Out, 1
        Memory answered with an error.
    ``mismatch`` : Out, 1
        Pulse: a frame had fewer or more words than its order.
    ``finished`` : Out, 1
        Pulse: the oldest descriptor is done.
    ``word`` : Out, ``valid``, ``data`` and ``final``
        Copy of the words given to the writer, one in each cycle of ``valid``. ``final`` marks the position of a
        descriptor's last word; if that word was dropped, ``valid`` is 0 there.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths and buffer sizes.

    Latency
    -------
    8 cycles from a frame's last word to ``awvalid``; ``finished`` 3 cycles after the last response. One word a
    cycle, within the limits of ``AxiWriter`` with one command for each frame. 16-bit values take 4 cycles more
    to the writer.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        words = stream.Signature(word_layout(config.width))
        super().__init__(
            {
                "orders": In(stream.Signature(path_layout(config, "store"))),
                "totals": In(words),
                "received": In(words),
                "axi": Out(
                    AXI4WriteSignature(data_width=config.memory_width, address_width=config.address_width)
                ),
                "stop": In(1),
                "busy": Out(1),
                "error": Out(1),
                "mismatch": Out(1),
                "finished": Out(1),
                "word": Out(data.StructLayout({"valid": 1, "data": config.width, "final": 1})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Gather words in a FIFO, and turn an order into a write command once its frame is complete.

        Each order is forked. One copy selects the frame's words from the sources; the other waits in
        ``pending``. A complete frame becomes a write command, and its entry in ``answers`` waits for memory.
        """
        m = Module()
        fork = StreamFork(shape=self.orders.payload.shape())
        words = FrameWords(config=self.config, tag_bits=_TAG.size)
        m.submodules.fork, m.submodules.words = fork, words
        entry = data.StructLayout({"data": self.config.width, "mask": self.config.lanes})
        depth = 2 * self.config.frame_words + EXTRA_WORDS + self.config.memory_words
        m.submodules.fifo = fifo = StreamFIFO(shape=entry, depth=depth)
        m.submodules.pending = pending = StreamFIFO(
            shape=self.orders.payload.shape(), depth=self._pending_frames
        )
        m.submodules.oldest = oldest = RegisterSlice(shape=self.orders.payload.shape())
        m.submodules.writer = writer = AxiWriter(
            data_width=self.config.memory_width, address_width=self.config.address_width, burst=BURST
        )
        connect_typed(m, flipped(self.orders), fork.i)
        connect_typed(m, fork.o[0], pending.i)
        connect_typed(m, pending.o, oldest.i)
        connect_typed(m, writer.axi, flipped(self.axi))
        order = fork.o[1].payload
        stored = fifo.o
        if self.config.tensor:
            m.submodules.halves = halves = HalfWriter(lanes=self.config.lanes, tensor=self.config.tensor)
            connect_typed(m, fifo.o, halves.i)
            stored = halves.o
        m.d.comb += [
            words.i.valid.eq(fork.o[1].valid),
            fork.o[1].ready.eq(words.i.ready),
            words.i.payload.tag.eq(Cat(order.step == Step.TOTAL, order.final)),  # the fields of _TAG
            stored.ready.eq(writer.i.ready),
            writer.i.valid.eq(stored.valid),
            writer.i.payload.data.eq(stored.payload.data),
            writer.i.payload.strobe.eq(
                Cat(bit.replicate(self.config.value_bytes) for bit in stored.payload.mask)
            ),
            self.error.eq(writer.error),
            self.busy.eq(writer.busy),
        ]
        m.d.comb += [words.i.payload[name].eq(order[name]) for name in ("words", "inside", "lanes")]
        ends = self._gather(m, words.o, fifo.i)
        self._answers(m, writer, self._commands(m, oldest.o, writer.command, ends))
        return m

    def _gather(self, m: Module, words: Any, fifo: Any) -> Signal:
        """Move words from the source that the order selects into the FIFO.

        Return ``ends``, which is 1 in the cycle in which a frame's last word is moved or dropped. Words beyond
        the vector's end are dropped.
        """
        expected = words.payload
        of_totals, final = _TAG(expected.tag).of_totals, _TAG(expected.tag).final
        transfer = Signal()
        ends = Signal()
        word = Signal(word_layout(self.config.width))
        free = fifo.ready | ~expected.inside
        m.d.comb += [
            word.eq(Mux(of_totals, self.totals.payload, self.received.payload)),
            transfer.eq(words.valid & Mux(of_totals, self.totals.valid, self.received.valid) & free),
            ends.eq(transfer & expected.last),
            words.ready.eq(transfer),
            self.totals.ready.eq(words.valid & of_totals & free),
            self.received.ready.eq(words.valid & ~of_totals & free),
            fifo.valid.eq(transfer & expected.inside),
            fifo.payload.data.eq(word.data),
            fifo.payload.mask.eq(expected.mask),
            self.word.valid.eq(transfer & expected.inside),
            self.word.data.eq(word.data),
            self.word.final.eq(ends & final),
        ]
        m.d.sync += self.mismatch.eq(transfer & (word.last ^ expected.last))
        return ends

    @property
    def _pending_frames(self) -> int:
        """Depth of ``pending``: ``FRAMES``, and the frames that fill the FIFO's ``memory_words``."""
        return FRAMES + self.config.memory_words // self.config.frame_words

    def _commands(self, m: Module, pending: Any, command: Any, ends: Signal) -> Any:
        """Issue complete frames to the writer; return the stream of frames that wait for memory's answer.

        ``ends``: the signal that ``_gather`` returns.
        """
        m.submodules.answers = answers = StreamFIFO(
            shape=data.StructLayout({"writes": 1, "final": 1}), depth=ANSWERS
        )
        # Complete frames not issued. At most those in ``pending``, two in ``oldest`` (a RegisterSlice) and one
        # whose copy for ``pending`` is still in the fork: ``_pending_frames`` + 3.
        complete_frames = Signal(range(self._pending_frames + 3 + 1))
        issued = Signal()
        may_issue = Signal()
        order, word_bits = pending.payload, self.config.address_width - len(pending.payload.address)
        complete = Signal()  # a cycle after ``ends``, when the last word is in the FIFO
        m.d.sync += complete.eq(ends)
        with m.If(complete & ~issued):
            m.d.sync += complete_frames.eq(complete_frames + 1)
        with m.Elif(issued & ~complete):
            m.d.sync += complete_frames.eq(complete_frames - 1)
        m.d.comb += [
            may_issue.eq(pending.valid & (complete_frames != 0) & answers.i.ready & ~self.stop),
            issued.eq(may_issue & command.ready),
            pending.ready.eq(issued),
            command.valid.eq(may_issue),
            command.payload.address.eq(Cat(Const(0, word_bits), order.address)),
            command.payload.beats.eq(order.inside),
            answers.i.valid.eq(issued),
            answers.i.payload.writes.eq(order.inside != 0),
            answers.i.payload.final.eq(order.final),
        ]
        return answers.o

    def _answers(self, m: Module, writer: AxiWriter, frames: Any) -> None:
        """Retire frames in order; a frame without writes does not wait for an answer."""
        answered_writes = Signal(range(ANSWERS + 1))  # answered writes of frames not retired
        retires = Signal()
        retires_write = Signal()
        m.d.comb += [
            retires.eq(frames.valid & (~frames.payload.writes | (answered_writes != 0))),
            retires_write.eq(retires & frames.payload.writes),
            frames.ready.eq(retires),
        ]
        with m.If(writer.done & ~retires_write):
            m.d.sync += answered_writes.eq(answered_writes + 1)
        with m.Elif(retires_write & ~writer.done):
            m.d.sync += answered_writes.eq(answered_writes - 1)
        m.d.sync += self.finished.eq(retires & frames.payload.final)
