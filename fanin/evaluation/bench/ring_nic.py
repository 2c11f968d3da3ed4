"""Benchmark of the smart NIC in RTL: an all-reduce with concurrent traffic of the hosts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.bench.ring_rtl import TIMEOUT, wrong_values
from fanin.hdl.ring.share import OVERHEAD
from fanin.link import LinkConfig
from fanin.ring.facts import RingConfig
from fanin.ring.golden import all_reduce
from fanin.sim.cosim.clock import port_rate
from fanin.sim.ring.cosim import RingCosim, RingRun
from fanin.sim.ring.flow import Flow

NODES = 3
COUNT = 10**7  # values of a vector
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
    run_alone, run_with_flow = (
        cosim.all_reduce([[gradient] for gradient in gradients], link=LINK, timeout=TIMEOUT, flow=flow)
        for flow in (None, FLOW)
    )
    name = f"smart NIC, {NODES} nodes, 10^7 values"
    yield Result(f"{name}: cycles", run_alone.cycles, "cycles", note="no other traffic")
    flow_share = _flow_share(run_with_flow, port_rate(LINK.gbps, cosim.period_ps, config.width))
    note = f"beside a flow of {FLOW.gbps:g} Gb/s, {number(100 * flow_share)} % of the link"
    yield Result(f"{name}, with a flow: cycles", run_with_flow.cycles, "cycles", note=note)
    ring_rate = 100 * run_alone.cycles / (run_with_flow.cycles * (1 - flow_share))
    yield Result(f"{name}, with a flow: ring", ring_rate, "% of the rest", MIN_RING, at_least=True)
    wrong = wrong_values(run_alone, expected) + wrong_values(run_with_flow, expected)
    yield Result(f"{name}: values wrong", wrong, "values", 0, note="all nodes' against NumPy, both runs")
    sent = sum(flow.sent for flow in run_with_flow.flow_counters)
    bad_frames = sum(flow.sent - flow.received + flow.wrong for flow in run_with_flow.flow_counters)
    yield Result(f"{name}, with a flow: frames lost or changed", bad_frames, "frames", 0, note=f"of {sent}")


def _flow_share(run: RingRun, bytes_per_cycle: float) -> float:
    """Return the share of a link that the flow used during the all-reduce, at the node with the most frames."""
    frames = max(flow.sent for flow in run.flow_counters)
    return frames * (FLOW.size + OVERHEAD) / (run.cycles * bytes_per_cycle)
