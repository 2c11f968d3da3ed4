"""Asynchronous training on RTL NICs and servers: every row is the golden one, whatever the network does."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import UDP
from scapy.utils import rdpcap

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.link import LinkConfig
from fanin.param_server.facts import Algorithm, ParamServerConfig, PushAfter, Receivers, ServerLayout
from fanin.param_server.golden import ParameterServer
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.learning.learner import NoTraining, Training
from fanin.sim.learning.workloads import build, load
from fanin.sim.link_log import read_link_log
from fanin.sim.param_server.cosim import ParamServerCosim, write_timeout
from fanin.sim.param_server.costs import DESIGN, Compute
from fanin.sim.param_server.training import TrainingJob
from fanin.wire.rdma import ACK_SYNDROME, Opcode
from tests.fanin.report.traces import read
from tests.peers import tshark_roce
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator
BAD = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
JOB = TrainingJob(workers=2, lr=1.0, compute=Compute(per_sample=5e-7, jitter=0.2), costs=DESIGN)


@pytest.fixture(scope="module")
def hardware():
    """Words of 128 bits are built and run sooner."""
    return ParamServerCosim(workers=2, width=128, quiet=True)


@pytest.fixture(scope="module")
def larger():
    """As many of both as any test needs."""
    return ParamServerCosim(workers=3, servers=2, width=128, quiet=True)


class Random:
    """Gradients of random values, with special ones among them."""

    def __init__(self, parameters, batches):
        self.parameters, self.batches = parameters, batches

    def initial(self):
        return np.random.default_rng(1).normal(size=self.parameters).astype(np.float32)

    def gradient(self, worker, index, w):
        rng = np.random.default_rng((worker, index))
        values = rng.normal(size=w.size).astype(np.float32)
        special = np.array([0, -0.0, 1e-40, -1e-42, 3e38, np.inf, -np.inf, np.nan], np.float32)
        where = rng.choice(w.size, size=4, replace=False)
        values[where] = rng.choice(special, size=4)
        return values

    def measure(self, w):
        return None


links = pytest.mark.parametrize("link", [LinkConfig(), BAD], ids=["good links", "bad links"])
BATCHES = 6


@links
def test_every_gradient_is_applied_once_and_every_row_is_the_golden_servers(hardware, link):
    check_all_applied(hardware, replace(JOB, slots=2), link)


@pytest.mark.slow
@links
@pytest.mark.parametrize(("slots", "servers"), [(1, 1), (2, 2), (3, 1)])
def test_so_it_is_of_three_workers_and_two_servers(larger, link, slots, servers):
    check_all_applied(larger, replace(JOB, workers=3, slots=slots, servers=servers), link)


@links
def test_rows_that_are_broadcast_reach_all_workers(hardware, link):
    run = check_all_applied(hardware, replace(JOB, slots=2, receivers=Receivers.BROADCAST), link)
    reached = Counter(span.worker for span in run.outcome.server_spans if span.kind == "push")
    assert reached == dict.fromkeys(range(2), 2 * BATCHES)


@links
@pytest.mark.parametrize("receivers", Receivers)
def test_behind_a_scan_its_last_row_reaches_those_whose_gradients_it_has(hardware, link, receivers):
    """The run itself holds each row, and whom it reaches, to what a scan can be: see ``ScannedRows``."""
    job = replace(JOB, slots=2, push_after=PushAfter.SCAN, receivers=receivers)
    run = check_all_applied(hardware, job, link)
    reached = Counter(span.worker for span in run.outcome.server_spans if span.kind == "push")
    if receivers is Receivers.BARTER:
        assert reached == dict.fromkeys(range(2), BATCHES)
    else:
        assert reached[0] == reached[1] >= BATCHES


def check_all_applied(cosim, job, link):
    run = cosim.run(replace(job, seed=new_seed()), Random(parameters=170, batches=BATCHES), link=link, mtu=256)
    tally = run.outcome.tally
    assert (tally.pushed, tally.lost, tally.repeated) == (job.workers * BATCHES * job.servers, 0, 0)
    counts = Counter((update.shard, update.worker, update.version) for update in run.updates)
    assert set(counts.values()) == {1}
    assert len(counts) == tally.applied == tally.pushed
    assert run.outcome.w.shape == (170,)
    return run


@links
def test_behind_a_barrier_all_go_on_together(hardware, link):
    check_rounds(hardware, JOB, link)


@pytest.mark.slow
@links
def test_so_do_three_workers_of_two_servers(larger, link):
    check_rounds(larger, replace(JOB, workers=3, servers=2), link)


def check_rounds(cosim, job, link):
    run = check_all_applied(cosim, replace(job, algorithm=Algorithm.SYNC), link)
    size = job.workers
    for shard in range(job.servers):
        updates = [update for update in run.updates if update.shard == shard]
        assert [update.version for update in updates] == [1 + n // size for n in range(size * BATCHES)]
        rounds = [updates[n : n + size] for n in range(0, len(updates), size)]
        for members in rounds:  # nobody goes on before all have pushed
            assert max(update.stored for update in members) < min(update.received for update in members)
        for before, after in pairwise(rounds):  # with a row of its own, whatever others still wait for
            arrived = {update.worker: update.received for update in before}
            assert all(arrived[update.worker] < update.stored for update in after)
    assert run.outcome.mean_staleness == 0


@pytest.mark.parametrize("seconds", [0.0, 20e-6])
def test_without_one_worker_the_others_wait_in_vain_behind_a_barrier(hardware, seconds):
    job = replace(JOB, algorithm=Algorithm.SYNC, stops={1: seconds})
    with pytest.raises(
        SimulationFailed, match="worker 1 stopped answering; Sync-DSGD cannot continue without it"
    ):
        hardware.run(job, Random(parameters=170, batches=12))


def test_time_in_which_all_but_a_straggler_wait_is_skipped(hardware):
    slow_one = Compute(per_sample=1e-6, slowdowns={1: 1000.0})
    job = replace(JOB, algorithm=Algorithm.SYNC, compute=slow_one)
    run = hardware.run(job, Random(parameters=170, batches=3))
    assert run.outcome.seconds > 3 * 8e-3
    assert run.raw.cycles < 100_000


def test_a_server_that_adds_wrong_is_found_out(hardware):
    """The golden server is compared with: one with another value of w differs in the first row."""
    job = replace(JOB, seed=1)
    learner = WrongSum(parameters=170, batches=2)
    with pytest.raises(SimulationFailed, match=r"server 0, version 1 .* the row differs"):
        hardware.run(job, learner)


class WrongSum(Random):
    """Has the golden server of the simulator's process add 1 to the first value."""

    def gradient(self, worker, index, w):
        ParameterServer.apply = _apply_of_another
        return super().gradient(worker, index, w)


