"""Buffers of a link: received frames, and sent frames that may have to be sent again."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
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


def next_place(index: Any, size: int) -> Any:
    """Return the place after ``index`` in a ring of ``size`` places."""
    return Mux(index == size - 1, 0, index + 1)


class ReceiveBuffer(wiring.Component):
    """Store of received frames: written at any free place, in any order, and read in order.

    A frame is written before its check is complete, then kept or forgotten. Frames are numbered from
    ``first_sequence`` on; a frame's place is its number modulo ``buffer_frames``. ``advance`` appends the next
    kept frame to those in order.

    Members
    -------
    ``open`` : In, ``en`` and ``place``
        A frame begins that belongs to a free place. The last ``open`` before the first ``write`` counts.
    ``write`` : In, ``en`` and ``data``
        Write the next beat of the frame, at most ``frame_beats`` of them; never together with ``open``.
    ``keep`` : In, ``en``, ``place`` and ``frame``
        The frame at a place is complete; ``frame`` has its header's fields.
    ``advance`` : In, 1
        The next frame in order has been kept, now or before.
    ``o`` : Out, stream of :func:`~fanin.hdl.net.link.job.payload_beat`
        Beats of the frames in order.
    ``room`` : Out, range(buffer_frames + 1)
        Number of free places after the frames in order; follows ``advance`` by 1 cycle.
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
    ``buffer_frames`` : int, a power of two, 2 to 256
        Frames that the buffer holds; 32 by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame; 0 except in tests.

    Latency
    -------
    2 cycles from ``advance`` to ``o`` when empty; one beat a cycle in and out, across frames.

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
        buffer_frames: int = 32,
        first_sequence: int = 0,
    ):
        check_link(
            data_width=data_width,
            frame_beats=frame_beats,
            buffer_frames=buffer_frames,
            first_sequence=first_sequence,
        )
        self.form = form
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.buffer_frames = buffer_frames
        self.beats = buffer_frames * frame_beats
        self.first_sequence = first_sequence
        place = range(buffer_frames)
        super().__init__(
            {
                "open": In(data.StructLayout({"en": 1, "place": place})),
                "write": In(data.StructLayout({"en": 1, "data": data_width})),
                "keep": In(data.StructLayout({"en": 1, "place": place, "frame": frame_fields(form)})),
                "advance": In(1),
                "o": Out(stream.Signature(payload_beat(form, data_width))),
                "room": Out(range(buffer_frames + 1), init=buffer_frames),
                "consumed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Write beats from the frame's first place on; count them for the frame's record."""
        m = Module()
        record = data.StructLayout({"beats": range(self.frame_beats + 1), "frame": frame_fields(self.form)})
        m.submodules.records = records = Memory(shape=record, depth=self.buffer_frames, init=[])
        m.submodules.storage = storage = Memory(shape=self.data_width, depth=self.beats, init=[])
        write, note = storage.write_port(), records.write_port()
        address = Signal(range(self.beats))
        beats = Signal(range(self.frame_beats + 1))
        m.d.comb += [
            note.en.eq(self.keep.en),
            note.addr.eq(self.keep.place),
            note.data.beats.eq(beats),
            note.data.frame.eq(self.keep.frame),
            write.en.eq(self.write.en),
            write.addr.eq(address),
            write.data.eq(self.write.data),
        ]
        with m.If(self.open.en):
            m.d.sync += [address.eq(self.open.place * self.frame_beats), beats.eq(0)]
        with m.Elif(self.write.en):
            m.d.sync += [address.eq(address + 1), beats.eq(beats + 1)]
        self._read(m, storage.read_port(), records.read_port(domain="comb"))
        return m

    def _read(self, m: Module, read: Any, record: Any) -> None:
        """Read while a frame is in order whose last beat is not on ``o`` yet.

        A frame keeps its place until its last beat has left ``o``. The memory's output register is the payload
        of ``o``. ``next_first`` is the index of the first beat of the frame after the one that is being read.
        """
        o = self.o
        first, second = ((self.first_sequence + k) % self.buffer_frames for k in range(2))
        place = Signal(range(self.buffer_frames), init=first)
        address = Signal(range(self.beats), init=first * self.frame_beats)
        next_first = Signal(range(self.beats), init=second * self.frame_beats)
        beats_read = Signal(range(self.frame_beats + 1))  # beats of the frame that have been read
        is_last = Signal()
        free = ~o.valid | o.ready
        m.d.comb += [
            record.addr.eq(place),
            is_last.eq(beats_read + 1 == record.data.beats),
            read.en.eq(free & (self.room < self.buffer_frames - (o.valid & o.payload.last))),
            read.addr.eq(address),
            o.payload.data.eq(read.data),
        ]
        leaves = o.valid & o.ready & o.payload.last
        m.d.sync += self.consumed.eq(leaves)
        with m.If(self.advance != leaves):
            m.d.sync += self.room.eq(Mux(self.advance, self.room - 1, self.room + 1))
        with m.If(free):
            m.d.sync += o.valid.eq(read.en)
        with m.If(read.en):
            m.d.sync += [
                o.payload.last.eq(is_last),
                *(o.payload[name].eq(record.data.frame[name]) for name in self.form.data),
                address.eq(Mux(is_last, next_first, address + 1)),
                beats_read.eq(Mux(is_last, 0, beats_read + 1)),
            ]
            with m.If(is_last):
                m.d.sync += [place.eq(place + 1), next_first.eq(self._next_frame(next_first))]

    def _next_frame(self, first: Value) -> Value:
        """Return the first beat of the next place after the one that begins with the beat ``first``."""
        last = (self.buffer_frames - 1) * self.frame_beats
        return Mux(first == last, 0, first + self.frame_beats)


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
            m.d.sync += [place.eq(next_place(place, self.beats)), beats.eq(beats + 1)]
        with m.If(self.taken):
            m.d.sync += [number.eq(number + 1), first.eq(next_place(place, self.beats)), beats.eq(0)]
        return m
