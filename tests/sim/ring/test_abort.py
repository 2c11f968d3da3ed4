"""A job that is aborted in mid-frame leaves nothing to the next one, whichever codec the ring has."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.codec.facts import Bfp, Inceptionn
from fanin.ring.facts import RingConfig
from fanin.ring.golden import all_reduce
from fanin.sim.cosim.program import HostProgram
from fanin.sim.ring.cosim import RingCosim
from tests.sim.ring.test_cosim import NODES, SIZES  # the same builds serve both
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

ACTIVE = 2  # of the nodes that were built
COUNTS = (700, 4000)  # values: of the vector that is reduced, and of the one whose job is aborted first


class AbortedFirst(RingCosim):
    """Before the job that is asked for, one of the last vector runs, and is aborted after ``accesses``."""

    accesses = 0  # of the host, some 10 cycles each
    stopped = True  # by ``stop``, else by the next ``start``

    def _start(self, member, flow):
        driver, program = self.driver, HostProgram()
        for batch in driver.configure(replace(member, id=member.id + 1)), driver.start():
            program.extend(batch.operations)
        self._wait(program)
        last = self._layout([[np.zeros(n) for n in COUNTS]] * ACTIVE).addresses[-1]
        program.extend(driver.post(last, COUNTS[-1]).operations)
        for _ in range(self.accesses):
            program.extend(driver.batch().write("count", COUNTS[-1]).operations)
        program.check_field(driver.registers, "status", "busy", 1)  # the job is under way
        if self.stopped:
            self._wait(program.extend(driver.command("stop").operations))
        for batch in driver.identify(), driver.configure(member), driver.start():
            program.extend(batch.operations)
        return self._wait(program)


@pytest.fixture(
    scope="module",
    params=[None, *slow(Bfp(), Inceptionn(group=SIZES["lanes"]))],
    ids=["none", "bfp", "inceptionn"],
)
def cosim(request):
    return AbortedFirst(RingConfig(codec=request.param, **SIZES), nodes=NODES, quiet=True)


@pytest.mark.parametrize("stopped", [True, False], ids=["stop", "start"])
def test_the_job_after_an_aborted_one_is_exact(cosim, stopped):
    rng = np.random.default_rng(new_seed())
    given = [[rng.normal(0, 1, n).astype(np.float32) for n in COUNTS] for _ in range(ACTIVE)]
    expected = all_reduce.all_reduce([own[0] for own in given], cosim.config).view(np.uint32)
    cosim.stopped = stopped
    for cosim.accesses in range(10, 50, 5):
        run = cosim.all_reduce(given)
        assert not run.failed, (cosim.accesses, run.status)
        assert run.intact
        for sums in run.sums:
            np.testing.assert_array_equal(sums[0].view(np.uint32), expected)
