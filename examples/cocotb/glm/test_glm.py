"""Test of a GLM node: trains with a Python worker over fanin's switch, bit for bit as the golden model."""

from __future__ import annotations

import random
from collections import deque

import cocotb
import numpy as np
from bench import Bench
from compare import check_equal
from frames import Aggregation
from scapy.layers.l2 import Ether
from worker import Worker

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.driver import NodeDriver, NodeJob, NodeMemories
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.layout import join_model, pack_labels, pack_samples, split_ports
from fanin.glm.golden.train import train
from fanin.hdl.glm.node_registers import Failure
from fanin.job import SWITCH, Job, Member, worker_endpoint
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import Kind

CONFIG = PRESETS["tiny"]
WORKERS = 2
SHAPE = TrainShape(node=CONFIG, workers=WORKERS, samples=64, columns=40, batch=32)  # two mini-batches
LOSS, RATE = Loss.LOGISTIC, fixed.learning_rate(0.5 / SHAPE.batch)
MEMBERS = tuple(Member(worker, 1 << worker, worker_endpoint(worker)) for worker in range(WORKERS))
JOB = Job(id=1, base=0, slots=CONFIG.slots, members=MEMBERS)
TIMEOUT = 10_000  # cycles until the node sends again: more than anything here takes
MEMORY = 1 << 14  # bytes of each


def make_switch() -> ReferenceSwitch:
    """Return a switch with the job."""
    switch = ReferenceSwitch(endpoint=SWITCH, ports=WORKERS, encap=CONFIG.encap)
    switch.add_job(JOB)
    return switch


def golden_frames(workers: list[Worker]) -> list[bytes]:
    """Return the frames that the first worker sends if all workers are Python models."""
    switch, sent = make_switch(), []
    waiting = deque((port, frame) for port, worker in enumerate(workers) for frame in worker.send())
    while waiting:
        port, frame = waiting.popleft()
        if port == 0:
            sent.append(frame)
        for to, answer, _ in switch.inject(port, frame, 0):
            waiting.extend((to, reply) for reply in workers[to].receive(answer))
    return sent


async def carry(bench: Bench, worker: Worker) -> None:
    """Carry frames between the node at port 0 of a switch, and a worker at port 1."""
    switch, source, sink = make_switch(), bench.source("mac_rx"), bench.sink("mac_tx")
    waiting = deque((1, frame) for frame in worker.send())
    while True:
        while waiting:
            for to, answer, _ in switch.inject(*waiting.popleft(), 0):
                if to == 0:
                    source.send_nowait(answer)
                else:
                    waiting.extend((1, reply) for reply in worker.receive(answer))
        waiting.append((0, bytes(await sink.recv())))


def node_job() -> NodeJob:
    """Return the job in the form of the node's registers."""
    own = MEMBERS[0]
    return NodeJob(
        id=JOB.id,
        base=JOB.base,
        slots=JOB.slots,
        member=own.bitmap,
        own=own.endpoint,
        switch=SWITCH,
        timeout=TIMEOUT,
    )


def is_agg(frame: bytes) -> bool:
    """Return whether the frame carries PAs. ACKs are sent between PAs whenever there is time."""
    return Ether(frame)[Aggregation].kind == Kind.AGG


@cocotb.test(timeout_time=200, timeout_unit="us")
async def an_epoch_trains(dut):
    """Train two mini-batches of 32 samples, with 20 columns in the node and 20 in the worker."""
    rng = np.random.default_rng(random.getrandbits(32))
    features = rng.integers(0, 1 << SHAPE.precision, (SHAPE.samples, SHAPE.columns), dtype=np.uint8)
    labels = fixed.labels(rng.integers(0, 2, SHAPE.samples), LOSS, CONFIG.frac)
    (golden,) = train(features, labels, SHAPE, loss=LOSS, rate=RATE, epochs=1)

    def workers() -> list[Worker]:
        return [Worker(SHAPE, JOB, n, features, labels, loss=LOSS, rate=RATE) for n in range(WORKERS)]

    bench = Bench(dut, NodeDriver(CONFIG))
    driver = bench.driver
    for port, content in enumerate(split_ports(pack_samples(features, SHAPE, worker=0))):
        bench.memory(f"samples{port}", MEMORY).write(0, content.tobytes())
    bench.memory("labels", MEMORY).write(0, pack_labels(labels, SHAPE, worker=0).tobytes())
    bench.scoreboard("mac_tx", only=is_agg).expect(filter(is_agg, golden_frames(workers())))
    _, worker = workers()
    cocotb.start_soon(carry(bench, worker))

    await bench.start()
    memories = NodeMemories(samples=[0] * CONFIG.sample_ports, labels=0)
    await bench.run(
        driver.configure(SHAPE, loss=LOSS, rate=RATE, epochs=1, job=node_job(), memories=memories),
        driver.command("clear_model", "clear_counters"),
    )
    await bench.poll("status", "busy", 0)
    await bench.run(driver.command("start"))
    await bench.poll("status", "busy", 0)
    status = driver.status_of(await bench.run(driver.status()))
    assert status.cause is Failure.NONE

    own = driver.model_of(await bench.run(driver.read_model(SHAPE.chunks)))
    await bench.arrive()
    other = np.zeros_like(own)
    other.reshape(-1)[: worker.model.size] = worker.model
    check_equal("model", golden.model.tobytes(), join_model([own, other], SHAPE).tobytes())
