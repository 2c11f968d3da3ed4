"""End of a connection between two devices: converts between words of a layer's streams and link frames."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.layers.gearbox import Gearbox
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.net.link.job import (
    ACK_DELAY_BITS,
    ACK_FRAMES_BITS,
    IP_BITS,
    MAC_BITS,
    PRIORITY_BITS,
    RETRY_BITS,
    TIMEOUT_BITS,
    LinkCounters,
    LinkStatus,
    check_link,
    frame_fields,
)
from fanin.hdl.net.link.link import ReliableLink
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.connection import CONNECTION, CONNECTION_LINK, RowFrames
from fanin.wire.ethernet import Encap
from fanin.wire.fields import field_bits

RUN_BITS = field_bits(CONNECTION, "run")
CONNECTION_BITS = field_bits(CONNECTION, "connection")


class ConnectionJob(data.Struct):
    """Settings of one end of a connection; stable from ``start`` until idle after ``reset``.

    ``run`` and ``connection`` identify the connection and are equal at both ends. Only UDP uses the IP
    addresses and ``priority``, the upper bits of the type of service. The other fields are LinkTiming.
    """

    run: RUN_BITS
    connection: CONNECTION_BITS
    priority: PRIORITY_BITS
    own_mac: MAC_BITS
    peer_mac: MAC_BITS
    own_ip: IP_BITS
    peer_ip: IP_BITS
    timeout: TIMEOUT_BITS
    retries: RETRY_BITS
    ack_frames: ACK_FRAMES_BITS
    ack_delay: ACK_DELAY_BITS


class Connection(wiring.Component):
    """Reliable connection that exchanges words with the peer over a lossy network.

    Words are packed into beats without gaps, and beats into frames. Each row begins a new frame. The rows are
    equal at both ends, but each end has its own number of words per transfer.

    Members
    -------
    ``i`` : In, stream of ``lanes`` words
        Words to the peer.
    ``o`` : Out, stream of ``lanes`` words
        Words from the peer.
    ``mac_tx`` : Out, packet stream of ``data_width`` bits
        Frames to the MAC, without pauses inside a frame; all beats are full.
    ``control`` : Out, 1
        The frame on ``mac_tx`` is an ACK, NAK or PROBE.
    ``mac_rx`` : In, packet stream of ``data_width`` bits with ``error``
        Frames from the MAC; always ready, as a MAC cannot wait.
    ``job`` : In, ConnectionJob
        Settings of this end.
    ``start`` : In, 1
        Pulse, after a reset: begin the job.
    ``watch`` : In, 1
        Probe the peer for liveness every ``job.timeout`` cycles, also while no acknowledgement is due.
    ``reset`` : In, 1
        Pulse: forget everything, including the words waiting on ``o``. A frame in transmission is finished.
    ``status`` : Out, LinkStatus
    ``counters`` : Out, LinkCounters

    Parameters
    ----------
    ``lanes`` : int, words of a transfer; they divide ``row``
    ``row`` : int, words of a row
    ``rows`` : int, rows of a feature map
        Needed to number the maps in the frames of the link.
    ``data_width`` : int, bits, a power of two from 32 to 512
    ``encap`` : Encap
    ``frames`` : int, a power of two, 2 to 256, or None
        Capacity for received frames not yet taken, and for sent frames not yet acknowledged. None: as many as
        fit in 11,264 bytes.
    ``published`` : bool
        No retransmission: a missing frame ends the job with LOSS.

    Latency
    -------
    From the transfer on ``i`` that completes a frame to its first beat on ``mac_tx``: 6 cycles. From a frame's
    last beat on ``mac_rx`` to its first words on ``o``: 5 cycles. The rate in words per cycle is that of the
    narrower of a transfer and a beat, less one cycle per frame for its header.

    Source
    ------
    docs/systems/link.md, "A connection".
    """

    def __init__(
        self,
        *,
        lanes: int,
        row: int,
        rows: int,
        data_width: int = 512,
        encap: Encap = Encap.L2,
        frames: int | None = None,
        published: bool = False,
    ):
        if lanes < 1 or row < lanes or row % lanes:
            raise ValueError(f"lanes must divide the {row!r} words of a row, not {lanes!r}")
        if rows < 1:
            raise ValueError(f"rows must be at least 1, not {rows!r}")
        check_link(data_width=data_width)  # before the frames are divided by it
        self.lanes = lanes
        self.row = row
        self.rows = rows
        self.beat_words = data_width // WORD_BITS
        framing = RowFrames(row, data_width)
        self.row_beats, self.frame_beats, self.row_frames = framing.beats, framing.frame_beats, framing.frames
        self.data_width = data_width
        self.encap = encap
        self.frames = frames or framing.in_flight
        self.published = published
        super().__init__(
            {
                "i": In(word_stream(lanes)),
                "o": Out(word_stream(lanes)),
                "mac_tx": Out(packet_stream(data_width)),
                "control": Out(1),
                "mac_rx": In(packet_stream(data_width, error=True)),
                "job": In(ConnectionJob),
                "start": In(1),
                "watch": In(1),
                "reset": In(1),
                "status": Out(LinkStatus),
                "counters": Out(LinkCounters),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the paths out and in: words, Gearbox, beats of a row, frames."""
        m = Module()
        m.submodules.link = link = ReliableLink(
            form=CONNECTION_LINK,
            frame_beats=self.frame_beats,
            encap=self.encap,
            data_width=self.data_width,
            buffer_frames=self.frames,
            replay_frames=self.frames,
            published=self.published,
        )
        self._wire(m, link)
        lanes, beat, row = self.lanes, self.beat_words, self.row
        m.submodules.pack = pack = ResetInserter(self.reset)(Gearbox(source=lanes, target=beat, frame=row))
        m.submodules.unpack = unpack = ResetInserter(self.reset)(Gearbox(source=beat, target=lanes, frame=row))
        connect_typed(m, flipped(self.i), pack.i)
        connect_typed(m, unpack.o, flipped(self.o))

        place = self._place(m, "sent", link.tx.valid & link.tx.ready)
        expected = self._place(m, "received", link.rx.valid & link.rx.ready)
        m.d.comb += [
            link.tx.valid.eq(pack.o.valid | place.padding),
            pack.o.ready.eq(link.tx.ready & ~place.padding),
            link.tx.p.data.eq(Mux(place.padding, 0, pack.o.p)),
            *(link.tx.p[name].eq(place[name]) for name in ("last", "words", "frame")),
            unpack.i.valid.eq(link.rx.valid & ~expected.padding),
            link.rx.ready.eq(unpack.i.ready | expected.padding),
            unpack.i.p.eq(link.rx.p.data),
        ]
        mismatch = (link.rx.p.last != expected.last) | (link.rx.p.words != expected.words)
        m.d.sync += link.refuse.eq(link.rx.valid & link.rx.ready & mismatch)
        return m

    def _wire(self, m: Module, link: Any) -> None:
        """Connect the link; the peer is both its previous and its next node."""
        connect_typed(m, link.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), link.mac_rx)
        for name in link.job.shape().members:
            end, _, kind = name.rpartition("_")
            source = f"peer_{kind}" if end in ("previous", "next") else name
            m.d.comb += link.job[name].eq(self.job[source])
        m.d.comb += [
            link.start.eq(self.start),
            link.reset.eq(self.reset),
            # An offered beat pauses the watch and so restarts its timer: the frame gets the full ``timeout``.
            link.watch.eq(self.watch & ~link.tx.valid),
            self.control.eq(link.is_control),
            self.status.eq(link.status),
            self.counters.eq(link.counters),
        ]

    def _place(self, m: Module, name: str, moves: Value) -> Any:
        """Count beats, frames, rows and maps; return the place of the next beat.

        ``last``: it is the last beat of its frame. ``padding``: it holds no words of the row. ``words``: words
        of its frame. ``frame``: number of its map.
        """
        flags = {"last": 1, "padding": 1}
        place = Signal(data.StructLayout({**flags, **frame_fields(CONNECTION_LINK).members}), name=name)
        beat = Signal(range(self.frame_beats), name=f"{name}_beat")
        frame = Signal(range(self.row_frames), name=f"{name}_frame")  # index in the row
        row = Signal(range(self.rows), name=f"{name}_row")
        number = Signal.like(place.frame, name=f"{name}_map")
        last_beats = self.row_beats - (self.row_frames - 1) * self.frame_beats
        padding = self.row_beats - -(-self.row // self.beat_words)
        whole_words = self.frame_beats * self.beat_words
        ends_row = Signal(name=f"{name}_ends_row")
        m.d.comb += [
            ends_row.eq(frame == self.row_frames - 1),
            place.last.eq(beat == Mux(ends_row, last_beats - 1, self.frame_beats - 1)),
            place.padding.eq(ends_row & (beat >= last_beats - padding)),
            place.words.eq(Mux(ends_row, self.row - (self.row_frames - 1) * whole_words, whole_words)),
            place.frame.eq(number),
        ]
        with m.If(moves):
            m.d.sync += beat.eq(beat + 1)
            with m.If(place.last):
                m.d.sync += [beat.eq(0), frame.eq(Mux(ends_row, 0, frame + 1))]
            with m.If(place.last & ends_row):
                m.d.sync += row.eq(row + 1)
                with m.If(row == self.rows - 1):
                    m.d.sync += [row.eq(0), number.eq(number + 1)]
        with m.If(self.reset):
            m.d.sync += [beat.eq(0), frame.eq(0), row.eq(0), number.eq(0)]
        return place
