"""The sending half of the queue pairs."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.round_robin import RoundRobin
from fanin.hdl.net.rdma.queue_pair import (
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
from fanin.hdl.net.rdma.shapes import SIZE_BITS, Headers, fetch_layout, header_lane
from fanin.hdl.net.rdma.timers import TIMEOUT_BITS, Timers
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import MAX_RETRIES, MAX_WINDOW_BITS, Ending, RdmaConfig
from fanin.roce import PSN_BITS, Nak, Opcode

FLIGHT_BITS = MAX_WINDOW_BITS + 1
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


def _row_layout(descriptors: int) -> data.StructLayout:
    """State of a queue pair. Pointers into its ring of descriptors have a bit more, to tell full from empty."""
    pointer = descriptors.bit_length()
    return data.StructLayout(
        {
            "enable": 1,
            "head": pointer,  # the oldest descriptor that is not complete
            "send": pointer,  # that of the next packet to send
            "tail": pointer,  # where the next one will be put
            "done": PSN_BITS,  # packets acknowledged since the head's first
            "oldest": PSN_BITS,  # packet that is not acknowledged
            "flight": FLIGHT_BITS,  # packets sent since
            "number": PSN_BITS,  # packets of its message that were sent
            "attempts": MAX_RETRIES.bit_length(),  # without progress
        }
    )


def _less_one(window: Value) -> Value:
    """Packets of a window, but one: without a subtraction."""
    return ~(Const(-1, FLIGHT_BITS) << window)[:FLIGHT_BITS]


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
    docs/rdma.md, "Requester"; InfiniBand Architecture Specification, volume 1, section 9.7.
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
            with m.State("SETTLE"):
                m.next = "WRITE"
            with m.State("WRITE"):
                self._write_row(m, self.closed)
                m.next = "IDLE"
        return m

    def _make(self, m: Module) -> None:
        """Tables, registers of the queue pair in hand, flags of all."""
        config, count = self.config, self.config.queue_pairs
        self.row = Signal(_row_layout(config.descriptors))
        self.settings = Signal(Settings)
        self.index = Signal(index_bits(config))
        self.kind = Signal(Kind)
        self.progress = Signal()  # restarts the timer
        self.ending = Signal(Ending)
        # of the row as it was a cycle before:
        self.closed = Signal()  # the window is full
        self.quiet = Signal()  # no packet is in flight
        self.spent = Signal()  # there are no retries left
        self.tried = Signal.like(self.row.attempts)  # one attempt more
        self.granted = Signal()  # there is still to do what the queue pair was chosen for
        # of each queue pair: a packet could be sent; a descriptor posted; packets are in flight
        self.sendable = Signal(count)
        self.room = Signal(count, init=-1)
        self.waiting = Signal(count)
        self._make_tables(m)
        m.submodules.timers = self.timers = timers = Timers(count=count)
        m.d.comb += [timers.timeout.eq(self.timeout), timers.waiting.eq(self.waiting)]
        m.d.sync += [
            timers.restart.eq(0),
            self.closed.eq(self.row.flight == (1 << self.settings.window)),
            self.quiet.eq(~self.row.flight.any()),
            self.spent.eq(self.row.attempts == self.settings.retries),
            self.tried.eq(self.row.attempts + 1),
        ]
        m.submodules.headers = self.packets = StreamFIFO(shape=Headers, depth=_QUEUE)
        m.submodules.fetches = self.fetches = StreamFIFO(shape=self.fetch.payload.shape(), depth=_QUEUE)
        connect_typed(m, self.packets.o, wiring.flipped(self.headers))
        connect_typed(m, self.fetches.o, wiring.flipped(self.fetch))

    def _choose(self, m: Module) -> None:
        """What there is to do, the most urgent first, and for which queue pair.

        All is known a cycle late. So ``free`` is room for two packets; that a descriptor is taken shows before
        the next choice; timers and packets are looked at again when their queue pair's row is read.
        """
        m.submodules.turn = self.turn = turn = RoundRobin(count=self.config.queue_pairs)
        m.d.comb += turn.i.eq(self.sendable)
        connect, answer, post = self.connect, self.answer, self.post
        self.free = free = Signal()
        expired = Signal.like(self.index)
        has_expired = Signal()
        can_post = Signal()
        m.d.sync += [
            free.eq((self.packets.level < _QUEUE - 1) & (self.fetches.level < _QUEUE - 1)),
            has_expired.eq(self.timers.expired.any()),
            can_post.eq(post.valid & self.room.bit_select(post.payload.index, 1)),
        ]
        for index in reversed(range(self.config.queue_pairs)):
            with m.If(self.timers.expired[index]):
                m.d.sync += expired.eq(index)
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
        write = self.post.payload.shape()
        members = {name: shape for name, shape in write.members.items() if name != "index"}
        layout = data.StructLayout(members | {"last_number": PSN_BITS})  # of the message's last packet, from 0
        m.submodules.writes = writes = Memory(shape=layout, depth=count * config.descriptors, init=[])
        self.writes_read, self.writes_write = writes.read_port(), writes.write_port()
        self.write = self.writes_read.data  # the descriptor in hand
        for port in (self.row_read, self.row_write, self.settings_read, self.settings_write):
            m.d.comb += port.addr.eq(self.index)
        m.d.comb += [
            self.row_write.data.eq(self.row),
            self.settings_write.data.eq(self.connect.payload.settings),
            self.writes_read.en.eq(0),
        ]

    def _read_write(self, m: Module, pointer: Any) -> None:
        """Have the descriptor at that place in hand from the next cycle on."""
        place = pointer[: len(pointer) - 1]
        m.d.comb += [self.writes_read.addr.eq(Cat(place, self.index)), self.writes_read.en.eq(1)]

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
            m.d.sync += self.progress.eq(0)
            for kind, (wanted, index) in reversed(self.choices.items()):
                with m.If(wanted):
                    m.d.sync += [self.kind.eq(kind), self.index.eq(index)]
                    m.next = "READ"
        with m.State("READ"):
            asked = Mux(self.kind == Kind.SEND, self.sendable, self.timers.expired)
            m.d.sync += [
                self.row.eq(self.row_read.data),
                self.settings.eq(self.settings_read.data),
                self.granted.eq(asked.bit_select(self.index, 1)),
            ]
            row = self.row_read.data
            self._read_write(m, Mux(self.kind == Kind.SEND, row.send, row.head))
            with m.Switch(self.kind):
                with m.Case(Kind.CONNECT):
                    m.d.sync += self.ending.eq(Ending.FLUSHED)
                    m.next = "FLUSH"
                with m.Case(Kind.ANSWER):
                    m.next = "MEASURE"
                with m.Case(Kind.POST):
                    m.next = "POST"
                with m.Case(Kind.TIMEOUT):
                    m.next = "LATE"
                with m.Case(Kind.SEND):
                    m.d.sync += self.turn.last.eq(self.index)
                    m.next = "SEND"

    def _post(self, m: Module) -> None:
        """Queue a descriptor; its first packet may go at once."""
        post, row, port = self.post.payload, self.row, self.writes_write
        most = Signal(signed(LENGTH_BITS + 1))  # bytes, less one
        m.d.sync += most.eq(post.length - 1)  # it has been there for some cycles
        m.d.comb += [
            port.addr.eq(Cat(row.tail[: len(row.tail) - 1], self.index)),
            *(
                port.data[name].eq(post[name])
                for name in port.data.shape().members
                if name in post.shape().members
            ),
            port.data.last_number.eq(Mux(most < 0, 0, packets_of(most[:LENGTH_BITS], self.settings.mtu))),
        ]
        with m.State("POST"):
            m.d.comb += [port.en.eq(1), self.post.ready.eq(1)]
            m.d.sync += row.tail.eq(row.tail + 1)
            m.next = "POSTED"
        with m.State("POSTED"):
            self._write_row(m, self.closed)
            self._read_write(m, row.send)  # or its head, which is the same if it is not enabled
            m.d.sync += [self.ending.eq(Ending.FLUSHED), self.granted.eq(1)]
            m.next = "FLUSH"
            with m.If(row.enable):
                m.next = "WRITE"
                with m.If(self.free & ~self.closed):
                    m.next = "SEND"

    def _send(self, m: Module) -> None:
        """Cut off the next packet, if there is still one to send.

        An ACK is asked for at a message's end, and often enough for the window.
        """
        row, write, settings = self.row, self.write, self.settings
        local = Signal(self.config.address_width)
        psn = Signal(PSN_BITS)
        begins = Signal()
        ends = Signal()
        some = Signal()
        asks = Signal()
        closes = Signal()  # the window
        rest = Signal(SIZE_BITS)  # bytes of the message, if this is its last packet
        next_send = Signal.like(row.send)
        next_number = Signal.like(row.number)
        next_flight = Signal.like(row.flight)
        offset = bytes_of(row.number, settings.mtu)
        whole = bytes_of(Const(1), settings.mtu)
        window = _less_one(settings.window)
        m.d.sync += [
            local.eq(write.local + offset),
            rest.eq(write.length[:SIZE_BITS] - offset[:SIZE_BITS]),
            psn.eq(row.oldest + row.flight),
            begins.eq(~row.number.any()),
            ends.eq(row.number == write.last_number),
            some.eq(write.length.any()),
            next_send.eq(row.send + 1),
            next_number.eq(row.number + 1),
            next_flight.eq(row.flight + 1),
            asks.eq(~(psn & window >> 2).any()),
            closes.eq(row.flight == window),
        ]
        with m.State("SEND"):
            m.next = "IDLE"
            with m.If(self.granted):
                m.next = "CUT"
        with m.State("CUT"):
            m.d.sync += [
                self.progress.eq(self.quiet),
                row.flight.eq(next_flight),
                row.number.eq(Mux(ends, 0, next_number)),
                row.send.eq(Mux(ends, next_send, row.send)),
            ]
            m.next = "HAND ON"
        with m.State("HAND ON"):
            self._write_row(m, closes)
            m.d.comb += [
                self.packets.i.valid.eq(1),
                self.fetches.i.valid.eq(some),
                self.events.sent.eq(1),
            ]
            m.next = "IDLE"
        headers = self.packets.i.p
        m.d.comb += self._headers(begins, ends)
        m.d.comb += [
            headers.psn.eq(psn),
            headers.acknowledge.eq(ends | asks),
            headers.size.eq(Mux(ends, rest, whole)),
            self.fetches.i.p.address.eq(local),
            self.fetches.i.p.size.eq(headers.size),
            self.fetches.i.p.lane.eq(header_lane(self.config.width, headers.opcode)),
        ]

    def _headers(self, begins: Any, ends: Any) -> list[Any]:
        """What is told of the packet's message."""
        headers, write, settings = self.packets.i.p, self.write, self.settings
        last = Mux(write.with_immediate, Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_LAST)
        only = Mux(write.with_immediate, Opcode.WRITE_ONLY_IMMEDIATE, Opcode.WRITE_ONLY)
        first = Mux(ends, only, Opcode.WRITE_FIRST)
        later = Mux(ends, last, Opcode.WRITE_MIDDLE)
        return [
            headers.peer.eq(settings.peer),
            headers.opcode.eq(Mux(begins, first, later)),
            headers.address.eq(write.remote),
            *(headers[name].eq(write[name]) for name in ("rkey", "length", "immediate")),
        ]

    def _answer(self, m: Module) -> None:
        """Move on by the packets that are acknowledged, and complete the writes that they end."""
        row, answer = self.row, self.answer.payload
        ahead = Signal(PSN_BITS)
        steps = Signal(FLIGHT_BITS)
        within = Signal()
        positive = Signal()
        sequence = Signal()
        refused = Signal()
        left = Signal(signed(PSN_BITS + 1))
        refusals = {
            Nak.INVALID_REQUEST: Ending.REQUEST,
            Nak.REMOTE_ACCESS: Ending.ACCESS,
            Nak.REMOTE_OPERATION: Ending.OPERATION,
        }
        known = positive | sequence | refused
        near = ~ahead[FLIGHT_BITS:].any()
        m.d.sync += [
            ahead.eq(answer.psn - row.oldest),
            within.eq(known & near & (ahead[:FLIGHT_BITS] < row.flight)),
            steps.eq(ahead[:FLIGHT_BITS] + positive),
            left.eq(_less_one_more(row.done, self.write.last_number)),
        ]
        with m.State("MEASURE"):
            m.d.sync += [
                positive.eq(answer.syndrome[5:] == 0),
                sequence.eq(answer.syndrome == Nak.SEQUENCE.syndrome),
                refused.eq(0),
            ]
            for nak, ending in refusals.items():
                with m.If(answer.syndrome == nak.syndrome):
                    m.d.sync += [refused.eq(1), self.ending.eq(ending)]
            m.next = "CHECK"
        with m.State("CHECK"):
            m.next = "TAKE"
        with m.State("TAKE"):
            m.d.comb += self.answer.ready.eq(1)
            m.next = "IDLE"
            with m.If(within):
                m.d.sync += [
                    row.oldest.eq(row.oldest + steps),
                    row.flight.eq(row.flight - steps),
                    row.done.eq(row.done + steps),
                ]
                with m.If(steps.any()):
                    m.d.sync += [row.attempts.eq(0), self.progress.eq(1)]
                m.next = "COUNT"
        with m.State("COUNT"):
            m.next = "COMPLETE"
        with m.State("COMPLETE"):
            with m.If(left >= 0), m.If(self._complete(m, Ending.DONE)):
                m.d.sync += row.done.eq(left)
                m.next = "COUNT"
            with m.Elif(refused):
                self._fail(m)
            with m.Elif(sequence):
                m.next = "GO BACK"
            with m.Else():
                m.next = "WRITE"

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
            self._read_write(m, (row.head + 1)[: len(row.head)])
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
        timed_out = self.kind == Kind.TIMEOUT
        with m.State("LATE"):
            m.next = "GO BACK"
        with m.State("GO BACK"):
            m.d.sync += self.progress.eq(1)
            with m.If(timed_out & ~self.granted | self.quiet):
                m.next = "WRITE"  # what the timer waited for has come meanwhile
            with m.Elif(self.spent):
                m.d.sync += self.ending.eq(Ending.RETRIES)
                self._fail(m)
            with m.Else():
                m.d.comb += [self.events.went_back.eq(1), self.events.timed_out.eq(timed_out)]
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
            with m.If(row.head != row.tail), m.If(self._complete(m, self.ending)):
                m.d.sync += self.ending.eq(Ending.FLUSHED)
            with m.Else():
                m.next = "SETTLE"
                with m.If(self.kind == Kind.CONNECT):
                    m.d.comb += [self.settings_write.en.eq(1), self.connect.ready.eq(1)]
