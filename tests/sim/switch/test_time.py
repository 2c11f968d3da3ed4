"""The time of an AllReduce through the switch, beside what the workers' simulation takes."""

import numpy as np
import pytest

from fanin.link import LinkConfig
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.sim.switch.time import SwitchTime
from fanin.wire.aggregation import Encap, Protocol

JOBS = [
    (4, 64, 32, Protocol.P4SGD, Encap.L2),
    (2, 8, 1, Protocol.P4SGD, Encap.UDP),
    (3, 16, 8, Protocol.SWITCHML, Encap.L2),
]


@pytest.mark.parametrize(("workers", "slots", "values", "protocol", "encap"), JOBS)
@pytest.mark.parametrize("gbps", [10.0, 100.0])
@pytest.mark.parametrize("packets", [1, 2, 20, 64, 65, 66, 130, 301])
def test_the_time_is_that_of_the_simulation(workers, slots, values, protocol, encap, gbps, packets):
    program = ProgramConfig(workers=workers, slots=slots, values=values, protocol=protocol, encap=encap)
    link = LinkConfig(gbps=gbps, delay_ns=300)
    network = NetworkConfig(link=link, switch_ns=500, timeout_ns=1e6, switch=SwitchKind.REFERENCE)
    count = packets * values
    switch = make_switch(workers, kind=network.switch, config=program)
    simulated = allreduce(np.ones((workers, count), np.int32), switch=switch, program=program, network=network)
    time = SwitchTime(program=program, count=count, link=network.link, switch_ns=500)
    assert time.total == pytest.approx(simulated.time_ns, rel=0.01)
    assert time.operations == packets
    assert time.wire_bytes * workers == simulated.sent * (time._frame + 24)