_apply = ParameterServer.apply


def _apply_of_another(self, worker):
    found = _apply(self, worker)
    self.row.w[0] += 1
    return found


@pytest.mark.end_to_end
def test_digits_are_learnt_and_idle_time_is_skipped(hardware):
    workload = build("lr", load(None, 0), decay=1e-4, seed=0)
    learner = Training(workload, workers=2, batch=64, seed=0)
    slow = Compute(per_sample=1e-4, jitter=0.1)  # 6.4 ms a gradient: 1.6 million cycles
    run = hardware.run(replace(JOB, batch=64, epochs=2, compute=slow), learner)
    assert run.outcome.epochs[-1].measures.accuracy > 0.8
    assert len(run.outcome.epochs) == 2
    assert run.outcome.seconds > 2 * learner.batches * 6e-3
    assert run.raw.cycles < 400_000


def test_a_worker_that_stops_is_left_alone(hardware):
    job = replace(JOB, stops={1: 20e-6})
    run = hardware.run(job, Random(parameters=170, batches=12))
    assert run.outcome.stopped == (1,)
    done = Counter(update.worker for update in run.updates)
    assert done[0] == 12
    assert 0 < done[1] < 12
    assert run.outcome.tally.lost == 0
    late = replace(
        job, compute=replace(JOB.compute, slowdowns={1: 1000.0}), stops={1: 3e-3}
    )  # 0 has long ended
    run = hardware.run(late, Random(parameters=170, batches=3))
    assert run.outcome.seconds == run.updates[-1].stored < 3e-3


