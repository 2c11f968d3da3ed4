"""The two ends of one direction of the reliable link, each with the packets in flight to it, and their steps.

Both ends execute the models in ``fanin.golden.link``. ``LinkSystem`` combines them to one state.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from fanin.golden.link import SEQUENCES, Answer, Receiver, Sender, distance
from fanin.sim.checker.protocol import FINISH, Violation
from fanin.sim.checker.tables import Interned
from fanin.wire.link import LinkKind

ONCE = "every frame is taken exactly once, and in order"
ROOM = "every frame that is next finds room"
STORM = "one NAK for a gap"
CLEAN = "a link fails only as it says: TIMEOUT in silence, LOSS of what the network lost"
INVARIANTS = (ONCE, ROOM, STORM, CLEAN, FINISH)

# Faults: no system may need them to finish. PREMATURE: a timeout, or a frame sent again, while a frame is in
# flight or could be sent. COINCIDE: the hardware answers from its state of some cycles earlier.
LOSE, TWICE, OVERTAKE, DIE = "lose", "duplicate", "overtake", "die"
PREMATURE, COINCIDE = "premature timeout", "coincide"
FAULTS = (LOSE, TWICE, OVERTAKE, DIE, PREMATURE, COINCIDE)
REPEAT = "repeat"
SENDER_EVENTS = ("offer", "timeout", PREMATURE, "give up")
BUSY = ("send", "deliver", "delay", "advance")


class Packet(NamedTuple):
    """A frame in flight.

    - ``value``: the true number of a DATA frame, or the limit in an answer.
    - ``arrived``: bitmap of an answer.
    - ``overtaken``: number of frames, own copies included, that were sent later and arrived earlier.
    """

    kind: LinkKind
    sequence: int
    value: int = 0
    overtaken: int = 0
    arrived: int = 0


class LinkEvent(NamedTuple):
    """An event of the link. Numbers count from the oldest kept frame, which ``freed`` frames move."""

    name: str
    packet: Packet | None = None
    freed: int = 0


class SendingEnd(NamedTuple):
    """The sender and the packets in flight to it. ``silent``: number of timeouts since the last answer."""

    model: tuple[Any, ...]
    packets: tuple[Packet, ...] = ()
    silent: int = 0


class ReceivingEnd(NamedTuple):
    """The receiver and the packets in flight to it; ``model`` is None after the peer has died.

    - ``taken``: true number of the frame expected next.
    - ``gap``: a frame arrived after a new gap since the last answer.
    - ``harmed``: the network lost a frame on this path, or let another frame overtake it.
    """

    model: tuple[Any, ...] | None
    packets: tuple[Packet, ...] = ()
    taken: int = 0
    gap: bool = False
    harmed: bool = False


class Step(NamedTuple):
    """One step of an end: ``event``, the end ``after`` it, the ``packet`` sent, and the ``freed`` frames."""

    event: tuple[Any, ...]
    after: Any
    packet: Packet | None = None
    freed: int = 0


class _End:
    """Executor of an end's model.

    A state is the tuple of the model's fields. ``frames`` is a count, ``held`` the offsets from ``expected``.
    """

    def __init__(self, model: Any, numbers: tuple[str, ...]):
        self._model, self._names = model, [field.name for field in fields(model)]
        self._numbers = {self._names.index(name) for name in numbers}
        self._sequences = model.sequences
        self._memo: dict[Any, Any] = {}
        self.start = self._freeze(model)

    def field(self, state: tuple[Any, ...] | None, name: str) -> Any:
        assert state is not None
        return state[self._names.index(name)]

    def act(self, state: tuple[Any, ...] | None, action: str, *arguments: Any) -> tuple[tuple[Any, ...], Any]:
        """Call a method of the model in ``state``; return the new state and the method's result."""
        key = (state, action, arguments)
        if key not in self._memo:
            assert state is not None
            model = copy.copy(self._model)
            vars(model).update(zip(self._names, state, strict=True))
            model.frames = deque(bytes([k]) for k in range(model.frames))
            if "held" in self._names:
                model.held = {(model.expected + offset) % self._sequences: b"" for offset in model.held}
            result = getattr(model, action)(*arguments)
            self._memo[key] = self._freeze(model), result
        found: tuple[tuple[Any, ...], Any] = self._memo[key]
        return found

    def replaced(self, state: tuple[Any, ...], name: str, value: Any) -> tuple[Any, ...]:
        index = self._names.index(name)
        return (*state[:index], value, *state[index + 1 :])

    def moved(self, state: tuple[Any, ...], by: int) -> tuple[Any, ...]:
        """Return the state with sequence numbers that count from ``by`` later."""
        return tuple(
            (value - by) % self._sequences if index in self._numbers else value
            for index, value in enumerate(state)
        )

    def _freeze(self, model: Any) -> tuple[Any, ...]:
        def value(name: str) -> Any:
            stored = getattr(model, name)
            if name == "held":
                return tuple(sorted(distance(model.expected, s, self._sequences) for s in stored))
            return len(stored) if name == "frames" else stored

        return tuple(value(name) for name in self._names)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds of a search of the link, whose stream is endless.

    - ``window``: frames that the sender keeps, 1 to 255.
    - ``buffer``: frames that the receiver holds, 1 to 255.
    - ``ack_frames``: frames per ACK of the receiver, 1 to 255.
    - ``in_flight``: frames in flight per direction, 1 to 255.
    - ``overtaking``: frames that may overtake a frame; None: any number.
    - ``sequences``: modulus of the sequence numbers, even.
    - ``retries``: timeouts until the sender gives up, and the peer may die; None: neither happens.
    - ``watch`` and ``published``: variants of the models in ``fanin.golden.link``.
    - ``faults``: faults of ``FAULTS`` that the search includes.
    """

    window: int = 2
    buffer: int = 2
    ack_frames: int = 1
    in_flight: int = 2
    overtaking: int | None = None
    sequences: int = SEQUENCES
    retries: int | None = None
    watch: bool = False
    published: bool = False
    faults: Collection[str] = FAULTS

    def __post_init__(self) -> None:
        for name in ("window", "buffer", "ack_frames", "in_flight"):
            if not 1 <= getattr(self, name) <= 255:
                raise ValueError(f"{name} must be in 1…255, not {getattr(self, name)!r}")
        if self.retries is not None and self.retries < 1:
            raise ValueError(f"retries must be at least 1, not {self.retries!r}")
        if self.overtaking is not None and self.overtaking < 0:
            raise ValueError(f"overtaking must not be negative, not {self.overtaking!r}")
        if not 2 <= self.sequences <= SEQUENCES or self.sequences % 2:
            raise ValueError(f"sequences must be even and in 2…2^32, not {self.sequences!r}")
        if self.overtaking is None and self.sequences < SEQUENCES:
            raise ValueError("sequences below 2^32 need a bound on overtaking")


class LinkEnds:
    """Both ends within ``bounds`` and their steps; ``senders`` and ``receivers`` number the ends' states."""

    def __init__(self, bounds: Bounds, sender: Callable[..., Sender], receiver: Callable[..., Receiver]):
        self.bounds = bounds
        common: dict[str, Any] = {"sequences": bounds.sequences, "published": bounds.published}
        self._sender = _End(
            sender(bounds.window, bounds.retries or 1, watch=bounds.watch, **common),
            ("oldest", "fresh", "limit"),
        )
        self._receiver = _End(receiver(bounds.buffer, bounds.ack_frames, **common), ("expected",))
        self.senders, self.receivers = Interned(), Interned()

    def start(self) -> tuple[int, int]:
        """Return the numbers of both ends' initial states."""
        sending, receiving = SendingEnd(self._sender.start), ReceivingEnd(self._receiver.start)
        return self.senders(sending), self.receivers(receiving)

    def failed(self, end: SendingEnd) -> bool:
        """Return whether the sender has given up."""
        return bool(self._sender.field(end.model, "failed"))

    def kept(self, end: SendingEnd) -> int:
        """Return the number of frames that are not acknowledged."""
        return int(self._sender.field(end.model, "frames"))

    def lost(self, end: ReceivingEnd) -> bool:
        """Return whether the receiver has ended the job in failure."""
        return end.model is not None and bool(self._receiver.field(end.model, "lost"))

    def received(self, end: ReceivingEnd) -> int:
        """Return the number of received frames that are not consumed; 0 for a dead receiver."""
        if end.model is None:
            return 0
        return int(self._receiver.field(end.model, "frames")) + len(self._receiver.field(end.model, "held"))

    def sends(self, end: SendingEnd) -> Iterator[Step]:
        """Yield the sender's steps: take a frame from its user, send, time out, receive or lose an answer."""
        act, bounds = self._sender.act, self.bounds
        if self._sender.field(end.model, "failed"):
            return
        model, taken = act(end.model, "offer", b"")
        if taken:
            yield self._sender_step(("offer",), end._replace(model=model))
        model, sent = act(end.model, "send")
        if sent:
            packet = Packet(LinkKind.DATA, sent[0], sent[1][0])
            yield self._sender_step(("send", packet), end._replace(model=model), packet)
        model, sequence = act(end.model, "probe")
        if sequence is not None:
            packet = Packet(LinkKind.PROBE, sequence if bounds.published else 0)
            yield self._sender_step(("send", packet), end._replace(model=model), packet)
        yield from self._repeats(end)
        yield from self._times_out(end)
        for fault, rest, packet, _ in self._network(end.packets):
            if fault == LOSE:
                yield self._sender_step((fault, packet), end._replace(packets=rest))
                continue
            answer = Answer(packet.kind, packet.sequence, packet.value, packet.arrived)
            model, _ = act(end.model, "answer", answer)
            freed = self._sender.field(end.model, "frames") - self._sender.field(model, "frames")
            rest = tuple(self._renumbered(p, freed) for p in rest)
            after = SendingEnd(self._sender.moved(model, freed), rest)
            yield self._sender_step((fault, packet, freed), after, freed=freed)

    def _repeats(self, end: SendingEnd) -> Iterator[Step]:
        """Yield the retransmissions: each missing frame, as its timer may end at any time."""
        oldest = self._sender.field(end.model, "oldest")
        for sequence in self._sender.act(end.model, "missing")[1]:
            model, frame = self._sender.act(end.model, "send_again", sequence)
            if frame:
                place = distance(oldest, sequence, self.bounds.sequences)
                packet = Packet(LinkKind.DATA, sequence, place)
                yield self._sender_step((REPEAT, packet), end._replace(model=model), packet)

    def _times_out(self, end: SendingEnd) -> Iterator[Step]:
        """Yield a timeout, and giving up, which must come only after ``retries`` timeouts without an answer."""
        retries = self.bounds.retries or 0
        if end.silent < retries or not retries:
            model, _ = self._sender.act(end.model, "timeout")
            if model != end.model:
                after = end._replace(model=model, silent=min(end.silent + 1, retries))
                yield self._sender_step(("timeout",), after)
        model, failed = self._sender.act(end.model, "give_up")
        if failed and end.silent < retries:
            yield Step(("give up",), Violation(CLEAN, f"TIMEOUT after {end.silent} timeouts in a row"))
        elif failed and retries:
            yield self._sender_step(("give up",), end._replace(model=model))

    def receives(self, end: ReceivingEnd) -> Iterator[Step]:
        """Yield the receiver's steps: consume a frame, end ``ack_delay``, answer, receive or lose one, die."""
        if end.model is None or self._receiver.field(end.model, "lost"):
            return
        act = self._receiver.act
        if self._receiver.field(end.model, "frames"):
            yield self._receiver_step(("consume",), end._replace(model=act(end.model, "consume")[0]))
        model, _ = act(end.model, "delay")
        if model != end.model:
            yield self._receiver_step(("delay",), end._replace(model=model))
        model, advanced = act(end.model, "advance")
        if advanced:
            yield self._receiver_step(("advance",), end._replace(model=model, taken=end.taken + 1))
        yield from self._answers(end)
        for fault, rest, packet, harms in self._network(end.packets):
            harmed = self.bounds.published and (end.harmed or harms)
            end_without_packet = end._replace(packets=rest, harmed=harmed)
            after = end_without_packet if fault == LOSE else self._arrive(end_without_packet, packet)
            yield self._receiver_step((fault, packet), after)
        if self.bounds.retries and DIE in self.bounds.faults:
            yield self._receiver_step((DIE,), ReceivingEnd(None, taken=end.taken))

    def _answers(self, end: ReceivingEnd) -> Iterator[Step]:
        """Yield the model's answer, and as COINCIDE the other kind if that is due as well."""
        due_answer = self._receiver.act(end.model, "answer")[1]
        for kind in (LinkKind.ACK, LinkKind.NAK):
            model, answer = self._receiver.act(end.model, "answer", kind)
            if not answer or (answer != due_answer and COINCIDE not in self.bounds.faults):
                continue
            packet = Packet(kind, answer.sequence, answer.count, arrived=answer.arrived)
            if kind is LinkKind.NAK and not end.gap:
                yield Step(("send", packet), Violation(STORM, "a NAK without a new gap"))
                continue
            event = "send" if answer == due_answer else COINCIDE
            yield self._receiver_step((event, packet), end._replace(model=model, gap=False), packet)

    def _arrive(self, end: ReceivingEnd, packet: Packet) -> ReceivingEnd | Violation:
        """Return the end after a frame has arrived, or the invariant that the model breaks with it.

        Frames count from the one expected next; the receiver holds later ones. ``places`` are the frames that
        the model has taken or holds since this arrival, which must be just the one that arrived.
        """
        model, act = end.model, self._receiver.act
        assert model is not None
        if packet.kind is LinkKind.PROBE:
            after = end._replace(model=act(model, "probe", packet.sequence)[0])
        else:
            before, held = self._receiver.field(model, "expected"), self._receiver.field(model, "held")
            model, accepted = act(model, "receive", packet.sequence, b"")
            advanced = distance(before, self._receiver.field(model, "expected"))
            places = set(range(advanced)) | set(self._receiver.field(model, "held")) - set(held)
            newest = end.taken + max(held, default=-1)
            gap = end.gap or (accepted and packet.value > newest + 1)
            after = end._replace(model=model, gap=gap, taken=end.taken + advanced)
            if accepted and places != {packet.value - end.taken}:
                return Violation(
                    ONCE, f"frame {packet.value - end.taken} after the next one is taken as another"
                )
            is_new = packet.value >= end.taken and packet.value - end.taken not in held
            if is_new and not accepted and not self.bounds.published:
                return Violation(ROOM, "a frame arrives for which there is no room")
        if self._receiver.field(after.model, "lost") and not after.harmed:
            return Violation(CLEAN, "LOSS, though no frame was lost or overtaken")
        return after

    # Steps of the network.

    def _network(self, packets: tuple[Packet, ...]) -> Iterator[tuple[str, tuple[Packet, ...], Packet, bool]]:
        """Yield the possible fates of each frame in flight: lost, delivered, or delivered with a copy left.

        A frame may be delivered if no earlier frame would be overtaken too often. Each item is the event, the
        packets still in flight, the frame, and whether a frame was lost or overtaken.
        """
        faults = self.bounds.faults
        for index, packet in enumerate(packets):
            later = packets[index + 1 :]
            if LOSE in faults:
                yield LOSE, packets[:index] + later, packet, True
            earlier = self._overtaken(packets[:index])
            if earlier is None or (index and OVERTAKE not in faults):
                continue
            yield OVERTAKE if index else "deliver", earlier + later, packet, index > 0
            copy = self._overtaken((packet,)) if TWICE in faults else None
            if copy is not None:
                yield TWICE, earlier + copy + later, packet, index > 0

    def _overtaken(self, packets: tuple[Packet, ...]) -> tuple[Packet, ...] | None:
        """Return the frames, each overtaken once more; None if one would be overtaken too often."""
        limit = self.bounds.overtaking
        if limit is None:
            return packets
        if any(packet.overtaken >= limit for packet in packets):
            return None
        return tuple(packet._replace(overtaken=packet.overtaken + 1) for packet in packets)

    # Merging of equivalent states: ends that differ only in what can no longer matter get one form.

    def _sender_step(
        self, event: tuple[Any, ...], end: SendingEnd, packet: Packet | None = None, freed: int = 0
    ) -> Step:
        """Return a step. Timeouts count only with ``retries``; the age of an old answer does not matter."""
        model = end.model if self.bounds.retries else self._sender.replaced(end.model, "timeouts", 0)
        packets = end.packets if self.bounds.overtaking is not None else self._young_answers(end)
        if self._sender.field(model, "failed"):
            packets = ()
        return Step(event, self.senders(end._replace(model=model, packets=packets)), packet, freed)

    def _receiver_step(
        self, event: tuple[Any, ...], end: ReceivingEnd | Violation, packet: Packet | None = None
    ) -> Step:
        """Return a step, without the age of old frames, which does not matter."""
        if isinstance(end, Violation):
            return Step(event, end)
        if self.bounds.overtaking is None and end.model is not None:
            end = end._replace(packets=self._young_frames(end, end.model))
        return Step(event, self.receivers(end), packet)

    def _young_answers(self, end: SendingEnd) -> tuple[Packet, ...]:
        """Return the answers, with equal numbers for all that grant no more room or acknowledge nothing new."""
        oldest, limit = (self._sender.field(end.model, name) for name in ("oldest", "limit"))

        def young(packet: Packet) -> Packet:
            if distance(limit, packet.value) <= 0:
                packet = packet._replace(value=limit)
            if distance(oldest, packet.sequence) < 0:
                packet = packet._replace(kind=LinkKind.ACK, sequence=(oldest - 1) % SEQUENCES, arrived=0)
            return packet

        return tuple(map(young, end.packets))

    def _young_frames(self, end: ReceivingEnd, model: tuple[Any, ...]) -> tuple[Packet, ...]:
        """Return the frames, with equal numbers for all taken frames and for PROBEs without news."""
        expected = self._receiver.field(model, "expected")

        def young(packet: Packet) -> Packet:
            if packet.kind is LinkKind.PROBE:
                old = self.bounds.published and distance(expected, packet.sequence) <= 0
                return packet._replace(sequence=expected) if old else packet
            if packet.value < end.taken:
                return packet._replace(sequence=(expected - 1) % SEQUENCES, value=end.taken - 1)
            return packet

        return tuple(map(young, end.packets))

    def put(self, end: SendingEnd | ReceivingEnd, packet: Packet) -> int:
        """Return the end with one more packet in flight to it; a stopped end receives none."""
        packets = (*end.packets, packet)
        if isinstance(end, ReceivingEnd):
            stopped = end.model is None
            return self._receiver_step((), end if stopped else end._replace(packets=packets)).after
        stopped = self._sender.field(end.model, "failed")
        return self._sender_step((), end if stopped else end._replace(packets=packets)).after

    def move(self, receiver: int, by: int) -> int:
        """Return the receiving end with frame numbers that count from ``by`` later."""
        if not by:
            return receiver
        end: ReceivingEnd = self.receivers.values[receiver]
        packets = tuple(self._renumbered(packet, by) for packet in end.packets)
        model = end.model and self._receiver.moved(end.model, by)
        return self.receivers(end._replace(model=model, packets=packets, taken=end.taken - by))

    def _renumbered(self, packet: Packet, by: int) -> Packet:
        """Return a packet with frame numbers that count from ``by`` later."""
        sequences = self.bounds.sequences
        if packet.kind is LinkKind.DATA:
            return packet._replace(sequence=(packet.sequence - by) % sequences, value=packet.value - by)
        if packet.kind is LinkKind.PROBE:
            sequence = (packet.sequence - by) % sequences if self.bounds.published else 0
            return packet._replace(sequence=sequence)
        return packet._replace(
            sequence=(packet.sequence - by) % sequences, value=(packet.value - by) % sequences
        )
