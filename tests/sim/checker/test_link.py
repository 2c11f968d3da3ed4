"""The reliable link, searched: what holds in any network, and what each of its rules is for."""

from dataclasses import replace

import pytest

from fanin.golden.link import Receiver, Sender
from fanin.sim.checker.chart import link_chart
from fanin.sim.checker.link import LinkSystem
from fanin.sim.checker.link_ends import (
    CLEAN,
    INVARIANTS,
    ONCE,
    OVERTAKE,
    PREMATURE,
    ROOM,
    STORM,
    Bounds,
)
from fanin.sim.checker.protocol import FINISH
from fanin.sim.checker.search import BROKEN, HOLDS
from fanin.sim.checker.search import search as search_system
from fanin.wire.link import LinkKind
from tests.support import slow


def search(*, sender=Sender, receiver=Receiver, **bounds):
    found = search_system(LinkSystem(Bounds(**bounds), sender=sender, receiver=receiver), seconds=900)
    print(found.states, "states,", f"{found.seconds:.1f} s")
    return found


def broken(invariant, **what):
    """The way to break ``invariant``, which is the only one broken."""
    found = search(**what)
    assert list(found.counterexamples) == [invariant]
    way = found.counterexamples[invariant]
    assert way.shortest
    return way.events


@pytest.mark.parametrize(
    "bounds",
    [
        {"window": 1, "buffer": 1, "in_flight": 1},
        {},
        {"window": 1, "overtaking": 0},
        {"window": 1, "buffer": 1, "retries": 2},
        {"window": 1, "watch": True},
        *slow(
            {"in_flight": 3, "window": 1, "buffer": 1},
            {"window": 2, "buffer": 1, "in_flight": 3},
            {"window": 3, "buffer": 3, "in_flight": 2},
            {"window": 2, "buffer": 2, "ack_frames": 2},
            {"overtaking": 0},
            {"overtaking": 1},
            {"retries": 2},
            {"watch": True},
        ),
    ],
    ids=lambda bounds: " ".join(f"{name}={value}" for name, value in bounds.items()),
)
def test_every_invariant_holds_for_streams_without_an_end(bounds):
    found = search(**bounds)
    assert found.exhausted
    assert found.status == HOLDS
    assert found.states > 300
    assert {name: found.holds(name) for name in INVARIANTS} == dict.fromkeys(INVARIANTS, True)


@pytest.mark.parametrize("bounds", [{"in_flight": 1}, *slow({"window": 1}, {})])
def test_published_mode_ends_with_loss_and_delivers_nothing_wrong(bounds):
    """CLEAN: where the network loses nothing and keeps the order, there is no LOSS."""
    assert search(published=True, **bounds).status == HOLDS


@pytest.mark.parametrize(("buffer", "enough"), [(1, 4), (2, 6)])
def test_sequence_numbers_may_come_again_after_twice_the_buffer_and_two(buffer, enough):
    bounds = {"window": 1, "buffer": buffer, "overtaking": 1, "faults": (OVERTAKE, PREMATURE)}
    assert search(sequences=enough, **bounds).status == HOLDS
    assert search(sequences=enough - 2, **bounds).status == BROKEN


@pytest.mark.parametrize(
    ("sequences", "overtaking"), [(4, 2), *slow((6, 3), (8, 4))], ids=lambda value: str(value)
)
def test_a_frame_may_be_overtaken_by_half_the_sequence_numbers_over_the_buffer(sequences, overtaking):
    """Of one frame's buffer; an answer that is one older grants room that there is not, or frees too much."""
    bounds = {"window": 1, "buffer": 1, "sequences": sequences, "faults": (OVERTAKE, PREMATURE)}
    assert search(overtaking=overtaking, **bounds).status == HOLDS
    found = search(overtaking=overtaking + 1, **bounds)
    assert set(found.counterexamples) <= {ONCE, ROOM}
    assert found.status == BROKEN


def test_numbers_that_come_again_need_a_bound_on_overtaking():
    with pytest.raises(ValueError, match="bound on overtaking"):
        Bounds(sequences=8)


# What becomes of the link without one of its rules.


class TakesAhead(Receiver):
    """A frame after a gap is taken."""

    def receive(self, sequence, payload):
        ahead = (sequence - self.expected) % self.sequences < self.sequences // 2
        return super().receive(self.expected if ahead else sequence, payload)


class IgnoresDuplicates(Receiver):
    """A frame that was taken is not acknowledged again."""

    def receive(self, sequence, payload):
        before = (sequence - self.expected) % self.sequences >= self.sequences // 2
        return not before and super().receive(sequence, payload)