def test_a_row_that_nobody_acknowledges_is_freed_when_its_queue_pair_has_ended(hardware):
    """The link of a worker that stops is cut. Eight rows: while one is held, the other has seven more."""
    timeout, batches = 4000, 40
    job = replace(JOB, compute=Compute(per_sample=5e-7), stops={1: 24e-6})
    run = hardware.run(job, Random(parameters=170, batches=batches), timeout=timeout)
    times = [update.stored for update in run.updates if update.worker == 0]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(times) == batches
    tries = 8 * timeout * 4e-9
    held = max(gaps)
    assert sorted(gaps)[-2] < 10e-6 < held < tries
    number = gaps.index(held)
    assert times[number + 1] - times[number - 6] == pytest.approx(tries, rel=0.1)
    assert run.outcome.tally.lost == run.outcome.tally.repeated == 0


REPLACED = {
    "barter": {"slots": 2}, "broadcast": {"slots": 2, "receivers": Receivers.BROADCAST},
    "sync": {"algorithm": Algorithm.SYNC},
}  # fmt: skip


@pytest.mark.parametrize("how", ["barter", *slow("broadcast", "sync")])
def test_a_worker_that_died_is_replaced_and_every_row_is_the_golden_servers(hardware, how):
    """Its link is cut; the replacement has memory of zeros. The other's gradients are applied meanwhile."""
    job = replace(JOB, **REPLACED[how], stops={1: 30e-6}, returns={1: 70e-6}, seed=new_seed())
    run = hardware.run(job, Random(parameters=170, batches=30), mtu=256, timeout=1000)
    assert run.outcome.stopped == ()
    assert run.outcome.tally.applied == run.outcome.tally.pushed == 2 * 30
    assert (run.outcome.tally.lost, run.outcome.tally.repeated) == (0, 0)
    made = {worker: [update.stored for update in run.updates if update.worker == worker] for worker in range(2)}
    before, after = ([time for time in made[1] if (time > 70e-6) == late] for late in (False, True))
    assert before
    assert after
    assert max(before) < 40e-6
    if job.algorithm is Algorithm.WILD:
        assert sum(40e-6 < time < 70e-6 for time in made[0]) > 3  # the other went on
    (memory,) = run.raw.memories[2]
    row = ServerLayout(hardware.sizes(job, Random(170, 30)), 0).row(60 % 8)
    w = np.frombuffer(bytes(memory), np.uint32, 170, row.w)
    assert (w == run.outcome.w.view(np.uint32)).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", REPLACED)
@links
def test_a_worker_may_be_replaced_at_any_time(hardware, link, how):
    seed = new_seed()
    rng = np.random.default_rng(seed)
    for _ in range(4):
        stop = rng.uniform(0, 100e-6)
        times = {"stops": {0: stop}, "returns": {0: stop + rng.uniform(0, 60e-6)}}
        job = replace(JOB, **REPLACED[how], **times, seed=int(rng.integers(1 << 32)))
        run = hardware.run(job, Random(parameters=170, batches=25), link=link, mtu=256, timeout=2000)
        assert run.outcome.stopped == ()
        assert run.outcome.tally.applied == run.outcome.tally.pushed == 2 * 25
        assert (run.outcome.tally.lost, run.outcome.tally.repeated) == (0, 0)


def test_replacements_that_cannot_be_followed_are_refused(hardware):
    job = replace(JOB, stops={1: 1e-6}, returns={1: 2e-6}, push_after=PushAfter.SCAN)
    with pytest.raises(ValueError, match="push_after must not be scan where a worker is replaced in RTL"):
        hardware.run(job, Random(170, 2))
    with pytest.raises(ValueError, match="servers must be 1 where a worker is replaced, not 2"):
        replace(JOB, servers=2, stops={1: 1e-6}, returns={1: 2e-6})
    with pytest.raises(ValueError, match="returns must be later than the stop at inf, not 1 of worker 0"):
        replace(JOB, returns={0: 1})


@pytest.mark.slow
@pytest.mark.parametrize("link", [LinkConfig(), BAD], ids=["good", "bad"])
def test_a_link_may_be_cut_at_any_time(larger, link):
    seed, batches = new_seed(), 12
    rng = np.random.default_rng(seed)
    job = replace(JOB, workers=3, servers=2, slots=2, seed=seed)
    whole = larger.run(job, Random(parameters=170, batches=batches), link=link, timeout=3000).outcome.seconds
    for time in rng.uniform(0, whole, size=8):
        stops = replace(job, stops={1: time})
        run = larger.run(stops, Random(parameters=170, batches=batches), link=link, timeout=3000)
        applied = Counter((update.worker, update.shard) for update in run.updates)
        assert [applied[worker, shard] for worker in (0, 2) for shard in (0, 1)] == [batches] * 4
        assert max(applied[1, 0], applied[1, 1]) <= batches
        ended = min(applied[1, 0], applied[1, 1]) == batches
        assert run.outcome.stopped == (() if ended else (1,))
        assert run.outcome.tally.lost == run.outcome.tally.repeated == 0


