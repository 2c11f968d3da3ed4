"""Rotated words of one alignment become the words of another."""

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
from fanin.rdma import check_width


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


def sums_layout(width: int) -> data.StructLayout:
    """What :func:`sums` gives."""
    bits = lane_bits(width)
    members = {"comes": bits + words_bits(width), "leaves": bits + 1, "rotation": bits, "at": bits, "to": bits}
    return data.StructLayout(members)


def sums(*, width: int, at: Value, to: Value, size: Value) -> dict[str, Value]:
    """What :func:`window` asks of ``size`` bytes that go from lane ``at`` of their word to lane ``to``."""
    bits = lane_bits(width)
    comes, leaves = (reach(start, size, width=width) for start in (at, to))
    return {"comes": comes, "leaves": leaves[: bits + 1], "rotation": (to - at)[:bits], "at": at, "to": to}


def window(
    *, width: int, comes: Value, leaves: Value, rotation: Value, at: Value, to: Value
) -> dict[str, Value]:
    """A window but for ``drop``, from :func:`sums`. ``lane`` is the rotation, too."""
    bits, prime = lane_bits(width), to < at
    return {
        "words": comes[bits:],
        "single": comes[bits:] == 1,
        "lane": rotation,
        "prime": prime,
        # To lower lanes, if as many words leave as come; else, if one more leaves: their lowest bits say which.
        "flush": prime ^ comes[bits] ^ leaves[bits],
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
        By how many lanes up the words of the oldest command must be rotated before ``i``, without ``coarse``.
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
        ends = Signal()  # if so: the next one is its last
        number = Signal.like(command.words, init=2)  # of the word after the next one, from 1
        flushing = Signal()
        first = Signal(init=1)
        lanes = Signal(self.width // 8)  # those of the newer word
        beside = Signal(data.StructLayout({"coarse": self.coarse, "tag": self.tag}))  # of the word on ``i``
        held_beside = Signal.like(beside)
        final, last, holds, room, take = (
            Signal(name=name) for name in ("final", "last", "holds", "room", "take")
        )
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
        given = self.command.payload
        layout = data.StructLayout(given.shape().members | {"newer": size})
        m.submodules.queue = queue = StreamFIFO(shape=layout, depth=self.depth)
        newer = Cat(self._is_newer(n).bit_select(given.window.lane, 1) for n in range(size))
        m.d.comb += [
            queue.i.valid.eq(self.command.valid),
            self.command.ready.eq(queue.i.ready),
            queue.i.payload.window.eq(given.window),
            queue.i.payload.tag.eq(given.tag),
            queue.i.payload.newer.eq(newer),
            self.level.eq(queue.level),
            self.rotation.eq(queue.o.payload.window.lane),
        ]
        return queue.o

    def _is_newer(self, at: int) -> Const:
        """Whether the byte that lies at ``at`` now is the newer word's, for each lane that these begin at."""
        size = self.width // 8
        fine = lane_bits(self.width) - self.coarse
        final = ((at + (lane >> fine << fine)) % size for lane in range(size))  # after the rest of the rotation
        return Const(sum((place >= lane) << lane for lane, place in enumerate(final)), size)
