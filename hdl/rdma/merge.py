"""Rotated words of one alignment become the words of another.

An example: words of 8 lanes, lane 0 on the left. A payload of 12 bytes a to l comes from lane 5 on, and shall
leave from lane 2 on, which is a rotation by 5 lanes up::

    comes      -----abc  defghijk  l-------
    rotated    --abc---  ghijkdef  -----l--
    leaves               --abcdef  ghijkl--     lanes 5 to 7 of the newer word, 0 to 4 of the older one

The first word makes none: it is only held, which ``window_layout`` calls ``prime``.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.bursts import reach
from fanin.hdl.rdma.shapes import lane_bits, words_bits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import chosen
from fanin.rdma.facts import check_width


def window_layout(width: int) -> data.StructLayout:
    """How to merge the next ``words`` words (at least 1): lanes from ``lane`` on are those of the newer one.

    ``single``: there is one only. ``prime``: the first one is only held. ``flush``: after the last one, the
    word held makes one more. ``drop``: all are discarded, and ``flush`` must be 0.
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
    """What :func:`window_sums` gives."""
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
    """The sums of a window of ``size`` bytes that come from lane ``source`` on, and leave from ``target`` on.

    A register may follow; :func:`window` makes the window of them.
    """
    bits = lane_bits(width)
    return {
        "source_reach": reach(source, size, width=width),
        "target_reach": reach(target, size, width=width)[: bits + 1],
        "rotation": (target - source)[:bits],
        "source": source,
        "target": target,
    }


def window(
    *, width: int, source_reach: Value, target_reach: Value, rotation: Value, source: Value, target: Value
) -> dict[str, Value]:
    """The window of :func:`window_sums`, but for ``drop``."""
    bits, prime = lane_bits(width), target < source
    words = source_reach[bits:]
    return {
        "words": words,
        "single": words == 1,
        "lane": rotation,
        "prime": prime,
        # As many words leave as come, or with ``prime`` perhaps one less, without it perhaps one more: the
        # lowest bits of both numbers say whether. The larger number needs a flush, as a primed word makes none.
        "flush": prime ^ source_reach[bits] ^ target_reach[bits],
    }


def merged_layout(width: int, *, coarse: int, tag: ShapeLike) -> data.StructLayout:
    """A merged word; ``coarse``: the upper bits of its rotation, if they are still to be applied."""
    return data.StructLayout({"data": width, "first": 1, "last": 1, "coarse": coarse, "tag": tag})


class WordMerge(wiring.Component):
    """Make each word out of two neighbours: the upper lanes of the newer one, the lower lanes of the older one.

    Before the merge a rotation has brought every byte to its lane; or its coarse part is still to come, the
    upper ``coarse`` bits of its number of lanes, and the lanes are those in which the bytes lie now. The word
    that a ``prime`` holds may come in the cycle in which the payload before flushes.

    Members
    -------
    ``command`` : In, stream of ``window``, :func:`window_layout`, and ``tag``
    ``level`` : Out, range(depth + 1)
        Commands held; each is let go with its last word.
    ``rotation`` : Out
        Lanes by which the words of the oldest command must be rotated up before ``i``, but for ``coarse``.
    ``i`` : In, stream of ``width`` bits
        ``ready`` follows ``o.ready`` within the cycle.
    ``o`` : Out, stream of ``data``, ``first``, ``last``, ``coarse`` and ``tag``
        Follows ``i`` within the cycle: one LUT after the data. ``first`` and ``last`` of its payload;
        ``coarse`` is the rotation that is still to come; ``tag`` is its command's.

    Parameters
    ----------
    ``width`` : int, bits; 128, 256 or 512
    ``depth`` : int, commands held; at least 1
    ``coarse`` : int, bits; 0 to those of a lane
    ``tag`` : any shape

    Latency
    -------
    0 cycles from ``i`` to ``o``, 1 from the command. A cycle for each word that comes, and one more for a
    ``flush``, in which the next payload's first word may come if it is only held.

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
        """A word that comes makes one with the word *held*; while that is flushed, it only replaces it."""
        m = Module()
        queue = self._queue(m)
        command, i, o = queue.payload.window, self.i, self.o
        held = Signal(self.width, reset_less=True)
        begun = Signal()  # a word of the command has been taken
        ends = Signal()  # if so: the word on ``i`` is its last
        number = Signal.like(command.words, init=2)  # of the word after the one on ``i``, from 1
        flushing = Signal()  # the word held makes one more
        first = Signal(init=1)  # the next word on ``o`` is its payload's first
        lanes = Signal(self.width // 8)  # those of the newer word
        beside = Signal(data.StructLayout({"coarse": self.coarse, "tag": self.tag}))  # of the word on ``i``
        held_beside = Signal.like(beside)
        final = Signal()  # the word on ``i`` is its command's last
        last = Signal()  # the word on ``o`` is its payload's last
        holds = Signal()  # the word on ``i`` makes none
        room = Signal()  # the word on ``i`` can be taken
        take = Signal()
        m.d.comb += [
            final.eq(Mux(begun, ends, command.single)),
            holds.eq(command.drop | command.prime & ~begun),
            room.eq(Mux(flushing, holds & o.ready, holds | o.ready)),
            take.eq(queue.valid & i.valid & room),
            i.ready.eq(queue.valid & room),
            queue.ready.eq(i.valid & room & final),
            last.eq(flushing | final & ~command.flush),
            o.valid.eq(flushing | queue.valid & i.valid & ~holds),
            lanes.eq(queue.payload.newer & ~flushing.replicate(self.width // 8)),
            o.payload.data.eq(chosen(lanes, i.payload, held)),
            o.payload.first.eq(first),
            o.payload.last.eq(last),
            beside.coarse.eq(command.lane[len(command.lane) - self.coarse :]),
            beside.tag.eq(queue.payload.tag),
            *(o.payload[name].eq(Mux(flushing, held_beside[name], beside[name])) for name in ("coarse", "tag")),
        ]
        with m.If(take):
            m.d.sync += [
                held.eq(i.payload),
                held_beside.eq(beside),
                begun.eq(~final),
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
        """The commands, each with the lanes of the newer word, looked up before the queue."""
        size = self.width // 8
        new = self.command.payload
        layout = data.StructLayout(new.shape().members | {"newer": size})
        m.submodules.queue = queue = StreamFIFO(shape=layout, depth=self.depth)
        newer = Cat(self._is_newer(n).bit_select(new.window.lane, 1) for n in range(size))
        m.d.comb += [
            queue.i.valid.eq(self.command.valid),
            self.command.ready.eq(queue.i.ready),
            queue.i.payload.window.eq(new.window),
            queue.i.payload.tag.eq(new.tag),
            queue.i.payload.newer.eq(newer),
            self.level.eq(queue.level),
            self.rotation.eq(queue.o.payload.window.lane),
        ]
        return queue.o

    def _is_newer(self, place: int) -> Const:
        """A table over ``lane``: whether the byte that is in lane ``place`` now is the newer word's.

        It is, if the rest of its rotation, the ``coarse`` part of ``lane``, brings it to ``lane`` or above.
        """
        size = self.width // 8
        fine = lane_bits(self.width) - self.coarse
        rotated = ((place + (lane >> fine << fine)) % size for lane in range(size))
        return Const(sum((end >= lane) << lane for lane, end in enumerate(rotated)), size)
