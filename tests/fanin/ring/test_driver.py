"""The ring node's driver: what it makes of a node's findings."""

import pytest

from fanin.hdl.ring.registers import DIFFERS, HEARD, Failure
from fanin.ring.driver import DIFFERENCES, RingDriver
from fanin.ring.facts import PRESETS

DRIVER = RingDriver(PRESETS["tiny"])


def findings(*, running=1, cause=Failure.NONE, differs=(), heard=()):
    failed = int(cause is not Failure.NONE)
    status = {"running": running and not failed, "failed": failed, "cause": cause}
    mismatch = {f"{DIFFERS}{name}": int(name in differs) for name in DIFFERENCES}
    neighbours = {f"{HEARD}{name}": int(name in heard) for name in ("previous", "next", "stranger")}
    return DRIVER.findings_of([status, mismatch, neighbours])


def test_a_node_that_has_heard_both_neighbours_is_right():
    assert findings(heard=("previous", "next")).complete
    for heard in ("previous",), ("next",), ("previous", "next", "stranger"):
        assert not findings(heard=heard).complete
    assert findings().problem is None


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_mismatch_names_what_differs(name):
    found = findings(cause=Failure.MISMATCH, differs=(name,))
    assert found.differs == (name,)
    assert found.problem == DIFFERENCES[name]
    assert not found.complete


@pytest.mark.parametrize(
    ("heard", "part"),
    [
        ((), "does not answer in this job: dead, not started, or cabled elsewhere; nor was"),
        (("previous",), "cabled elsewhere; the previous node was heard"),
        (("next",), "the previous node was never heard"),
        (("previous", "next"), "answered at first, and is silent now"),
        (("stranger",), "not listed as this one's neighbour"),
    ],
    ids=str,
)
def test_a_timeout_tells_a_dead_neighbour_from_a_wrong_list(heard, part):
    assert part in findings(cause=Failure.TIMEOUT, heard=heard).problem


def test_every_cause_has_a_line():
    for cause in Failure:
        assert (findings(cause=cause).problem is None) == (cause in (Failure.NONE, Failure.MISMATCH))


def test_the_registers_that_are_read_are_those_of_the_map():
    fields = {
        name: [field.name for field in DRIVER.registers[name].parts] for name in ("mismatch", "neighbours")
    }
    assert fields["mismatch"] == [f"{DIFFERS}{name}" for name in DIFFERENCES]
    assert fields["neighbours"] == [f"{HEARD}{name}" for name in ("previous", "next", "stranger")]
