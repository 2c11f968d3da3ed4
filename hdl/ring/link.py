"""The ring's reliable link: frames in order, each exactly once, between neighbours."""

from typing import Any

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.link_job import LinkCounters, LinkStatus, RingJob, check_link, link_beat
from fanin.hdl.stream.packet import packet_stream


class RingLink(wiring.Component):
    """Carry frames to the node behind and from the node before, each exactly once and in order.

    A frame given on ``tx`` is kept until the node behind has acknowledged it, and sent while that has room; a
    frame from the node before is given on ``rx`` once it is whole and right. Until ``start``, and after a
    failure, frames from the network are dropped and ``tx`` is not ready. A link that is done goes on to answer
    until ``reset``, since the node before may have missed its last acknowledgement.

    Members
    -------
    ``tx`` : In, stream of :func:`link_beat`
        Payloads for the node behind, at most ``frame_beats`` beats each. Not ready between frames while
        ``replay_frames`` are unacknowledged, else always while running.
    ``rx`` : Out, stream of :func:`link_beat`
        Payloads from the node before. Room is granted anew as a frame's last beat leaves.
    ``mac_tx`` : Out, packet stream of ``data_width`` bits
        Does not pause inside a frame; all beats are whole.
    ``mac_rx`` : In, packet stream of ``data_width`` bits with ``error``
        Always ready: a MAC does not wait.
    ``job`` : In, RingJob
    ``start`` : In, 1
        Pulse, after a reset: the job begins; it waits for a frame of the last job that is still being sent.
    ``reset`` : In, 1
        Pulse: forget everything, sequence number 0 is next. Withdraws a beat that waits on ``rx``, so its
        consumer is reset as well. A frame being sent is finished.
    ``status`` : Out, LinkStatus
    ``counters`` : Out, LinkCounters

    Parameters
    ----------
    ``data_width`` : int, 256 or 512, bits
    ``frame_beats`` : int, 1 to 4096
        Beats of a payload at most: the frame's words and what a codec may add to them.
    ``buffer_frames`` : int, 2 to 256
        Frames received that ``rx`` has not taken yet.
    ``replay_frames`` : int, a power of two, 2 to 256
        Frames taken on ``tx`` that are not acknowledged yet.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Of the first frame, at all nodes alike; 0 but in tests.

    Latency
    -------
    Last beat of a payload transferred on ``tx`` to the frame's first beat transferred on ``mac_tx``: 4 cycles.
    Last beat of a frame transferred on ``mac_rx`` to its payload's first beat on ``rx``: 4 cycles. Every stream
    takes one beat a cycle, across frames; a payload of n beats is a frame of n + 1 beats at both widths.

    Source
    ------
    docs/ring.md, "The link"; AI Smart NIC, section IV-A.
    """

    def __init__(
        self,
        *,
        frame_beats: int,
        data_width: int = 512,
        buffer_frames: int = 32,
        replay_frames: int = 32,
        first_sequence: int = 0,
    ):
        check_link(
            data_width=data_width,
            frame_beats=frame_beats,
            buffer_frames=buffer_frames,
            replay_frames=replay_frames,
            first_sequence=first_sequence,
        )
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.buffer_frames = buffer_frames
        self.replay_frames = replay_frames
        self.first_sequence = first_sequence
        beats = stream.Signature(link_beat(data_width))
        super().__init__(
            {
                "tx": In(beats),
                "rx": Out(beats),
                "mac_tx": Out(packet_stream(data_width)),
                "mac_rx": In(packet_stream(data_width, error=True)),
                "job": In(RingJob),
                "start": In(1),
                "reset": In(1),
                "status": Out(LinkStatus),
                "counters": Out(LinkCounters),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """To be filled."""
        return Module()
