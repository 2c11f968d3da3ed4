"""P4SGD and SwitchML as models for the checker, on the golden worker and the reference switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanin.golden.aggregation import Snapshot, State, WorkerEndpoint
from fanin.sim.checker.protocol import ONCE, Message, ProtocolModel, Step, SwitchStep, Violation
from fanin.sim.checker.switch_model import JOB, SwitchModel, contribution, total
from fanin.sim.checker.topology import ROOT, Topology
from fanin.sim.switch.base import SlotRegisters
from fanin.tree import Shape
from fanin.wire import aggregation as wire
from fanin.wire.aggregation import AggPacket, Kind


class Rounds(ProtocolModel):
    """Protocols P4SGD (corrected) and SwitchML, executed on the golden worker and the reference switch.

    A step sets the state of ``WorkerEndpoint`` (``fanin.golden.aggregation``) or ``ReferenceSwitch``
    (``fanin.sim.switch.reference``), calls it and reads the state back. Retransmissions are not counted, so no
    worker gives up.

    - ``slots``: operations in flight; a power of two.
    - ``shape``: tree of the switches, for ``fanin.sim.checker.tree``; None: one switch.
    """

    def __init__(
        self,
        *,
        workers: int,
        slots: int,
        rounds: int,
        protocol: wire.Protocol = wire.Protocol.P4SGD,
        shape: Shape | None = None,
    ):
        super().__init__(workers=workers, slots=slots, rounds=rounds)
        if slots & (slots - 1):
            raise ValueError(f"slots must be a power of two, not {slots!r}")
        self.slots *= protocol.slots_per_operation
        parameters: dict[str, Any] = {"values": 2, "protocol": protocol}
        self._endpoint = WorkerEndpoint(job=JOB, base=0, slots=self.slots, member=1, **parameters)
        # Whether a worker that waits on a slot keeps all workers from its next round: see ``is_alone``.
        self._waiting_blocks_reuse = not protocol.acknowledges and self._most_in_flight() <= slots
        self.topology = topology = Topology(workers if shape is None else shape)
        self.models = [
            SwitchModel(
                [topology.size(member) for member in topology.members[switch]],
                workers=workers,
                slots=self.slots,
                protocol=protocol,
                is_root=switch == ROOT,
            )
            for switch in topology.switches
        ]

    @property
    def root_members(self) -> int:  # noqa: D102
        return len(self.topology.members[ROOT])

    def worker(self) -> Snapshot:  # noqa: D102
        return self._endpoint.snapshot()

    def slot(self) -> SlotRegisters:  # noqa: D102
        return self.models[ROOT].slot()

    def submit(self, worker: Snapshot) -> tuple[int, Step] | None:  # noqa: D102
        endpoint = self._endpoint
        endpoint.restore(worker)
        if worker.submitted == self.slots * self.rounds or not endpoint.can_submit():
            return None
        slot, number = worker.submitted % self.slots, worker.submitted // self.slots + 1
        (packet,) = endpoint.submit(contribution(0, slot, number))
        return slot, self._step(packet)

    def timeout(self, worker: Snapshot, slot: int) -> Step | None:  # noqa: D102
        self._endpoint.restore(worker)
        packets = self._endpoint.timeout(slot)
        return self._step(*packets) if packets else None

    def receive(self, worker: Snapshot, slot: int, message: Message) -> Step:  # noqa: D102
        self._endpoint.restore(worker)
        values = total(range(self.workers), slot, message.round)
        received = self._endpoint.receive(AggPacket(message.kind, JOB, slot, message.round, 0, values))
        for number, fa in enumerate(received.delivered, start=worker.delivered):
            if fa != total(range(self.workers), number % self.slots, number // self.slots + 1):
                raise Violation(ONCE, f"another FA stands in for that of operation {number}")
        return self._step(*received.packets)

    def switch(self, state: SlotRegisters, slot: int, sender: int, message: Message) -> SwitchStep:  # noqa: D102
        return self.models[ROOT].arrive(state, slot, sender, message)

    def done(self, worker: Snapshot) -> bool:  # noqa: D102
        self._endpoint.restore(worker)
        return worker.delivered == self.slots * self.rounds and self._endpoint.idle

    def is_waiting(self, worker: Snapshot, slot: int, number: int) -> bool:  # noqa: D102
        use = worker.slots[slot]
        return use.round < number or (use.round == number and use.state is State.WAIT_RESULT)

    def is_alone(self, workers: Sequence[Snapshot], slot: int) -> bool:
        """Return whether no event on other slots enables a worker to use ``slot``.

        Without acknowledgements this also holds while a worker waits on the slot: a worker begins operation
        n + 2N only with the RESULT of n + N. All workers have contributed to n + N, and each had received the
        FA of n before. Precondition: no worker begins with N operations in flight; no RESULT has a wrong sum.
        """
        uses = [worker.slots[slot] for worker in workers]
        awaited_rounds = {
            use.round for use in uses if use.state is not State.FREE and self._waiting_blocks_reuse
        }
        return all(
            use.round in awaited_rounds or self.is_alone_for(worker, slot)
            for use, worker in zip(uses, workers, strict=True)
        )

    def is_alone_for(self, worker: Snapshot, slot: int) -> bool:  # noqa: D102
        use, endpoint = worker.slots[slot], self._endpoint
        if use.state is not State.FREE or use.round == self.rounds:
            return True
        endpoint.restore(worker)
        return slot == worker.submitted % self.slots and endpoint.can_submit()

    def renamed(self, state: SlotRegisters, names: tuple[int, ...]) -> SlotRegisters:  # noqa: D102
        return self.models[ROOT].renamed(state, names, names)

    def is_useless(self, worker: Snapshot, slot: int, message: Message) -> bool:
        """Rounds and states only increase, and the switch answers a late request to its sender only."""
        use = worker.slots[slot]
        if message.round != use.round:
            return message.round < use.round
        if message.kind in (Kind.AGG, Kind.RESULT):
            return use.state is not State.WAIT_RESULT
        return use.state is State.FREE

    def _most_in_flight(self) -> int:
        """Return the number of operations that a worker begins before it needs an FA."""
        endpoint, submitted = self._endpoint, 0
        start = endpoint.snapshot()
        while endpoint.can_submit():
            endpoint.submit((0, 0))
            submitted += 1
        endpoint.restore(start)
        return submitted

    def _step(self, *packets: AggPacket) -> Step:
        state = self._endpoint.snapshot()
        state = state._replace(slots=tuple(slot._replace(retries=0) for slot in state.slots))
        return Step(state, *(Message(Kind(packet.kind), packet.round) for packet in packets))
