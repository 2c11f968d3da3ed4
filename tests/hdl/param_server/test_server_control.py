"""ServerControl: what a host may command, and what is refused with which cause."""

import pytest

from fanin.hdl.param_server.server_control import Refusal, ServerControl
from fanin.param_server.facts import ParamServerConfig, ServerLayout
from fanin.rdma.facts import PRESETS
from tests.support import simulate

CONFIG = PRESETS["tiny"]
LAYOUT = ServerLayout(
    ParamServerConfig(parameters=10, workers=2, slots=2, rows=3, width=CONFIG.width), 0, 0x1000
)


def job_of(layout, **modes):
    """What a driver writes of a job."""
    sizes, row, slot = layout.config, layout.row(0), layout.slot(0, 0)
    return {
        "workers": sizes.workers, "slots": sizes.slots, "rows": sizes.rows, "base": row.base,
        "words": (slot.others - slot.base) // sizes.word_bytes, "gradient_bytes": slot.others - slot.base,
        "row_bytes": row.size, "slot_bytes": slot.size, "step": 0x3F00_0000,
    } | modes  # fmt: skip


GOOD = job_of(LAYOUT)


class Commands:
    """A host's commands, as far apart as register accesses are."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut, self.begun, self.set, self.excluded = ctx, dut, 0, [], []

    async def write(self, name, value):
        self.ctx.set(getattr(self.dut, name), value)
        await self.ctx.tick().repeat(6)

    async def pulse(self, *names):
        """Give commands; the cause with which the last one is refused."""
        ctx, dut = self.ctx, self.dut
        for name in names:
            ctx.set(getattr(dut, name), 1)
        if ctx.get(dut.excludes.valid):
            self.excluded.append(ctx.get(dut.excludes.payload))
        await ctx.tick()
        for name in names:
            ctx.set(getattr(dut, name), 0)
        for _ in range(14):
            self.begun += ctx.get(dut.begin)
            if ctx.get(dut.worker.valid) and ctx.get(dut.worker.ready):
                self.set.append(ctx.get(dut.worker.p.index))
            await ctx.tick()
        return Refusal(ctx.get(dut.refused))

    async def set_worker(self, index, table=0x2000):
        await self.write("request", {"index": index, "table": table, "remote": 3, "rkey": 4})
        return await self.pulse("set_worker")

    async def job(self, job=GOOD):
        await self.write("job", job)
        for worker in range(min(job["workers"], CONFIG.queue_pairs)):
            assert await self.set_worker(worker) is Refusal.NONE


def controlled(process):
    dut = ServerControl(config=CONFIG)
    ended = []

    async def run(ctx):
        ctx.set(dut.worker.ready, 1)
        host = Commands(ctx, dut)
        await process(host)
        ended.append(host)

    simulate(dut, processes=[run], idle=3_000)
    return ended[0]


def test_settings_hold_from_a_start_until_the_server_rests():
    async def process(host):
        await host.job()
        assert await host.pulse("start") is Refusal.NONE
        await host.write("job", GOOD | {"slots": 1})  # between start and run
        await host.write("run", 1)
        await host.write("job", GOOD | {"slots": 3})
        assert host.ctx.get(host.dut.enable)
        assert host.ctx.get(host.dut.settings.slots) == 2
        host.ctx.set(host.dut.busy, 1)
        await host.write("run", 0)
        assert (host.ctx.get(host.dut.enable), host.ctx.get(host.dut.settings.slots)) == (0, 2)
        host.ctx.set(host.dut.busy, 0)
        await host.write("run", 1)  # the job was paused, and goes on
        assert (host.ctx.get(host.dut.enable), host.ctx.get(host.dut.settings.slots)) == (1, 2)
        await host.write("run", 0)
        assert await host.set_worker(9) is Refusal.WORKER
        assert host.ctx.get(host.dut.settings.slots) == 2
        assert await host.set_worker(0) is Refusal.NONE  # of the next one
        assert host.ctx.get(host.dut.settings.slots) == 3
        await host.write("run", 1)
        assert not host.ctx.get(host.dut.enable)

    host = controlled(process)
    assert (host.begun, host.set) == (1, [0, 1, 0])


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"workers": 0}, Refusal.SIZES),
        ({"workers": CONFIG.queue_pairs + 1}, Refusal.SIZES),  # aliases 1 in fewer bits
        ({"slots": 0}, Refusal.SIZES),
        ({"slots": 9}, Refusal.SIZES),
        ({"rows": 0}, Refusal.SIZES),
        ({"rows": 17}, Refusal.SIZES),
        ({"words": 0, "gradient_bytes": 0, "row_bytes": 32, "slot_bytes": 16}, Refusal.SIZES),
        ({"gradient_bytes": GOOD["gradient_bytes"] + 4}, Refusal.SIZES),
        ({"row_bytes": GOOD["row_bytes"] + 16}, Refusal.SIZES),
        ({"slot_bytes": GOOD["slot_bytes"] - 16}, Refusal.SIZES),
        ({"barrier": 1}, Refusal.SIZES),  # with two slots
        ({"barrier": 1, "slots": 1, "scan": 1}, Refusal.SIZES),
        ({"base": 0x1004}, Refusal.PLACE),
        ({"base": 0x1000 + (1 << CONFIG.address_width)}, Refusal.PLACE),
    ],
    ids=str,
)
def test_a_job_that_cannot_be_right_is_refused(changes, cause):
    async def process(host):
        await host.job()
        await host.write("job", GOOD | changes)
        await host.pulse("start")
        assert host.ctx.get(host.dut.refused) == cause
        await host.write("run", 1)
        assert not host.ctx.get(host.dut.enable)
        await host.write("run", 0)
        await host.job()
        assert await host.pulse("start") is Refusal.NONE

    assert controlled(process).begun == 1


def test_workers_that_are_none_are_refused():
    async def process(host):
        await host.write("job", GOOD)
        assert await host.set_worker(CONFIG.queue_pairs) is Refusal.WORKER
        assert await host.set_worker(63) is Refusal.WORKER
        assert await host.set_worker(1, table=0x2008) is Refusal.PLACE
        assert await host.set_worker(1, table=1 << 60) is Refusal.PLACE
        await host.write("job", GOOD | {"slots": 0})
        assert await host.set_worker(1) is Refusal.SIZES

    assert controlled(process).set == []


def test_a_start_needs_all_workers_set_for_this_job():
    async def process(host):
        await host.write("job", GOOD)
        assert await host.pulse("start") is Refusal.UNSET
        assert await host.set_worker(1) is Refusal.NONE
        assert await host.pulse("start") is Refusal.UNSET
        assert await host.set_worker(0) is Refusal.NONE
        await host.write("job", GOOD | {"slots": 1})  # their first slots were of another table
        await host.write("job", GOOD)
        assert await host.pulse("start") is Refusal.UNSET
        await host.job()
        assert await host.pulse("start") is Refusal.NONE
        assert await host.pulse("start") is Refusal.UNSET  # they are of the job before
        assert host.begun == 1
        await host.write("job", GOOD | {"rows": 2})  # after a start that was not followed by run
        for worker in range(2):
            assert await host.set_worker(worker) is Refusal.NONE
        assert await host.pulse("start") is Refusal.NONE
        assert host.ctx.get(host.dut.settings.rows) == 2

    assert controlled(process).begun == 2


def test_nothing_is_commanded_while_the_server_is_at_work():
    async def process(host):
        await host.job()
        assert await host.pulse("set_worker", "start") is Refusal.BUSY
        assert await host.pulse("start") is Refusal.NONE
        await host.write("run", 1)
        for _ in "run", "busy":
            assert await host.pulse("start") is Refusal.BUSY
            assert await host.set_worker(0) is Refusal.BUSY
            assert host.ctx.get(host.dut.enable) == host.ctx.get(host.dut.run)
            host.ctx.set(host.dut.busy, 1)
            await host.write("run", 0)

    host = controlled(process)
    assert (host.begun, host.set) == (1, [0, 1])


async def started(host, job=GOOD):
    await host.job(job)
    assert await host.pulse("start") is Refusal.NONE
    await host.write("run", 1)
    for name in "excluded", "drained", "connected":
        await host.write(name, 0b11)


@pytest.mark.parametrize("run", [1, 0])
def test_a_worker_is_left_out_and_taken_back_while_a_job_runs(run):
    """It keeps its table. Until it is excluded no more, ``setting`` shows that the command goes on."""

    async def process(host):
        ctx, dut = host.ctx, host.dut
        await started(host)
        await host.write("run", run)
        request = {"index": 1, "table": 0x1003, "remote": 0x7000, "rkey": 5}
        await host.write("request", request)
        assert await host.pulse("exclude") is Refusal.NONE
        ctx.set(dut.worker.ready, 0)  # the server takes its time
        assert await host.pulse("readmit") is Refusal.NONE
        offered = {name: ctx.get(dut.worker.p[name]) for name in ("index", "remote", "rkey", "readmits")}
        assert offered == {"index": 1, "remote": 0x7000, "rkey": 5, "readmits": 1}
        assert ctx.get(dut.worker.valid)
        for command in "readmit", "exclude", "set_worker", "start":
            assert await host.pulse(command) is Refusal.BUSY
        ctx.set(dut.worker.ready, 1)
        await ctx.tick().repeat(8)
        assert (ctx.get(dut.worker.valid), ctx.get(dut.setting)) == (0, 1)
        assert await host.pulse("readmit") is Refusal.BUSY
        await host.write("excluded", 0b01)
        assert not ctx.get(dut.setting)
        assert ctx.get(dut.enable) == run

    host = controlled(process)
    assert host.excluded == [1]


def test_a_worker_that_cannot_be_taken_back_or_left_out_is_refused_with_the_cause():
    """Of several causes the one to see to first; nothing is offered to the server."""

    async def process(host):
        await host.write("request", {"index": 1, "table": 0, "remote": 0, "rkey": 0})
        for command in "exclude", "readmit":
            assert await host.pulse(command) is Refusal.NO_JOB
        await started(host)
        host.set.clear()
        await host.write("request", {"index": 1, "table": 0, "remote": 0, "rkey": 0})
        for others in ("set_worker",), ("start",), ("exclude",), ("set_worker", "start"):
            assert await host.pulse("readmit", *others) is Refusal.BUSY
        assert await host.pulse("exclude", "start") is Refusal.BUSY
        await host.write("connected", 0b01)
        assert await host.pulse("readmit") is Refusal.UNCONNECTED
        await host.write("drained", 0b01)
        assert await host.pulse("readmit") is Refusal.DRAINING
        await host.write("excluded", 0b01)
        assert await host.pulse("readmit") is Refusal.PRESENT
        for name in "excluded", "drained", "connected":
            await host.write(name, (1 << CONFIG.queue_pairs) - 1)
        for index in CONFIG.queue_pairs, CONFIG.queue_pairs + 1, 63:
            await host.write("request", {"index": index, "table": 0, "remote": 0, "rkey": 0})
            assert await host.pulse("readmit") is Refusal.WORKER
        await host.write("request", {"index": GOOD["workers"], "table": 0, "remote": 0, "rkey": 0})
        assert await host.pulse("exclude") is Refusal.WORKER
        await host.write("run", 0)
        assert await host.set_worker(0) is Refusal.NONE  # the job has ended
        assert await host.pulse("readmit") is Refusal.NO_JOB

    host = controlled(process)
    assert (host.set, host.excluded) == ([0], [])