class Storms(Receiver):
    """Every frame after a gap is answered with a NAK."""

    def receive(self, sequence, payload):
        accepted = super().receive(sequence, payload)
        self.due |= {LinkKind.NAK} if self.held else set()
        return accepted


class ReportsTooMuch(Receiver):
    """A report is off by one: it names the frame after each one that has arrived."""

    @property
    def arrived(self):
        return super().arrived << 1


class ForgetsHeldFrames(Receiver):
    """A frame after a gap is reported, and dropped when its turn has come."""

    def advance(self):
        advanced = super().advance()
        if advanced:
            self.held.clear()
        return advanced


class AcknowledgesEarly(Receiver):
    """An answer names one frame more than was taken, and its room."""

    def answer(self, kind=None):
        answer = super().answer(kind)
        return answer and replace(answer, sequence=(answer.sequence + 1) % self.sequences)


class NeedsNoCredit(Sender):
    """Frames are sent whatever the limit."""

    def send(self):
        granted, self.limit = self.limit, (self.fresh + 1) % self.sequences
        sent = super().send()
        self.limit = granted
        return sent


class AsksNever(Sender):
    """No PROBE."""

    def probe(self):
        return None


class NeverRepeats(Sender):
    """No frame is sent again."""

    def missing(self):
        return []


class StopsAtAReport(Sender):
    """While a frame after a gap is reported, none is sent again."""

    def missing(self):
        return super().missing() if not self.arrived else []


class HearsNothing(Sender):
    """An answer does not start the retries over."""

    def answer(self, answer):
        timeouts = self.timeouts
        super().answer(answer)
        self.timeouts = timeouts


class NeverGivesUp(Sender):
    """However long the silence."""

    def give_up(self):
        return False


class AsksAhead(Sender):
    """A PROBE says what is kept, not what was sent."""

    def probe(self):
        asks = super().probe()
        return asks if asks is None else (self.oldest + len(self.frames)) % self.sequences


class IgnoresProbes(Receiver):
    """A PROBE is answered, and its number not looked at."""

    def probe(self, sequence=0):
        super().probe(self.expected)


PUBLISHED = {"published": True, "in_flight": 1}


@pytest.mark.parametrize(
    ("invariant", "model", "bounds", "events"),
    [
        (ONCE, TakesAhead, {}, 7),
        (ONCE, AcknowledgesEarly, {}, 5),
        (ROOM, NeedsNoCredit, {"window": 2, "buffer": 1}, 5),
        (STORM, Storms, {}, 6),
        (FINISH, AsksNever, {"window": 1, "buffer": 1}, 3),
        (FINISH, NeverRepeats, {"window": 1, "buffer": 1, "in_flight": 1}, 5),
        (FINISH, StopsAtAReport, {}, 6),
        (CLEAN, HearsNothing, {"window": 1, "buffer": 1, "retries": 2}, 6),
        (FINISH, NeverGivesUp, {"window": 1, "buffer": 1, "in_flight": 1, "retries": 1}, 2),
        (CLEAN, AsksAhead, PUBLISHED, 3),
        (FINISH, IgnoresProbes, PUBLISHED, 8),
        (ONCE, TakesAhead, PUBLISHED | {"window": 3, "buffer": 3}, 8),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_rule_is_needed(invariant, model, bounds, events):
    end = "sender" if issubclass(model, Sender) else "receiver"
    assert len(broken(invariant, **{end: model}, **bounds)) == events


@pytest.mark.parametrize("receiver", [ReportsTooMuch, ForgetsHeldFrames, IgnoresDuplicates])
@pytest.mark.parametrize("bounds", [{}, *slow({"window": 3, "buffer": 3})], ids=str)
def test_a_false_report_costs_time_and_never_a_frame(receiver, bounds):
    """The oldest frame is sent again whatever has been reported, and a PROBE is always answered."""
    assert search(receiver=receiver, **bounds).status == HOLDS


DRAWN = """\
     sender                      receiver
  1  │                           ●  sends ACK 1, room to 2
  2  │◄─── ACK 1, room to 2 ─────│
  3  ●                           │  takes a frame from its user
  4  ●                           │  sends DATA 0
  5  │───────── DATA 0 ─────────►│
  6  │                           ●  sends ACK 1, room to 2
  7  │◄─── ACK 1, room to 2 ─────│"""


def test_a_way_is_drawn_with_the_numbers_of_the_wire():
    way = broken(ONCE, receiver=AcknowledgesEarly, window=2, sequences=8, overtaking=0)
    assert link_chart(way, sequences=8) == DRAWN