def test_a_run_without_any_worker_ends(hardware):
    run = hardware.run(replace(JOB, stops={0: 0.0, 1: 0.0}), Random(parameters=170, batches=2))
    assert (run.updates, run.outcome.stopped, run.outcome.seconds) == ([], (0, 1), 0)
    with pytest.raises(
        SimulationFailed, match="workers 0, 1 stopped answering; Sync-DSGD cannot continue without them"
    ):
        hardware.run(replace(JOB, algorithm=Algorithm.SYNC, stops={0: 0.0, 1: 0.0}), NoTraining(170, 2))


@pytest.mark.parametrize(("nodes", "workers", "servers"), [("hardware", 2, 1), *slow(("larger", 3, 2))])
def test_the_run_goes_on_without_a_worker_whose_queue_pair_ends(nodes, workers, servers, request):
    """What is lost may be a gradient, a row, or what acknowledges either: the host is told, or asks."""
    simulation, seed, batches = request.getfixturevalue(nodes), new_seed(), 12
    rng = random.Random(seed)
    stopped = Counter()
    for drop in (0.0002, 0.02, 0.3):
        for _ in range(2):
            job = replace(JOB, workers=workers, servers=servers, slots=2, seed=rng.getrandbits(32))
            learner, link = Random(parameters=170, batches=batches), LinkConfig(drop=drop)
            run = simulation.run(job, learner, link=link, retries=0, timeout=2000)
            stopped[drop] += len(run.outcome.stopped)
            applied = Counter((update.worker, update.shard) for update in run.updates)
            for worker in set(range(workers)) - set(run.outcome.stopped):
                assert all(applied[worker, shard] == batches for shard in range(servers))
            assert run.outcome.tally.lost == run.outcome.tally.repeated == 0
    assert 0 < stopped[0.0002] + stopped[0.02] < 4 * workers
    assert stopped[0.3] == 2 * workers


@pytest.mark.slow
def test_sync_dsgd_ends_with_the_name_of_a_worker_whose_queue_pair_ends(hardware):
    said = r"worker \d stopped answering; Sync-DSGD cannot continue without it"
    rng = random.Random(new_seed())
    slow = replace(
        JOB.compute, slowdowns={1: 30.0}
    )  # the other waits longer at the barrier than for a lost row
    for drop in (*(0.02,) * 6, 0.3):
        job = replace(JOB, algorithm=Algorithm.SYNC, compute=slow, seed=rng.getrandbits(32))
        with pytest.raises(SimulationFailed, match=said):
            hardware.run(job, NoTraining(170, 100), link=LinkConfig(drop=drop), retries=0, timeout=2000)


def test_a_timeout_is_longer_than_all_gradients_on_a_link():
    """A worker's link carries those to all servers, a server's those of all workers."""
    link, period_ps = LinkConfig(gbps=100), 4000
    for workers, servers in (1, 8), (8, 1):
        sizes = ParamServerConfig(parameters=100_000, workers=workers, servers=servers, slots=2)
        cycles = 2 * 8 * 4 * 100_000 * (1 if workers == 1 else workers) / (100 * period_ps / 1000)
        assert write_timeout(sizes, link, period_ps) > 2 * cycles


