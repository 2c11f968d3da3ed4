"""Choice of the requester's next event."""
# An enum takes its shape as an argument of the class:
# mypy: disable-error-code="call-arg"

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.queue_pair import index_bits
from fanin.hdl.stream.round_robin import RoundRobin, lowest_set
from fanin.rdma.facts import RdmaConfig


class Event(enum.Enum, shape=3):
    """Event of the requester, the most urgent first."""

    CONNECT = 0  # a queue pair is connected anew, or disconnected
    ANSWER = 1  # an ACK or NAK has arrived
    TIMEOUT = 2  # a queue pair made no progress for the timeout
    POST = 3  # a descriptor waits for its ring
    SEND = 4  # a packet can be sent; a kept turn is more urgent than POST


class EventChoice(wiring.Component):
    """Selector of the most urgent waiting event and its queue pair.

    The choice depends on inputs of earlier cycles (see Latency). A TIMEOUT or SEND must therefore be executed
    only if its queue pair's flag, ``expired`` or ``sendable``, is still set.

    Members
    -------
    ``connect``, ``answer``, ``post`` : In, ``valid`` and ``index``
        A transfer waits for the queue pair ``index``.
    ``has_room`` : In, one bit for each queue pair
        The queue pair's ring has a place for a descriptor; 0: a post to it waits.
    ``expired`` : In, one bit for each queue pair
        The queue pair's timer has expired.
    ``sendable`` : In, one bit for each queue pair
        The queue pair has a packet that its window admits.
    ``queue_free`` : In, 1
        The packet queue has a place; 0: a SEND waits.
    ``last_sent`` : In, range(queue pairs)
        Queue pair that had the last turn to send; it has the lowest priority for the next turn.
    ``kept_turn`` : In, ``valid`` and ``index``
        Queue pair whose packet could not be handed on: the next SEND belongs to it and precedes a POST. The
        SEND may fail repeatedly while memory is busy, so all events that end a queue pair precede it.
    ``valid`` : Out, 1
        An event waits.
    ``event`` : Out, Event
        The most urgent event.
    ``index`` : Out, range(queue pairs)
        Queue pair of the event.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs.

    Latency
    -------
    From the inputs of a CONNECT or ANSWER 0 cycles, of a POST or TIMEOUT 1, of a SEND 3, but 0 from
    ``kept_turn`` and ``queue_free``.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        count = config.queue_pairs
        waiting = data.StructLayout({"valid": 1, "index": index_bits(config)})
        super().__init__(
            {
                **dict.fromkeys(("connect", "answer", "post"), In(waiting)),
                **dict.fromkeys(("has_room", "expired", "sendable"), In(count)),
                "queue_free": In(1),
                "last_sent": In(range(count)),
                "kept_turn": In(waiting),
                "valid": Out(1),
                "event": Out(Event),
                "index": Out(range(count)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Register the candidates that need a search through all queue pairs."""
        m = Module()
        m.submodules.senders = senders = RoundRobin(count=self.config.queue_pairs)
        can_post = Signal()
        any_expired = Signal()
        expired = Signal.like(self.index)
        m.d.comb += [senders.requests.eq(self.sendable), senders.last.eq(self.last_sent)]
        m.d.sync += [
            can_post.eq(self.post.valid & self.has_room.bit_select(self.post.index, 1)),
            Cat(any_expired, expired).eq(Cat(*lowest_set(self.expired))),
        ]
        # Event, valid, queue pair; the most urgent event first.
        candidates = (
            (Event.CONNECT, self.connect.valid, self.connect.index),
            (Event.ANSWER, self.answer.valid, self.answer.index),
            (Event.TIMEOUT, any_expired, expired),
            (Event.SEND, self.kept_turn.valid & self.queue_free, self.kept_turn.index),
            (Event.POST, can_post, self.post.index),
            (Event.SEND, senders.valid & self.queue_free, senders.index),
        )
        m.d.comb += self.valid.eq(Cat(is_waiting for _, is_waiting, _ in candidates).any())
        # The last assignment wins: that of the most urgent event.
        for event, is_waiting, index in reversed(candidates):
            with m.If(is_waiting):
                m.d.comb += [self.event.eq(event), self.index.eq(index)]
        return m
