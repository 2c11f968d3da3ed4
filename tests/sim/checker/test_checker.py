"""The model checker: what it finds in the published protocol, in broken ones, and in ours."""

import itertools
from functools import partial
from itertools import permutations
from types import SimpleNamespace

import pytest

from fanin.golden.aggregation import Received, State, Verdict, WorkerEndpoint
from fanin.sim.checker.chart import chart
from fanin.sim.checker.protocol import FINISH, INVARIANTS, ONCE, REUSE, SUM, Message
from fanin.sim.checker.published import Published
from fanin.sim.checker.rounds import Rounds
from fanin.sim.checker.search import BROKEN, HOLDS, NOT_PROVED, Search, check
from fanin.sim.checker.system import Event, Faults, System
from fanin.sim.checker.topology import Topology
from fanin.sim.switch.reference import ReferenceSwitch, _Round
from fanin.wire.aggregation import Kind, Protocol
from tests.sim.checker.one_bit import OneBit
from tests.support import slow

SwitchML = partial(Rounds, protocol=Protocol.SWITCHML)
ONE_EACH = Faults(1, 1, 1, 3)
NONE = Faults()


def search(protocol=Rounds, faults=NONE, *, workers=2, slots=1, rounds=2, reduced=True, first=False):
    system = System(protocol(workers=workers, slots=slots, rounds=rounds), faults)
    search = Search(system, reduced=reduced)
    return search.run(seconds=300, all_invariants=not first), search


def holds(outcome):
    return {invariant: outcome.holds(invariant) for invariant in INVARIANTS}


ALL = dict.fromkeys(INVARIANTS, True)


@pytest.mark.parametrize("protocol", [Rounds, SwitchML])
@pytest.mark.parametrize(
    ("workers", "slots", "rounds", "faults"),
    [(2, 1, 2, ONE_EACH), *slow((3, 1, 1, ONE_EACH)), (2, 2, 1, Faults(1, 1, 1, 1)), (1, 2, 2, ONE_EACH)],
)
def test_every_invariant_of_ours_holds(protocol, workers, slots, rounds, faults):
    outcome, _ = search(protocol, faults, workers=workers, slots=slots, rounds=rounds)
    assert outcome.exhausted
    assert outcome.states > 100
    assert holds(outcome) == ALL


def test_a_premature_timeout_breaks_the_published_protocol_twice():
    outcome, _ = search(Published)
    assert outcome.exhausted
    twice, reused = outcome.counterexamples[ONCE], outcome.counterexamples[REUSE]
    assert twice.violation == "the FA of slot 0, round 1, is delivered twice"
    assert [event.name for event in twice.events].count("timeout") == 1
    assert twice.events[-1].message == Message(Kind.RESULT, 1)
    assert reused.violation == "an old CONFIRM frees slot 0, which is in use, and stops its timer"
    assert [event.name for event in reused.events].count("timeout") == 1
    assert reused.events[-1].message == Message(Kind.CONFIRM, 1)
    assert (len(twice.events), len(reused.events)) == (8, 13)


def test_a_bit_in_place_of_the_round_lets_a_late_duplicate_into_a_sum():
    """SwitchML as published holds while channels are first in, first out; one late copy is enough."""
    outcome, _ = search(OneBit, rounds=3)
    assert outcome.exhausted
    assert holds(outcome) == ALL
    late_copy = Faults(duplicates=1, together=1)
    outcome, _ = search(OneBit, late_copy, rounds=3)
    example = outcome.counterexamples[SUM]
    copied = next(event for event in example.events if event.name == "duplicate")
    assert copied.message == Message(Kind.AGG, 1)
    late = next(event for event in example.events if event.name == "deliver late")
    assert late.message == copied.message
    assert outcome.holds(ONCE) is False
    outcome, _ = search(SwitchML, late_copy, rounds=2)  # as many operations
    assert holds(outcome) == ALL


def test_the_search_stops_at_the_first_broken_invariant_if_told_to():
    outcome, _ = search(Published, first=True)
    assert list(outcome.counterexamples) == [ONCE]
    assert not outcome.exhausted
    assert outcome.holds(REUSE) is None