@pytest.mark.parametrize("algorithm", ["wild", *slow("sync")])
def test_the_command_trains_over_a_bad_network_and_writes_its_packets(hardware, algorithm, capsys, tmp_path):
    """``hardware`` is what the command looks for, too: it is built."""
    frames, folder = tmp_path / "frames.pcap", tmp_path / "run"
    sizes = "--workers 2 --width 128 --batch 64 --epochs 1 --sample-seconds 1e-6 --no-optimum"
    faults = "--drop 0.01 --duplicate 0.01 --reorder 0.01"
    arguments = f"ps train {sizes} {faults} --algorithm {algorithm} --pcap {frames} -o {folder} --json"
    assert main(arguments.split()) == 0
    found = json.loads(capsys.readouterr().out)
    gradients = 2 * (1347 // 2 // 64)
    assert (found["on"], found["gradients_pushed"], found["gradients_applied"]) == ("rtl", gradients, gradients)
    assert found["gradients_lost"] == found["gradients_repeated"] == 0
    assert found["accuracy"] > 0.5
    captured = list(rdpcap(str(frames)))
    opcodes = Counter(BTH(bytes(frame[UDP].payload)).opcode for frame in captured)
    check_trace(read((folder / "trace.json").read_text()), captured, gradients // 2)
    firsts = opcodes[Opcode.WRITE_FIRST] + opcodes[Opcode.WRITE_ONLY]
    assert firsts >= 2 * gradients  # and as many rows, in two captures of each link
    assert opcodes[Opcode.ACKNOWLEDGE] > 0


def check_trace(trace, captured, each):
    """Every gradient of two workers is computed, pushed, applied, and comes back; packets are the capture's."""
    carried, kinds = Counter(), Counter(_kind(frame) for frame in captured)
    for node in ("worker 0", "worker 1", "server 0"):
        carried += trace.names("network", f"to {node}")
    assert {name: 2 * count for name, count in carried.items()} == kinds  # to the switch, and from it
    assert trace.names("network", "from server 0")["WRITE_ONLY"] == 2 * each
    for worker in ("worker 0", "worker 1"):
        sent = trace.names("network", f"from {worker}")
        assert sent["WRITE_ONLY"] == each
        assert trace.names(worker, "compute").total() == trace.names(worker, "push").total() == each
        for track in (f"update for {worker}", f"row to {worker}"):
            assert trace.names("server 0", track) == {f"gradient {n}": 1 for n in range(1, each + 1)}
        pushes, updates = trace.slices[worker, "push"], trace.slices["server 0", f"update for {worker}"]
        rows = trace.slices["server 0", f"row to {worker}"]
        assert [came for _, came, _, _ in updates] == [arrived for _, _, arrived, _ in pushes]
        assert [made for _, _, made, _ in updates] == [leaves for _, leaves, _, _ in rows]
    assert set(trace.faults()) == {"dropped", "duplicated", "reordered"}
    assert trace.notes == {}


def _kind(frame):
    """As a timeline calls it."""
    header = BTH(bytes(frame[UDP].payload))
    if header.opcode != Opcode.ACKNOWLEDGE:
        return Opcode(header.opcode).name
    return "ACK" if header[AETH].syndrome == ACK_SYNDROME else "NAK"


def test_links_are_logged_as_they_count(hardware, tmp_path):
    run = hardware.run(JOB, Random(parameters=170, batches=12), link=BAD, link_log=tmp_path / "links")
    log = read_link_log(tmp_path / "links")
    counted = [(port, way, link[way]) for port, link in enumerate(run.raw.links) for way in ("up", "down")]
    for port, way, link in counted:
        own = [one for one in log.frames if (one.port, one.up) == (port, way == "up")]
        found = Counter(fault for one in own for fault in one.faults)
        assert (len(own), sum(one.size for one in own)) == (link["frames"], link["bytes"])
        for fault in ("dropped", "reordered", "duplicated", "corrupted"):
            assert found[fault] == link[fault]


def test_tshark_complains_of_no_packet_of_a_run(hardware, tmp_path):
    """Versions 6 and 8 are among them, which in front of a row would be EtherTypes."""
    pcap = tmp_path / "run.pcap"
    hardware.run(JOB, Random(parameters=170, batches=12), pcap=pcap)
    assert Opcode.WRITE_ONLY in {row[0] for row in tshark_roce(pcap)}


def test_what_does_not_fit_is_refused(hardware):
    with pytest.raises(ValueError, match="workers must be at most 2, as built, not 4"):
        hardware.run(replace(JOB, workers=4), NoTraining(100, 1))
    with pytest.raises(ValueError, match="slots must be 1 to 8, not 9"):
        hardware.run(replace(JOB, slots=9), NoTraining(100, 1))
    with pytest.raises(InputError, match="workers must be 1 to 64"):
        ParamServerCosim(workers=65)
    with pytest.raises(InputError, match="servers must be 1 to 8"):
        ParamServerCosim(workers=2, servers=9)
