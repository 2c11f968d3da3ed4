# amaranth: UnusedElaboratable=no
"""Networks on several devices train bit for bit as on one, whatever the network between them does."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fanin.cnn.flow.execute import execute
from fanin.cnn.flow.link import PORT_RATE, WIRE_SECONDS
from fanin.cnn.flow.node import NodeGraph, Sizes
from fanin.cnn.flow.predict import predict
from fanin.cnn.flow.verdict import find_deadlock
from fanin.cnn.training import Job
from fanin.hdl.net.link.job import LinkFailure
from fanin.host.causes import cause_of
from fanin.link import LinkConfig
from fanin.sim.cnn.cosim import ClusterCosim, JobFailed
from fanin.sim.cnn.epochs import Epoch
from fanin.sim.cnn.hosts import Cut
from fanin.sim.network import SWITCH_NS
from tests.sim.cnn.trial import FRAMES, THREE, Trial
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

FAULTS = [LinkConfig(**{fault: 0.02}) for fault in ("drop", "duplicate", "reorder", "corrupt")]
BAD = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)

RESIDUAL = Trial("residual", "aaaabbbaaaaaaa")  # both branches of the join come back over the network
BRANCH = Trial("residual", "aaaaabbaaaaaaa")  # two convolutions' branch goes over the network and comes back


def links(epoch):
    """Counters of all ends of connections."""
    return [counters for device in epoch.devices for counters in device.links.values()]


@pytest.mark.parametrize("trial", [THREE, *slow(RESIDUAL)], ids=str)
def test_training_is_bit_exact_over_the_network(trial):
    lossless = trial.check()
    for one in links(lossless[0]):
        assert one["sent"] == one["received"] == FRAMES * 6  # a row a frame, both ways
        assert one["bad_fcs"] == one["out_of_order"] == one["foreign"] == one["retransmitted"] == 0
    forward = [(one["sent"], one["received"]) for one in links(lossless[1])]
    # A job that only sends has ended when its layers have: the last frames may still wait for the MAC.
    assert all((sent == 0) == (received == FRAMES * 6) for sent, received in forward)
    assert sum(received for _, received in forward) == FRAMES * 6 * len(trial.placement.connections)
    bad = trial.check(link=BAD, seed=new_seed())
    assert sum(one["retransmitted"] for epoch in bad for one in links(epoch)) > 0
    assert sum(one["bad_fcs"] + one["out_of_order"] for epoch in bad for one in links(epoch)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("link", FAULTS, ids=lambda link: str(link)[:60])
def test_every_kind_of_fault_is_repaired(link):
    first = new_seed()
    for seed in range(first, first + 10):
        RESIDUAL.check(link=link, seed=seed)


@pytest.mark.parametrize("trial", [THREE, *slow(RESIDUAL, BRANCH)], ids=str)
def test_frames_drain_and_update_take_the_predicted_cycles(trial):
    """Within 2 %: each frame's result, from batch to batch, and the job to its end: drain and update."""
    images, labels = trial.data
    for frames, batch in ((1, 1), (10, 5)):
        epoch = Epoch(Job.of(frames, batch, 0.5, 0.9), images[:frames], labels[:frames])
        (found,) = trial.cosim.run(trial.words(trial.states), [epoch], timeout=200_000).epochs
        sizes = Sizes.of(trial.placement.flow)
        predicted = predict(trial.network, sizes, batch=batch, batches=frames // batch)
        assert found.counters["cycles"] == pytest.approx(predicted.job, rel=0.02)
        assert np.diff(found.result_cycles) == pytest.approx(np.diff(predicted.results), rel=0.02, abs=8)
        ended = found.counters["cycles"] - (
            found.result_cycles[-1] - found.result_cycles[0]
        )  # but for frames in between
        assert ended == pytest.approx(predicted.job - (predicted.results[-1] - predicted.results[0]), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [23, 22])
def test_devices_stop_at_what_the_flow_model_says(depth):
    """The FIFO is beside the branch that goes over the network, on the host's device.

    The other device's job began first, so that its watchdog expires first; but no stream of its own waits.
    """
    stages, (images, labels) = BRANCH.network.stages, BRANCH.data
    join = next(index for index, stage in enumerate(stages) if stage.name == "add")
    sizes = Sizes.of(BRANCH.placement.flow)
    sizes = replace(sizes, skews={**sizes.skews, (join, 1): depth})
    host, other = BRANCH.placement.parts
    (here,) = (here for here, index in host.network_index.items() if index == join)
    cosim = ClusterCosim([replace(host, skews={**host.skews, (here, 1): depth}), other], quiet=True)
    node, ends = NodeGraph(BRANCH.network, sizes, batch=6), depth == 23
    execution = execute(node.graph, 6, timed=False)
    assert execution.is_complete == ends
    epoch = Epoch(Job.of(6, 6, 0.5, 0.9), images[:6], labels[:6])
    if ends:
        cosim.run(BRANCH.words(BRANCH.states), [epoch], timeout=20_000)
        return
    stream = find_deadlock(node, execution).stream
    what = f"what {stages[stream.stage].name} gives {'backward' if stream.backward else 'forward'}"
    with pytest.raises(JobFailed, match=f"a failed by cycle .*TIMEOUT: {what} is not taken"):
        cosim.run(BRANCH.words(BRANCH.states), [epoch], timeout=20_000)


def test_wires_are_as_long_as_the_flow_model_has_them():
    link = LinkConfig()
    assert (2 * link.delay_ns + SWITCH_NS, link.gbps) == pytest.approx((1e9 * WIRE_SECONDS, 1e-9 * PORT_RATE))


def test_streams_and_fifos_have_the_names_of_the_whole_network():
    (epoch, _, _) = THREE.run().epochs
    names = [THREE.network.stages[one.stream.stage].name for one in epoch.streams]
    assert names == sorted(names, key=[stage.name for stage in THREE.network.stages].index)
    assert {one.frames for one in epoch.streams} == {FRAMES}
    assert epoch.fifos.keys() == THREE.cosim.fifos.keys()


def test_a_device_that_is_cut_off_ends_the_run_by_name():
    """Its neighbours find it silent within retries · timeout."""
    limits = {"link_timeout": 500, "link_retries": 4}
    with pytest.raises(JobFailed) as failure:
        THREE.run(cut=Cut(1, 6), **limits)
    found = re.fullmatch(r"(\w) failed by cycle (\d+): LINK: (.*)", str(failure.value))
    assert found
    assert "bias" in found[3]
    assert found[3].endswith(f": {cause_of(LinkFailure.TIMEOUT)}")
    assert [len(one.links) for one in failure.value.devices] == [2, 2, 2]
    assert failure.value.results >= 6
    healthy = sum(epoch.counters["cycles"] for epoch in THREE.run().epochs)
    assert int(found[2]) < healthy + 10 * 500 * 4