def test_a_switch_that_adds_a_duplicate_breaks_the_sum(monkeypatch):
    real = _Round.accept

    def forgetful(self, number, bitmap):
        verdict = real(self, number, bitmap)
        return "new" if verdict == "duplicate" else verdict

    monkeypatch.setattr(_Round, "accept", forgetful)
    assert search(first=True)[0].holds(SUM) is False  # sums grow for ever


def test_a_switch_that_does_not_answer_again_never_finishes_after_a_loss(monkeypatch):
    real = ReferenceSwitch._receivers

    def silent(job, verdict, sender):
        return [] if verdict == "duplicate" else real(job, verdict, sender)

    monkeypatch.setattr(ReferenceSwitch, "_receivers", staticmethod(silent))
    assert holds(search()[0]) == ALL
    outcome, _ = search(faults=Faults(losses=1, together=1))
    assert holds(outcome) == ALL | {FINISH: False}
    assert "lose" in [event.name for event in outcome.counterexamples[FINISH].events]


def test_a_worker_that_needs_no_confirm_reuses_a_slot_too_early(monkeypatch):
    real = WorkerEndpoint.receive

    def hasty(self, packet):
        received = real(self, packet)
        if received.verdict is Verdict.RESULT:
            index = packet.slot - self.base
            self._slots[index] = self._slots[index]._replace(state=State.FREE)
            return Received(received.verdict, (), received.delivered)
        return received

    monkeypatch.setattr(WorkerEndpoint, "receive", hasty)
    assert search()[0].holds(REUSE) is False


def test_a_window_of_all_slots_reuses_one_too_early_without_acknowledgements(monkeypatch):
    real = WorkerEndpoint.__init__

    def greedy(self, **parameters):
        real(self, **parameters)
        self.window = parameters["slots"]

    monkeypatch.setattr(WorkerEndpoint, "__init__", greedy)
    whole, _ = search(SwitchML, slots=2, first=True, reduced=False)
    small, _ = search(SwitchML, slots=2, first=True)
    assert small.holds(REUSE) is whole.holds(REUSE) is False
    least, found = whole.counterexamples[REUSE], small.counterexamples[REUSE]
    assert least.shortest
    assert not found.shortest
    assert len(found.events) > len(least.events) == 9


def test_a_worker_that_ignores_rounds_takes_an_old_fa_for_a_new_one(monkeypatch):
    def blind(self, packet):
        slot = self._slots[packet.slot]
        waited = State.WAIT_RESULT if packet.kind == Kind.RESULT else State.WAIT_CONFIRM
        verdict = Verdict.RESULT if packet.kind == Kind.RESULT else Verdict.CONFIRM
        return verdict if slot.state is waited else Verdict.STALE

    monkeypatch.setattr(WorkerEndpoint, "_judge", blind)
    monkeypatch.setattr(Rounds, "is_useless", lambda *_: False)
    outcome, _ = search(faults=Faults(duplicates=1, together=1), first=True)
    assert outcome.holds(ONCE) is False


def values(search):
    """What workers and slots of the switch are in each state."""
    system, workers = search.system, search.system.protocol.workers
    parties, registers = system.parties.numbers.values, system.registers.values
    for row in search.visited.rows(slice(None)).tolist():
        yield [parties[n].worker for n in row[:workers]], [registers[n] for n in row[workers:-1]]


def seen(search, *, names):
    """What workers and switch can be in, together, up to the workers' names."""
    found = set()
    for workers, slots in values(search):
        found |= {
            (
                tuple(workers[order.index(w)] for w in range(len(workers))),
                tuple(search.system.protocol.renamed(slot, order) for slot in slots),
            )
            for order in names
        }
    return found


@pytest.fixture(scope="module", params=[Rounds, SwitchML])
def reached(request):
    """A protocol, and a search of it in full: a reduction may leave out states that break nothing."""
    faults = Faults(losses=1, duplicates=1, together=1)
    return request.param, search(request.param, faults, reduced=False)[1]


