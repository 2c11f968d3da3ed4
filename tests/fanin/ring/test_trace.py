"""Timelines of rings: steps and spans of hosts, all-reduces by phase, jobs that have the same number."""

from itertools import groupby

import pytest

from fanin.golden.mlp import Mlp
from fanin.job import worker_endpoint
from fanin.ring.facts import PRESETS
from fanin.ring.groups import Groups
from fanin.ring.page.inceptionn_trace import inceptionn_trace
from fanin.ring.page.trace import phases, ring_trace
from fanin.sim.inceptionn.host import Activity
from fanin.sim.inceptionn.host import Span as Done
from fanin.sim.learning.replica import DataParallel
from fanin.sim.link_log import HEAD_BYTES, LinkLog, LoggedFrame
from fanin.sim.ring.schedule import Span, Times
from fanin.sim.ring.training import RingTraining
from fanin.sim.spans import FirstSpans
from fanin.wire.link import LinkKind
from fanin.wire.ring import RingFrame, encode_ring
from tests.fanin.report.traces import read

NETWORK = Mlp((4, 3, 2))
TINY = PRESETS["tiny"]


def job(nodes=2, groups=None):
    training = DataParallel(network=NETWORK, nodes=nodes, batch=1)
    return RingTraining(training=training, config=TINY, groups=groups)


def frame(sequence, *, number=1, operation=0, kind=LinkKind.DATA, values=8):
    sent = RingFrame(kind, number, 2, operation=operation, sequence=sequence, count=values, length=1)
    return encode_ring(sent, beat_bytes=32, source=worker_endpoint(0).mac, destination=worker_endpoint(1).mac)


def log(*frames, port=0):
    """Frames of a node, one behind the other, 10 ns each."""
    found = (
        LoggedFrame(port, True, 10_000 * n, 10_000 * (n + 1), len(each), each[:HEAD_BYTES])
        for n, each in enumerate(frames)
    )
    return LinkLog(tuple(found))


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("values", [1, 100, 1000, 4097])
def test_every_frame_of_an_all_reduce_has_its_phase(values, nodes):
    """Slice by slice: as many go out as partial sums as come round as totals."""
    found = list(phases(TINY, values, nodes))
    segments = list(TINY.segments(values, nodes))
    assert [number for number, _ in groupby(found, key=lambda one: one[0])] == list(range(len(segments)))
    for number, segment in enumerate(segments):
        sizes = [-(-piece.words // TINY.frame_words) for piece in segment]
        assert len(set(sizes)) == 1
        own = [phase for place, phase in found if place == number]
        half = sizes[0] * (nodes - 1)
        assert own == ["reduce-scatter"] * half + ["all-gather"] * half


def test_steps_spans_and_all_reduces_of_a_training():
    spans = [Span(0, "F", 0, 1e-6, 2e-6), Span(0, "AR", 1, 2e-6, 5e-6), Span(0, "AR", 0, 4e-6, 6e-6)]
    times = [Times([3e-6, 9e-6], 0.0, FirstSpans(spans, left_out=4)), Times([2e-6, 9e-6])]
    frames = [frame(0), frame(1), frame(1), frame(2, operation=1), frame(3, operation=1), frame(4, operation=2)]
    found = read(ring_trace(job(), times, log(*frames), start=1e-3, first_step=7))
    assert [one[:3] for one in found.slices["node 0", "steps"]] == [
        *(("step 7", 1_000_000, 1_003_000), ("step 8", 1_003_000, 1_009_000)),
    ]
    assert [one[:3] for one in found.slices["node 0", "worker"]] == [("forward 0", 1_001_000, 1_002_000)]
    assert found.names("node 0", "all-reduces, host") == {"all-reduce 1": 1, "all-reduce 0": 1}  # on two lanes
    assert found.notes == {"spans of hosts left out": 4}
    operations = found.slices["node 0", "all-reduces, frames"]
    assert [one[:3] for one in operations] == [
        ("layer 1, step 7", 0, 20),
        ("layer 0, step 7", 30, 50),
        ("layer 1, step 8", 50, 60),
    ]
    parts = found.slices["node 0", "phases"]
    assert [one[:3] for one in parts][:2] == [
        ("reduce-scatter, segment 0", 0, 10),
        ("all-gather, segment 0", 10, 20),
    ]
    assert found.names("network", "from node 0") == {"DATA": 5, "DATA again": 1}


def test_rounds_of_groups_and_jobs_that_have_a_number_again():
    groups = Groups.parse("2x2")
    numbers = [n % 256 for n in range(300)]  # of jobs, each of one frame
    found = read(ring_trace(job(4, groups), (), log(*(frame(0, number=n) for n in numbers))))
    assert found.names("network", "from node 0") == {"DATA": 300}
    own = [name for name, *_ in found.slices["node 0", "all-reduces, frames"]]
    levels = [f"round {n} ({each.level})" for n, each in enumerate(groups.plan.rounds)]
    assert own[:4] == [
        *(f"layer 1, step 0, {level}" for level in levels),
        f"layer 0, step 0, {levels[0]}",
    ]
    second = read(ring_trace(job(4, groups), (), log(*(frame(0, number=n) for n in (0, 2)), port=1)))
    assert [name for name, *_ in second.slices["node 1", "all-reduces, frames"]] == [
        *(f"layer 1, step 0, {levels[n]}" for n in (0, 2)),  # it has no part in the round between
    ]


def test_of_a_run_that_failed_there_are_the_frames():
    found = read(ring_trace(job(), (), log(frame(0), frame(0, kind=LinkKind.PROBE))))
    assert found.names("network", "from node 0") == {"DATA": 1, "PROBE": 1}
    assert {process for process, _ in found.slices} == {"node 0", "network"}


def test_what_hosts_of_inceptionn_do_and_wait_for():
    host = FirstSpans(
        [
            Done(Activity.WORK, "compute", 2000, 5000),
            Done(Activity.WAIT, "4 values of node 1, ring", 5000, 9000),
            Done(Activity.PHASE, "reduce-scatter, ring", 5000, 9500),
            Done(Activity.STEP, "step 0", 2000, 12_000),
        ],
        left_out=2,
    )
    found = read(inceptionn_trace([host, FirstSpans()], LinkLog(), nodes=2))
    assert {thread: each[0][:3] for (_, thread), each in found.slices.items()} == {
        "steps": ("step 0", 2, 12),
        "host works": ("compute", 2, 5),
        "host waits for": ("4 values of node 1, ring", 5, 9),
        "phases": ("reduce-scatter, ring", 5, 10),
    }
    assert found.notes == {"spans of hosts left out": 2}
