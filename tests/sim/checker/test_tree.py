"""The model checker on trees of switches: what it proves of ours, and what it finds in broken ones."""

import json

import pytest

from fanin.cli.main import main
from fanin.sim.checker.chart import chart
from fanin.sim.checker.protocol import INVARIANTS, REUSE, SUM
from fanin.sim.checker.rounds import Rounds
from fanin.sim.checker.search import Search
from fanin.sim.checker.switch_model import SwitchModel
from fanin.sim.checker.system import Faults, System
from fanin.sim.checker.topology import Topology
from fanin.sim.checker.tree import TreeSystem
from fanin.sim.switch import reference
from fanin.sim.switch.reference import ReferenceSwitch, _Round
from fanin.tree import parse_shape, workers_of
from fanin.wire.aggregation import Kind, Protocol
from tests.support import slow

ALL = dict.fromkeys(INVARIANTS, True)
NONE, ONE = Faults(), Faults(1, 1, 1, 1)


def model(text, rounds, protocol=Protocol.P4SGD, slots=1):
    shape = parse_shape(text)
    return Rounds(workers=workers_of(shape), slots=slots, rounds=rounds, protocol=protocol, shape=shape)


def search(text, faults, rounds=2, protocol=Protocol.P4SGD, *, reduced=True, slots=1, system=TreeSystem):
    checked = system(model(text, rounds, protocol, slots), faults)
    outcome = Search(checked, reduced=reduced).run(seconds=300, all_invariants=True)
    assert outcome.exhausted
    return outcome


def holds(outcome):
    return {invariant: outcome.holds(invariant) for invariant in INVARIANTS}


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize(
    ("text", "rounds", "faults"),
    [
        ("1+1", 2, ONE),
        ("2x1x1", 2, NONE),
        *slow(
            ("1+1", 2, Faults(1, 1, 1, 3)),
            ("1+2", 3, Faults(1, 0, 1, 2)),
            ("2x2", 1, ONE),
            ("2x1x1", 2, ONE),
            ("1x1+2", 2, ONE),
        ),
    ],
)
def test_every_invariant_of_a_tree_holds(text, rounds, faults, protocol):
    outcome = search(text, faults, rounds, protocol)
    assert holds(outcome) == ALL
    assert outcome.states > 1000


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_tree_of_one_switch_has_the_states_of_one_switch(workers, protocol):
    """Two searches of one system: as a tree without inner switches, with another reduction by symmetry."""
    tree = search(str(workers), Faults(1, 0, 0, 1), 2, protocol)
    switch = search(str(workers), Faults(1, 0, 0, 1), 2, protocol, system=System)
    assert (tree.states, tree.depth) == (switch.states, switch.depth)


def test_the_reductions_change_no_answer(monkeypatch):
    """Late packets and symmetric states: many fewer states, the same invariants."""
    reduced = search("1+1", NONE)
    with monkeypatch.context() as patch:
        patch.setattr(SwitchModel, "ignores_late_packets", lambda *_: False)
        kept = search("1+1", NONE)
    with monkeypatch.context() as patch:
        patch.setattr(TreeSystem, "canonical", lambda _, rows: rows)
        named = search("1+1", NONE)
    assert holds(reduced) == holds(kept) == holds(named) == ALL
    assert reduced.states < named.states < 2 * reduced.states + 1, "a state has one mirror image, or is its own"
    assert reduced.states < kept.states


def test_a_switch_ignores_late_packets():
    for sizes, is_root in (([1, 2], True), ([1, 1, 1], True), ([1, 2], False), ([1], False)):
        assert SwitchModel(
            sizes, workers=3, slots=1, protocol=Protocol.P4SGD, is_root=is_root
        ).ignores_late_packets(3)


def test_a_result_of_any_round_is_found(monkeypatch):
    accept = _Round.accept_answer
    monkeypatch.setattr(_Round, "accept_answer", lambda state, *, current: accept(state, current=True))
    assert not model("1+1", 2).models[1].ignores_late_packets(2)
    example = search("1+1", Faults(0, 0, 1, 1)).counterexamples[SUM]
    assert example.violation == "the RESULT of slot 0, round 2, has another sum"
    late = [event for event in example.events if event.name == "deliver late"]
    assert [(event.message.kind, event.message.round) for event in late] == [(Kind.RESULT, 1)]


def broken_switch(monkeypatch, breaks):
    """Below the root, a packet for the parent becomes the answer of ``breaks(job, kind, verdict, sender)``."""
    ascend = ReferenceSwitch._ascend

    def broken(switch, active, state, verdict, sender, kind):
        answer = ascend(switch, active, state, verdict, sender, kind)
        if answer and answer.kind is kind and (receivers := breaks(active.job, kind, verdict, sender)):
            return reference._Answer(receivers, reference._ANSWERS[kind], active.job.bitmap, b"")
        return answer

    monkeypatch.setattr(ReferenceSwitch, "_ascend", broken)


