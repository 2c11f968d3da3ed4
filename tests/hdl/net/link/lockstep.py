"""A link's RTL beside its model: whatever it does, the model permits, and both are in the same state."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from amaranth import Module
from amaranth.lib import wiring

from fanin.golden.link import Answer, Receiver, Sender, distance
from fanin.wire.link import LinkKind
from fanin.wire.ring import RingFrame, decode_ring
from tests.hdl.net.link.bench import Links, Wires
from tests.internals import parts_of

JUDGED = 2  # cycles from a frame's last beat to its verdict
PATIENCE = 4  # cycles that what is due in the model may take to be so in the RTL


class OpenLinks(Links):
    """Links whose parts can be looked into: ``inside[k]`` has those of link k, with their signals, by name."""

    def __init__(self, count: int, **parameters: Any):
        super().__init__(count, **parameters)
        self._inner = [part.elaborate(None) for part in self.parts]
        self.inside = [{name: (part, own) for name, part, own in parts_of(inner)} for inner in self._inner]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for port, part, inner in zip(self.link, self.parts, self._inner, strict=True):
            m.submodules += inner
            part._MustUse__used = True
            wiring.connect(m, part, wiring.flipped(port))
        return m


@dataclass
class Lockstep:
    """Follows link ``index`` of ``wires``, which is given ``payloads``: AssertionError where the model says no.

    Several things happen in a cycle. The model is told of them in the order in which the RTL's registers see
    them: what leaves, timeout, what has come, and what the users do. The model always watches, since a timeout
    may come in the cycle in which nothing is kept any more.
    """

    wires: Wires
    index: int
    payloads: list[bytes]
    sizes: dict[str, Any]
    ack_frames: int
    retries: int
    events: dict[str, int] = field(default_factory=dict)
    overdue: dict[str, int] = field(default_factory=lambda: {"answer": 0, "probe": 0})
    leaving: deque[tuple[LinkKind, int, Any]] = field(default_factory=deque)
    chosen: bool = False
    failed: bool = False

    def __post_init__(self) -> None:
        self.published = self.sizes.get("published", False)
        first = self.sizes.get("first_sequence", 0)
        self.sender = Sender(
            self.sizes["replay_frames"],
            self.retries,
            *[first] * 3,
            watch=True,
            published=self.published,
        )
        self.receiver = Receiver(self.sizes["buffer_frames"], self.ack_frames, first, published=self.published)
        self.offered = 0
        self.seen = 0  # of what the wires say was sent

    async def process(self, ctx: Any) -> None:
        """The testbench process."""
        inside = self.wires.dut.inside[self.index]
        window, registers = inside["window"]
        transmitter, receiver = inside["transmitter"][0], inside["receiver"][0]
        acknowledger = inside["acknowledger"][0]
        names: dict[str, Any] = {
            "running": self.wires.dut.link[self.index].status.running,
            "control_taken": transmitter.control_taken,
            "kind": transmitter.control.kind,
            "sequence": transmitter.control.sequence,
            "room": transmitter.control.limit,
            "arrived": transmitter.control.arrived,
            "data_taken": transmitter.data_taken,
            "again": window.sent_before,
            "data_sequence": window.offer.sequence,
            "timeout": registers["timeout"],
            "oldest": registers["oldest"],
            "reported": registers["arrived"],
            "fresh": registers["first_unsent"],
            "kept_end": registers["kept_end"],
            "limit": registers["limit"],
            "taken": window.taken,
            "probe": window.probe,
            "failed": window.failed,
            "verdict": receiver.verdict.as_value(),
            "answered": receiver.answer.valid,
            "expected": receiver.expected,
            "held": receiver.arrived,
            "advance": receiver.advance,
            "consumed": inside["buffer"][0].consumed,
            "ack": acknowledger.ack,
            "nak": acknowledger.nak,
            "granted": acknowledger.limit,
        }
        cycle = 0
        while True:
            _, _, *values = await ctx.tick().sample(*names.values())
            now = dict(zip(names, values, strict=True))
            bits = enumerate(receiver.verdict.shape().members)
            verdict = {name for bit, name in bits if now["verdict"] >> bit & 1}
            if now["running"] and not self.failed:
                self._compare(now)
                self._follow(now, verdict, cycle)
            self._left()
            cycle += 1

    def _compare(self, now: dict[str, int]) -> None:
        sender, receiver = self.sender, self.receiver
        kept = (sender.oldest + len(sender.frames)) % (2 * sender.replay_frames)
        assert (now["oldest"], now["fresh"], now["reported"]) == (sender.oldest, sender.fresh, sender.arrived)
        assert now["held"] == receiver.arrived
        assert (now["limit"], now["kept_end"]) == (sender.limit, kept)
        room = receiver.buffer_frames - len(receiver.frames)
        assert (now["expected"], now["granted"]) == (receiver.expected, (receiver.expected + room) % 2**32)
        if self.chosen:  # a cycle ago: what was due is withdrawn now
            return
        if now["ack"] and LinkKind.ACK not in receiver.due:
            receiver.delay()  # time is the RTL's
        due = {kind for kind, name in ((LinkKind.ACK, "ack"), (LinkKind.NAK, "nak")) if now[name]}
        assert due <= receiver.due
        assert sender.probe_due or not now["probe"]
        self._wait("answer", bool(receiver.due) and not due)
        self._wait("probe", sender.probe_due and not now["probe"])

    def _wait(self, name: str, waits: bool) -> None:
        self.overdue[name] = self.overdue[name] + 1 if waits else 0
        assert self.overdue[name] <= PATIENCE, f"{name} is due"

    def _follow(self, now: dict[str, int], verdict: set[str], cycle: int) -> None:
        sender = self.sender
        self.chosen = bool(now["control_taken"])
        if self.chosen:
            self._control(LinkKind(now["kind"]), now["sequence"], now["room"], now["arrived"])
        if now["data_taken"]:
            self._note("repeat" if now["again"] else "send")
            frame = sender.send_again(now["data_sequence"]) if now["again"] else sender.send()
            assert frame, "DATA leaves"
            self.leaving.append((LinkKind.DATA, *frame))
        if now["timeout"]:
            self._note("timeout")
            sender.timeout()
        if now["failed"]:
            assert sender.give_up()
            self.failed = True
        if verdict or now["answered"]:
            self._arrive(verdict, cycle)
        if now["advance"] and not self.published:
            assert self.receiver.advance(), "a frame is put in order"
        if now["consumed"]:
            self._note("consume")
            self.receiver.consume()
        if now["taken"]:
            self._note("offer")
            assert sender.offer(self.payloads[self.offered])
            self.offered += 1

    def _control(self, kind: LinkKind, sequence: int, room: int, arrived: int) -> None:
        self._note(kind.name)
        self.leaving.append((kind, sequence, room))
        if kind is LinkKind.PROBE:
            fresh = self.sender.probe()
            assert fresh is not None, "PROBE leaves"
            assert sequence == fresh or not self.published
        else:
            assert self.receiver.answer(kind) == Answer(kind, sequence, room, arrived)

    def _arrive(self, verdict: set[str], cycle: int) -> None:
        frames = [f for link, at, f in self.wires.arrived if (link, at) == (self.index, cycle - JUDGED)]
        if verdict & {"bad_fcs", "foreign"}:
            self._note("dropped")
            return
        frame = self._decoded(frames[0])
        if frame.kind in (LinkKind.ACK, LinkKind.NAK):
            self._note("answer")
            self.sender.answer(Answer(LinkKind(frame.kind), frame.sequence, frame.count, frame.arrived))
            assert not verdict
            return
        receiver = self.receiver
        ahead = distance(receiver.expected, frame.sequence)
        is_duplicate = ahead < 0 or frame.sequence in receiver.held
        gap = LinkKind.NAK in receiver.due
        was_held = bool(receiver.held)
        extra: set[str] = set()
        if frame.kind == LinkKind.PROBE:
            receiver.probe(frame.sequence)
            judged = "probe"
        elif receiver.receive(frame.sequence, frame.payload):
            judged = "received"
            extra |= {"ahead"} if ahead > 0 else set()
            extra |= {"urgent"} if was_held or (ahead > 0 and not self.published) else set()
        else:
            judged = "duplicate" if is_duplicate else "ahead" if ahead and self.published else "no_room"
        extra |= {"lost"} if receiver.lost else set()
        for name in {judged} | extra:
            self._note(name)
        assert verdict - {"gap"} == {judged} | extra
        assert ("gap" in verdict) <= (LinkKind.NAK in receiver.due)
        assert gap or ("gap" in verdict) == (LinkKind.NAK in receiver.due)
        self.failed = receiver.lost

    def _left(self) -> None:
        """What the wires have seen is what was chosen; what is acknowledged meanwhile may be overwritten."""
        mine = [sent for sent in self.wires.sent if sent.link == self.index]
        for sent in mine[self.seen :]:
            if not self.leaving:
                assert self.failed  # begun as the job ended
                continue
            kind, sequence, what = self.leaving.popleft()
            frame = self._decoded(sent.frame)
            assert frame.kind == kind
            if kind is not LinkKind.PROBE or self.published:
                assert frame.sequence == sequence
            if kind is not LinkKind.DATA:
                assert frame.count == what or kind is LinkKind.PROBE
            elif distance(self.sender.oldest, sequence) >= 0:
                assert frame.payload == what
        self.seen = len(mine)

    def _decoded(self, frame: bytes) -> RingFrame:
        return decode_ring(frame, beat_bytes=self.wires.width // 8)

    def _note(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1
