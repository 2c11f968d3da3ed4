"""The run in time: nothing lost, the same bits as NumPy, times from the costs, workers that stop."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.param_server.facts import Algorithm, PushAfter, Receivers
from fanin.param_server.golden import Tally
from fanin.sim.learning.learner import NoTraining, Training
from fanin.sim.learning.workloads import build, load
from fanin.sim.param_server.costs import COMPUTE_ONLY, DESIGN, Compute, Costs
from fanin.sim.param_server.events import packets_in_turn, run
from fanin.sim.param_server.training import TrainingJob
from tests.support import new_seed

MICRO = 1e-6
EVEN = Compute(per_sample=100 * MICRO)
PLAIN = Costs(byte=1e-9, latency=3 * MICRO, update=2e-9)
SIZE = 10_000  # bytes: 10 µs on a link, 20 µs an update


def _job(**fields):
    return TrainingJob(
        **{"workers": 4, "batch": 2, "compute": EVEN, "costs": PLAIN, "model_bytes": SIZE, **fields}
    )


def _timed(batches=10, **fields):
    return run(_job(**fields), NoTraining(128, batches))


def _lr(batch=8, workers=15):
    return Training(build("lr", load(None, 0), decay=1e-3), workers=workers, batch=batch, seed=0)


@pytest.mark.parametrize(
    ("algorithm", "slots", "servers"),
    [
        *((Algorithm.SYNC, 1, servers) for servers in (1, 3)),
        *((Algorithm.WILD, *sizes) for sizes in ((1, 1), (2, 1), (4, 3), (8, 6))),
    ],
)
@pytest.mark.parametrize("costs", [PLAIN, DESIGN, replace(DESIGN, copy=5e-9)])
def test_every_gradient_is_applied_once(algorithm, slots, servers, costs):
    jitter = Compute(per_sample=10 * MICRO, jitter=0.5, straggle_probability=0.05, straggle_factor=8)
    found = _timed(
        20, algorithm=algorithm, slots=slots, servers=servers, costs=costs, compute=jitter, seed=new_seed()
    )
    assert found.tally == Tally(80 * servers, 80 * servers, 0, 0)
    assert found.staleness.total() == 80 * servers
    assert [epoch.number for epoch in found.epochs] == [1]


@pytest.mark.parametrize("costs", [PLAIN, DESIGN, replace(DESIGN, copy=5e-9)])
@pytest.mark.parametrize("receivers", Receivers)
@pytest.mark.parametrize("push_after", PushAfter)
def test_every_gradient_is_applied_once_whoever_gets_the_rows(push_after, receivers, costs):
    jitter = Compute(per_sample=10 * MICRO, jitter=0.5, straggle_probability=0.05, straggle_factor=8)
    setup = {"push_after": push_after, "receivers": receivers, "costs": costs, "compute": jitter}
    found = _timed(20, slots=2, servers=2, seed=new_seed(), **setup)
    assert found.tally == Tally(160, 160, 0, 0)
    kinds = Counter(span.kind for span in found.server_spans)
    rows = 160 * (4 if receivers is Receivers.BROADCAST else 1)
    assert kinds["update"] == 160
    assert kinds["push"] == rows if push_after is PushAfter.GRADIENT else 160 <= kinds["push"] <= rows


@pytest.mark.parametrize("costs", [PLAIN, replace(PLAIN, one_pass=True)], ids=["thread", "one pass"])
def test_rows_behind_a_scan_have_all_gradients_that_it_found(costs):
    """Four gradients come 10 µs apart and are each 20 µs to update with: the first scan finds one or all."""
    found = _timed(1, costs=costs, push_after=PushAfter.SCAN)
    pushed = Counter(span.worker for span in found.server_spans if span.kind == "push")
    updates = [span for span in found.server_spans if span.kind == "update"]
    pushes = [span for span in found.server_spans if span.kind == "push"]
    assert pushed == dict.fromkeys(range(4), 1)
    assert not any(u.begin < p.begin < u.end for u in updates for p in pushes if costs is PLAIN)
    assert len({round(p.begin, 9) for p in pushes if p.begin < updates[-1].end}) < 4
    at_once = _timed(1, costs=costs, push_after=PushAfter.GRADIENT)
    first = [min(s.begin for s in each.server_spans if s.kind == "push") for each in (found, at_once)]
    assert first[0] > first[1]


def test_a_broadcast_costs_a_row_to_every_worker_behind_every_gradient():
    """A thread pushes 4 rows of 10 µs and updates for 20 µs, of every gradient."""
    busy = Compute(per_sample=MICRO)
    barter, broadcast = (
        _timed(20, compute=busy, push_after=PushAfter.GRADIENT, receivers=receivers).seconds
        for receivers in Receivers
    )
    assert barter == pytest.approx(80 * (20 + 10) * MICRO, rel=0.03)
    assert broadcast == pytest.approx(80 * (20 + 4 * 10) * MICRO, rel=0.03)


def test_models_that_are_broadcast_are_younger():
    """A worker that looks late at its own row finds a newer one of others' gradients."""
    slow = Compute(per_sample=100 * MICRO, slowdowns={0: 10.0})
    barter, broadcast = (
        _timed(40, slots=2, compute=slow, push_after=PushAfter.GRADIENT, receivers=receivers).mean_staleness
        for receivers in Receivers
    )
    assert broadcast < barter


