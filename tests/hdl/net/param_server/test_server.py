"""The parameter server beside the golden one: whatever memory, NIC and workers do, the same rows."""

import pytest

from fanin.rdma import PRESETS
from tests.hdl.net.param_server.server_bench import ServerBench
from tests.support import new_seed

TINY = PRESETS["tiny"]


@pytest.mark.parametrize("stall", [0.0, 0.3], ids=["full rate", "stalls"])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_rows_are_the_golden_servers(slots, stall):
    sizes = {"parameters": 150, "workers": 3, "slots": slots, "rows": 3}
    ServerBench(TINY, seed=new_seed(), rounds=5, sizes=sizes, stall=stall).run()
