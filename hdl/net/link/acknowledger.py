"""Acknowledgements of a link: when to send an ACK or NAK."""

from typing import Any

from amaranth import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.job import ACK_DELAY_BITS, ACK_FRAMES_BITS, SEQUENCE_BITS, LinkTiming, check_link


class Acknowledger(wiring.Component):
    """Scheduler of acknowledgements: decides when an ACK or NAK is due.

    A NAK is due once for each gap. An ACK is due in these cases:

    - ``timing.ack_frames`` frames were received or consumed since the last answer;
    - ``timing.ack_delay`` cycles have passed since the first of these;
    - it is requested (``asked``);
    - after a reset, to grant the first room.

    Members
    -------
    ``timing`` : In, LinkTiming
        Thresholds of an ACK.
    ``received`` : In, 1
        A frame was received and kept.
    ``consumed`` : In, 1
        A frame left the buffer, at least a cycle ago.
    ``asked`` : In, 1
        Request an ACK. Reasons: a PROBE, a duplicate, a frame out of order or the first missing frame has
        arrived, or the user's fields in answers have changed.
    ``gap`` : In, 1
        A frame arrived that leaves a gap before it.
    ``ack`` : Out, 1
        An ACK is due.
    ``nak`` : Out, 1
        A NAK is due. If ``ack`` is high as well, one frame is enough, since ACK and NAK carry the same fields.
    ``answered`` : In, 1
        An ACK or NAK was started a cycle ago, from the state of that cycle.
    ``limit`` : Out, 32
        First sequence number without room.

    Parameters
    ----------
    ``buffer_frames`` : int, a power of two, 2 to 256
        Frames that the receive buffer holds; 32 by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame; 0 except in tests.

    Latency
    -------
    1 cycle from ``asked`` and ``gap``, 2 from ``received`` and ``consumed``.

    Source
    ------
    docs/systems/link.md, "Protocol".
    """

    def __init__(self, *, buffer_frames: int = 32, first_sequence: int = 0):
        check_link(buffer_frames=buffer_frames, first_sequence=first_sequence)
        self.buffer_frames = buffer_frames
        self.first_sequence = first_sequence
        super().__init__(
            {
                "timing": In(LinkTiming),
                "received": In(1),
                "consumed": In(1),
                "asked": In(1),
                "gap": In(1),
                "ack": Out(1, init=1),
                "nak": Out(1),
                "answered": In(1),
                "limit": Out(SEQUENCE_BITS, init=(first_sequence + buffer_frames) % (1 << SEQUENCE_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count in ``unanswered`` the events that no answer covers yet; the count stops when an ACK is due.

        An event in the cycle of ``answered`` came too late for that answer: the statements after ``answered``
        override it, and ``unanswered`` restarts with the events of that cycle. The same holds for a frame
        consumed in the cycle before, when the answer was started: its ``limit`` did not count that frame yet.
        """
        m = Module()
        unanswered = Signal(ACK_FRAMES_BITS + 1)
        delay = Signal(signed(ACK_DELAY_BITS + 1))  # cycles until an ACK for unanswered events; ends below 0
        uncounted = Signal()  # a frame was consumed a cycle ago
        events = self.received + self.consumed
        m.d.sync += uncounted.eq(self.consumed)
        with m.If(self.consumed):
            m.d.sync += self.limit.eq(self.limit + 1)
        with m.If(~self.ack):
            m.d.sync += unanswered.eq(unanswered + events)
        m.d.sync += delay.eq(delay - 1)
        with m.If((unanswered == 0) | self.answered):
            m.d.sync += delay.eq(self.timing.ack_delay)
        with m.If((unanswered >= self.timing.ack_frames) | (delay[-1] & (unanswered != 0))):
            m.d.sync += self.ack.eq(1)
        with m.If(self.answered):
            m.d.sync += [self.ack.eq(0), self.nak.eq(0), unanswered.eq(events + uncounted)]
        with m.If(self.gap):
            m.d.sync += self.nak.eq(1)
        with m.If(self.asked):
            m.d.sync += self.ack.eq(1)
        return m