def test_a_leaf_that_answers_with_a_partial_sum_is_found(monkeypatch):
    broken_switch(monkeypatch, lambda job, kind, verdict, sender: [sender] if verdict == "duplicate" else None)
    example = search("1+1", NONE).counterexamples[SUM]
    assert example.violation == "the RESULT of slot 0, round 1, has another sum"
    assert [event.name for event in example.events] == ["submit", "deliver", "timeout", "deliver"]


def test_a_slot_that_is_confirmed_before_all_racks_acknowledged_is_found(monkeypatch):
    broken_switch(monkeypatch, lambda job, kind, verdict, sender: job.members if kind is Kind.ACK else None)
    example = search("1+1", NONE).counterexamples[REUSE]
    assert example.violation == "slot 0 is used again while worker 1 waits on its round 1"
    assert len(example.events) == 11
    text = chart(example.events, Topology((1, 1)))
    names = [name.strip() for name in text.splitlines()[0].split("    ") if name.strip()]
    assert names == ["worker 0", "worker 1", "switch 1", "switch 2", "root"]
    agg, ack = (
        next(line for line in text.splitlines() if f"─ {kind} s0 r1 ─" in line) for kind in ("AGG", "ACK")
    )
    # From worker 0 over worker 1's lifeline to its switch.
    assert agg[5] == ack[5] == "│"
    assert agg[5 + 2 * 28 - 1 :].startswith("►│")


def test_an_agg_that_goes_up_before_all_have_contributed_is_found(monkeypatch):
    ascend = ReferenceSwitch._ascend

    def early(switch, active, state, verdict, sender, kind):
        if active.job.uplink and kind is Kind.AGG and verdict == "new":
            return reference._Answer([active.job.uplink], kind, active.job.uplink.bitmap, b"")
        return ascend(switch, active, state, verdict, sender, kind)

    monkeypatch.setattr(ReferenceSwitch, "_ascend", early)
    example = search("1+2", NONE).counterexamples[SUM]
    assert example.violation == "the AGG of slot 0, round 1, has another sum"


@pytest.mark.parametrize(
    ("text", "symmetries"),
    [("3", 6), ("1+2", 2), ("2x2", 8), ("2x1x1", 2), ("2x1x2", 8), ("1+1+1", 6), ("1x5", 120)],
)
def test_symmetries_of_a_tree(text, symmetries):
    """Workers of a switch, and equal trees of a switch, are interchangeable; 2x2: 2! · 2! · 2!."""
    topology = Topology(parse_shape(text))
    assert len(set(topology.symmetries)) == len(topology.symmetries) == symmetries
    assert topology.symmetries[0] == tuple(range(topology.actors))
    for renaming in topology.symmetries:
        for switch in topology.switches:
            target = 0 if switch == 0 else topology.switch_of(renaming[topology.actor_of(switch)])
            renamed = [renaming[actor] for actor in topology.members[switch]]
            assert sorted(renamed) == sorted(topology.members[target])


def test_the_command_searches_a_tree(capsys):
    assert main(["p4", "check", "--racks", "1+1", "--losses", "0", "--duplicates", "0", "--reorder", "0"]) == 0
    assert "2,761 states" in capsys.readouterr().out


def test_json_names_the_switch_of_an_event(capsys, monkeypatch):
    broken_switch(monkeypatch, lambda job, kind, verdict, sender: job.members if kind is Kind.ACK else None)
    words = ["--losses", "0", "--duplicates", "0", "--reorder", "0", "--json"]
    assert main(["p4", "check", "--racks", "1+1", *words]) == 1
    events = json.loads(capsys.readouterr().out)["counterexamples"][REUSE]
    assert events[0] == {"event": "submit", "worker": 0, "slot": 0, "kind": "AGG", "round": 1}
    assert {"event": "deliver", "switch": 1, "slot": 0, "kind": "AGG", "round": 1} in events


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--racks", "2x4"], "workers must be in 1…5 to be searched, not 8"),
        (["--racks", "33"], "a switch must have 1 to 32 members, not 33"),
        (["--racks", "a"], "a tree must be like 4x8 (four racks of eight workers), 2x4x8 or 1+2, not 'a'"),
        (["--racks", "1+1", "--protocol", "published"], "--racks: the published protocol has one switch"),
    ],
)
def test_a_wrong_tree_takes_one_line(words, cause, capsys):
    assert main(["p4", "check", *words]) == 2
    message = capsys.readouterr().err
    assert cause in message
    assert message.count("\n") == 1