def test_what_the_asynchronous_server_alone_chooses_is_refused_for_sync():
    with pytest.raises(ValueError, match=r"push_after must be None with Sync-DSGD, .*, not scan"):
        _job(algorithm=Algorithm.SYNC, push_after=PushAfter.SCAN)
    with pytest.raises(ValueError, match=r"receivers must be barter with Sync-DSGD, .*, not broadcast"):
        _job(algorithm=Algorithm.SYNC, receivers=Receivers.BROADCAST)


def test_a_servers_spans_are_its_updates_and_its_rows():
    found = _timed(1, workers=1)
    (update,), (push,) = (
        [(span.begin, span.end) for span in found.server_spans if span.kind == kind]
        for kind in ("update", "push")
    )
    assert update == pytest.approx((213e-6, 233e-6))
    assert push == pytest.approx((233e-6, 246e-6))  # 10 µs on its link, and 3 on the way


def test_without_the_wait_gradients_are_lost_and_counted():
    slow = replace(PLAIN, update=100e-9)
    found = _timed(20, costs=slow, waits_for_credit=False)
    assert found.tally.lost > 0
    assert found.tally.repeated == 0
    assert found.tally.applied == found.tally.pushed - found.tally.lost


def test_sync_is_sgd_with_the_mean_gradient():
    training = _lr()
    found = run(TrainingJob(algorithm=Algorithm.SYNC, lr=0.5, epochs=2, compute=EVEN, costs=DESIGN), training)
    w, step = training.initial().astype(np.float32), np.float32(0.5 / 15)
    for index in range(2 * training.batches):
        gradients = [training.gradient(worker, index, w).astype(np.float32) for worker in range(15)]
        for gradient in gradients:
            w = w - step * gradient
    assert found.epochs[-1].measures == training.measure(w)
    assert [epoch.number for epoch in found.epochs] == [1, 2]
    assert found.staleness == Counter({0: 330})


@pytest.mark.parametrize("servers", [1, 5])
def test_one_worker_alone_is_sgd_whatever_the_algorithm(servers):
    training = _lr(workers=1, batch=100)
    outcomes = [
        run(
            TrainingJob(
                workers=1, batch=100, algorithm=algorithm, servers=servers, lr=0.5, compute=EVEN, costs=costs
            ),
            training,
        )
        for algorithm in Algorithm
        for costs in (COMPUTE_ONLY, DESIGN)
    ]
    assert len({outcome.epochs[-1].measures for outcome in outcomes}) == 1
    assert all(set(outcome.staleness) == {0} for outcome in outcomes)


def test_a_seed_repeats_a_run_bit_by_bit():
    job = TrainingJob(
        lr=0.5, slots=2, servers=2, compute=replace(EVEN, jitter=0.3), costs=DESIGN, seed=new_seed()
    )
    assert run(job, _lr()).epochs == run(job, _lr()).epochs
    assert run(job, _lr()).seconds != run(replace(job, seed=job.seed + 1), _lr()).seconds


