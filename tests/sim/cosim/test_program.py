"""Programs of the host by names of registers, what depends on the clock, and the simulator's process."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.sim.cosim.build import EXECUTABLE
from fanin.sim.cosim.clock import Clock, period_of, port_rate
from fanin.sim.cosim.process import SimulationFailed, execute
from fanin.sim.cosim.program import Action, HostProgram
from fanin.sim.cosim.run import write_memory

REGISTERS = RegisterMap(
    (
        Register("whole", "rw", "No fields."),
        Register("status", "ro", "Some.", (Field("busy", 1, "One bit."), Field("level", 5, "Others."))),
    )
)


def test_a_field_is_polled_and_checked_under_its_mask():
    program = (
        HostProgram().poll_field(REGISTERS, "status", "level", 9).check_field(REGISTERS, "status", "busy", 1)
    )
    program.poll_field(REGISTERS, "whole", "whole", 7)
    assert program.words().tolist() == [
        [Action.POLL, 4, 9 << 1, 31 << 1],
        [Action.CHECK, 4, 1, 1],
        [Action.POLL, 0, 7, 0xFFFF_FFFF],
    ]


def test_a_change_of_any_of_several_fields_is_awaited():
    program = HostProgram().await_change(REGISTERS, "status", level=9, busy=1)
    assert program.words().tolist() == [[Action.AWAIT, 4, 9 << 1 | 1, 63]]


@pytest.mark.parametrize(("register", "field"), [("status", "idle"), ("state", "busy")])
def test_a_field_that_there_is_not_is_named(register, field):
    with pytest.raises(KeyError, match=f"{field if register == 'status' else register}"):
        HostProgram().poll_field(REGISTERS, register, field, 0)


def test_a_period_is_even():
    assert [period_of(mhz) for mhz in (1, 250, 300, 322.265625, 2000)] == [1_000_000, 4000, 3334, 3104, 500]
    for wrong in (0.9, 2001, float("nan")):
        with pytest.raises(InputError, match="clock_mhz must be in 1…2000, not"):
            period_of(wrong)


def test_a_rate_holds_a_port_that_is_faster():
    assert port_rate(100, 4000, 512) == 50
    assert port_rate(100, 4000, 256) == 0
    assert port_rate(128, 4000, 512) == 0


def test_edges_and_times_of_a_clock():
    clock = Clock(4000)
    assert [clock.edge(time) for time in (0, 1, 3999, 4000, 4001)] == [0, 1, 1, 1, 2]
    clock.skipped_ps = 1001
    assert clock.time(3) == 13_001
    assert [clock.edge(time) for time in (13_000, 13_001, 13_002, 17_001)] == [3, 3, 4, 4]


def test_what_hosts_import_does_not_load_the_simulators_own_side():
    code = "import sys, fanin.sim.cosim.live, fanin.sim.cosim.simulator; assert 'cocotb' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_result_that_was_not_written_to_its_end_is_the_simulators_failure(tmp_path):
    simulator = tmp_path / EXECUTABLE
    simulator.write_text(
        "#!/bin/sh\nprintf '\\200\\005cbuil' > $FANIN_COSIM_RESULT\necho no space left\nexit 3\n"
    )
    simulator.chmod(0o755)
    with pytest.raises(SimulationFailed, match="no space left"):
        execute(tmp_path, SimpleNamespace(phases=()))


def test_a_memory_that_cannot_be_written_is_named():
    with pytest.raises(InputError, match=r"^/dev/full: cannot be written \(.*\); is the disk full\?$"):
        write_memory(Path("/dev/full"), np.zeros(1 << 20, np.uint8))
