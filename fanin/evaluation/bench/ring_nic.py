"""Smart NIC in RTL: an all-reduce with concurrent traffic of the hosts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.bench.ring_rtl import TIMEOUT, wrong_values
from fanin.hdl.ring.share import OVERHEAD
from fanin.ring.facts import RingConfig
from fanin.ring.golden import all_reduce
from fanin.sim.cosim.clock import port_rate
from fanin.sim.network import LinkConfig
from fanin.sim.ring.cosim import RingCosim, RingRun
from fanin.sim.ring.flow import Flow

NODES = 3
COUNT = 10**7  # values
FLOW = Flow(gbps=10)
LINK = LinkConfig()
MIN_RING = 98.0  # % of the rate that the other traffic leaves


def measure() -> Iterator[Result]:
    """Yield the figures; three nodes run for two million cycles, some minutes."""
    config = RingConfig()
    rng = np.random.default_rng(5)
    gradients = [rng.normal(0, 1e-2, COUNT).astype(np.float32) for _ in range(NODES)]
    expected = all_reduce.all_reduce(gradients, config)
    cosim = RingCosim(config, nodes=NODES, nic=True)
    alone, beside = (
        cosim.all_reduce([[gradient] for gradient in gradients], link=LINK, timeout=TIMEOUT, flow=flow)
        for flow in (None, FLOW)
    )
    name = f"smart NIC, {NODES} nodes, 10^7 values"
    yield Result(f"{name}: cycles", alone.cycles, "cycles", note="no other traffic")
    used = _used(beside, port_rate(LINK.gbps, cosim.period_ps, config.width))
    note = f"beside a flow of {FLOW.gbps:g} Gb/s, {number(100 * used)} % of the link"
    yield Result(f"{name}, with a flow: cycles", beside.cycles, "cycles", note=note)
    ring = 100 * alone.cycles / (beside.cycles * (1 - used))
    yield Result(f"{name}, with a flow: ring", ring, "% of the rest", MIN_RING, at_least=True)
    wrong = wrong_values(alone, expected) + wrong_values(beside, expected)
    yield Result(f"{name}: values wrong", wrong, "values", 0, note="all nodes' against NumPy, both runs")
    sent = sum(carried.sent for carried in beside.flow_counters)
    spoiled = sum(carried.sent - carried.received + carried.wrong for carried in beside.flow_counters)
    yield Result(f"{name}, with a flow: frames lost or changed", spoiled, "frames", 0, note=f"of {sent}")


def _used(run: RingRun, bytes_per_cycle: float) -> float:
    """Return the share of a link that the flow used during the all-reduce, at the node with the most frames."""
    frames = max(carried.sent for carried in run.flow_counters)
    return frames * (FLOW.size + OVERHEAD) / (run.cycles * bytes_per_cycle)