def test_names_hide_no_state(reached):
    """Without renaming there are more states, but workers and switch get into the same ones."""
    protocol, reached = reached
    system = System(protocol(workers=2, slots=1, rounds=2), Faults(losses=1, duplicates=1, together=1))
    names = list(permutations(range(2)))
    system.canonical = lambda rows: rows
    every = Search(system, reduced=False)
    every.run()
    assert len(every.visited) > 1.5 * len(reached.visited)
    assert seen(every, names=names[:1]) == seen(reached, names=names)


@pytest.mark.slow
def test_what_is_useless_is_really_so(reached, monkeypatch):
    """Nothing that workers and switch can be in is lost with the packets that are taken out."""
    protocol, reached = reached
    monkeypatch.setattr(Rounds, "is_useless", lambda *_: False)
    outcome, every = search(protocol, Faults(losses=1, duplicates=1, together=1), reduced=False)
    assert holds(outcome) == ALL
    names = list(permutations(range(2)))
    assert len(every.visited) > len(reached.visited)
    assert seen(every, names=names) == seen(reached, names=names)


ONE = (NONE, Faults(losses=1, together=1), Faults(duplicates=1, together=1), Faults(reorder=1, together=1))
GRID = [(*sizes, faults) for sizes in ((1, 1, 2), (1, 2, 1), (1, 2, 2), (2, 1, 1), (2, 1, 2)) for faults in ONE]


@pytest.mark.parametrize("protocol", [Rounds, SwitchML, Published, OneBit])
@pytest.mark.parametrize(
    ("workers", "slots", "rounds", "faults"),
    [*GRID, (2, 2, 1, NONE), *slow((2, 2, 1, ONE[1]), (3, 1, 1, ONE[1]), (3, 1, 1, ONE[3]))],
)
def test_the_reduced_search_finds_what_the_whole_one_finds(protocol, workers, slots, rounds, faults):
    bounds = {"workers": workers, "slots": slots, "rounds": rounds}
    small, _ = search(protocol, faults, **bounds)
    whole, _ = search(protocol, faults, **bounds, reduced=False)
    assert small.exhausted
    assert whole.exhausted
    assert small.states <= whole.states
    assert holds(small) == holds(whole)
    for invariant, found in small.counterexamples.items():
        least = whole.counterexamples[invariant]
        assert least.shortest
        assert (
            len(found.events) == len(least.events) if found.shortest else len(least.events) <= len(found.events)
        )


def test_the_reduced_search_is_smaller():
    faults = Faults(losses=1, together=1)
    small, _ = search(SwitchML, faults, slots=2, rounds=1)
    whole, _ = search(SwitchML, faults, slots=2, rounds=1, reduced=False)
    assert 3 * small.states < whole.states


def asked(protocol, faults, *, workers=2, slots=1, rounds=2, seconds=300.0):
    return check(System(protocol(workers=workers, slots=slots, rounds=rounds), faults), seconds=seconds)


def test_the_published_protocol_hangs_after_a_loss():
    """A CONFIRM that comes once more stops the timer of the next round's AGG, and that AGG is lost."""
    outcome = asked(Published, Faults(losses=1, together=1))
    assert holds(outcome) == {ONCE: False, SUM: True, REUSE: False, FINISH: False}
    assert outcome.status == BROKEN
    *before, lost = outcome.counterexamples[FINISH].events
    assert (lost.name, lost.message) == ("lose", Message(Kind.AGG, 2))
    assert before[-1].message == Message(Kind.CONFIRM, 1)
    assert before[-1].actor == lost.actor
    assert outcome.counterexamples[FINISH].shortest
    more = asked(Published, Faults(losses=2, together=2)).counterexamples[FINISH]
    assert (len(more.events), more.shortest) == (len(before) + 1, False)


def test_the_published_protocol_finishes_without_a_loss():
    outcome = asked(Published, NONE)
    assert holds(outcome) == {ONCE: False, SUM: True, REUSE: False, FINISH: True}
    assert outcome.status == BROKEN


