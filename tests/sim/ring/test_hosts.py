"""Hosts of ring nodes: whom a failure names. The rest is tested with nodes (test_training.py)."""

from types import SimpleNamespace

import pytest

from fanin.hdl.ring.registers import Failure
from fanin.host.causes import explain
from fanin.sim.ring.hosts import Host


@pytest.mark.parametrize(
    ("node", "cause", "message"),
    [
        (0, Failure.TIMEOUT, "node 1 has stopped answering: node 0 gives up layer 1, step 0"),
        (1, Failure.TIMEOUT, "node 1 has stopped answering: its link is cut in layer 1, step 0"),
        (2, Failure.TIMEOUT, "node 0 has stopped answering: node 2 gives up layer 1, step 0"),
        (1, Failure.MEMORY, f"node 1 ended in layer 1, step 0 with {explain(Failure.MEMORY)}"),
    ],
)
def test_a_timeout_names_the_node_behind_or_the_one_that_is_cut_off(node, cause, message):
    hosts = SimpleNamespace(board=None, nodes=3, cut_nodes={1}, name=lambda descriptor: "layer 1, step 0")
    worker = SimpleNamespace(times=None, run=lambda steps: None)
    assert Host(hosts, node, worker, 1)._failure(cause) == message
