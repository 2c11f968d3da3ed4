"""Codec of the ring's link: converts frames of words to and from compressed frames, for any codec."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.codec.facts import MAX_BOUND, Mode
from fanin.codec.formats import LFSR_BITS
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.hdl.emit import shared
from fanin.hdl.ring.words import word_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.ring.facts import RingConfig

FRAMES = 8  # frames that may be announced to a decoder before their words leave


class CodecSettings(data.Struct):
    """Run-time registers of codecs, constant during a job.

    ``bound``, ``mode``: of INCEPTIONN.
    ``seed``: of the random bits of stochastic rounding.
    """

    bound: range(MAX_BOUND + 1)
    mode: Mode
    seed: LFSR_BITS


class RingEncoder(wiring.Component):
    """Compressor of frames; a plain wire without a codec.

    Members
    -------
    ``settings`` : In, CodecSettings
        Settings of the codec. The first word after a reset takes ``seed``.
    ``i`` : In, stream of :func:`word_layout`
        Words to compress.
    ``o`` : Out, stream of :func:`word_layout`
        Compressed words; bytes after the end of the compressed data are 0.
    With plain partial sums, ``plain`` : In, stream of 1 bit
        A bit for each frame: 1 if its words pass unchanged, as partial sums beside 16-bit tensors do.

    Parameters
    ----------
    ``config`` : RingConfig
        Codec and word width.

    Latency
    -------
    The compressor's; 0 cycles without a codec. One word a cycle. A plain frame waits until the compressor is
    empty, then passes in 0 cycles.

    Source
    ------
    docs/systems/codec.md, docs/systems/ring.md.
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        words = stream.Signature(word_layout(config.width))
        ports = {"settings": In(CodecSettings), "i": In(words), "o": Out(words)}
        super().__init__(ports | ({"plain": In(stream.Signature(1))} if config.has_plain_sums else {}))

    def elaborate(self, platform: Any) -> Module:
        """Feed words to the compressor as packets, and mask the unused bytes of its output to 0."""
        m = Module()
        codec = self.config.frame_codec
        if codec is None:
            connect_typed(m, flipped(self.i), flipped(self.o))
            return m
        m.submodules.compressor = compressor = shared(make_compressor(codec, self.config.width))
        if hasattr(compressor, "bound"):
            m.d.comb += [compressor.bound.eq(self.settings.bound), compressor.mode.eq(self.settings.mode)]
        if hasattr(compressor, "seed"):
            m.d.comb += compressor.seed.eq(self.settings.seed)
        packed = compressor.o.payload
        mask = Cat(bit.replicate(8) for bit in packed.keep)
        m.d.comb += [
            compressor.i.valid.eq(self.i.valid),
            self.i.ready.eq(compressor.i.ready),
            compressor.i.payload.data.eq(self.i.payload.data),
            compressor.i.payload.keep.eq(Const(-1, len(packed.keep))),
            compressor.i.payload.last.eq(self.i.payload.last),
            self.o.valid.eq(compressor.o.valid),
            compressor.o.ready.eq(self.o.ready),
            self.o.payload.data.eq(packed.data & mask),
            self.o.payload.last.eq(packed.last),
        ]
        if self.config.has_plain_sums:
            self._pass_plain_frames(m, compressor)
        return m

    def _pass_plain_frames(self, m: Module, compressor: Any) -> None:
        """Give the compressor only frames that are not plain, and the output to plain ones when it is empty.

        ``inside``: frames whose last word the compressor has taken and not returned.
        """
        i, o, plain = self.i, self.o, self.plain
        inside = Signal(range(FRAMES + 1))
        passes = Signal()
        enters = Signal()
        m.d.comb += [
            passes.eq(i.valid & plain.valid & plain.payload & (inside == 0)),
            enters.eq(plain.valid & ~plain.payload & (inside != FRAMES)),
            compressor.i.valid.eq(i.valid & enters),
            i.ready.eq(Mux(passes, o.ready, enters & compressor.i.ready)),
            plain.ready.eq(i.valid & i.ready & i.payload.last),
        ]
        with m.If(passes):
            m.d.comb += [o.valid.eq(1), o.payload.eq(i.payload)]
        taken = compressor.i.valid & compressor.i.ready & i.payload.last
        returned = compressor.o.valid & compressor.o.ready & compressor.o.payload.last
        m.d.sync += inside.eq(inside + taken - returned)


