"""The parameter server beside the golden one: whatever memory, NIC and workers do, the same rows."""

from collections import Counter
from itertools import chain

import pytest

from fanin.hdl.param_server import update_control
from fanin.rdma.facts import PRESETS
from tests.hdl.param_server.server_bench import ServerBench
from tests.support import new_seed, slow

TINY = PRESETS["tiny"]
SIZES = {"parameters": 150, "workers": 3, "slots": 2, "rows": 3}


def _run(*, sizes, rounds=3, **options):
    bench = ServerBench(TINY, seed=new_seed(), rounds=rounds, sizes=SIZES | sizes, **options).run()
    counts = Counter(name for names in bench.events for name in names)
    assert counts["updates"] == len(bench.updates)
    assert counts["completed"] + counts["failed"] == counts["pushes"] == len(bench.pushes)
    return bench, counts


@pytest.mark.parametrize("stall", [*slow(0.0), 0.3])
@pytest.mark.parametrize("slots", [2, *slow(1, 3)])
def test_rows_are_the_golden_servers(slots, stall):
    _run(sizes={"slots": slots}, stall=stall)


@pytest.mark.parametrize(
    "sizes",
    [
        {"rows": 1},
        {"parameters": 9, "workers": 2, "slots": 8, "rows": 16},
        *slow(
            {"rows": 2, "workers": 1, "slots": 3},
            {"parameters": 1, "workers": 4},
            {"parameters": 300, "workers": 4, "slots": 1},
        ),
    ],
    ids=str,
)
def test_sizes_up_to_their_limits(sizes):
    _run(sizes=sizes, stall=0.1, back=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("mtu", "latency"), [(256, 100), *slow((1024, 1))])
def test_packets_that_are_sent_again_are_the_same(mtu, latency):
    _run(sizes={}, stall=0.1, back=0.3, mtu=mtu, latency=latency)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, *slow(3)])
def test_rows_that_are_let_go_are_read_from_memory(rows):
    _, counts = _run(sizes={"rows": rows}, stall=0.1, back=0.2, pause=0.3, patience=8)
    assert counts["let_go"] > 0


@pytest.mark.parametrize(
    ("slots", "rows"), [(1, 3), *(pytest.param(3, rows, marks=pytest.mark.slow) for rows in (1, 3))]
)
def test_a_worker_that_hears_nothing_is_left_out_and_the_others_go_on(slots, rows):
    bench, counts = _run(sizes={"slots": slots, "rows": rows}, deaf=1, stall=0.1, patience=100, rounds=4)
    assert bench.stopped == {1}
    assert counts["failed"] > 0
    assert all(worker.consumed == 4 for worker in bench.workers if worker.number != 1)


MODES = {
    "barter": {}, "broadcast": {"broadcast": True}, "barrier": {"barrier": True}, "scan": {"scan": True},
    "scan, broadcast": {"scan": True, "broadcast": True},
}  # fmt: skip


@pytest.mark.parametrize("dies", ["host", *slow("answer", "row")])
@pytest.mark.parametrize("mode", ["barter", *slow("broadcast", "barrier", "scan", "scan, broadcast")])
def test_a_worker_that_is_replaced_takes_part_again(mode, dies):
    """All rows are the golden server's, to the last gradient of all; the old worker's are lost."""
    sizes = {"parameters": 6, "workers": 2, "rows": 2, "slots": 1 if mode == "barrier" else 2}
    options = {"stall": 0.1, "patience": 20, "rounds": 5, "deaf": 0}
    bench, counts = _run(sizes=sizes, returns=1, dies=dies, **MODES[mode], **options)
    assert bench.lives == {0: 1}
    assert not bench.stopped
    assert [int(lgvnum) for lgvnum in bench.golden.row.lgvnum] == [5, 5]
    assert counts["failed"] > 0 or dies == "host"


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["row", "answer", "host"])
@pytest.mark.parametrize(("slots", "late"), [(1, 0.0), (3, 0.2)])
@pytest.mark.parametrize("mode", MODES)
def test_workers_are_replaced_again_and_again(mode, slots, late, dies):
    sizes = {"parameters": 20, "workers": 3, "rows": 3, "slots": 1 if mode == "barrier" else slots}
    options = {"stall": 0.3, "back": 0.1, "late": late, "patience": 50, "rounds": 16, "deaf": 2}
    bench, _ = _run(sizes=sizes, **MODES[mode], **options, returns=3, dies=dies)
    assert bench.lives == {2: 3}
    assert [int(lgvnum) for lgvnum in bench.golden.row.lgvnum] == [16] * 3


