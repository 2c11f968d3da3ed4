"""Data of the requester's states: the current queue pair, and the parts around the states."""
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

QUEUE = 32  # packets that may wait for payload and MAC; many, so that short ones hide the memory's latency
FETCHES = 1  # payloads that may wait to be read; the next packet is handed on only when none waits


class Verdict(enum.Enum, shape=3):
    """Meaning of an answer for the packet with its PSN."""

    IGNORED = 0  # unknown syndrome
    ACK = 1  # this packet and all earlier ones have arrived
    SEQUENCE = 2  # all before it have arrived; go back to it, unless it waits as NOT_READY
    FATAL = 3  # all before it have arrived; it ends the queue pair
    NOT_READY = 4  # all before it have arrived; send it again after the timeout


class InHand:
    """Registers of the queue pair of the current event; READ loads them."""

    def __init__(self, config: RdmaConfig):
        self.event = Signal(Event)
        self.index = Signal(index_bits(config))
        self.row = Signal(row_layout(config))
        self.settings = Signal(Settings)
        self.window_mask = Signal(FLIGHT_BITS)  # window in packets, a power of two, less 1
        self.offset = Signal(LENGTH_BITS)  # bytes of the message before the next packet
        self.verdict = Signal(Verdict)  # meaning of the answer
        self.still_valid = Signal()  # the event still applies; READ checks it, since the choice is cycles old
        self.ending = Signal(Ending)  # ending of the oldest write if the queue pair fails now
        self.progress = Signal()  # writing the row back restarts the timer
        self.repeated = Signal()  # the answer acknowledges packets that may have been sent again
        self.stale = Signal()  # the posted descriptor belongs to an earlier connection

    @property
    def window_full(self) -> Value:
        """True if no further packet may be in flight."""
        return (self.row.flight & ~self.window_mask).any()


class Parts:
    """Submodules of the requester, and registers of all queue pairs."""

    def __init__(self, config: RdmaConfig, fetch: Any):
        count = config.queue_pairs
        self.tables = SenderTables(config=config)
        self.choice = EventChoice(config=config)
        self.timers = Timers(count=count)
        self.packets = StreamFIFO(shape=Headers, depth=QUEUE)  # packets to send
        self.fetches = StreamFIFO(shape=fetch, depth=FETCHES)  # payloads of these packets
        self.queue_free = Signal()  # ``packets`` has two places, and memory can probably be read
        self.may_hand_on = Signal()  # the payload of a packet that is handed on now is read immediately
        self.drained = Signal()  # no payload is being read
        # Flags from which the next event is chosen, one bit for each queue pair:
        self.sendable = Signal(count)  # the queue pair has a packet that its window admits
        self.has_room = Signal(count, init=-1)  # its ring has a place for a descriptor
        self.in_flight = Signal(count)  # it has packets in flight, so its timer runs
        self.last_sent = Signal(index_bits(config))  # queue pair that had the last turn to send
        self.kept_turn = Signal.like(self.choice.kept_turn)  # queue pair whose packet was not handed on