def test_a_sync_iteration_is_computing_pushing_updating_and_pushing_to_all():
    found = _timed(1, algorithm=Algorithm.SYNC)
    assert found.seconds == pytest.approx(200e-6 + 4 * 10e-6 + 3e-6 + 4 * 20e-6)
    several = _timed(3, algorithm=Algorithm.SYNC)
    each = 200e-6 + 4 * 10e-6 + 3e-6 + 4 * 20e-6 + 4 * 10e-6 + 3e-6  # for the worker that gets w last
    assert several.seconds == pytest.approx(2 * each + found.seconds, rel=0.1)


def test_one_pass_pushes_while_it_updates():
    once = replace(PLAIN, one_pass=True)
    assert _timed(1, workers=1, costs=once).seconds == pytest.approx(200e-6 + 10e-6 + 3e-6 + 20e-6)
    two = _timed(2, workers=1, costs=once)
    assert two.seconds == pytest.approx(2 * (200e-6 + 10e-6 + 3e-6 + 20e-6) + 3e-6)
    assert _timed(2, workers=1).seconds == pytest.approx(two.seconds + 10e-6)


def test_a_worker_with_credit_computes_without_pause():
    ahead = _timed(10, workers=1, slots=2)
    assert ahead.seconds == pytest.approx(10 * 200e-6 + 10e-6 + 3e-6 + 20e-6)
    assert not [span for span in ahead.spans if span.kind == "wait"]
    paper = _timed(10, workers=1)
    waits = [span.end - span.begin for span in paper.spans if span.kind == "wait"]
    assert waits == pytest.approx([20e-6 + 10e-6 + 3e-6] * 9)


def test_while_it_warms_up_a_worker_waits_and_then_no_more():
    first, all_of_it = _timed(10, workers=1, slots=2, epochs=3, warm_up=1), _timed(10, workers=1, epochs=1)
    waits, alone = ([span for span in found.spans if span.kind == "wait"] for found in (first, all_of_it))
    assert waits == alone
    assert len(waits) == 9


def test_with_slots_sync_is_refused():
    with pytest.raises(ValueError, match="slots must be 1 with Sync-DSGD, whose workers wait for all, not 2"):
        TrainingJob(algorithm=Algorithm.SYNC, slots=2, compute=EVEN, costs=DESIGN)


def test_servers_divide_what_links_and_updates_take():
    slow = replace(PLAIN, update=40e-9)
    whole, halves = (_timed(20, costs=slow, slots=2, servers=servers).seconds for servers in (1, 2))
    assert whole / halves == pytest.approx(2, rel=0.1)


def test_a_workers_spans_of_one_slot_follow_one_another():
    found = _timed(10, compute=replace(EVEN, jitter=0.5), seed=new_seed())
    for worker in range(4):
        own = sorted((s.begin, s.end, s.kind) for s in found.spans if s.worker == worker)
        assert [kind for *_, kind in own[:6]] == ["compute", "push", "wait"] * 2
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(own))


def test_wild_hides_stragglers_that_sync_waits_for():
    jitter = Compute(per_sample=100 * MICRO, straggle_probability=0.1, straggle_factor=5)
    sync, wild = (_timed(100, compute=jitter, algorithm=a).seconds for a in (Algorithm.SYNC, Algorithm.WILD))
    assert sync > 1.5 * wild


def test_staleness_with_equal_workers_is_that_of_the_others_gradients_in_flight():
    found = _timed(100, workers=10, costs=replace(DESIGN, latency=0.0), compute=replace(EVEN, jitter=0.2))
    assert found.mean_staleness == pytest.approx(9, abs=0.5)


def test_a_busy_server_takes_its_workers_in_turn():
    busy = replace(DESIGN, update=40e-9)
    found = _timed(50, slots=8, costs=busy)
    assert max(found.staleness) <= 3 * (8 + 1)


def test_an_update_waits_until_the_row_that_it_overwrites_has_been_acknowledged():
    """Eight rows: the ninth and the seventeenth update wait for a way there and back."""
    far = Costs(byte=0.0, latency=100e-6, update=0.1e-9, one_pass=True)
    found = _timed(1, workers=20, costs=far)
    assert found.seconds == pytest.approx(200e-6 + 100e-6 + 2 * 200e-6, rel=0.02)


