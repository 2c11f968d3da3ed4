"""examples/racks: a tree of served switches in namespaces, at which nodes in RTL train."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/racks/train.py"


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
def test_nodes_train_at_three_served_switches(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "run"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["bit_exact"]
    assert record["options"]["network"]["tree"]["rack1"] == ["worker 2", "worker 3"]
    operations = 5 * -(-426 // 8)  # 5 epochs, an AGG and an ACK for 8 samples
    for name, ports in (("root", (0, 1)), ("rack0", (0, 1, 8)), ("rack1", (0, 1, 8))):
        table = done.stdout.split(f"\n{name}\n")[1].split("\n\n")[0]
        frames_in = {int(port): int(count) for port, count in re.findall(r"(\d+)  port\d+ +([\d,]+)", table)}
        assert frames_in.keys() == set(ports)
        assert min(frames_in.values()) >= 2 * operations
