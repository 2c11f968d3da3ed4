"""Buffers of a link: received frames, and sent frames that may have to be sent again."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.job import check_link, frame_fields, payload_beat
from fanin.wire.link import LinkFormat


def record_layout(form: LinkFormat, frames: int, frame_beats: int) -> data.StructLayout:
    """Return the layout of a frame's record.

    A record has the ``index`` of the first beat, the number of ``beats``, and the header's fields.
    """
    return data.StructLayout(
        {"index": range(frames * frame_beats), "beats": range(frame_beats + 1), "frame": frame_fields(form)}
    )


def following(index: Any, size: int) -> Any:
    """Return the place after ``index`` in a ring of ``size`` places."""
    return Mux(index == size - 1, 0, index + 1)


class ReceiveBuffer(wiring.Component):
    """Queue of received frames; a frame is written before its check is complete, then committed or discarded.

    ``write`` appends beats after the committed frames. ``close`` then commits them as a frame, or discards
    them. A frame has at most ``frame_beats`` beats, and nothing is written while ``full``.

    Members
    -------
    ``write`` : In, ``en``, ``data`` and ``last``
        Append a beat.
    ``close`` : In, ``en``, ``keep`` and ``frame``
        End the frame that was being written: commit it if ``keep``, with its header's fields in ``frame``.
        ``keep`` is high only with ``en``, and ``en`` never together with ``write.en``.
    ``o`` : Out, stream of :func:`~fanin.hdl.net.link.job.payload_beat`
        Beats of committed frames.
    ``full`` : Out, 1
        The buffer has no room for a whole frame; follows ``close`` by 1 cycle.
    ``consumed`` : Out, 1
        The last beat of a frame left on ``o`` a cycle ago.

    Parameters
    ----------
    ``form`` : LinkFormat
        Format of the frames.
    ``data_width`` : int, bits, a power of two from 32 to 512
        Bits of a beat; 512 by default.
    ``frame_beats`` : int, 1 to 4096
        Maximum beats of a payload.
    ``buffer_frames`` : int, 2 to 256
        Frames that the buffer holds; 32 by default.

    Latency
    -------
    2 cycles from ``close`` to ``o`` when empty; one beat a cycle in and out, across frames.

    Source
    ------
    docs/systems/link.md.
    """

    def __init__(self, *, form: LinkFormat, frame_beats: int, data_width: int = 512, buffer_frames: int = 32):
        check_link(data_width=data_width, frame_beats=frame_beats, buffer_frames=buffer_frames)
        self.form = form
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.buffer_frames = buffer_frames
        self.beats = buffer_frames * frame_beats
        super().__init__(
            {
                "write": In(data.StructLayout({"en": 1, "data": data_width, "last": 1})),
                "close": In(data.StructLayout({"en": 1, "keep": 1, "frame": frame_fields(form)})),
                "o": Out(stream.Signature(payload_beat(form, data_width))),
                "full": Out(1),
                "consumed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Write beats speculatively from ``committed``, the end of the last good frame, to ``written``.

        A good frame moves ``committed`` to ``written``; a bad one moves ``written`` back. The read side counts
        committed frames and so sees only these. The memory's output register is the payload of ``o``.
        """
        m = Module()
        m.submodules.frames = frames = Memory(shape=frame_fields(self.form), depth=self.buffer_frames, init=[])
        m.submodules.storage = storage = Memory(
            shape=data.StructLayout({"data": self.data_width, "last": 1}), depth=self.beats, init=[]
        )
        write, read = storage.write_port(), storage.read_port()
        written = Signal(range(self.beats))
        committed = Signal.like(written)
        keep = Signal()
        note = frames.write_port()
        with m.If(keep):
            m.d.sync += note.addr.eq(following(note.addr, self.buffer_frames))
        m.d.comb += [
            keep.eq(self.close.keep),
            note.en.eq(keep),
            note.data.eq(self.close.frame),
            write.en.eq(self.write.en),
            write.addr.eq(written),
            write.data.data.eq(self.write.data),
            write.data.last.eq(self.write.last),
        ]
        with m.If(self.write.en):
            m.d.sync += written.eq(following(written, self.beats))
        with m.If(keep):
            m.d.sync += committed.eq(written)
        with m.Elif(self.close.en):
            m.d.sync += written.eq(committed)
        self._read(m, keep, read, frames.read_port(domain="comb"))
        return m

    def _read(self, m: Module, keep: Signal, read: Any, frames: Any) -> None:
        """Read while frames exist after the one whose last beat is on ``o``."""
        o = self.o
        level = Signal(range(self.buffer_frames + 1))  # frames whose last beat has not left
        free = ~o.valid | o.ready
        m.d.comb += [
            self.full.eq(level == self.buffer_frames),
            read.en.eq(free & Mux(o.valid & read.data.last, level > 1, level > 0)),
            o.payload.data.eq(read.data.data),
            o.payload.last.eq(read.data.last),
            *(o.payload[name].eq(frames.data[name]) for name in self.form.data),
        ]
        leaves = o.valid & o.ready & read.data.last
        m.d.sync += self.consumed.eq(leaves)
        with m.If(keep != leaves):
            m.d.sync += level.eq(Mux(keep, level + 1, level - 1))
        with m.If(leaves):
            m.d.sync += frames.addr.eq(following(frames.addr, self.buffer_frames))
        with m.If(free):
            m.d.sync += o.valid.eq(read.en)
        with m.If(read.en):
            m.d.sync += read.addr.eq(following(read.addr, self.beats))


