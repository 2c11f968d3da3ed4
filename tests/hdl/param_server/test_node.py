"""The node as its driver sees it: over AXI4-Lite, without a network."""

import random
from functools import partial

import numpy as np
import pytest
from amaranth.sim import Simulator

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.param_server import node
from fanin.hdl.param_server.server import ParamServer
from fanin.hdl.param_server.server_control import Refusal
from fanin.host.driver import AsyncRegisterDriver
from fanin.job import worker_endpoint
from fanin.param_server.driver import ParamServerDriver
from fanin.param_server.facts import ParamServerConfig, ServerLayout
from fanin.param_server.golden import ParameterServer
from fanin.rdma.facts import PRESETS, Connection
from fanin.sim.rtl.memory import ReadMemory, WriteMemory
from tests.hdl.bus.test_registers import Host
from tests.hdl.param_server.server_bench import Bytes

CONFIG = PRESETS["tiny"]
SIZES = ParamServerConfig(parameters=10, workers=2, slots=2, rows=2, width=CONFIG.width)


def test_a_host_sets_a_server_up_and_sees_what_it_does(monkeypatch):
    """Two gradients lie in the table; the rows go nowhere, as no queue pair is connected."""
    layout = ServerLayout(SIZES, 0, base=0x1000)
    golden = ParameterServer(layout, rate=0.5, initial=np.arange(10))
    for worker, others in (0, 0), (1, 0):
        slot = layout.slot(worker, 1)
        golden.memory[slot.gradient : slot.gradient + 40] = np.arange(1, 11, dtype="<f4").tobytes()
        golden.memory[slot.others : slot.others + 4] = others.to_bytes(4, "little")
        golden.memory[slot.gvnum : slot.gvnum + 4] = (1).to_bytes(4, "little")
    memory = bytearray(golden.memory)
    monkeypatch.setattr(node, "ParamServer", partial(ParamServer, patience=20))
    dut, driver = node.ParamServerNode(config=CONFIG), ParamServerDriver(CONFIG)
    step = CONFIG.width // 8
    word = lambda at: int.from_bytes(memory[at : at + step], "little")  # noqa: E731
    ports = [ReadMemory(getattr(dut, name), word, latency=5) for name in ("memory", "rows", "table", "scan")]
    writes = WriteMemory(dut.rows, latency=5)
    writes.content = Bytes(memory)
    said = {}

    async def main(ctx):
        host = Host(ctx, dut.axil, random.Random(0), patience=0.0)

        async def read32(address):
            value, response = await host.read(address)
            assert response is Resp.OKAY
            return value

        async def write32(address, value):
            assert await host.write(address, value) is Resp.OKAY

        bus = AsyncRegisterDriver(driver.registers, read32, write32)
        driver.check_identity(await bus.run(driver.identify()))
        await bus.run(driver.set_job(layout, golden.step))
        for worker in range(SIZES.workers):
            await bus.run(driver.set_worker(worker, layout, buffers=0x2000 * worker, rkey=7))
            while (await bus.read("status"))["setting"]:
                pass
        await bus.run(driver.start())
        while (status := driver.status_of(await bus.run(driver.status()))).gone != (0, 1) or status.busy:
            assert len(said.setdefault("looks", [])) < 50, status
            said["looks"].append(status)
        said["drained"] = driver.status_of(await bus.run(driver.status())).drained
        for command in driver.readmit(1, buffers=0x9000, rkey=8), driver.exclude(0), driver.exclude(2):
            await bus.run(command)
            said.setdefault("refused", []).append(driver.status_of(await bus.run(driver.status())).refused)
        assert (await bus.read("worker_buffers"), await bus.read("worker_key")) == (0x9000, 8)
        await bus.run(driver.run(False))
        said["status"] = driver.status_of(await bus.run(driver.status()))
        said["counters"] = driver.counters_of(await bus.run(driver.counters()))

    simulator = Simulator(dut)
    simulator.add_clock(4e-9)
    simulator.add_testbench(main)
    for part in (*ports, writes):
        simulator.add_testbench(part.process, background=True)
    simulator.run()
    updates = [golden.apply(worker) for worker in range(2)]
    assert memory == golden.memory
    status, counters = said["status"], said["counters"]
    assert (status.version, status.gone, status.busy, status.exhausted) == (2, (0, 1), False, False)
    assert said["drained"] == (0, 1)
    assert said["refused"] == [Refusal.UNCONNECTED, Refusal.NONE, Refusal.WORKER]
    assert (status.staleness, status.stalest) == (sum(u.staleness for u in updates), updates[1].staleness)
    assert (counters["updates"], counters["failed"], counters["completed"]) == (2, 2, 0)
    assert counters["made"] == 2 * layout.row(0).size // step
    assert counters["nic_sent"] == counters["memory_errors"] == 0


@pytest.mark.parametrize(
    ("sizes", "base", "message"),
    [
        ({"workers": CONFIG.queue_pairs + 1}, 0, "workers must be at most 4, a queue pair each, not 5"),
        ({"width": 512}, 0, "width must be 128, not 512"),
        ({}, (1 << CONFIG.address_width) - 0x100, "rows and table must end below"),
    ],
)
def test_jobs_that_the_node_cannot_have_are_refused(sizes, base, message):
    layout = ServerLayout(
        ParamServerConfig(**({"parameters": 10, "workers": 2, "width": 128} | sizes)), 0, base
    )
    with pytest.raises(ValueError, match=message):
        ParamServerDriver(CONFIG).set_job(layout, np.float32(1))


def test_behind_a_barrier_a_worker_has_one_slot():
    layout = ServerLayout(ParamServerConfig(parameters=10, workers=2, slots=2, width=128), 0)
    with pytest.raises(ValueError, match="slots must be 1 with a barrier, not 2"):
        ParamServerDriver(CONFIG).set_job(layout, np.float32(1), barrier=True)


def test_behind_a_barrier_nothing_is_broadcast():
    layout = ServerLayout(ParamServerConfig(parameters=10, workers=2, width=128), 0)
    with pytest.raises(ValueError, match="broadcast must be false with a barrier"):
        ParamServerDriver(CONFIG).set_job(layout, np.float32(1), barrier=True, broadcast=True)


def test_all_queue_pairs_have_one_path_mtu():
    """All rows are cut alike: docs/systems/param-server-hardware.md, "Update and push in one pass"."""
    driver, peer = ParamServerDriver(CONFIG), worker_endpoint(0)
    driver.connect(0, Connection(1, mtu=1024), peer)
    driver.connect(1, Connection(2, mtu=1024), peer)
    with pytest.raises(ValueError, match="mtu must be 1024, as of the other queue pairs, not 4096"):
        driver.connect(1, Connection(2, mtu=4096), peer)
    driver.configure(worker_endpoint(1))
    driver.connect(1, Connection(2, mtu=4096), peer)
