"""Merge of rotated words of one alignment into words of another.

Example: words of 8 lanes, lane 0 on the left. A payload of 12 bytes a to l arrives from lane 5 on and must
leave from lane 2 on, so words are rotated up by 5 lanes::
    arrives    -----abc  defghijk  l-------
    rotated    --abc---  ghijkdef  -----l--
    leaves               --abcdef  ghijkl--     lanes 5 to 7 of the newer word, 0 to 4 of the older one

The first word produces no output: it is only held. ``window_layout`` calls this ``prime``.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.bursts import words_and_last_lane
from fanin.hdl.rdma.shapes import lane_bits, words_bits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import select_lanes
from fanin.rdma.facts import check_width


def window_layout(width: int) -> data.StructLayout:
    """Return the layout of an instruction to merge words.

    ``words``: number of arriving words, at least 1.
    ``single``: there is only one word.
    ``lane``: lanes from here up come from the newer word, lanes below from the older word.
    ``prime``: the first word is only held.
    ``flush``: after the last word, the held word produces one more.
    ``drop``: all words are discarded; ``flush`` must be 0.
    """
    members = {
        "words": words_bits(width),
        "single": 1,
        "lane": lane_bits(width),
        "prime": 1,
        "flush": 1,
        "drop": 1,
    }
    return data.StructLayout(members)


def window_sums_layout(width: int) -> data.StructLayout:
    """Return the layout of the results of :func:`window_sums`."""
    lane, reach_bits = lane_bits(width), lane_bits(width) + words_bits(width)
    members = {
        "source_reach": reach_bits,
        "target_reach": lane + 1,
        "rotation": lane,
        "source": lane,
        "target": lane,
    }
    return data.StructLayout(members)


def window_sums(*, width: int, source: Value, target: Value, size: Value) -> dict[str, Value]:
    """Return the sums for a window of ``size`` bytes from lane ``source`` to lane ``target``.

    The sums may be registered before :func:`window` computes the window from them.
    """
    bits = lane_bits(width)
    return {
        "source_reach": words_and_last_lane(source, size, width=width),
        "target_reach": words_and_last_lane(target, size, width=width)[: bits + 1],
        "rotation": (target - source)[:bits],
        "source": source,
        "target": target,
    }


def window(
    *, width: int, source_reach: Value, target_reach: Value, rotation: Value, source: Value, target: Value
) -> dict[str, Value]:
    """Return the window for the results of :func:`window_sums`, without ``drop``."""
    bits, prime = lane_bits(width), target < source
    words = source_reach[bits:]
    return {
        "words": words,
        "single": words == 1,
        "lane": rotation,
        "prime": prime,
        # As many words leave as arrive; with ``prime`` perhaps one less, otherwise perhaps one more. The lowest
        # bits of both numbers decide. The larger number needs a flush, since a primed word produces no output.
        "flush": prime ^ source_reach[bits] ^ target_reach[bits],
    }


def merged_layout(width: int, *, coarse: int, tag: ShapeLike) -> data.StructLayout:
    """Return the layout of a merged word; ``coarse``: upper bits of its rotation that are not applied yet."""
    return data.StructLayout({"data": width, "first": 1, "last": 1, "coarse": coarse, "tag": tag})


class WordMerge(wiring.Component):
    """Merger of neighbouring words: upper lanes of the newer word, lower lanes of the older word.

    Before the merge, a rotation has moved every byte to its lane. With ``coarse``, only the fine part of that
    rotation is done, and the lanes are chosen by the present position of the bytes. The word that ``prime``
    holds may arrive in the cycle in which the previous payload flushes.

    Members
    -------
    ``command`` : In, stream of ``window``, :func:`window_layout`, and ``tag``
        Instructions, each with a tag for its output words.
    ``level`` : Out, range(depth + 1)
        Commands held; each is released with its last word.
    ``rotation`` : Out
        Lanes by which the words of the oldest command must be rotated up before ``i``, without the ``coarse``
        part.
    ``i`` : In, stream of ``width`` bits
        Rotated words. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, stream of ``data``, ``first``, ``last``, ``coarse`` and ``tag``
        Merged words, combinational from ``i``, with one LUT after the data. ``first``, ``last``: ends of the
        payload. ``coarse``: part of the rotation that is not applied yet. ``tag``: the command's tag.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.
    ``depth`` : int
        Commands held, at least 1.
    ``coarse`` : int
        Upper bits of a rotation that are not applied before ``i``, 0 to the bits of a lane number. Default 0.
    ``tag`` : any shape
        Shape of the tag. Default: none.

    Latency
    -------
    0 cycles from ``i`` to ``o``, 1 from the command. One cycle for each arriving word, and one more for a
    ``flush``, in which the next payload's first word may arrive if it is only held.

    Source
    ------
    docs/systems/rdma.md.
    """

    def __init__(self, *, width: int, depth: int, coarse: int = 0, tag: ShapeLike = 0):
        check_width(width)
        if coarse not in range(lane_bits(width) + 1):
            raise ValueError(f"coarse must be 0 to {lane_bits(width)}, not {coarse!r}")
        self.width = width
        self.depth = depth
        self.coarse = coarse
        self.tag = tag
        command = data.StructLayout({"window": window_layout(width), "tag": tag})
        super().__init__(
            {
                "command": In(stream.Signature(command)),
                "level": Out(range(depth + 1)),
                "rotation": Out(lane_bits(width) - coarse),
                "i": In(stream.Signature(width)),
                "o": Out(stream.Signature(merged_layout(width, coarse=coarse, tag=tag))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Merge each arriving word with the ``previous`` word, or only replace it while it is flushed."""
        m = Module()
        queue = self._queue(m)
        command, i, o = queue.payload.window, self.i, self.o
        previous = Signal(self.width, reset_less=True)
        in_command = Signal()  # a word of the command has been taken
        ends = Signal()  # with ``in_command``: the word on ``i`` is the command's last
        number = Signal.like(command.words, init=2)  # number of the word after the one on ``i``, from 1
        flushing = Signal()  # the held word produces one more output
        first = Signal(init=1)  # the next word on ``o`` is its payload's first
        lanes = Signal(self.width // 8)  # lanes taken from the newer word
        # Metadata of the word on ``i``.
        metadata = Signal(data.StructLayout({"coarse": self.coarse, "tag": self.tag}))
        previous_metadata = Signal.like(metadata)
        final = Signal()  # the word on ``i`` is its command's last
        last = Signal()  # the word on ``o`` is its payload's last
        no_output = Signal()  # the word on ``i`` produces no output
        can_take = Signal()  # the word on ``i`` can be taken
        take = Signal()
        m.d.comb += [
            final.eq(Mux(in_command, ends, command.single)),
            no_output.eq(command.drop | command.prime & ~in_command),
            can_take.eq(Mux(flushing, no_output & o.ready, no_output | o.ready)),
            take.eq(queue.valid & i.valid & can_take),
            i.ready.eq(queue.valid & can_take),
            queue.ready.eq(i.valid & can_take & final),
            last.eq(flushing | final & ~command.flush),
            o.valid.eq(flushing | queue.valid & i.valid & ~no_output),
            lanes.eq(queue.payload.newer & ~flushing.replicate(self.width // 8)),
            o.payload.data.eq(select_lanes(lanes, i.payload, previous)),
            o.payload.first.eq(first),
            o.payload.last.eq(last),
            metadata.coarse.eq(command.lane[len(command.lane) - self.coarse :]),
            metadata.tag.eq(queue.payload.tag),
            *(
                o.payload[name].eq(Mux(flushing, previous_metadata[name], metadata[name]))
                for name in ("coarse", "tag")
            ),
        ]
        with m.If(take):
            m.d.sync += [
                previous.eq(i.payload),
                previous_metadata.eq(metadata),
                in_command.eq(~final),
                ends.eq(number == command.words),
                number.eq(Mux(final, 2, number + 1)),
                flushing.eq(final & command.flush),
            ]
        with m.Elif(o.ready):
            m.d.sync += flushing.eq(0)
        with m.If(o.valid & o.ready):
            m.d.sync += first.eq(last)
        return m

    def _queue(self, m: Module) -> Any:
        """Return the queue of commands, each with the lanes of the newer word, computed before the queue."""
        size = self.width // 8
        command = self.command.payload
        layout = data.StructLayout(command.shape().members | {"newer": size})
        m.submodules.queue = queue = StreamFIFO(shape=layout, depth=self.depth)
        newer = Cat(self._is_newer(n).bit_select(command.window.lane, 1) for n in range(size))
        m.d.comb += [
            queue.i.valid.eq(self.command.valid),
            self.command.ready.eq(queue.i.ready),
            queue.i.payload.window.eq(command.window),
            queue.i.payload.tag.eq(command.tag),
            queue.i.payload.newer.eq(newer),
            self.level.eq(queue.level),
            self.rotation.eq(queue.o.payload.window.lane),
        ]
        return queue.o

    def _is_newer(self, lane_index: int) -> Const:
        """Return a table over ``lane``: whether the byte now in lane ``lane_index`` comes from the newer word.

        True if the coarse rotation by ``lane`` moves the byte to a lane ≥ ``lane``.
        """
        size = self.width // 8
        fine = lane_bits(self.width) - self.coarse
        rotated = ((lane_index + (lane >> fine << fine)) % size for lane in range(size))
        return Const(sum((end >= lane) << lane for lane, end in enumerate(rotated)), size)
