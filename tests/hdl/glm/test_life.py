# amaranth: UnusedElaboratable=no
"""One node, many jobs: after whatever happened to it, a clean job gives the golden bits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fanin.glm.facts import PRESETS, Partitioning
from fanin.hdl.aggregation.job import FailureCause
from fanin.hdl.glm.node_control import NodeControl
from fanin.hdl.glm.node_registers import Failure
from fanin.sim.switch.base import Job as SwitchJob
from fanin.sim.switch.base import Member
from tests.hdl.aggregation.bench import BASE, JOB, own
from tests.hdl.glm.cluster import Cluster
from tests.hdl.glm.life import Life, narrow
from tests.hdl.glm.training import Job
from tests.support import new_seed, simulate

TINY = PRESETS["tiny"]
NODES = {
    "model-parallel": narrow(TINY, engines=2),
    "a board's": narrow(TINY, label_width=32, mac_width=32, compact=True),
    "data-parallel": narrow(TINY, lanes=8, engines=2, mode=Partitioning.DATA_PARALLEL),
    "vanilla": narrow(TINY, vanilla=True),
    "sparse": narrow(TINY, engines=2, depth=16, sparse=True),
    "sparse, one engine": narrow(TINY, depth=16, sparse=True),
    "decaying": narrow(TINY, engines=2, l2=True),
    "sparse, decaying": narrow(TINY, engines=2, depth=16, sparse=True, l2=True),
    "deep": narrow(
        TINY, depth=512, sample_fifo=512
    ),  # clearing its model takes longer than the checks before a run
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(NODES))
def test_a_clean_job_is_golden_after_any_other_life(kind):
    life = Life(NODES[kind], new_seed(), steps=150).run()
    assert life.clean > 5


def _again(cluster: Cluster, number: int) -> Any:
    """The host's way to the same job under a new id."""
    switch = cluster.links.switch
    switch.remove_job(number - 1)
    members = (Member(0, 1, own(0)),)
    switch.add_job(SwitchJob(number, BASE, cluster.job.node.slots, members))
    return cluster.configure(id=number, timeout=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Partitioning))
def test_fas_that_come_after_a_failure_train_nothing(mode):
    """Two come before the host resets the transport: part of a mini-batch, or the first engine's totals."""
    node = narrow(TINY, lanes=8, engines=2, mode=mode)
    job = Job(seed=new_seed(), node=node, epochs=1)
    fails = True

    async def script(cluster: Cluster) -> None:
        nonlocal fails
        await cluster.configure(timeout=60, retries=1)
        await cluster.train()
        assert [status.cause for status in cluster.status] == [Failure.TIMEOUT]
        for _ in range(100):
            await cluster.buses[0].run(cluster.driver.status())
        fails = False
        await _again(cluster, JOB + 1)
        await cluster.command("start", "clear_model")
        await cluster.wait()
        await cluster.read()

    def link(up: bool, worker: int, packet: Any, before: int) -> list[int]:
        return [0 if up or not fails else 300 if before < 2 else 20_000]

    cluster = Cluster(job, link=link, script=script, stall=0.0).run()
    assert not cluster.status[0].failed
    assert cluster.model == job.golden.model.tolist()


@pytest.mark.slow
def test_start_and_clear_model_in_one_write_train_from_model_0():
    """Clearing so deep a model takes longer than the check before a run."""
    job = Job(seed=new_seed(), node=narrow(TINY, lanes=8, depth=512), epochs=1)

    async def script(cluster: Cluster) -> None:
        await cluster.configure()
        await cluster.train()
        await cluster.command("start", "clear_model", "clear_counters")
        await cluster.wait()
        await cluster.read()

    cluster = Cluster(job, script=script).run()
    assert cluster.model == job.golden.model.tolist()


COMMANDS = "start", "clear", "reset"
CAUSES = list(FailureCause)


class _Worker:
    """What a control sees of worker, memory and transport; runs may fail."""

    def __init__(self, dut: NodeControl, rng: random.Random):
        self.dut, self.rng = dut, rng
        self.training = self.clearing = self.moving = 0
        self.cause, self.error = FailureCause.NONE, 0
        self.log: list[str] = []

    async def cycle(self, ctx: Any, *, fails: float, **commands: int) -> list[int]:
        """One cycle with these commands; busy, failed and cause."""
        dut, rng = self.dut, self.rng
        for name in COMMANDS:
            ctx.set(getattr(dut, name), commands.get(name, 0))
        ctx.set(dut.training, self.training > 0)
        ctx.set(dut.occupied, self.training > 0 or self.clearing > 0)
        ctx.set(dut.moving, self.moving > 0)
        ctx.set(dut.transport, {"idle": 1, "failed": self.cause != FailureCause.NONE, "cause": self.cause})
        ctx.set(dut.bus_error, self.error)
        pulses = dut.begin, dut.clear_model, dut.abort, dut.forget, dut.enable
        status = dut.busy, dut.failed, dut.cause
        _, _, *values = await ctx.tick().sample(*pulses, *status)
        begin, clear, abort, forget, enable, *seen = values
        assert not (clear and (self.training or self.clearing)), "the model is cleared while it is in use"
        assert not (begin and (self.training or self.clearing or self.moving)), "a run begins too early"
        self.log += ["begin"] * begin + ["clear"] * clear
        left = (max(0, n - 1) for n in (self.training, self.clearing, self.moving))
        self.training, self.clearing, self.moving = left
        if begin:
            self.training, self.moving, self.error = rng.randint(1, 60), rng.randint(0, 60), 0
        if clear:
            self.clearing = rng.randint(1, 60)
        if abort:
            self.training, self.moving = 0, rng.randint(0, 60)
        if forget:
            self.cause = FailureCause.NONE
        elif enable and rng.random() < fails:
            self.cause = rng.choice(CAUSES)
        if self.training and rng.random() < fails:
            self.error = 1
        return seen


def test_commands_reset_clear_and_start_the_next_run_whatever_came_before():
    """NodeControl alone, with a model of what it controls: thousands of cycles in a second."""
    dut = NodeControl()
    rng = random.Random(new_seed())
    done = []

    async def process(ctx):
        worker = _Worker(dut, rng)
        for _ in range(12):
            for _ in range(rng.randrange(150)):
                commands = {name: 1 for name in COMMANDS if rng.random() < 0.05}
                ctx.set(dut.refusal, rng.choice([0, 0, Failure.SHAPE, Failure.ADDRESS]))
                await worker.cycle(ctx, fails=0.01, **commands)
            ctx.set(dut.refusal, Failure.NONE)
            worker.log.clear()
            writes = [COMMANDS] if rng.random() < 0.5 else [("reset",), ("clear",), ("start",)]
            for names in writes:
                await worker.cycle(ctx, fails=0, **dict.fromkeys(names, 1))
                for _ in range(rng.randrange(5)):
                    await worker.cycle(ctx, fails=0)
            busy, failed = 1, 0
            while busy:
                busy, failed, _ = await worker.cycle(ctx, fails=0)
            assert not failed
            assert worker.log[-2:] == ["clear", "begin"]
            assert worker.log.count("begin") == 1 or worker.log[0] == "begin"
        done.append(True)

    simulate(dut, processes=[process], collect={}, seed=0, limit=1, idle=9000)
    assert done
