"""Receive path: checks and decodes frames of the previous node and delivers their words."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.ring.codec import RingDecoder
from fanin.hdl.ring.link_job import Difference, link_beat
from fanin.hdl.ring.orders import Step, path_layout
from fanin.hdl.ring.words import word_layout
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.fork import StreamFork
from fanin.ring.facts import RingConfig
from fanin.wire.ring import RING_LINK

FRAME_DIFFERENCE = data.StructLayout(dict.fromkeys(RING_LINK.data, 1))  # fields that do not match the order
FIFO_WORDS = 32  # decoded words that wait while words of the previous TOTAL are still in the codec


class ReceivePath(wiring.Component):
    """Path of received frames: matches each frame with an order, decodes it and delivers its words.

    Words go to the lanes or to the store. A frame to forward also goes to the sender, beat for beat and
    unchanged. A frame whose operation, count, length, slice or completeness does not match the order is held,
    and so are all later frames.

    Members
    -------
    ``orders`` : In, stream of ``path_layout(…, "rx")``
        Expected frames.
    ``i`` : In, stream of :func:`link_beat`
        Beats from the link.
    ``added`` : Out, stream of :func:`word_layout`
        Decoded words of ADD and TOTAL.
    ``stored`` : Out, stream of :func:`word_layout`
        Decoded words of FORWARD and STORE.
    ``verbatim`` : Out, stream of :func:`word_layout`
        Unchanged beats of FORWARD.
    ``differs`` : Out, Difference
        Reasons of a mismatch. A frame that does not match its order holds its bits and stops the path until a
        reset. ``words`` is a pulse: a compressed frame ended early, and zeros replace the missing words.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths and codec.

    Latency
    -------
    From ``i``: 3 cycles to ``verbatim`` and ``added``, 4 to ``stored``; to ``added`` and ``stored`` also those
    of the decompressor. One beat a cycle, across frames; with a codec one word a cycle.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        words = stream.Signature(word_layout(config.width))
        super().__init__(
            {
                "orders": In(stream.Signature(path_layout(config, "rx"))),
                "i": In(stream.Signature(link_beat(config.width))),
                "added": Out(words),
                "stored": Out(words),
                "verbatim": Out(words),
                "differs": Out(Difference),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare each beat with the order in one stage, and pass or hold it in the next.

        The first stage holds ``compared_beat``, ``step`` and ``compared_difference``; it is occupied if
        ``compared``. The second stage holds ``beat``, ``forward``, ``matches`` and ``difference``; it is
        occupied if ``checked``. A beat of a frame that does not match stays in the second stage and blocks the
        path.

        Each order is forked. One copy waits for the beats. The other copy announces the frame to the decoder
        early, so that the first beat does not wait for the announcement.
        """
        m = Module()
        words = word_layout(self.config.width)
        m.submodules.decoder = decoder = RingDecoder(config=self.config)
        m.submodules.beats = beats = RegisterSlice(shape=words)
        m.submodules.verbatim = verbatim = RegisterSlice(shape=words)
        m.submodules.announced = announced = RegisterSlice(shape=decoder.frame.payload.shape())
        m.submodules.fork = fork = StreamFork(shape=self.orders.payload.shape())
        # this slice's ``ready`` depends combinationally on ``i``; the fork's ``ready`` must not
        m.submodules.expected = expected = RegisterSlice(shape=self.orders.payload.shape())
        connect_typed(m, flipped(self.orders), fork.i)
        connect_typed(m, fork.o[0], expected.i)
        connect_typed(m, beats.o, decoder.i)
        connect_typed(m, announced.o, decoder.frame)
        announcement = fork.o[1].payload
        connect_typed(m, verbatim.o, flipped(self.verbatim))
        accept = Signal()
        release = Signal()
        compared = Signal()
        checked = Signal()
        compared_difference = Signal(FRAME_DIFFERENCE)
        difference = Signal(FRAME_DIFFERENCE)
        matches = Signal()
        step = Signal.like(self.orders.payload.step)
        forward = Signal()
        compared_beat = Signal(words, reset_less=True)
        beat = Signal(words, reset_less=True)
        order, source = expected.o.payload, self.i.payload
        free = ~checked | release
        m.d.comb += [
            accept.eq(self.i.valid & expected.o.valid & free),
            self.i.ready.eq(expected.o.valid & free),
            expected.o.ready.eq(self.i.valid & source.last & free),
            announced.i.valid.eq(fork.o[1].valid),
            fork.o[1].ready.eq(announced.i.ready),
            announced.i.payload.words.eq(announcement.words),
            announced.i.payload.tag.eq(announcement.step.as_value().matches(Step.FORWARD, Step.STORE)),
            *([announced.i.payload.plain.eq(announcement.partial)] if self.config.has_plain_sums else []),
            release.eq(matches & beats.i.ready & (verbatim.i.ready | ~forward)),
            beats.i.payload.eq(beat),
            beats.i.valid.eq(checked & release),
            verbatim.i.payload.eq(beat),
            verbatim.i.valid.eq(checked & release & forward),
            self.differs.words.eq(decoder.mismatch),
            *(self.differs[name].eq(difference[name] & checked) for name in FRAME_DIFFERENCE.members),
        ]
        with m.If(free):
            m.d.sync += [
                compared.eq(accept),
                compared_beat.data.eq(source.data),
                compared_beat.last.eq(source.last),
            ]
            m.d.sync += [compared_difference.eq(self._difference(source, order)), step.eq(order.step)]
            m.d.sync += [checked.eq(compared), beat.eq(compared_beat)]
            m.d.sync += [difference.eq(compared_difference), matches.eq(~compared_difference.as_value().any())]
            m.d.sync += forward.eq(step == Step.FORWARD)
        self._deliver(m, decoder)
        return m

    @staticmethod
    def _difference(beat: Any, order: Any) -> Any:
        """Return one bit for each field of ``beat`` that does not match ``order``."""
        complete = order.step.as_value()[2]  # bit 2 of Step: complete sums
        expected = {"operation": order.operation, "count": order.count, "length": order.words}
        expected |= {"slice": order.slice, "complete": complete}
        return Cat(beat[name] != expected[name] for name in FRAME_DIFFERENCE.members)

    def _deliver(self, m: Module, decoder: RingDecoder) -> None:
        """Route decoded words by their tag: 1 to the store, 0 to the lanes."""
        m.submodules.stored = stored = StreamFIFO(shape=word_layout(self.config.width), depth=FIFO_WORDS)
        connect_typed(m, stored.o, flipped(self.stored))
        word = decoder.o.payload
        for port, selected in (self.added, ~word.tag), (stored.i, word.tag):
            m.d.comb += [
                port.valid.eq(decoder.o.valid & selected),
                port.payload.data.eq(word.data),
                port.payload.last.eq(word.last),
            ]
        m.d.comb += decoder.o.ready.eq(Mux(word.tag, stored.i.ready, self.added.ready))
