"""What the states of the requester work with: the queue pair in hand, and the parts around it."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Signal, Value
from amaranth.lib import enum

from fanin.hdl.rdma.event_choice import Event, EventChoice
from fanin.hdl.rdma.queue_pair import LENGTH_BITS, Settings, index_bits
from fanin.hdl.rdma.sender_tables import FLIGHT_BITS, SenderTables, row_layout
from fanin.hdl.rdma.shapes import Headers
from fanin.hdl.rdma.timers import Timers
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import Ending, RdmaConfig

QUEUE = 32  # packets that may wait for payload and MAC: short ones must hide the memory's latency
FETCHES = 1  # payload that waits to be read: the next is handed on only when none waits


class Verdict(enum.Enum, shape=3):
    """What an answer says of the packet with its PSN."""

    IGNORED = 0  # nothing: its syndrome is none of these
    ACK = 1  # it has arrived, as have all before it
    SEQUENCE = 2  # all before it have arrived; go back to it, unless it waits as NOT_READY
    FATAL = 3  # all before it have arrived; it ends the queue pair
    NOT_READY = 4  # all before it have arrived; send it again once the timeout has passed


class InHand:
    """Registers of the queue pair whose event is carried out; READ loads them."""

    def __init__(self, config: RdmaConfig):
        self.event = Signal(Event)
        self.index = Signal(index_bits(config))
        self.row = Signal(row_layout(config))
        self.settings = Signal(Settings)
        self.window_mask = Signal(FLIGHT_BITS)  # the window, a power of two of packets, less one
        self.offset = Signal(LENGTH_BITS)  # bytes of the message before the next packet
        self.verdict = Signal(Verdict)  # of the answer
        self.still_valid = Signal()  # the event still applies: READ checks, as the choice is some cycles old
        self.ending = Signal(Ending)  # of the oldest write, should the queue pair fail now
        self.progress = Signal()  # writing the row back restarts the timer
        self.repeated = Signal()  # the answer acknowledges packets that may have been sent again
        self.stale = Signal()  # the descriptor that was posted is of an earlier connection

    @property
    def window_full(self) -> Value:
        """As many packets are in flight as may be."""
        return (self.row.flight & ~self.window_mask).any()


class Parts:
    """What the states work with: the submodules, and registers of all queue pairs."""

    def __init__(self, config: RdmaConfig, fetch: Any):
        count = config.queue_pairs
        self.tables = SenderTables(config=config)
        self.choice = EventChoice(config=config)
        self.timers = Timers(count=count)
        self.packets = StreamFIFO(shape=Headers, depth=QUEUE)  # packets that were cut,
        self.fetches = StreamFIFO(shape=fetch, depth=FETCHES)  # and their payloads
        self.queue_free = Signal()  # the queue of packets has places for two; memory can probably be read
        self.may_hand_on = Signal()  # a packet that is handed on now is read at once
        self.drained = Signal()  # no payload is being read
        # Flags from which the next event is chosen, one bit for each queue pair:
        self.sendable = Signal(count)  # it has a packet that its window admits
        self.has_room = Signal(count, init=-1)  # its ring has a place for a descriptor
        self.in_flight = Signal(count)  # it has packets in flight, so its timer runs
        self.last_sent = Signal(index_bits(config))  # the queue pair that had the last turn to send
        self.kept_turn = Signal.like(self.choice.kept_turn)  # the queue pair whose packet was not handed on
