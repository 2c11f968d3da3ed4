"""examples/rdma: two ends in network namespaces, each the golden model of a node, write to one another."""

import subprocess
import sys
from pathlib import Path

import pytest

from fanin.host.lab import Lab

SCRIPT = Path(__file__).parents[2] / "examples" / "rdma" / "write.py"
LIMIT = 60
pytestmark = pytest.mark.needs("namespaces")


def test_two_models_write_to_one_another_over_veth():
    options = ["--bytes", "70001", "--mtu", "1024"]
    with Lab(["here", "there"]) as lab:
        lab.wire("here", "near", "there", "far")
        lab.wire("here", "talk0", "there", "talk1")  # for TCP
        lab.address("here", "talk0", "10.9.0.1/24")
        lab.address("there", "talk1", "10.9.0.2/24")
        ends = {
            "here": ["--port", "near", "--ip", "10.0.0.1", "--listen", "10.9.0.1:18515"],
            "there": ["--port", "far", "--ip", "10.0.0.2", "--connect", "10.9.0.1:18515"],
        }
        running = [
            lab.start(name, [sys.executable, SCRIPT, *own, *options], stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, text=True)
            for name, own in ends.items()
        ]  # fmt: skip
        try:
            said = [process.communicate(timeout=LIMIT) for process in running]
        finally:
            for process in running:
                process.kill()
    for out, error in said:
        assert "70001 bytes written, 70001 received as they were sent" in out, error
        assert not error
