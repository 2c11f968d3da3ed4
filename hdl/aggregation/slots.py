"""Slots of the transport: the operation that uses each slot, and the answer that the slot waits for.

A slot is used once a round, so one bit of the round, its *parity*, distinguishes a slot's current use from the
previous one. Every memory here therefore stores parities and has a single writer; there is no
read-modify-write.
"""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from fanin.hdl.aggregation.job import ROUND_BITS
from fanin.job import SLOTS
from fanin.wire.aggregation import ROUND_MAX, Protocol


class SlotState(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Answer that a slot waits for."""

    FREE = 0
    WAIT_RESULT = 1
    WAIT_CONFIRM = 2


def check_slots(slots: int) -> None:
    """Raise ValueError unless ``slots`` is a possible number of slots."""
    if slots < 2 or slots & (slots - 1) or slots > SLOTS:
        raise ValueError(f"slots must be a power of two from 2 to {SLOTS}, not {slots!r}")


def check_first_round(first_round: int) -> None:
    """Raise ValueError unless ``first_round`` is a round."""
    if not 1 <= first_round <= ROUND_MAX:
        raise ValueError(f"first_round must be 1 to {ROUND_MAX}, not {first_round!r}")


def index_bits(slots: int) -> int:
    """Return the bits of a slot's index, its number relative to the job's first slot."""
    return (slots - 1).bit_length()


def use_layout(slots: int) -> data.StructLayout:
    """Return the layout of a slot use: the slot's ``index`` and the ``parity`` of the round."""
    return data.StructLayout({"index": index_bits(slots), "parity": 1})


def clear_layout(slots: int) -> data.StructLayout:
    """Return the layout of a clear request: while ``en`` is high, slot ``index`` is cleared."""
    return data.StructLayout({"en": 1, "index": index_bits(slots)})


def walk_uses(m: Module, *, slots: int, first_round: int, mask: Value, step: Value) -> tuple[Any, Any]:
    """Return two registers that walk through the uses of all slots in order: the current use and the next.

    ``step`` makes the next use current. ``mask`` is S − 1, where S is the job's slots, a power of two; it is
    constant from the first step on. Both uses are registers, so that no comparison with them follows an
    addition. The walk starts with index 0. Until the first step, the start values of the next two uses, indices
    1 and 2 modulo S, are taken from the mask.
    """
    current = Signal(use_layout(slots), init={"index": 0, "parity": first_round & 1})
    next_use = Signal.like(current)
    index_after_next = Signal(index_bits(slots))  # the index after these two
    started = Signal()
    with m.If(step):
        m.d.sync += [
            current.eq(next_use),
            started.eq(1),
            next_use.index.eq(index_after_next),
            next_use.parity.eq(next_use.parity ^ (index_after_next == 0)),  # a round begins with index 0
            index_after_next.eq((index_after_next + 1) & mask),
        ]
    with m.Elif(~started):  # the mask may still change
        m.d.sync += [
            next_use.index.eq(mask[0]),  # 1 mod S: 0 only for S = 1, and then the next round begins
            next_use.parity.eq(current.parity ^ ~mask[0]),
            index_after_next.eq(mask & 2),  # 2 mod S: 0 for S = 1 and 2
        ]
    return current, next_use


class OperationWindow(wiring.Component):
    """Window of operations: numbers them, and keeps at most a window's size of them in flight.

    Operation n uses slot index n mod S in round n div S + 1, where S is the job's slots. The window is S, or
    half of it (``Protocol.slots_per_operation``). Operations count as finished in order. That costs no time:
    with a window of W, operation n waits for the end of n − W. It also starts after operation n − 1, which
    waits for the end of n − 1 − W, and so on: all earlier operations have ended anyway.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots minus 1; constant from 2 cycles before the first ``accept``.
    ``enable`` : In, 1
        Operations may start.
    ``accept`` : In, 1
        The next operation starts; only while ``open``.
    ``free`` : In, 1
        The oldest operation is finished; only while one is in flight.
    ``open`` : Out, 1
        Another operation may start; a cycle after ``enable``.
    ``exhausted`` : Out, 1
        The rounds are used up; no operation starts any more.
    ``idle`` : Out, 1
        No operation was in flight a cycle ago.
    ``index`` : Out, bits of a slot index
        Slot of the next operation.
    ``round`` : Out, 32
        Round of the next operation, and of the last use of every slot below ``index``.
    ``previous`` : Out, 32
        ``round`` − 1: the round of the last use of all other slots.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job.
    ``first_round`` : int, 1 to 2^32 − 1
        Round of operation 0; 1 except in tests.
    ``protocol`` : Protocol
        Protocol, which gives the slots of an operation.

    Latency
    -------
    1 cycle; one operation begins and one ends a cycle.

    Source
    ------
    docs/systems/aggregation.md, "Worker".
    """

    def __init__(self, *, slots: int, first_round: int = 1, protocol: Protocol = Protocol.P4SGD):
        check_slots(slots)
        check_first_round(first_round)
        self.slots = slots
        self.first_round = first_round
        self.protocol = protocol
        super().__init__(
            {
                "mask": In(index_bits(slots)),
                "enable": In(1),
                "accept": In(1),
                "free": In(1),
                "open": Out(1),
                "exhausted": Out(1),
                "idle": Out(1),
                "index": Out(index_bits(slots)),
                "round": Out(ROUND_BITS, init=first_round),
                "previous": Out(ROUND_BITS, init=first_round - 1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count in ``free_places`` the operations that may start before another one has to end.

        ``has_room``, for the next cycle, follows from this cycle's count without a sum. An operation that ends
        makes room in any case. An operation that starts needs a second free place.
        """
        m = Module()
        window = self.mask[exact_log2(self.protocol.slots_per_operation) :] + 1
        free_places = Signal(range(self.slots + 1))
        size = Signal.like(free_places)  # size of the window
        none_in_flight = Signal()
        started = Signal()
        current, next_use = walk_uses(
            m, slots=self.slots, first_round=self.first_round, mask=self.mask, step=self.accept
        )
        ends_round = self.accept & (current.parity ^ next_use.parity)
        rounds_used_up = self.exhausted | ends_round & (self.round == ROUND_MAX)
        has_room = self.free | Mux(self.accept, free_places[1:].any(), free_places.any())
        m.d.comb += [self.index.eq(current.index), self.idle.eq(~started | none_in_flight)]
        m.d.sync += [
            size.eq(window),
            none_in_flight.eq(free_places == size),
            started.eq(started | self.accept),
            self.exhausted.eq(rounds_used_up),
            self.open.eq(has_room & ~rounds_used_up & self.enable),
        ]
        with m.If(self.free & ~self.accept):
            m.d.sync += free_places.eq(free_places + 1)
        with m.Elif(self.accept & ~self.free):
            m.d.sync += free_places.eq(free_places - 1)
        with m.Elif(~started):
            m.d.sync += free_places.eq(window)
        with m.If(ends_round):
            m.d.sync += [self.round.eq(self.round + 1), self.previous.eq(self.round)]
        return m


class SlotStates(wiring.Component):
    """State of each slot, which decides whether a RESULT or CONFIRM is accepted.

    A slot is FREE, WAIT_RESULT or WAIT_CONFIRM. The state is not stored: it follows from the round parities of
    its last RESULT, its last CONFIRM and its current use. With a protocol without acknowledgements, no CONFIRM
    may arrive, and a slot that has its RESULT is FREE.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots minus 1.
    ``clear`` : In, ``en`` and ``index``
        Clear a slot, one cycle later; no packet may be valid meanwhile.
    ``ahead`` : In, slot use
        Slot use of the packet in the next cycle.
    ``packet`` : In, ``valid``, ``confirm``, ``current``
        A packet: CONFIRM if ``confirm``, else RESULT. ``current``: its round is that of the slot's current use.
        In the next cycle exactly one of ``result``, ``confirm``, ``duplicate`` and ``stale`` is high; without a
        packet, none is.
    ``use`` : Out, slot use
        Slot use of the packet of the previous cycle.
    ``result`` : Out, 1
        The packet was the RESULT that its slot waited for.
    ``confirm`` : Out, 1
        The packet was the CONFIRM that its slot waited for.
    ``duplicate`` : Out, 1
        The packet was received before in this round.
    ``stale`` : Out, 1
        The packet was of another round, or a CONFIRM for a slot without a RESULT.
    ``scan`` : In, slot use
        Slot use to look up.
    ``scanned`` : Out, SlotState
        State of that use, one cycle later; includes all packets received before that cycle.
    ``delivered`` : In, 1
        The FA of the next operation, in order, was handed over.
    ``free`` : Out, 1
        The oldest operation in flight is finished: confirmed, and its FA delivered.
    ``oldest`` : Out, bits of a slot index
        Slot of the oldest operation in flight, or of the next operation.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job.
    ``first_round`` : int, 1 to 2^32 − 1
        Round of operation 0; 1 except in tests.
    ``protocol`` : Protocol
        Protocol, which determines whether a RESULT is acknowledged.

    Latency
    -------
    1 cycle from ``packet`` to the decision; one packet a cycle. A slot becomes free 3 cycles after its CONFIRM,
    or 1 cycle after the delivery of its FA (without CONFIRMs in the same cycle); one slot a cycle.

    Source
    ------
    docs/systems/aggregation.md, "Worker".
    """

    def __init__(self, *, slots: int, first_round: int = 1, protocol: Protocol = Protocol.P4SGD):
        check_slots(slots)
        check_first_round(first_round)
        self.slots = slots
        self.first_round = first_round
        self.protocol = protocol
        packet = data.StructLayout({"valid": 1, "confirm": 1, "current": 1})
        super().__init__(
            {
                "mask": In(index_bits(slots)),
                "clear": In(clear_layout(slots)),
                "ahead": In(use_layout(slots)),
                "packet": In(packet),
                "use": Out(use_layout(slots)),
                "result": Out(1),
                "confirm": Out(1),
                "duplicate": Out(1),
                "stale": Out(1),
                "scan": In(use_layout(slots)),
                "scanned": Out(SlotState),
                "delivered": In(1),
                "free": Out(1),
                "oldest": Out(index_bits(slots)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep, per kind of packet, a memory with the parity of the last accepted packet of each slot.

        ``use`` is that of the packet judged in this cycle; ``self.use`` that of the packet judged in the
        previous cycle, whose parity is being written. Either use may be of the slot that is looked up: see
        :meth:`_parities`.
        """
        m = Module()
        packet = self.packet
        use = Signal.like(self.ahead)
        cleared = Signal()
        m.d.sync += [use.eq(self.ahead), self.use.eq(use), cleared.eq(self.clear.en)]
        with m.If(self.clear.en):
            m.d.sync += [self.use.index.eq(self.clear.index), self.use.parity.eq(self.first_round - 1)]
        results = self._parities(m, "results", use, self.result, cleared)
        acknowledges = self.protocol.acknowledges
        confirms = self._parities(m, "confirms", use, self.confirm, cleared) if acknowledges else None

        def has_both(lookup: Any) -> tuple[Value, Value]:
            """Return whether a slot has its RESULT and its CONFIRM.

            Without acknowledgements the RESULT counts as both.
            """
            has_result = results(lookup)
            return has_result, confirms(lookup) if confirms else has_result

        has_result, has_confirm = has_both(self.ahead)
        expected = Mux(packet.confirm, has_result & ~has_confirm, ~has_result)
        repeated = has_result & (~packet.confirm | has_confirm)
        in_round = packet.valid & packet.current
        m.d.sync += [
            self.result.eq(in_round & ~packet.confirm & expected),
            self.confirm.eq(in_round & packet.confirm & expected),
            self.duplicate.eq(in_round & repeated),
            self.stale.eq(packet.valid & ~(packet.current & (expected | repeated))),
        ]

        has_result, has_confirm = has_both(self.scan)
        waits_for = Mux(has_result, SlotState.WAIT_CONFIRM, SlotState.WAIT_RESULT)
        m.d.comb += self.scanned.eq(Mux(has_confirm, SlotState.FREE, waits_for))

        current, next_use = walk_uses(
            m, slots=self.slots, first_round=self.first_round, mask=self.mask, step=self.free
        )
        m.d.comb += self.oldest.eq(current.index)
        if confirms:
            self._free(m, confirms, current, next_use)
        else:
            m.d.comb += self.free.eq(self.delivered)
        return m

    def _parities(self, m: Module, name: str, use: Any, accepted: Value, cleared: Value) -> Any:
        """Add a memory with the parities of the last packets of a kind; return a function that looks up a use.

        Each call of the function adds a read port. ``use`` is that of the packet judged in this cycle.
        ``accepted``, a cycle later: the packet was accepted.
        """
        initial_parity = (self.first_round - 1) & 1
        m.submodules[name] = memory = Memory(shape=1, depth=self.slots, init=[initial_parity] * self.slots)
        port = memory.write_port()
        m.d.comb += [
            port.en.eq(accepted | cleared),
            port.addr.eq(self.use.index),
            port.data.eq(self.use.parity),
        ]

        def read(lookup: Any, *, forward: bool = True) -> Value:
            """Return, a cycle later, whether ``lookup`` is the slot's last use with such a packet.

            The memory's output misses data written in the cycle of the read, and packets judged in that cycle,
            whose data are written in the next. With ``forward`` two bypasses add these, the later one with
            priority. Both compare in the cycle of the read, so that no comparison follows the memory's output.
            """
            reader = memory.read_port()
            parity = Signal(name=f"{name}_parity")
            m.d.comb += reader.addr.eq(lookup.index)
            m.d.sync += parity.eq(lookup.parity)
            stored_match = reader.data == parity
            if not forward:
                return stored_match
            bypass = data.StructLayout({"same_slot": 1, "same_parity": 1})
            written_now = Signal(bypass, name=f"{name}_written_now")
            accepted_now = Signal(bypass, name=f"{name}_accepted_now")
            m.d.sync += [
                written_now.same_slot.eq((lookup.index == self.use.index) & port.en),
                written_now.same_parity.eq(lookup.parity == self.use.parity),
                accepted_now.same_slot.eq(lookup.index == use.index),
                accepted_now.same_parity.eq(lookup.parity == use.parity),
            ]
            written_or_stored = Mux(written_now.same_slot, written_now.same_parity, stored_match)
            return Mux(accepted_now.same_slot & accepted, accepted_now.same_parity, written_or_stored)

        return read

    def _free(self, m: Module, confirms: Any, current: Any, next_use: Any) -> None:
        """Free the oldest operation when its FA is delivered and its slot has its CONFIRM.

        ``waiting`` counts the operations whose FA is delivered. The slot of the oldest operation is looked up
        in every cycle, a cycle ahead: when the oldest is freed, the next operation's slot is looked up instead.
        """
        waiting = Signal(range(self.slots + 1))  # operations delivered and not finished
        some_wait = Signal()
        oldest = Signal(use_layout(self.slots))
        m.d.comb += [
            oldest.eq(Mux(self.free, next_use.as_value(), current.as_value())),
            self.free.eq(some_wait & confirms(oldest, forward=False)),
        ]
        with m.If(self.delivered & ~self.free):
            m.d.sync += [waiting.eq(waiting + 1), some_wait.eq(1)]
        with m.Elif(self.free & ~self.delivered):
            m.d.sync += [waiting.eq(waiting - 1), some_wait.eq(waiting != 1)]
