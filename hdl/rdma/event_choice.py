"""Which event the requester carries out next."""
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
    """What the requester carries out, the most urgent first."""

    CONNECT = 0  # a queue pair begins anew, or ends
    ANSWER = 1  # an ACK or NAK has come
    TIMEOUT = 2  # a queue pair had no progress for too long
    POST = 3  # a descriptor is to be put into its ring
    SEND = 4  # a packet is to be sent; a kept turn is more urgent than POST


class EventChoice(wiring.Component):
    """Choose the most urgent event that is waiting, and its queue pair.

    A choice rests on inputs of some cycles before (see Latency). So a TIMEOUT or SEND must be carried out only
    if its queue pair's flag, ``expired`` or ``sendable``, is still set.

    Members
    -------
    ``connect``, ``answer``, ``post`` : In, ``valid`` and ``index``
        A transfer waits, for that queue pair.
    ``has_room`` : In, one bit for each queue pair
        Its ring has a place for a descriptor, else a post to it must wait.
    ``expired`` : In, one bit for each queue pair
        Its timer has expired.
    ``sendable`` : In, one bit for each queue pair
        It has a packet that its window admits.
    ``queue_free`` : In, 1
        The packet queue has a place, else a SEND must wait.
    ``last_sent`` : In, range(queue pairs)
        The queue pair that had the last turn to send: the others come before it.
    ``kept_turn`` : In, ``valid`` and ``index``
        A queue pair whose packet could not be handed on: the next SEND is its own, and comes before a POST. It
        may fail as long as memory is busy; so nothing that ends a queue pair comes behind it.
    ``valid`` : Out, 1
        There is an event.
    ``event`` : Out, Event
    ``index`` : Out, range(queue pairs)

    Parameters
    ----------
    ``config`` : RdmaConfig

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
        """Candidates that take a search through all queue pairs come from registers."""
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
        candidates = (  # event, whether it waits, for which queue pair; the most urgent first
            (Event.CONNECT, self.connect.valid, self.connect.index),
            (Event.ANSWER, self.answer.valid, self.answer.index),
            (Event.TIMEOUT, any_expired, expired),
            (Event.SEND, self.kept_turn.valid & self.queue_free, self.kept_turn.index),
            (Event.POST, can_post, self.post.index),
            (Event.SEND, senders.valid & self.queue_free, senders.index),
        )
        m.d.comb += self.valid.eq(Cat(waits for _, waits, _ in candidates).any())
        for event, waits, index in reversed(candidates):  # the last assignment wins, the most urgent event's
            with m.If(waits):
                m.d.comb += [self.event.eq(event), self.index.eq(index)]
        return m