@pytest.mark.slow
def test_a_drained_worker_is_not_polled():
    """Whenever it is excluded, its trailer's last read has begun and ended before."""
    bench = ServerBench(TINY, seed=1, rounds=1, sizes={"parameters": 1, "workers": 2}, latency=3)
    dut = bench.dut
    read = []  # whether it was drained, at each read of worker 0

    async def watch(ctx):
        scan, own = dut.scan, bench.layout.slot(0, 0).others
        while True:
            _, _, asks, address, drained = await ctx.tick().sample(scan.arvalid, scan.araddr, dut.drained)
            read.extend([drained] * (asks and address == own))

    async def main(ctx):
        await bench.set_up(ctx)
        for wait in range(12):
            await ctx.tick().repeat(40 + wait)
            assert not ctx.get(dut.excluded)
            await bench.exclude(ctx, 0)
            await ctx.tick().repeat(40)
            assert ctx.get(dut.drained) == 1
            await bench.readmit(ctx, 0)
            await ctx.tick().repeat(8)

    bench.simulate(main, watch)
    assert read
    assert not any(read)


class Waits(ServerBench):
    """Behind a barrier: excludes worker 1 while its gradient is in a round that lacks worker 0's."""

    async def look_after(self, ctx):
        if self.golden.version < 3:
            return
        await self.exclude(ctx, 1)
        await ctx.tick().repeat(300)
        self.early = ctx.get(self.dut.drained)
        self.last[0] = 2
        self.push_gradients(self.workers[0])
        self.stopped.add(1)
        await ctx.tick().repeat(300)
        self.late = ctx.get(self.dut.drained)


def test_a_worker_is_not_drained_while_its_gradient_is_in_a_round():
    """A gradient of its replacement would be the second one of the round."""
    sizes = {"parameters": 6, "workers": 2, "rows": 4, "slots": 1}
    bench = Waits(TINY, seed=1, rounds=2, sizes=sizes, short=0, barrier=True).run()
    assert (bench.early, bench.late) == (0b00, 0b10)


@pytest.mark.parametrize("sizes", [{"rows": 2}, *slow({"rows": 1}, {"workers": 1}, {"rows": 16})], ids=str)
def test_behind_a_barrier_all_get_the_row_of_the_last_gradient(sizes):
    bench, counts = _run(sizes={"slots": 1} | sizes, barrier=True, stall=0.2, back=0.2)
    workers = bench.sizes.workers
    assert counts["updates"] == counts["pushes"] == 3 * workers
    assert all(push.expected == bench.pushes[n - n % workers].expected for n, push in enumerate(bench.pushes))
    assert counts["let_go"] == 0


@pytest.mark.parametrize("sizes", [{}, *slow({"rows": 1}, {"workers": 1}, {"slots": 1, "rows": 16})], ids=str)
def test_rows_that_are_broadcast_go_to_all(sizes):
    bench, counts = _run(sizes=sizes, broadcast=True, stall=0.2, back=0.2)
    workers = bench.sizes.workers
    assert counts["pushes"] == workers * counts["updates"] == 3 * workers**2
    assert [push.index for push in bench.pushes] == list(range(workers)) * (3 * workers)
    assert all(push.expected == bench.pushes[n - n % workers].expected for n, push in enumerate(bench.pushes))
    assert counts["let_go"] == 0


def test_a_broadcast_leaves_out_a_worker_that_hears_nothing():
    bench, _ = _run(sizes={"rows": 2}, broadcast=True, deaf=1, stall=0.1, rounds=4)
    assert bench.stopped == {1}
    assert all(worker.consumed == 4 for worker in bench.workers if worker.number != 1)


@pytest.mark.parametrize("broadcast", [False, True], ids=["barter", "broadcast"])
@pytest.mark.parametrize(
    "sizes", [{}, {"rows": 1}, *slow({"workers": 1}, {"workers": 4, "slots": 1, "rows": 16})], ids=str
)
def test_behind_a_scan_its_last_row_goes_to_those_whose_gradients_it_found(sizes, broadcast):
    bench, counts = _run(sizes=sizes, scan=True, broadcast=broadcast, stall=0.2, back=0.2)
    workers = bench.sizes.workers
    assert list(chain.from_iterable(bench.scans)) == [update.worker for update in bench.updates]
    assert all(scan and scan == sorted(set(scan)) for scan in bench.scans)
    receivers = [list(range(workers)) if broadcast else scan for scan in bench.scans]
    assert [push.index for push in bench.pushes] == list(chain.from_iterable(receivers))
    assert counts["updates"] == 3 * workers
    assert counts["let_go"] == 0


@pytest.mark.parametrize("broadcast", [False, True], ids=["barter", "broadcast"])
def test_a_scan_finds_all_gradients_that_are_there(broadcast):
    bench, _ = _run(sizes={}, scan=True, broadcast=broadcast)
    assert bench.scans == [list(range(bench.sizes.workers))] * 3


