"""Every cause that a node reports has its words."""

import ast
from pathlib import Path

import pytest

from fanin.hdl.param_server.server_control import Refusal as ServerRefusal
from fanin.host.causes import CAUSES, cause_of, explain, explain_name
from fanin.param_server.driver import ParamServerDriver
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import PRESETS, Ending, Refusal
from fanin.sim.cosim.run import RunResult
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.cosim.state import FailedCheck
from fanin.sim.param_server.cosim import _REFUSALS
from fanin.sim.rdma.cosim import name_refusal

ROOT = Path(__file__).parents[3]
MEMBERS = [member for kind in CAUSES for member in kind]


@pytest.mark.parametrize("kind", list(CAUSES), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_member_has_its_words_but_that_of_no_failure(kind):
    members = list(kind)
    assert list(CAUSES[kind].members) == members
    assert [member for member in members if cause_of(member) is None] == members[:1]
    assert members[0].name in ("NONE", "DONE")


@pytest.mark.parametrize("member", [m for m in MEMBERS if cause_of(m)], ids=str)
def test_words_fit_into_a_line(member):
    text = explain(member)
    assert text.startswith(f"{member.name}: ")
    assert text.isprintable()
    assert len(text) < 220
    for part in cause_of(member).fault, cause_of(member).remedy:
        assert part == part.strip(" .;:") != ""


def test_a_cause_is_explained_by_its_name():
    assert explain_name(Ending, "RETRIES") == explain(Ending.RETRIES)
    assert explain_name(Ending, "FOREIGN") is None


def test_every_enumeration_of_causes_is_there():
    """Those of the hardware and of the facts, by the name that they have."""
    names = {"Failure", "Refusal", "Ending", "LinkFailure"}
    files = [*(ROOT / "hdl").rglob("*.py"), *(ROOT / "fanin").glob("*.py"), *(ROOT / "fanin").glob("*/*.py")]
    found = {
        (file.stem, node.name)
        for file in files
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in names
    }
    assert found == {(kind.__module__.rpartition(".")[2], kind.__name__) for kind in CAUSES}


def _failure(driver, register, **fields):
    check = FailedCheck(3, driver.registers.offset(register), driver.registers[register].pack(fields))
    return SimulationFailed("node 3: register 0x8 reads 0x2", RunResult(cycles=77, failed_check=check))


def _zeros(driver, register):
    return {field.name: 0 for field in driver.registers[register].fields}


def test_a_refusal_that_a_host_program_finds_is_named():
    config = PRESETS["tiny"]
    rdma, server = RdmaDriver(config), ParamServerDriver(config)
    fields = _zeros(rdma, "refusals")
    failure = _failure(rdma, "refusals", **fields | {"connect_refusal": Refusal.SETTINGS})
    assert str(name_refusal(failure, rdma)) == (
        "node 3 refused a command by cycle 77: SETTINGS: no such path MTU, or a window above 1024 packets; "
        "mend it, and connect again"
    )
    fields = _zeros(server, "status")
    failure = _failure(server, "status", **fields | {"refused": ServerRefusal.UNSET})
    assert "cycle 77: UNSET: a worker of the job was not set" in str(name_refusal(failure, server, _REFUSALS))
    for other in _failure(server, "status", **fields), SimulationFailed("died", None):
        assert name_refusal(other, server, _REFUSALS) is other
