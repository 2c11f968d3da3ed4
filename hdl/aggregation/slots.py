"""Slots: which operation uses which, and what each is waiting for.

A slot is used once a round, so one bit of the round, its *parity*, distinguishes a slot's current use from the
one before. Every memory here therefore stores parities and has a single writer; nothing is read, changed and
written back.
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
    """What a slot waits for."""

    FREE = 0
    WAIT_RESULT = 1
    WAIT_CONFIRM = 2


def check_slots(slots: int) -> None:
    """Raises ValueError unless ``slots`` is a possible number of slots."""
    if slots < 2 or slots & (slots - 1) or slots > SLOTS:
        raise ValueError(f"slots must be a power of two from 2 to {SLOTS}, not {slots!r}")


def check_first_round(first_round: int) -> None:
    """Raises ValueError unless ``first_round`` is a round."""
    if not 1 <= first_round <= ROUND_MAX:
        raise ValueError(f"first_round must be 1 to {ROUND_MAX}, not {first_round!r}")


def index_bits(slots: int) -> int:
    """Bits of a slot's index, its number relative to the job's first slot."""
    return (slots - 1).bit_length()


def use_layout(slots: int) -> data.StructLayout:
    """One use of a slot: its ``index`` and the ``parity`` of its round."""
    return data.StructLayout({"index": index_bits(slots), "parity": 1})


def clear_layout(slots: int) -> data.StructLayout:
    """While ``en`` is set, slot ``index`` is cleared."""
    return data.StructLayout({"en": 1, "index": index_bits(slots)})


def walk_uses(m: Module, *, slots: int, first_round: int, mask: Value, step: Value) -> tuple[Any, Any]:
    """Walk through the uses of all slots in order: the current one and the one after it.

    ``step`` makes the following one current. ``mask`` is S − 1 where the job has S slots, a power of two. It is
    constant from the first step on. Both uses are registers, so that no comparison with them comes after an
    addition. The walk starts with index 0; until the first step the start values of the others, indices 1 and
    2 modulo S, are taken from the mask.
    """
    current = Signal(use_layout(slots), init={"index": 0, "parity": first_round & 1})
    following = Signal.like(current)
    third = Signal(index_bits(slots))  # the index after these two
    begun = Signal()
    with m.If(step):
        m.d.sync += [
            current.eq(following),
            begun.eq(1),
            following.index.eq(third),
            following.parity.eq(following.parity ^ (third == 0)),  # a round begins with index 0
            third.eq((third + 1) & mask),
        ]
    with m.Elif(~begun):  # the mask may still change
        m.d.sync += [
            following.index.eq(mask[0]),  # 1 mod S: 0 only for S = 1, and then the next round begins
            following.parity.eq(current.parity ^ ~mask[0]),
            third.eq(mask & 2),  # 2 mod S: 0 for S = 1 and 2
        ]
    return current, following


class OperationWindow(wiring.Component):
    """Number the operations, and keep at most a window of them in flight.

    Operation n uses slot index n mod S in round n div S + 1, S being the job's slots. The window is S, or half
    of it (``Protocol.slots_per_operation``). Operations are counted as finished in order. That costs nothing:
    with a window of W, operation n waits for n − W; it also begins after n − 1, which waits for n − 1 − W.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots, less 1; constant from 2 cycles before the first ``accept``.
    ``enable`` : In, 1
        Operations may begin.
    ``accept`` : In, 1
        The next operation begins. Only while ``open``.
    ``free`` : In, 1
        The oldest operation is finished. Only while one is in flight.
    ``open`` : Out, 1
        Another operation may begin; a cycle after ``enable``.
    ``exhausted`` : Out, 1
        The rounds are used up; nothing begins any more.
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
        Of a job at most.
    ``first_round`` : int, 1 to 2^32 − 1
        Round of operation 0; 1 but in tests.
    ``protocol`` : Protocol

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
        """``room`` counts how many operations may begin before another one has to end.

        Whether there is room in the next cycle (``has_room``) follows from this cycle's count without a sum: an
        operation that ends makes room in any case, and one that begins needs a second place to leave one.
        """
        m = Module()
        window = self.mask[exact_log2(self.protocol.slots_per_operation) :] + 1
        room = Signal(range(self.slots + 1))
        size = Signal.like(room)  # of the window
        none_in_flight = Signal()
        begun = Signal()
        current, following = walk_uses(
            m, slots=self.slots, first_round=self.first_round, mask=self.mask, step=self.accept
        )
        ends_round = self.accept & (current.parity ^ following.parity)
        exhausted = self.exhausted | ends_round & (self.round == ROUND_MAX)
        has_room = self.free | Mux(self.accept, room[1:].any(), room.any())
        m.d.comb += [self.index.eq(current.index), self.idle.eq(~begun | none_in_flight)]
        m.d.sync += [
            size.eq(window),
            none_in_flight.eq(room == size),
            begun.eq(begun | self.accept),
            self.exhausted.eq(exhausted),
            self.open.eq(has_room & ~exhausted & self.enable),
        ]
        with m.If(self.free & ~self.accept):
            m.d.sync += room.eq(room + 1)
        with m.Elif(self.accept & ~self.free):
            m.d.sync += room.eq(room - 1)
        with m.Elif(~begun):
            m.d.sync += room.eq(window)
        with m.If(ends_round):
            m.d.sync += [self.round.eq(self.round + 1), self.previous.eq(self.round)]
        return m


