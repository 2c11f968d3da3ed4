"""P4SGD's protocol as published (algorithms 2 and 3), as a model for the checker."""

from __future__ import annotations

from typing import NamedTuple

from fanin.sim.checker.protocol import ONCE, REUSE, SUM, Message, ProtocolModel, Step, SwitchStep, Violation
from fanin.wire.aggregation import Kind


class PublishedSlot(NamedTuple):
    """A worker's view of a slot in algorithm 3; ``timer`` is the packet that a timeout sends again."""

    unused: bool = True
    round: int = 0  # of the last operation; not part of the protocol, used to detect violations
    timer: Message | None = None
    received: int = 0  # the round of the last FA


class PublishedWorker(NamedTuple):
    """State of a worker in algorithm 3."""

    submitted: int
    slots: tuple[PublishedSlot, ...]


class PublishedRegisters(NamedTuple):
    """State of a slot in algorithm 2; a contribution in ``agg`` is (worker, round)."""

    agg: tuple[tuple[int, int], ...] = ()
    agg_bm: int = 0
    ack_bm: int = 0


class Published(ProtocolModel):
    """P4SGD's algorithms 2 and 3, line by line; their counters are the number of bits set in the bitmaps.

    The published packets carry no round. Here they do, only to detect violations: no decision reads the round.
    FAs are delivered as they arrive, so their order is not checked. A slot has one timer.

    With ``check_invariants`` False, paths continue after a broken invariant, and only FINISH is checked.
    """

    def __init__(self, *, workers: int, slots: int, rounds: int, check_invariants: bool = True):
        super().__init__(workers=workers, slots=slots, rounds=rounds)
        self._checks_invariants = check_invariants

    @property
    def without_checks(self) -> Published:  # noqa: D102
        return Published(workers=self.workers, slots=self.slots, rounds=self.rounds, check_invariants=False)

    def worker(self) -> PublishedWorker:  # noqa: D102
        return PublishedWorker(0, (PublishedSlot(),) * self.slots)

    def slot(self) -> PublishedRegisters:  # noqa: D102
        return PublishedRegisters()

    def submit(self, worker: PublishedWorker) -> tuple[int, Step] | None:  # noqa: D102
        slot, number = worker.submitted % self.slots, worker.submitted // self.slots + 1
        state = worker.slots[slot]
        if number > self.rounds or not state.unused:
            return None
        message = Message(Kind.AGG, number)
        new = state._replace(unused=False, round=number, timer=message)
        return slot, Step(self._with(worker._replace(submitted=worker.submitted + 1), slot, new), message)

    def timeout(self, worker: PublishedWorker, slot: int) -> Step | None:  # noqa: D102
        message = worker.slots[slot].timer
        return Step(worker, message) if message else None

    def receive(self, worker: PublishedWorker, slot: int, message: Message) -> Step:  # noqa: D102
        state = worker.slots[slot]
        if message.kind is Kind.RESULT:
            if message.round <= state.received:
                self._violate(ONCE, f"the FA of slot {slot}, round {message.round}, is delivered twice")
            answer, received = Message(Kind.ACK, message.round), max(state.received, message.round)
            return Step(self._with(worker, slot, state._replace(timer=answer, received=received)), answer)
        if state.timer and state.timer.kind is Kind.AGG:
            self._violate(REUSE, f"an old CONFIRM frees slot {slot}, which is in use, and stops its timer")
        return Step(self._with(worker, slot, state._replace(unused=True, timer=None)))

    def switch(self, state: PublishedRegisters, slot: int, sender: int, message: Message) -> SwitchStep:  # noqa: D102
        bit, all_workers = 1 << sender, (1 << self.workers) - 1
        if message.kind is Kind.AGG:
            if not state.agg_bm & bit:
                agg = tuple(sorted((*state.agg, (sender, message.round))))
                state = PublishedRegisters(agg, state.agg_bm | bit, state.ack_bm)
                if state.agg_bm == all_workers:
                    state = state._replace(ack_bm=0)
            if state.agg_bm != all_workers:
                return SwitchStep(state)
            rounds = {number for _, number in state.agg}
            if len(rounds) != 1:
                self._violate(SUM, f"the RESULT of slot {slot} adds up PAs of rounds {sorted(rounds)}")
            return SwitchStep(state, self._to_all(Message(Kind.RESULT, max(rounds))))
        if not state.ack_bm & bit:
            state = state._replace(ack_bm=state.ack_bm | bit)
            if state.ack_bm == all_workers:
                state = state._replace(agg=(), agg_bm=0)
        if state.ack_bm != all_workers:
            return SwitchStep(state)
        return SwitchStep(state, self._to_all(Message(Kind.CONFIRM, message.round)))

    def done(self, worker: PublishedWorker) -> bool:  # noqa: D102
        return worker.submitted == self.slots * self.rounds and all(
            slot.unused and slot.received == self.rounds for slot in worker.slots
        )

    def is_waiting(self, worker: PublishedWorker, slot: int, number: int) -> bool:  # noqa: D102
        return self._checks_invariants and worker.slots[slot].received < number

    def is_alone_for(self, worker: PublishedWorker, slot: int) -> bool:  # noqa: D102
        state, next_slot = worker.slots[slot], worker.submitted % self.slots
        return not state.unused or slot == next_slot or state.round == self.rounds

    def renamed(self, state: PublishedRegisters, names: tuple[int, ...]) -> PublishedRegisters:  # noqa: D102
        def bits(bitmap: int) -> int:
            return sum(1 << name for worker, name in enumerate(names) if bitmap >> worker & 1)

        agg = tuple(sorted((names[worker], number) for worker, number in state.agg))
        return PublishedRegisters(agg, bits(state.agg_bm), bits(state.ack_bm))

    def _violate(self, invariant: str, description: str) -> None:
        if self._checks_invariants:
            raise Violation(invariant, description)

    def _to_all(self, message: Message) -> tuple[tuple[int, Message], ...]:
        return tuple((worker, message) for worker in range(self.workers))

    @staticmethod
    def _with(worker: PublishedWorker, slot: int, new: PublishedSlot) -> PublishedWorker:
        return worker._replace(slots=(*worker.slots[:slot], new, *worker.slots[slot + 1 :]))