def test_finishing_is_unknown_where_it_was_asked_with_fewer_faults():
    outcome = asked(Published, Faults(duplicates=1, together=1), rounds=1)
    assert outcome.exhausted
    assert outcome.holds(FINISH) is None


def local(search):
    """What each slot can be in, at the switch and at a worker, up to the workers' names."""
    found = set()
    for workers, slots in values(search):
        found |= {("switch", at, slot) for at, slot in enumerate(slots)}
        found |= {("worker", at, slot) for worker in workers for at, slot in enumerate(worker.slots)}
    rename = search.system.protocol.renamed
    return found | {
        (who, at, rename(slot, names))
        for who, at, slot in found
        if who == "switch"
        for names in permutations(range(search.system.protocol.workers))
    }


@pytest.mark.parametrize(("slots", "rounds"), [(1, 2), *slow((2, 1))])
def test_a_slot_that_others_cannot_reach_may_come_first(slots, rounds):
    """Without acknowledgements, and with faults that let a round's packets come in the next one's."""
    faults = Faults(losses=1, duplicates=1, together=1)
    small, reduced = search(SwitchML, faults, slots=slots, rounds=rounds)
    whole, every = search(SwitchML, faults, slots=slots, rounds=rounds, reduced=False)
    assert holds(small) == holds(whole) == ALL
    assert 1.3 * small.states < whole.states
    assert local(reduced) == local(every)


def test_a_fault_that_can_no_more_happen_makes_no_difference():
    protocol = Rounds(workers=2, slots=1, rounds=1)
    starts = [
        System(protocol, faults).faults_left.values for faults in (Faults(9, 9, 0, 2), Faults(2, 2, 0, 2))
    ]
    assert starts[0] == starts[1]
    _, reached = search(faults=Faults(9, 1, 0, 2))
    left = {reached.system.faults_left.values[number] for number in reached.visited.rows(slice(None))[:, -1]}
    assert left == {(2, 1, 0, 2), (1, 1, 0, 1), (1, 0, 0, 1), (0, 0, 0, 0)}


def test_a_search_that_is_out_of_time_says_what_it_does_not_know(monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr("fanin.sim.checker.search.time", clock)
    outcome = Search(System(Rounds(workers=2, slots=2, rounds=3), ONE_EACH)).run(seconds=12)
    assert not outcome.exhausted
    assert set(holds(outcome).values()) == {None}
    assert outcome.status == NOT_PROVED
    assert 0 < outcome.depth < 20
    assert asked(Rounds, NONE).status == HOLDS


def test_the_chart_shows_who_sent_what_to_whom():
    result = Message(Kind.RESULT, 1)
    events = [
        Event("submit", 0, 0, 0, Message(Kind.AGG, 1)),
        Event("deliver", 0, 0, 0, Message(Kind.AGG, 1)),
        Event("lose", 1, 0, 1, result),
        Event("deliver late", 1, 0, 1, result),
    ]
    lines = chart(events, Topology(2)).splitlines()
    assert lines[0].split() == ["worker", "0", "worker", "1", "switch"]
    assert lines[1].endswith("begins: AGG s0 r1")
    assert lines[2].startswith("  2  │──")
    assert "AGG s0 r1" in lines[2]
    assert lines[2].endswith("►│")
    assert lines[3].endswith("RESULT s0 r1 is lost on its way to worker 1")
    assert lines[4].startswith("  4  │ ")
    assert "│◄── RESULT s0 r1, late ──" in lines[4]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"workers": 6}, "workers must be in 1…5"),
        ({"slots": 3}, "slots must be a power of two, not 3"),
        ({"rounds": 0}, "rounds must be in 1…64"),
    ],
)
@pytest.mark.parametrize("protocol", [Rounds, SwitchML])
def test_bad_parameters_are_named(protocol, parameters, message):
    with pytest.raises(ValueError, match=message):
        protocol(**{"workers": 2, "slots": 1, "rounds": 1} | parameters)
