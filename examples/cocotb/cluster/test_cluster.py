"""Test of a cluster node: trains a small CNN on images in memory, bit for bit as the golden model."""

from __future__ import annotations

import random

import cocotb
import numpy as np
from bench import Bench
from compare import check_equal

from fanin.cnn.driver import CnnDriver, HostMemory
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.memory import MemoryMap, state_stages
from fanin.cnn.training import Job

NETWORK = EXAMPLES["tiny"]
FRAMES = 6
JOB = Job.of(FRAMES, batch=4, rate=0.5, momentum=0.9)  # the last batch has two frames


def words_of(states: list[State]) -> list[np.ndarray]:
    """Return weights and momenta in memory order, for each stage that has parameters."""
    stages = NETWORK.stages
    return [state_image(stages[i].layer, stages[i].parallelism, states[i]) for i in state_stages(NETWORK)]


async def carry_out(bench: Bench, job) -> None:
    """Start a job of the node, and check that it succeeds."""
    driver = bench.driver
    await bench.run(job)
    while (status := driver.status_of(await bench.run(driver.wait()))).running:
        pass
    assert not status.cause, driver.explain(status)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def a_network_trains(dut):
    """Load parameters, train two batches, and read the parameters back."""
    memory_map = MemoryMap(NETWORK, frames=FRAMES)
    bench = Bench(dut, CnnDriver(memory_map))
    driver, memory = bench.driver, bench.memory("memory", memory_map.end)
    rng = np.random.default_rng(random.getrandbits(32))
    shape = NETWORK.stages[NETWORK.images].layer.output
    classes = NETWORK.stages[NETWORK.labels].layer.output.c
    images = rng.standard_normal((FRAMES, shape.h, shape.w, shape.c)).astype(np.float32)
    labels = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, FRAMES)]
    states = initial_state(NETWORK, seed=1)
    golden = GoldenNetwork(NETWORK, states)
    expected = golden.train(images, labels, JOB)

    content = np.zeros(memory_map.end, np.uint8)
    host = HostMemory(memory_map, content)
    host.write_parameters(words_of(states))
    host.write_frames(images, labels)
    memory.write(0, content.tobytes())

    await bench.start()
    await bench.run(driver.configure())
    for job in (driver.load(), driver.train(JOB), driver.dump()):
        await carry_out(bench, job)

    content[:] = np.frombuffer(memory.read(0, memory_map.end), np.uint8)
    check_equal("results", expected.tobytes(), host.read_results(FRAMES).tobytes())
    for stage, want, got in zip(
        state_stages(NETWORK), words_of(golden.states), host.read_parameters(), strict=True
    ):
        check_equal(f"state of {NETWORK.stages[stage].name}", want.tobytes(), got.tobytes())
