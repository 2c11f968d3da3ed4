"""Send path: frames for the next node, compressed here or forwarded unchanged."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.ring.codec import FRAMES, CodecSettings, RingDecoder, RingEncoder
from fanin.hdl.ring.link_job import link_beat
from fanin.hdl.ring.orders import Step, path_layout
from fanin.hdl.ring.words import word_layout
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.fork import StreamFork
from fanin.ring.facts import RingConfig

BEATS = 4  # beats that wait for the decoder, which receives the announcement a cycle late


class SendPath(wiring.Component):
    """Path of frames to the link: encodes words of the lanes and merges them with forwarded beats.

    Frames leave in the order of the ring's steps. Compressed frames of a TOTAL are also decoded here: the node
    stores the values that the other nodes will decode.

    Members
    -------
    ``settings`` : In, CodecSettings
        Settings of the codec.
    ``orders`` : In, stream of ``path_layout(…, "tx")``
        Frames to send.
    ``words`` : In, stream of :func:`word_layout`
        Words of the lanes: frames of LOCAL, ADD and TOTAL.
    ``verbatim`` : In, stream of :func:`word_layout`
        Beats of the receive path: frames of FORWARD.
    ``o`` : Out, stream of :func:`link_beat`
        Beats for the link.
    ``totals`` : Out, stream of :func:`word_layout`
        Decoded words of TOTAL.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths and codec.

    Latency
    -------
    0 cycles from ``verbatim`` to ``o``; the compressor's latency from ``words`` to ``o``; to ``totals`` 1 cycle
    and the decompressor's latency more. One beat a cycle, across frames and steps; with a codec one word a
    cycle.

    Source
    ------
    docs/systems/ring.md, "The engine".
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        words = stream.Signature(word_layout(config.width))
        super().__init__(
            {
                "settings": In(CodecSettings),
                "orders": In(stream.Signature(path_layout(config, "tx"))),
                "words": In(words),
                "verbatim": In(words),
                "o": Out(stream.Signature(link_beat(config.width))),
                "totals": Out(words),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Select each beat's source by the order; copy beats of a TOTAL to the decoder.

        A beat of a TOTAL and its copy leave in the same cycle, after the frame is ``announced`` to the decoder.
        """
        m = Module()
        m.submodules.encoder = encoder = RingEncoder(config=self.config)
        m.submodules.decoder = decoder = RingDecoder(config=self.config)
        m.submodules.beats = beats = RegisterSlice(shape=word_layout(self.config.width))
        m.submodules.frame = frame = RegisterSlice(shape=decoder.frame.payload.shape())
        connect_typed(m, flipped(self.words), encoder.i)
        m.submodules.queue = queue = StreamFIFO(shape=word_layout(self.config.width), depth=BEATS)
        connect_typed(m, beats.o, queue.i)
        connect_typed(m, queue.o, decoder.i)
        connect_typed(m, frame.o, decoder.frame)
        m.d.comb += encoder.settings.eq(self.settings)
        orders = self._orders(m, encoder)
        order, encoded, verbatim = orders.payload, encoder.o, self.verbatim
        forward = Signal()
        total = Signal()
        announced = Signal()
        may_send = Signal()
        valid = Signal()
        ready = Signal()
        beat = Signal(word_layout(self.config.width))
        m.d.comb += [
            forward.eq(order.step.as_value()[2]),  # bits of Step: see ``Step``
            total.eq(order.step.as_value()[1]),
            may_send.eq(orders.valid & (~total | beats.i.ready & (announced | frame.i.ready))),
            valid.eq(Mux(forward, verbatim.valid, encoded.valid) & may_send),
            ready.eq(self.o.ready & may_send),
            beat.eq(Mux(forward, verbatim.payload, encoded.payload)),
            encoded.ready.eq(ready & ~forward),
            verbatim.ready.eq(ready & forward),
            self.o.valid.eq(valid),
            self.o.payload.data.eq(beat.data),
            self.o.payload.last.eq(beat.last),
            self.o.payload.operation.eq(order.operation),
            self.o.payload.count.eq(order.count),
            self.o.payload.length.eq(order.words),
            self.o.payload.slice.eq(order.slice),
            self.o.payload.complete.eq(forward | total),
            orders.ready.eq(valid & self.o.ready & beat.last),
            beats.i.payload.eq(beat),
            beats.i.valid.eq(valid & self.o.ready & total),
            frame.i.valid.eq(orders.valid & total & ~announced),
            frame.i.payload.words.eq(order.words),
        ]
        m.d.sync += announced.eq((announced | frame.i.valid & frame.i.ready) & ~orders.ready)
        m.d.comb += [
            self.totals.valid.eq(decoder.o.valid),
            decoder.o.ready.eq(self.totals.ready),
            self.totals.payload.data.eq(decoder.o.payload.data),
            self.totals.payload.last.eq(decoder.o.payload.last),
        ]
        return m

    def _orders(self, m: Module, encoder: RingEncoder) -> Any:
        """Return the stream of orders; tell the encoder which frames are plain, a few frames ahead of it."""
        if not self.config.has_plain_sums:
            return flipped(self.orders)
        shape = self.orders.payload.shape()
        m.submodules.fork = fork = StreamFork(shape=shape)
        m.submodules.ahead = ahead = StreamFIFO(shape=shape, depth=FRAMES)
        connect_typed(m, flipped(self.orders), fork.i)
        connect_typed(m, fork.o[0], ahead.i)
        step = fork.o[1].payload.step
        m.d.comb += [
            encoder.plain.valid.eq(fork.o[1].valid & (step != Step.FORWARD)),
            encoder.plain.payload.eq(step == Step.ADD),
            fork.o[1].ready.eq(encoder.plain.ready | (step == Step.FORWARD)),
        ]
        return ahead.o
