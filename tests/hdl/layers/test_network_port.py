# amaranth: UnusedElaboratable=no
"""NetworkPort: a host's commands to connections, in any order; FrameGate: the frames of a job, and no more."""

import random

import pytest

from fanin.hdl.layers.frame_gate import FrameGate
from fanin.hdl.layers.network_port import EndShape, NetworkPort
from tests.support import new_seed, simulate

OWN = {"run": 7, "own_mac": 1, "own_ip": 2, "timeout": 1000, "retries": 3, "ack_frames": 4, "ack_delay": 64}
SPACING = 10  # cycles of a register access and a look at what has become of it


def commanded(process):
    """Two connections without a network; a host's commands, as far apart as register accesses are."""
    dut = NetworkPort(ends=(EndShape(1, 2, 1), EndShape(1, 2, 1, True)))
    ended = []

    async def run(ctx):
        async def pulse(*names, run=7, index=0, peer=5):
            ctx.set(dut.own, {**OWN, "run": run})
            ctx.set(dut.peer, {"index": index, "connection": peer, "priority": 0, "peer_mac": 9, "peer_ip": 8})
            for name in names:
                ctx.set(getattr(dut, name), 1)
            await ctx.tick()
            for name in names:
                ctx.set(getattr(dut, name), 0)
            await ctx.tick().repeat(SPACING)
            return bool(ctx.get(dut.refused)), not ctx.get(dut.unready)

        ctx.set(dut.mac_tx.ready, 1)
        await process(pulse, ctx, dut)
        ended.append(True)

    simulate(dut, processes=[run], idle=400)
    assert ended


def test_a_run_has_a_number_of_its_own():
    async def process(pulse, ctx, dut):
        assert await pulse("set") == (False, False)
        assert await pulse("set", index=1) == (False, False)
        assert await pulse("start", run=7) == (False, True)
        assert await pulse("start", run=8) == (True, True)  # there is one
        assert await pulse("reset") == (True, False)
        assert await pulse("start", run=7) == (True, False)  # its frames may still arrive
        assert await pulse("start", run=8) == (False, True)

    commanded(process)


def test_settings_of_a_run_hold():
    async def process(pulse, ctx, dut):
        assert await pulse("start") == (False, True)
        assert await pulse("set", peer=6) == (True, True)
        assert await pulse("reset") == (True, False)
        assert await pulse("set", peer=6) == (False, False)

    commanded(process)


@pytest.mark.parametrize("index", [2, 63])
def test_a_connection_that_does_not_exist_is_refused(index):
    async def process(pulse, ctx, dut):
        assert await pulse("set", index=index) == (True, False)
        assert await pulse("set", index=1) == (False, False)

    commanded(process)


def test_commands_of_one_write_have_an_order():
    """The connections are reset, one gets its values, then the run begins."""

    async def process(pulse, ctx, dut):
        assert await pulse("start", run=1) == (False, True)
        assert await pulse("reset", "set", "start", run=2) == (False, True)
        assert await pulse("set", "start", run=3) == (True, True)

    commanded(process)


def test_nothing_is_commanded_during_a_reset_of_the_node():
    async def process(pulse, ctx, dut):
        ctx.set(dut.blocked, 1)
        assert await pulse("set") == (True, False)
        assert await pulse("start") == (True, False)
        ctx.set(dut.blocked, 0)
        assert await pulse("start") == (False, True)

    commanded(process)


@pytest.mark.parametrize("transfers", [1, 3])
def test_a_gate_passes_the_frames_of_a_job(transfers):
    """Whatever comes after them waits for the next job; no word is withdrawn (monitored)."""
    rng = random.Random(new_seed())
    jobs = [rng.randint(0, 4) for _ in range(6)]
    words = [[n] for n in range(sum(jobs) * transfers)]
    dut = FrameGate(lanes=1, transfers=transfers)
    seen = []

    async def host(ctx):
        passed = 0
        for frames in jobs:
            for _ in range(rng.randint(1, 30)):
                await ctx.tick()
            assert len(seen) == passed  # none between jobs
            ctx.set(dut.frames, frames)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            passed += frames * transfers
            while len(seen) < passed:
                await ctx.tick()

    async def count(ctx):
        async for _, _, valid, ready in ctx.tick().sample(dut.o.valid, dut.o.ready):
            if valid and ready:
                seen.append(True)

    log = simulate(dut, drive={"i": words}, collect={"o": len(words)}, processes=[host, count])
    assert [list(word) for _, word in log["o"]] == words
