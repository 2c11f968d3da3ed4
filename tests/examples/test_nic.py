"""examples/nic: ordinary programs in two namespaces, through two INCEPTIONN NICs; one-sided writes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fanin.codec.facts import Inceptionn
from tests.support import new_seed, slow

NIC = Path(__file__).parents[2] / "examples" / "nic"
NO_RTL = ()
RTL = ("--rtl",)

pytestmark = pytest.mark.needs("namespaces")


def _measured(*options, lab="lab.py", limit=120):
    done = subprocess.run(
        [sys.executable, NIC / lab, *map(str, options)],
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("megabytes", "loss", "mtu", "engine"),
    [
        (0.4, 1, 1500, NO_RTL),
        *slow((1, 0, 1501, NO_RTL), (1, 1, 1501, NO_RTL)),
        *slow((1, 0, 1500, RTL), (1, 1, 1500, RTL), (1, 0, 9000, RTL)),
        *slow((100, 0, 1500, NO_RTL)),
    ],
)
def test_tcp_is_compressed_within_the_bound_and_everything_else_is_identical(megabytes, loss, mtu, engine):
    found = _measured(
        "--megabytes",
        megabytes,
        "--loss",
        loss,
        "--mtu",
        mtu,
        *engine,
        limit=(300 if engine else 60) + 10 * megabytes,
    )
    size, compressed, plain = found["bytes"], found["compressed"], found["plain"]
    assert size == compressed["received"] == plain["received"] == megabytes * 1e6
    assert compressed["checksum_errors"] == plain["checksum_errors"] == 0
    assert plain["identical"]
    assert set(plain["payload_on_wire"]) == {"0x00"}
    assert 0 < compressed["largest_error"] <= 2.0 ** -Inceptionn().bound
    on_wire = compressed["payload_on_wire"]
    if mtu % 4 == 0:
        assert on_wire.get("0x2c", 0) == 0
        assert on_wire["0x28"] < 0.4 * size
    else:  # three segments of four begin inside a value
        assert 0.6 * size < on_wire["0x2c"] < 0.9 * size
    if loss:
        assert compressed["frames_lost"]
        assert plain["retransmitted"]
    sender, receiver = (nic["counters"] for nic in found["nics"])
    if not loss:
        assert sender["tx_bytes_out"] == receiver["rx_bytes_in"]
        assert sender["tx_coded"] == receiver["rx_coded"]
    assert (sender["rx_dropped"], receiver["rx_dropped"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [NO_RTL, RTL])
def test_a_files_bytes_are_written_into_the_other_hosts_memory(engine, tmp_path):
    (tmp_path / "file").write_bytes(np.random.default_rng(new_seed()).bytes(100_003))
    command = [sys.executable, NIC / "writes.py", tmp_path / "file", *engine]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ending"], found["identical"]) == ("done", True)
    assert found["counters"]["a"]["sent"] >= 98


@pytest.mark.parametrize(
    ("values", "loss", "engine"), [(20_001, 0, NO_RTL), *slow((20_001, 1, NO_RTL), (20_001, 1, RTL))]
)
def test_an_all_reduce_over_sockets_is_within_the_bound_and_exact_where_it_is_not_marked(values, loss, engine):
    found = _measured("--values", values, "--loss", loss, *engine, lab="all_reduce_lab.py", limit=300)
    compressed, plain, bound = found["compressed"], found["plain"], 2.0 ** -Inceptionn().bound
    assert compressed["alike"]
    assert (
        bound / 4 < compressed["largest_error"] <= 3 * bound
    )  # a hop, and a total that arrives as it was sent
    assert plain["alike"]
    assert plain["exact"]
    assert compressed["payload_on_wire"]["0x28"] < 0.5 * 2 * found["bytes"]
    assert compressed["payload_on_wire"].get("0x2c", 0) == 0
    assert list(plain["payload_on_wire"]) == ["0x00"]
    assert plain["payload_on_wire"]["0x00"] > 2 * found["bytes"]