@pytest.mark.parametrize("broadcast", [False, True], ids=["barter", "broadcast"])
def test_scans_leave_out_a_worker_that_hears_nothing(broadcast):
    bench, _ = _run(sizes={"rows": 2}, scan=True, broadcast=broadcast, deaf=1, stall=0.1, rounds=4)
    assert bench.stopped == {1}
    assert all(worker.consumed == 4 for worker in bench.workers if worker.number != 1)


@pytest.mark.parametrize(("rows", "stall"), [(1, 0.1), *slow((1, 0.0), (2, 0.3), (3, 0.1))])
def test_packets_that_are_late_take_nothing_from_the_row_that_is_read(rows, stall):
    """A row is overwritten while packets of it are queued: with one row, at the stream's next address."""
    sizes = {"parameters": 60, "rows": rows}
    bench, counts = _run(sizes=sizes, rounds=2, late=0.7, back=0.1, stall=stall, mtu=64, latency=1)
    assert bench.late_streamed > 0 or rows > 1
    assert counts["let_go"] == 0


@pytest.mark.slow
def test_packets_that_are_late_and_rows_that_are_let_go_get_on():
    _run(sizes={"rows": 1}, late=0.5, back=0.1, pause=0.3, deaf=1, patience=30, stall=0.1)


def _job(*, workers, slots, rows, parameters, rounds, barrier=False, **options):
    sizes = {"workers": workers, "slots": slots, "rows": rows, "parameters": parameters}
    return {"sizes": sizes, "rounds": rounds, "barrier": barrier, **options}


@pytest.mark.parametrize(
    ("before", "job"),
    [
        ({"slots": 2, "deaf": 1}, {"slots": 3}),
        ({"slots": 1, "barrier": True, "short": 2}, {"slots": 1, "barrier": True}),
        ({"slots": 1, "barrier": True, "short": 2}, {"slots": 2, "broadcast": True}),
        *slow(
            ({"slots": 2, "deaf": 1}, {"slots": 1, "barrier": True}),
            ({"slots": 1, "barrier": True, "short": 0}, {"slots": 3}),
        ),
    ],
    ids=str,
)
def test_nothing_of_a_job_is_left_in_the_next_one(before, job):
    """Fewer workers, other slots and rows, another place; whom the first one left out is in again."""
    before = _job(workers=4, rows=3, parameters=60, rounds=2, **before)
    job = _job(workers=2, rows=2, parameters=90, rounds=2, base=0x2A00, **job)
    bench = ServerBench(TINY, seed=new_seed(), patience=100, stall=0.2, back=0.1, limit=5000, **before).run(job)
    assert len(bench.updates) == 4


def test_errors_of_memory_are_counted():
    _, counts = _run(sizes={}, errors=0.2)
    assert counts["memory_errors"] > 10


def test_after_the_last_version_nothing_is_taken(monkeypatch):
    monkeypatch.setattr(update_control, "MAX_VERSION", 5)
    bench, _ = _run(sizes={}, rounds=100)
    assert bench.status["version"] == 5
    assert bench.status["exhausted"]


@pytest.mark.parametrize(
    "mode", [{}, {"scan": True}, *slow({"broadcast": True}, {"scan": True, "broadcast": True})], ids=str
)
def test_a_word_a_cycle_across_rows(mode):
    """Memory answers after 20 cycles; three workers always have a gradient in the table."""
    sizes = {"parameters": 640, "rows": 16, "slots": 3}
    bench, _ = _run(sizes=sizes, rounds=3, mtu=1024, **mode)
    made = [cycle for cycle, names in enumerate(bench.events) if "made" in names]
    share = len(made) / (made[-1] - made[0] + 1)
    print(f"{len(made)} words in {made[-1] - made[0] + 1} cycles: {100 * share:.1f} %")
    assert share > 0.95
    assert made[1:] == list(range(made[1], made[-1] + 1)), "a bubble behind the first row's head"


def test_a_scans_row_is_posted_when_its_last_word_has_landed():
    """Memory answers a write after 20 cycles; 8 cycles are stated of ``Pushes``, and the writer has 2."""
    bench, _ = _run(sizes={"workers": 1, "slots": 1}, rounds=3, scan=True)
    found = {
        name: [cycle for cycle, names in enumerate(bench.events) if name in names]
        for name in ("made", "pushes")
    }
    words = len(found["made"]) // 3
    late = [
        posted - made for posted, made in zip(found["pushes"], found["made"][words - 1 :: words], strict=True)
    ]
    assert late == [30] * 3