class ReplayBuffer(wiring.Component):
    """Store of frames to send and to send again: written in order, read at any position.

    Frames are numbered from ``first_sequence`` on, modulo ``replay_frames``. A frame's place is reused after
    ``replay_frames`` others have been ``taken``; the user must lower ``can_take`` before that.

    Members
    -------
    ``i`` : In, stream of :func:`~fanin.hdl.net.link.job.payload_beat`
        Frames to store. Ready while ``can_take``.
    ``can_take`` : In, 1
        The store has room for another frame; constant within a frame.
    ``taken`` : Out, 1
        The last beat of a frame is transferred on ``i``; the frame can be read from the next cycle on.
    ``number`` : In, range(replay_frames)
        Frame to look up.
    ``record`` : Out, :func:`record_layout`
        Record of frame ``number``, in the same cycle.
    ``read`` : In, ``en`` and ``index`` of a beat
        Read a beat.
    ``data`` : Out, ``data_width`` bits
        The beat that was read, 1 cycle later; held while ``read.en`` is low.

    Parameters
    ----------
    ``form`` : LinkFormat
        Format of the frames.
    ``data_width`` : int, bits, a power of two from 32 to 512
        Bits of a beat; 512 by default.
    ``frame_beats`` : int, 1 to 4096
        Maximum beats of a payload.
    ``replay_frames`` : int, a power of two, 2 to 256
        Frames that the store holds; 32 by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame; 0 except in tests.

    Latency
    -------
    1 cycle from ``read`` to ``data``; one beat a cycle in and out.

    Source
    ------
    docs/systems/link.md.
    """

    def __init__(
        self,
        *,
        form: LinkFormat,
        frame_beats: int,
        data_width: int = 512,
        replay_frames: int = 32,
        first_sequence: int = 0,
    ):
        check_link(
            data_width=data_width,
            frame_beats=frame_beats,
            replay_frames=replay_frames,
            first_sequence=first_sequence,
        )
        self.form = form
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.replay_frames = replay_frames
        self.first_sequence = first_sequence
        self.beats = replay_frames * frame_beats
        index = range(self.beats)
        super().__init__(
            {
                "i": In(stream.Signature(payload_beat(form, data_width))),
                "can_take": In(1),
                "taken": Out(1),
                "number": In(range(replay_frames)),
                "record": Out(record_layout(form, replay_frames, frame_beats)),
                "read": In(data.StructLayout({"en": 1, "index": index})),
                "data": Out(data_width),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store beats one after the other, across frames; write a frame's record with its last beat."""
        m = Module()
        m.submodules.storage = storage = Memory(shape=self.data_width, depth=self.beats, init=[])
        shape = record_layout(self.form, self.replay_frames, self.frame_beats)
        m.submodules.records = records = Memory(shape=shape, depth=self.replay_frames, init=[])
        write, read = storage.write_port(), storage.read_port()
        note, lookup = records.write_port(), records.read_port(domain="comb")
        number = Signal(range(self.replay_frames), init=self.first_sequence % self.replay_frames)
        first = Signal(range(self.beats))  # position of the frame's first beat
        place = Signal(range(self.beats))  # position of the frame's next beat
        beats = Signal(range(self.frame_beats + 1))  # beats of the frame so far
        beat = self.i.payload
        m.d.comb += [
            self.i.ready.eq(self.can_take),
            self.taken.eq(self.i.valid & self.i.ready & beat.last),
            write.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(place),
            write.data.eq(beat.data),
            note.en.eq(self.taken),
            note.addr.eq(number),
            note.data.index.eq(first),
            note.data.beats.eq(beats + 1),
            *(note.data.frame[name].eq(beat[name]) for name in self.form.data),
            lookup.addr.eq(self.number),
            self.record.eq(lookup.data),
            read.en.eq(self.read.en),
            read.addr.eq(self.read.index),
            self.data.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += [place.eq(following(place, self.beats)), beats.eq(beats + 1)]
        with m.If(self.taken):
            m.d.sync += [number.eq(number + 1), first.eq(following(place, self.beats)), beats.eq(0)]
        return m