def test_a_look_at_a_model_that_is_written_meanwhile_is_repeated():
    """Two pushes in a look need three slots: with two there is one at most, and it goes to the other buffer."""
    costs = replace(DESIGN, byte=0.0, update=2e-9, copy=5e-9)
    bursts = Compute(per_sample=MICRO, jitter=1.0)
    many, few = (_timed(60, workers=3, slots=slots, costs=costs, compute=bursts) for slots in (8, 2))
    assert (many.rereads > 0, few.rereads) == (True, 0)
    assert many.tally == few.tally == Tally(180, 180, 0, 0)


def test_a_run_goes_on_without_a_worker_that_stops_and_says_so():
    found = _timed(20, stops={2: 2e-3})
    assert found.stopped == (2,)
    assert found.tally.lost == found.tally.repeated == 0
    assert found.tally.pushed == 3 * 20
    assert 3 * 20 < found.tally.applied < 4 * 20
    assert found.seconds > 20 * 200e-6
    assert [epoch.number for epoch in found.epochs] == [1]


@pytest.mark.parametrize(
    ("posted", "order"),
    [
        ("0123", "00112233012301230123012301230123"),
        ("2130", "22113203012301230123012301230130"),
        ("2310", "22331102301230123012301230123010"),
        ("3210", "33221300123012301230123012301201"),
    ],
)
def test_rows_behind_a_barrier_take_turns_as_captured_from_the_rtl(posted, order):
    """Rows of eight packets; the digits are workers."""
    assert packets_in_turn([int(worker) for worker in posted], 8) == [int(worker) for worker in order]


def test_all_packets_of_all_rows_leave_however_many_there_are():
    for packets in (1, 2, 3, 25):
        assert Counter(packets_in_turn(range(15), packets)) == dict.fromkeys(range(15), packets)


def test_what_a_worker_had_not_sent_when_it_stopped_is_lost():
    """It takes 200 µs to compute, and 10 on the link."""
    for stop, applied in ((195, 0), (205, 0), (215, 1)):
        found = _timed(1, workers=1, stops={0: stop * MICRO})
        assert (found.tally.applied, found.tally.lost) == (applied, 0)


def test_the_row_for_a_worker_that_is_gone_is_held_until_it_has_been_sent_for_the_last_time():
    """Eight rows: seven updates behind it find one. Then the other worker's gradient waits."""
    costs, quick = replace(PLAIN, one_pass=True), Compute(per_sample=MICRO)
    found = _timed(20, workers=2, costs=costs, compute=quick, stops={1: 25 * MICRO})
    pushes = [span.end for span in found.spans if span.kind == "push" and span.worker == 0]
    between = [after - before for before, after in pairwise(pushes)]
    assert max(between[:8]) < 45 * MICRO < between[8] > 45 * MICRO > max(between[9:])
    held = 8 * (20 + 2 * 2 * 10) * MICRO  # tries, each until a round trip and twice two gradients are over
    assert pushes[9] == pytest.approx(42 * MICRO + held + (20 + 3 + 2 + 10 + 3) * MICRO, rel=0.02)
    assert len(pushes) == 20


@pytest.mark.parametrize(
    ("push_after", "costs"),
    [(push, costs) for push in PushAfter for costs in (PLAIN, replace(PLAIN, one_pass=True))],
)
def test_a_server_that_broadcasts_waits_once_for_a_worker_that_is_gone(push_after, costs):
    """As the RTL: what ends its queue pair ends all rows on their way to it, and no more are pushed."""
    setup = {"workers": 3, "costs": costs, "push_after": push_after, "receivers": Receivers.BROADCAST}
    quick = Compute(per_sample=MICRO)
    found, whole = (_timed(40, compute=quick, stops=stops, **setup) for stops in ({1: 100 * MICRO}, {}))
    held = 8 * (20 + 2 * 3 * 10) * MICRO
    assert found.stopped == (1,)
    assert found.applied[0] == found.applied[2] == (40,)
    assert held < found.seconds < whole.seconds + held
    pushed = [span.begin for span in found.server_spans if span.kind == "push" and span.worker == 1]
    assert max(pushed) < 100 * MICRO + held < found.seconds / 1.2


