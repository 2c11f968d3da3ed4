"""A switch target is added at the places that docs/ARCHITECTURE.md lists: here is one."""

import pytest

from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.compiler import COMPILERS
from fanin.p4.emit import PRINTERS, program_text
from fanin.p4.v1model import V1Model
from fanin.sim.switch.embedded.program import ARCHITECTURES, load


class Renamed(V1Model):
    """A target whose programs are v1model's but for their name."""

    counter = "direct_counter(CounterType.bytes)"


@pytest.fixture
def renamed(monkeypatch):
    """A target that is a member of ``Target`` in every way."""
    target = str.__new__(Target, "renamed")
    target._name_ = "RENAMED"
    target._value_ = "renamed"
    monkeypatch.setitem(Target._member_map_, "RENAMED", target)
    monkeypatch.setitem(Target._value2member_map_, "renamed", target)
    monkeypatch.setattr(Target, "_member_names_", [*Target._member_names_, "RENAMED"])
    return target


def test_every_target_has_a_printer_a_compiler_and_an_architecture_that_runs_it():
    assert set(PRINTERS) == set(COMPILERS) == set(Target)
    assert len(ARCHITECTURES) == len(Target)


def test_a_target_is_added_by_its_printer(renamed, monkeypatch):
    monkeypatch.setitem(PRINTERS, renamed, Renamed)
    text = program_text(ProgramConfig(target=renamed))
    assert "direct_counter(CounterType.bytes)" in text
    assert load(text) is not None


def test_a_target_without_a_printer_is_refused_by_name(renamed):
    with pytest.raises(ValueError, match="target renamed has no printer; there are v1model, tna"):
        program_text(ProgramConfig(target=renamed))
