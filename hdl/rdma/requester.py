"""The sending half of the queue pairs."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.packet_cut import FLIGHT_BITS, PacketCut, descriptor_layout, row_layout
from fanin.hdl.rdma.queue_pair import (
    LENGTH_BITS,
    Settings,
    answer_layout,
    bytes_of,
    completion_layout,
    connect_layout,
    index_bits,
    packets_of,
    write_layout,
)
from fanin.hdl.rdma.shapes import Headers, fetch_layout
from fanin.hdl.rdma.timers import TIMEOUT_BITS, Timers
from fanin.hdl.rdma.turns import Turns, first_of
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import Ending, RdmaConfig
from fanin.wire.rdma import PSN_BITS, Nak

_ENDINGS = {  # what becomes of the oldest write, if a NAK ends its queue pair
    Nak.SEQUENCE: Ending.RETRIES,
    Nak.INVALID_REQUEST: Ending.REQUEST,
    Nak.REMOTE_ACCESS: Ending.ACCESS,
    Nak.REMOTE_OPERATION: Ending.OPERATION,
}
_QUEUE = 32  # packets that may wait for payload and MAC: short ones must hide the memory's latency


class Kind(enum.Enum, shape=3):
    """What the requester is about."""

    CONNECT = 0
    ANSWER = 1
    POST = 2
    TIMEOUT = 3
    SEND = 4


class RequesterEvents(data.Struct):
    """What happened, a pulse each, for counters."""

    sent: 1  #: a packet was handed on
    went_back: 1  #: a queue pair sends again from its oldest packet
    timed_out: 1  #: and because no answer came
    failed: 1  #: a queue pair ended with an error


def _less_one_more(a: Value, b: Value) -> Value:
    """a - b - 1, signed, in one addition."""
    return a + ~Cat(b, Const(0, 1)).as_signed()


class Requester(wiring.Component):
    """Cut the writes of all queue pairs into packets, send, and send again until they are acknowledged.

    One thing is done at a time: a queue pair connected, an answer taken, a descriptor queued, a timeout, a
    packet sent, in this order of urgency; queue pairs take turns with their packets. Each descriptor completes
    once, in the order of its queue pair. A queue pair that fails or is connected anew completes what it has at
    once, and what is posted to one that is not enabled completes as flushed.

    Members
    -------
    ``connect`` : In, stream of :func:`connect_layout`
    ``timeout`` : In, 32
        Cycles without progress, until a queue pair goes back.
    ``post`` : In, stream of :func:`write_layout`
        Waits while the queue pair's ring is full. ``length`` at most 2^31, and within the memory's addresses.
    ``answer`` : In, stream of :func:`answer_layout`
    ``headers`` : Out, stream of Headers
        The packets; the payload of one with a ``size`` is what ``fetch`` asks for, in order.
    ``fetch`` : Out, stream of :func:`fetch_layout`
    ``completion`` : Out, stream of :func:`completion_layout`
        All waits until it is taken.
    ``enabled`` : Out, one bit for each queue pair
    ``events`` : Out, RequesterEvents

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    From ``post`` to ``fetch`` 8 cycles when nothing else is to be done; a packet every 5 cycles; an answer
    takes 8 cycles, and 2 more for each write that it completes.

    Source
    ------
    docs/systems/rdma.md, "Requester"; InfiniBand Architecture Specification, volume 1, section 9.7.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        layout = fetch_layout(width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "connect": In(stream.Signature(connect_layout(config))),
                "timeout": In(TIMEOUT_BITS),
                "post": In(stream.Signature(write_layout(config))),
                "answer": In(stream.Signature(answer_layout(config))),
                "headers": Out(stream.Signature(Headers)),
                "fetch": Out(stream.Signature(layout)),
                "completion": Out(stream.Signature(completion_layout(config))),
                "enabled": Out(config.queue_pairs),
                "events": Out(RequesterEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A row of state is read, changed by a few states, and written; flags say what there is to do."""
        m = Module()
        self._make(m)
        self._choose(m)
        with m.FSM():
            self._idle(m)
            self._post(m)
            self._send(m)
            self._answer(m)
            self._go_back(m)
            self._flush(m)
            with m.State("WRITE"):
                self._write_row(m, self.closed)
                m.next = "IDLE"
        return m

    def _make(self, m: Module) -> None:
        """Tables, registers of the queue pair in hand, flags of all."""
        config, count = self.config, self.config.queue_pairs
        self.row = Signal(row_layout(config))
        self.settings = Signal(Settings)
        self.offset = Signal(LENGTH_BITS)  # bytes of the message that were sent
        self.window = Signal(FLIGHT_BITS)  # packets that may be in flight, but one
        self.index = Signal(index_bits(config))
        self.kind = Signal(Kind)
        self.progress = Signal()  # restarts the timer
        self.reads = Signal()  # a descriptor, in this state
        self.ending = Signal(Ending)
        self.positive, self.sequence, self.refused = (
            Signal(name=n) for n in ("positive", "sequence", "refused")
        )
        # of the row as it was a cycle before:
        self.closed = Signal()  # the window is full
        self.quiet = Signal()  # no packet is in flight
        self.moot = Signal()  # nor is there reason to go back
        self.spent = Signal()  # there are no retries left
        self.tried = Signal.like(self.row.attempts)  # one attempt more
        self.sends_on = Signal()  # there is still a packet to send
        self.overdue = Signal()  # there is still a reason to go back: a timer's, or an answer
        # of each queue pair: a packet could be sent; a descriptor posted; packets are in flight
        self.sendable = Signal(count)
        self.room = Signal(count, init=-1)
        self.waiting = Signal(count)
        self._make_tables(m)
        m.submodules.timers = self.timers = timers = Timers(count=count)
        m.d.comb += [timers.timeout.eq(self.timeout), timers.waiting.eq(self.waiting)]
        m.d.sync += [
            timers.restart.eq(0),
            self.reads.eq(0),
            self.closed.eq((self.row.flight & ~self.window).any()),
            self.quiet.eq(~self.row.flight.any()),
            self.moot.eq(~self.row.flight.any() | ~self.overdue),
            self.spent.eq(self.row.attempts == self.settings.retries),
            self.tried.eq(self.row.attempts + 1),
        ]
        m.submodules.headers = self.packets = StreamFIFO(shape=Headers, depth=_QUEUE)
        m.submodules.fetches = self.fetches = StreamFIFO(shape=self.fetch.payload.shape(), depth=_QUEUE)
        connect_typed(m, self.packets.o, wiring.flipped(self.headers))
        connect_typed(m, self.fetches.o, wiring.flipped(self.fetch))

    def _choose(self, m: Module) -> None:
        """What there is to do, the most urgent first, and for which queue pair.

        What is known is some cycles old: so ``free`` is room for two packets, that a descriptor is taken shows
        before the next choice, and timers and packets are looked at again when their queue pair's row is read.
        """
        m.submodules.turn = self.turn = turn = Turns(count=self.config.queue_pairs)
        m.d.comb += turn.i.eq(self.sendable)
        connect, answer, post = self.connect, self.answer, self.post
        self.free = free = Signal()
        expired = Signal.like(self.index)
        has_expired = Signal()
        can_post = Signal()
        m.d.sync += [
            free.eq((self.packets.level < _QUEUE - 1) & (self.fetches.level < _QUEUE - 1)),
            Cat(has_expired, expired).eq(Cat(*first_of(self.timers.expired))),
            can_post.eq(post.valid & self.room.bit_select(post.payload.index, 1)),
        ]
        self.choices = {
            Kind.CONNECT: (connect.valid, connect.payload.index),
            Kind.ANSWER: (answer.valid, answer.payload.index),
            Kind.POST: (can_post, post.payload.index),
            Kind.TIMEOUT: (has_expired, expired),
            Kind.SEND: (turn.valid & free, turn.o),
        }

    def _make_tables(self, m: Module) -> None:
        config, count = self.config, self.config.queue_pairs
        m.submodules.rows = rows = Memory(shape=self.row.shape(), depth=count, init=[])
        m.submodules.settings = settings = Memory(shape=Settings, depth=count, init=[])
        self.row_read, self.row_write = rows.read_port(domain="comb"), rows.write_port()
        self.settings_read, self.settings_write = settings.read_port(domain="comb"), settings.write_port()
        m.submodules.writes = writes = Memory(
            shape=descriptor_layout(config), depth=count * config.descriptors, init=[]
        )
        self.writes_read, self.writes_write = writes.read_port(), writes.write_port()
        self.write = self.writes_read.data  # the descriptor in hand
        for port in (self.row_read, self.row_write, self.settings_read, self.settings_write):
            m.d.comb += port.addr.eq(self.index)
        m.d.comb += [
            self.row_write.data.eq(self.row),
            self.settings_write.data.eq(self.connect.payload.settings),
            self.writes_read.en.eq(self.reads),
            self.writes_read.addr.eq(Cat((self.row.head + 1)[:-2], self.index)),  # else somebody says so
        ]

    def _read_write(self, m: Module, pointer: Any) -> None:
        """Have the descriptor at that place in hand from the next cycle on; ``reads`` is set a cycle before."""
        m.d.comb += self.writes_read.addr.eq(Cat(pointer[:-1], self.index))

    def _write_row(self, m: Module, closed: Any) -> None:
        """Put the row back, and say what can be done with its queue pair now."""
        row = self.row
        size = len(row.head) - 1
        full = (row.head[:size] == row.tail[:size]) & (row.head[size] != row.tail[size])
        flags = [
            (self.sendable, row.enable & (row.send != row.tail) & ~closed),
            (self.room, ~full),
            (self.waiting, row.flight.any()),
            (self.enabled, row.enable),
        ]
        m.d.comb += self.row_write.en.eq(1)
        for flag, value in flags:
            m.d.sync += flag.bit_select(self.index, 1).eq(value)
        m.d.sync += self.timers.restart.eq(self.progress << self.index)

    def _idle(self, m: Module) -> None:
        """Choose what to do, and read the queue pair's row."""
        with m.State("IDLE"):
            m.d.sync += [self.progress.eq(0), self.reads.eq(1)]
            *urgent, (last, (wanted, index)) = self.choices.items()
            m.d.sync += [self.kind.eq(last), self.index.eq(index)]  # even if not wanted: then nobody looks
            with m.If(wanted):
                m.next = "READ"
            for kind, (wanted, index) in reversed(urgent):
                with m.If(wanted):
                    m.d.sync += [self.kind.eq(kind), self.index.eq(index)]
                    m.next = "READ"
        with m.State("READ"):
            m.d.sync += [
                self.row.eq(self.row_read.data),
                self.settings.eq(self.settings_read.data),
                self.offset.eq(bytes_of(self.row_read.data.number, self.settings_read.data.mtu)),
                self.window.eq(~(Const(-1, FLIGHT_BITS) << self.settings_read.data.window)),
                self.sends_on.eq(self.sendable.bit_select(self.index, 1)),
                self.overdue.eq(self.timers.expired.bit_select(self.index, 1)),
                self.ending.eq(Ending.FLUSHED),
            ]
            row = self.row_read.data
            self._read_write(m, Mux(self.kind == Kind.SEND, row.send, row.head))
            with m.Switch(self.kind):
                with m.Case(Kind.CONNECT):
                    m.next = "FLUSH"
                with m.Case(Kind.ANSWER):
                    self._judge(m)
                    m.next = "CHECK"
                with m.Case(Kind.POST):
                    m.next = "POST"
                with m.Case(Kind.TIMEOUT):
                    m.d.sync += self.ending.eq(Ending.RETRIES)
                    m.next = "CHECK"
                with m.Case(Kind.SEND):
                    m.d.sync += self.turn.last.eq(self.index)
                    m.next = "SEND"

    def _post(self, m: Module) -> None:
        """Queue a descriptor; its first packet may go at once."""
        post, row, port = self.post.payload, self.row, self.writes_write
        most = Signal(signed(LENGTH_BITS + 1))  # bytes, less one
        m.d.sync += most.eq(post.length - 1)  # it has been there for some cycles
        m.d.comb += [
            port.addr.eq(Cat(row.tail[:-1], self.index)),
            *(
                port.data[name].eq(post[name])
                for name in port.data.shape().members
                if name in post.shape().members
            ),
            port.data.last_number.eq(Mux(most < 0, 0, packets_of(most[:LENGTH_BITS], self.settings.mtu))),
        ]
        with m.State("POST"):
            m.d.comb += [port.en.eq(1), self.post.ready.eq(1)]
            m.d.sync += [row.tail.eq(row.tail + 1), self.reads.eq(1)]
            m.next = "POSTED"
        with m.State("POSTED"):
            self._write_row(m, self.closed)
            self._read_write(m, row.send)  # or its head, which is the same if it is not enabled
            m.d.sync += self.sends_on.eq(1)
            m.next = "FLUSH"
            with m.If(row.enable):
                m.next = "WRITE"
                with m.If(self.free & ~self.closed):
                    m.next = "SEND"

    def _send(self, m: Module) -> None:
        """Hand on the next packet, if there is still one to send."""
        m.submodules.cut = cut = PacketCut(config=self.config)
        row, packets, fetches = self.row, self.packets.i, self.fetches.i
        hands_on = Signal()  # the state, without its decoder
        m.d.sync += hands_on.eq(0)
        m.d.comb += [
            cut.row.eq(row),
            cut.offset.eq(self.offset),
            cut.write.eq(self.write),
            cut.settings.eq(self.settings),
            cut.window.eq(self.window),
            packets.payload.eq(cut.headers),
            fetches.payload.eq(cut.fetch),
            packets.valid.eq(hands_on),
            fetches.valid.eq(hands_on & cut.some),
            self.events.sent.eq(hands_on),
        ]
        with m.State("SEND"):
            m.next = "IDLE"
            with m.If(self.sends_on):
                m.next = "CUT"
        with m.State("CUT"):
            m.d.sync += [hands_on.eq(1), self.progress.eq(self.quiet)]
            m.d.sync += [row[name].eq(cut.after[name]) for name in cut.after.shape().members]
            m.next = "HAND ON"
        with m.State("HAND ON"):
            self._write_row(m, cut.closes)
            m.next = "IDLE"

    def _answer(self, m: Module) -> None:
        """Move on by the packets that are acknowledged, and complete the writes that they end."""
        row, answer = self.row, self.answer.payload
        ahead = Signal(PSN_BITS)
        steps = Signal(FLIGHT_BITS)
        near = Signal()
        below = Signal()  # those in flight, but for the upper bits
        left = Signal(signed(PSN_BITS + 1))
        moved = Signal(data.StructLayout({n: row.shape()[n].shape for n in ("oldest", "flight", "done")}))
        m.d.sync += [
            ahead.eq(answer.psn - self.row_read.data.oldest),
            near.eq(~ahead[FLIGHT_BITS:].any() & (self.positive | self.sequence | self.refused)),
            below.eq(ahead[:FLIGHT_BITS] < row.flight),
            steps.eq(ahead[:FLIGHT_BITS] + self.positive),
            moved.oldest.eq(row.oldest + steps),
            moved.flight.eq(row.flight - steps),
            moved.done.eq(row.done + steps),
            left.eq(_less_one_more(row.done, self.write.last_number)),
        ]
        with m.State("CHECK"):
            m.next = "TAKE"
            with m.If(self.kind == Kind.TIMEOUT):
                m.next = "GO BACK"
        with m.State("TAKE"):
            m.d.comb += self.answer.ready.eq(1)
            m.next = "IDLE"
            with m.If(near & below):
                m.next = "MOVE"
        with m.State("MOVE"):
            m.d.sync += [row[name].eq(moved[name]) for name in moved.shape().members]
            with m.If(steps.any()):
                m.d.sync += [row.attempts.eq(0), self.progress.eq(1)]
            m.next = "COUNT"
        with m.State("COUNT"):
            m.next = "COMPLETE"
        with m.State("COMPLETE"):
            with m.If(left >= 0), m.If(self._complete(m, Ending.DONE)):
                m.d.sync += row.done.eq(left)
                m.next = "COUNT"
            with m.Elif(self.refused):
                self._fail(m)
            with m.Elif(self.sequence):
                m.next = "GO BACK"
            with m.Else():
                m.next = "WRITE"

    def _judge(self, m: Module) -> None:
        """What kind of answer it is; one of another kind is ignored."""
        syndrome = self.answer.payload.syndrome
        m.d.sync += [
            self.overdue.eq(1),
            self.positive.eq(syndrome[5:] == 0),
            self.sequence.eq(syndrome == Nak.SEQUENCE.syndrome),
            self.refused.eq(0),
        ]
        for nak, ending in _ENDINGS.items():
            with m.If(syndrome == nak.syndrome):
                m.d.sync += [self.refused.eq(nak != Nak.SEQUENCE), self.ending.eq(ending)]

    def _complete(self, m: Module, ending: Any) -> Any:
        """Say what has become of the head, and go on to the next one behind it, when that is taken."""
        said, row = self.completion, self.row
        m.d.comb += [
            said.valid.eq(1),
            said.p.index.eq(self.index),
            said.p.tag.eq(self.write.tag),
            said.p.ending.eq(ending),
        ]
        with m.If(said.ready):
            m.d.comb += self.writes_read.en.eq(1)
            m.d.sync += row.head.eq(row.head + 1)
        return said.ready

    def _fail(self, m: Module) -> None:
        """The queue pair ends; ``ending`` is what is said of its oldest write."""
        m.d.comb += self.events.failed.eq(1)
        m.d.sync += self.row.enable.eq(0)
        m.next = "FLUSH"

    def _go_back(self, m: Module) -> None:
        """Send again from the oldest packet on, if that has not been tried too often."""
        row = self.row
        with m.State("GO BACK"):
            m.d.sync += self.progress.eq(1)
            with m.If(self.moot):
                m.next = "WRITE"  # what the timer waited for has come meanwhile
            with m.Elif(self.spent):
                self._fail(m)
            with m.Else():
                m.d.comb += [self.events.went_back.eq(1), self.events.timed_out.eq(self.kind == Kind.TIMEOUT)]
                m.d.sync += [
                    row.attempts.eq(self.tried),
                    row.flight.eq(0),
                    row.send.eq(row.head),
                    row.number.eq(row.done),
                ]
                m.next = "SETTLE"

    def _flush(self, m: Module) -> None:
        """Complete all that is left; then, if asked for, begin anew."""
        row, wanted = self.row, self.connect.payload.settings
        with m.State("FLUSH"):
            m.d.sync += [row[name].eq(0) for name in ("done", "flight", "number", "attempts")]
            m.d.sync += [row.send.eq(row.tail), self.progress.eq(1)]
            with m.If(self.kind == Kind.CONNECT):
                m.d.sync += [row.enable.eq(wanted.enable), row.oldest.eq(wanted.send_psn)]
            m.d.comb += self.writes_read.en.eq(self.completion.ready)  # whatever comes behind the last one
            with m.If(row.head != row.tail), m.If(self._complete(m, self.ending)):
                m.d.sync += self.ending.eq(Ending.FLUSHED)
            with m.Else():
                m.next = "SETTLE"
        with m.State("SETTLE"):
            with m.If(self.kind == Kind.CONNECT):
                m.d.comb += [self.settings_write.en.eq(1), self.connect.ready.eq(1)]
            m.next = "WRITE"