class SlotStates(wiring.Component):
    """Decide on RESULT and CONFIRM by the state of their slot.

    A slot is FREE, WAIT_RESULT, WAIT_CONFIRM. Its state is not stored as such: it follows from the round
    parity of its last RESULT and CONFIRM, and that of its current use. Where a protocol does not acknowledge,
    no CONFIRM may come, and a slot that has its RESULT is FREE.

    Members
    -------
    ``mask`` : In, bits of a slot index
        The job's slots, less 1.
    ``clear`` : In, ``en`` and ``index``
        Forget a slot, one cycle later; no packet may be valid meanwhile.
    ``ahead`` : In, slot use
        Of the packet that comes in the next cycle.
    ``packet`` : In, ``valid``, ``confirm``, ``current``
        A packet: a CONFIRM if ``confirm``, else a RESULT. ``current``: its round is that of the slot's current
        use. In the next cycle exactly one of ``result``, ``confirm``, ``duplicate`` and ``stale`` is set; none
        is without a packet.
    ``use`` : Out, slot use
        Of the packet of the cycle before.
    ``result`` : Out, 1
        That packet was the RESULT that its slot awaited.
    ``confirm`` : Out, 1
        It was the CONFIRM that its slot awaited.
    ``duplicate`` : Out, 1
        It was received before in this round.
    ``stale`` : Out, 1
        It was of another round, or a CONFIRM whose slot has had no RESULT yet.
    ``scan`` : In, slot use
        A slot to look at.
    ``scanned`` : Out, SlotState
        Its state, one cycle later, with all that was received before that cycle.
    ``delivered`` : In, 1
        The FA of the next operation, in order, was handed on.
    ``free`` : Out, 1
        The oldest operation in flight is finished: confirmed, and its FA delivered.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
    ``first_round`` : int, 1 to 2^32 − 1
    ``protocol`` : Protocol

    Latency
    -------
    1 cycle from ``packet`` to the decision, one packet a cycle; a CONFIRM frees its slot 3 cycles later, its
    FA's delivery 1 cycle later (without CONFIRMs at once), and one slot a cycle becomes free.

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
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A memory for each kind of packet keeps the parity of the last one that was accepted in each slot.

        ``use`` is of the packet that is judged in this cycle, ``self.use`` of the one judged in the cycle
        before, whose parity is being written. Both may hit the slot that is looked up: see :meth:`_parities`.
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

        def has_both(looked: Any) -> tuple[Value, Value]:
            """Whether a slot has its RESULT and its CONFIRM; without acknowledgements the RESULT is both."""
            has_result = results(looked)
            return has_result, confirms(looked) if confirms else has_result

        has_result, has_confirm = has_both(self.ahead)
        awaited = Mux(packet.confirm, has_result & ~has_confirm, ~has_result)
        repeated = has_result & (~packet.confirm | has_confirm)
        fresh = packet.valid & packet.current
        m.d.sync += [
            self.result.eq(fresh & ~packet.confirm & awaited),
            self.confirm.eq(fresh & packet.confirm & awaited),
            self.duplicate.eq(fresh & repeated),
            self.stale.eq(packet.valid & ~(packet.current & (awaited | repeated))),
        ]

        has_result, has_confirm = has_both(self.scan)
        waits_for = Mux(has_result, SlotState.WAIT_CONFIRM, SlotState.WAIT_RESULT)
        m.d.comb += self.scanned.eq(Mux(has_confirm, SlotState.FREE, waits_for))

        if confirms:
            self._free(m, confirms)
        else:
            m.d.comb += self.free.eq(self.delivered)
        return m

    def _parities(self, m: Module, name: str, use: Any, judged: Value, cleared: Value) -> Any:
        """Keep the parities of the last packets of a kind.

        Returns a function of a slot use, each call of which adds a read port and looks the use up.

        ``use`` is of the packet that is judged in this cycle. ``judged``, a cycle later: it was accepted.
        """
        blank = (self.first_round - 1) & 1
        m.submodules[name] = memory = Memory(shape=1, depth=self.slots, init=[blank] * self.slots)
        port = memory.write_port()
        m.d.comb += [
            port.en.eq(judged | cleared),
            port.addr.eq(self.use.index),
            port.data.eq(self.use.parity),
        ]

        def read(looked: Any, *, forward: bool = True) -> Value:
            """Whether ``looked`` is the slot's last use of which such a packet came, a cycle later.

            The memory's register does not show what is written in the cycle of the read, nor what is judged in
            it and written in the next. With ``forward`` two bypasses add these, the later one first. Both
            compare in the cycle of the read, so that no comparison comes after the memory's register.
            """
            reader = memory.read_port()
            parity = Signal(name=f"{name}_parity")
            m.d.comb += reader.addr.eq(looked.index)
            m.d.sync += parity.eq(looked.parity)
            found = reader.data == parity
            if not forward:
                return found
            bypass = data.StructLayout({"same_slot": 1, "same_parity": 1})
            written_now = Signal(bypass, name=f"{name}_written_now")
            judged_now = Signal(bypass, name=f"{name}_judged_now")
            m.d.sync += [
                written_now.same_slot.eq((looked.index == self.use.index) & port.en),
                written_now.same_parity.eq(looked.parity == self.use.parity),
                judged_now.same_slot.eq(looked.index == use.index),
                judged_now.same_parity.eq(looked.parity == use.parity),
            ]
            written_or_stored = Mux(written_now.same_slot, written_now.same_parity, found)
            return Mux(judged_now.same_slot & judged, judged_now.same_parity, written_or_stored)

        return read

    def _free(self, m: Module, confirms: Any) -> None:
        """Operations that are ``delivered`` wait until they are confirmed, too; the oldest is looked at."""
        waiting = Signal(range(self.slots + 1))  # how many: delivered, and not finished
        some_wait = Signal()
        oldest = Signal(use_layout(self.slots))
        current, following = walk_uses(
            m, slots=self.slots, first_round=self.first_round, mask=self.mask, step=self.free
        )
        m.d.comb += [
            oldest.eq(Mux(self.free, following.as_value(), current.as_value())),
            self.free.eq(some_wait & confirms(oldest, forward=False)),
        ]
        with m.If(self.delivered & ~self.free):
            m.d.sync += [waiting.eq(waiting + 1), some_wait.eq(1)]
        with m.Elif(self.free & ~self.delivered):
            m.d.sync += [waiting.eq(waiting - 1), some_wait.eq(waiting != 1)]