class RingDecoder(wiring.Component):
    """Decompressor of frames that labels each word with the tag of its frame.

    Members
    -------
    ``frame`` : In, stream of ``words`` and ``tag``
        Announcement of each frame on ``i``, before or after the frame arrives. ``words`` is the decompressed
        length, at least 1; ``tag`` is a bit for the user. With plain partial sums, ``plain`` is 1 for a frame
        whose words pass unchanged.
    ``i`` : In, stream of :func:`word_layout`
        Compressed words.
    ``o`` : Out, stream of ``data``, ``last`` and ``tag``
        Decompressed words, each with its frame's tag.
    ``mismatch`` : Out, 1
        Pulse: a compressed frame ended before its announced number of words. Always 0 without a codec.

    Parameters
    ----------
    ``config`` : RingConfig
        Codec and word width.

    Latency
    -------
    The decompressor's; 0 cycles without a codec. One word a cycle. A plain frame waits until the decompressor
    is empty, then passes in 0 cycles.

    Source
    ------
    docs/systems/codec.md, docs/systems/ring.md.
    """

    def __init__(self, *, config: RingConfig):
        self.config = config
        plain = {"plain": 1} if config.has_plain_sums else {}
        frame = data.StructLayout({"words": range(config.frame_words + 1), "tag": 1, **plain})
        words = data.StructLayout({"data": config.width, "last": 1, "tag": 1})
        super().__init__(
            {
                "frame": In(stream.Signature(frame)),
                "i": In(stream.Signature(word_layout(config.width))),
                "o": Out(stream.Signature(words)),
                "mismatch": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep each tag in a FIFO beside the decompressor until its frame's last word leaves."""
        m = Module()
        shape = data.StructLayout({name: 1 for name in self.frame.payload.shape().members if name != "words"})
        m.submodules.tags = tags = StreamFIFO(shape=shape, depth=FRAMES)
        m.d.comb += [tags.i.payload[name].eq(self.frame.payload[name]) for name in shape.members]
        m.d.comb += self.o.payload.tag.eq(tags.o.payload.tag)
        codec = self.config.frame_codec
        if codec is None:
            words = self.i
            m.d.comb += [tags.i.valid.eq(self.frame.valid), self.frame.ready.eq(tags.i.ready)]
        else:
            words = self._decompressed(m, shared(make_decompressor(codec, self.config.width)), tags)
        accept = self.o.ready & tags.o.valid
        m.d.comb += [
            self.o.valid.eq(words.valid & tags.o.valid),
            words.ready.eq(accept),
            tags.o.ready.eq(self.o.ready & words.valid & words.payload.last),
            self.o.payload.data.eq(words.payload.data),
            self.o.payload.last.eq(words.payload.last),
        ]
        return m

    def _decompressed(self, m: Module, decompressor: Any, tags: Any) -> Any:
        """Return the decompressor's stream; announce each frame to decompressor and tags in the same cycle."""
        m.submodules.decompressor = decompressor
        m.submodules.lengths = lengths = StreamFIFO(shape=self.frame.payload.words.shape(), depth=FRAMES)
        word_bytes = self.config.width // 8
        m.d.comb += [
            lengths.i.payload.eq(self.frame.payload.words),
            lengths.i.valid.eq(self.frame.valid & tags.i.ready),
            tags.i.valid.eq(self.frame.valid & lengths.i.ready),
            self.frame.ready.eq(tags.i.ready & lengths.i.ready),
            decompressor.length.valid.eq(lengths.o.valid),
            lengths.o.ready.eq(decompressor.length.ready),
            decompressor.length.payload.eq(lengths.o.payload * word_bytes),
            decompressor.i.valid.eq(self.i.valid),
            self.i.ready.eq(decompressor.i.ready),
            decompressor.i.payload.data.eq(self.i.payload.data),
            decompressor.i.payload.keep.eq(Const(-1, word_bytes)),
            decompressor.i.payload.last.eq(self.i.payload.last),
        ]
        o = decompressor.o
        m.d.sync += self.mismatch.eq(o.valid & o.ready & o.payload.last & o.payload.error)
        return self._with_plain_frames(m, decompressor, lengths, tags) if self.config.has_plain_sums else o

    def _with_plain_frames(self, m: Module, decompressor: Any, lengths: Any, tags: Any) -> Any:
        """Return the stream of the decompressor's words and of plain frames, which do not enter it.

        A plain frame is both the oldest at the input (``kinds``) and the oldest at the output (``tags``) while
        it passes, so all earlier ones have left the decompressor.
        """
        i, frame = self.i, self.frame
        m.submodules.kinds = kinds = StreamFIFO(shape=1, depth=FRAMES)
        ready = tags.i.ready & kinds.i.ready & (lengths.i.ready | frame.payload.plain)
        passes = Signal()
        words = stream.Signature(word_layout(self.config.width)).create(path=("words",))
        m.d.comb += [
            frame.ready.eq(ready),
            kinds.i.payload.eq(frame.payload.plain),
            kinds.i.valid.eq(frame.valid & ready),
            tags.i.valid.eq(frame.valid & ready),
            lengths.i.valid.eq(frame.valid & ready & ~frame.payload.plain),
            passes.eq(kinds.o.valid & kinds.o.payload & tags.o.valid & tags.o.payload.plain),
            decompressor.i.valid.eq(i.valid & kinds.o.valid & ~kinds.o.payload),
            i.ready.eq(Mux(passes, words.ready, kinds.o.valid & ~kinds.o.payload & decompressor.i.ready)),
            kinds.o.ready.eq(i.valid & i.ready & i.payload.last),
            words.valid.eq(Mux(passes, i.valid, decompressor.o.valid)),
            words.payload.data.eq(Mux(passes, i.payload.data, decompressor.o.payload.data)),
            words.payload.last.eq(Mux(passes, i.payload.last, decompressor.o.payload.last)),
            decompressor.o.ready.eq(words.ready & ~passes),
        ]
        return words