def test_gradients_of_a_worker_that_was_given_up_are_not_looked_for():
    """The server has many of them when its row of eight, to the same worker, is not acknowledged."""
    costs = replace(PLAIN, one_pass=True, update=50e-9)
    found = _timed(60, workers=1, slots=8, costs=costs, compute=Compute(per_sample=MICRO), stops={0: 5e-3})
    assert found.applied[0][0] < found.pushed[0] < 60
    assert found.stopped == (0,)


def test_a_worker_that_had_ended_when_it_was_to_stop_has_not_stopped():
    slow = replace(EVEN, slowdowns={0: 3.0})
    found = _timed(10, compute=slow, stops={2: 4e-3})
    assert (found.stopped, found.applied) == ((), ((10,),) * 4)
    assert found.tally == Tally(40, 40, 0, 0)
    assert found.seconds > 4e-3


REPLACED = [
    {"algorithm": Algorithm.SYNC},
    {"slots": 1},
    {"slots": 3, "push_after": PushAfter.SCAN},
    {"slots": 2, "receivers": Receivers.BROADCAST},
    {"slots": 2, "push_after": PushAfter.SCAN, "receivers": Receivers.BROADCAST},
]


@pytest.mark.parametrize("costs", [PLAIN, DESIGN])
@pytest.mark.parametrize("setup", REPLACED, ids=str)
def test_a_worker_that_stops_is_replaced_and_pushes_the_rest(setup, costs):
    """Every version is applied once, one of them a gradient of zeros; others go on, but for Sync-DSGD."""
    jitter = Compute(per_sample=10 * MICRO, jitter=0.5)
    rng = np.random.default_rng(new_seed())
    for _ in range(3):
        stop = rng.uniform(0, 500 * MICRO)
        times = {"stops": {2: stop}, "returns": {2: stop + rng.uniform(1, 400) * MICRO}}
        found = _timed(40, costs=costs, compute=jitter, seed=int(rng.integers(1 << 32)), **setup, **times)
        assert found.tally == Tally(160, 160, 0, 0)
        assert found.stopped == ()
        computed = [span for span in found.spans if (span.worker, span.kind) == (2, "compute")]
        assert 30 <= len(computed) < 40 + 3
        assert not [span for span in computed if stop < span.begin < times["returns"][2]]


def test_a_gradient_of_zeros_changes_no_bit_of_w():
    """One worker, stopped before its first push and replaced: as many gradients as without, less one."""
    cut = {"stops": {0: 0.0}, "returns": {0: 5 * MICRO}}
    learner = Training(build("lr", load(None, 0), decay=1e-3), workers=1, batch=64, seed=0)
    found = run(_job(workers=1, **cut), learner)
    w = learner.initial().astype(np.float32)
    for number in range(1, learner.batches):
        w = w - np.float32(0.1) * learner.gradient(0, number, w).astype(np.float32)
    assert (found.w == w).all()


def test_sync_ends_with_the_name_of_the_worker_that_stops():
    with pytest.raises(CheckFailed, match="worker 2 stopped answering; Sync-DSGD cannot continue without it"):
        _timed(20, algorithm=Algorithm.SYNC, stops={2: 2e-3})


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"per_sample": -1}, "per_sample must be at least 0 and finite, not -1"),
        ({"jitter": float("nan")}, "jitter must be at least 0 and finite, not nan"),
        ({"straggle_probability": 1.5}, "straggle_probability must be at most 1, not 1.5"),
        ({"straggle_factor": 0}, "straggle_factor must be above 0 and finite, not 0"),
        ({"slowdowns": {1: -2}}, "slowdowns must be above 0 and finite, not -2"),
    ],
)
def test_impossible_computing_is_refused(fields, match):
    with pytest.raises(ValueError, match=match):
        Compute(**{"per_sample": 1.0, **fields})


def test_computing_takes_its_time_on_average_and_longer_where_it_is_slow():
    rng = np.random.default_rng(new_seed())
    compute = Compute(
        per_sample=2.0, jitter=0.4, straggle_probability=0.25, straggle_factor=5, slowdowns={7: 3.0}
    )
    for worker, factor in ((0, 2.0), (7, 6.0)):
        times = [compute.seconds(worker, 10, rng) for _ in range(20_000)]
        assert np.mean(times) == pytest.approx(20 * factor, rel=0.05)
