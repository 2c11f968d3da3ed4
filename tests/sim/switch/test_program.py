"""The emitted program, executed, against the reference switch: every frame, register and counter alike."""

import pytest

from fanin.cli.main import main
from fanin.job import SWITCH, Job, Member, worker_endpoint
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.companions import ptf_tests
from fanin.p4.deployment import Deployment, Port, deployment_json, load_deployment
from fanin.sim.switch.emitted import embedded_switch
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.tree import parse_shape, tree_of
from fanin.wire.aggregation import AggPacket, Encap, Kind, Protocol, encode
from tests.p4.bridge import run_tests
from tests.sim.switch.traffic import JOBS, PORTS, compare
from tests.support import new_seed

TARGETS = list(Target)
CASES = [(encap, protocol) for encap in Encap for protocol in Protocol]


def _switches(encap, protocol, **changes):
    config = {"workers": 4, "slots": 32, "encap": encap, "protocol": protocol, **changes}
    return {
        target: embedded_switch(ProgramConfig(target=target, **config), endpoint=SWITCH, ports=range(PORTS))
        for target in TARGETS
    }


@pytest.mark.parametrize(("encap", "protocol"), CASES)
def test_random_packets_have_the_same_effect_on_every_switch(encap, protocol):
    switches = _switches(encap, protocol)
    counted = compare(switches, encap, 4_000, new_seed(), protocol=protocol)
    absent = [name for name, count in counted.items() if not count]
    assert [n for n in absent if protocol.acknowledges or ("ack" not in n and "confirms" not in n)] == []


@pytest.mark.slow
@pytest.mark.parametrize(("encap", "protocol"), CASES)
def test_twelve_times_ten_thousand_random_packets_have_the_same_effect_on_every_switch(encap, protocol):
    for _ in range(12):
        compare(_switches(encap, protocol), encap, 10_000, new_seed(), protocol=protocol)


@pytest.mark.parametrize("values", [1, 2, 5, 32])
def test_any_number_of_values_is_added(values):
    compare(_switches(Encap.L2, Protocol.P4SGD, values=values), Encap.L2, 500, new_seed(), values=values)


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("workers", [1, 3, 32])
def test_the_ptf_tests_pass(tmp_path, capsys, encap, target, workers):
    options = ["--target", target, "--encap", encap, "--workers", str(workers), "--slots", "64"]
    assert main(["p4", "emit", "-o", str(tmp_path), *options]) == 0
    config = ProgramConfig(target=target, encap=encap, workers=workers, slots=64)
    switch = embedded_switch(config, endpoint=SWITCH, ports=range(workers))
    assert set(run_tests(tmp_path, switch).values()) == {None}


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("target", TARGETS)
def test_the_ptf_tests_pass_below_the_root(tmp_path, target, protocol, encap):
    config = ProgramConfig(target=target, encap=encap, protocol=protocol, workers=4, slots=64)
    root, leaf = tree_of(parse_shape("1x3"), job=5, base=0, slots=32).switches
    for part, ports in ((root, 1), (leaf, 4)):
        deployment = Deployment(part.endpoint, tuple(map(Port, range(ports))), (part.part,), config)
        folder = tmp_path / part.name
        (folder / "ptf").mkdir(parents=True)
        (folder / "job.json").write_text(deployment_json(deployment))
        assert load_deployment(folder / "job.json") == deployment
        (folder / "ptf" / "aggregation_test.py").write_text(ptf_tests(config))
        switch = embedded_switch(config, endpoint=part.endpoint, ports=range(ports))
        outcomes = run_tests(folder, switch)
        assert set(outcomes.values()) == {None}
        assert len(outcomes) == 7 + protocol.acknowledges + 3 * (part is leaf)


@pytest.mark.parametrize("target", TARGETS)
def test_jobs_come_and_go_and_leave_nothing_behind(target):
    config = ProgramConfig(target=target, slots=32, encap=Encap.L2)
    switch = embedded_switch(config, endpoint=SWITCH, ports=range(PORTS))
    judge = ReferenceSwitch(endpoint=SWITCH, ports=PORTS, encap=Encap.L2)

    def send(number, member, round_number):
        job = JOBS[number]
        packet = AggPacket(Kind.AGG, job.id, job.base, round_number, job.members[member].bitmap)
        frame = encode(packet, encap=Encap.L2, source=job.members[member].endpoint, destination=SWITCH)
        out = [each.inject(job.members[member].port, frame, 0) for each in (switch, judge)]
        assert sorted(out[0]) == sorted(out[1])
        return out[0]

    for _ in range(3):
        for job in JOBS:
            switch.add_job(job)
            judge.add_job(job)
        assert [send(1, member, 1) for member in (0, 0)] == [[], []]
        assert len(send(1, 1, 1)) == 2
        assert len(send(1, 0, 1)) == 1
        for job in JOBS:
            switch.remove_job(job.id)
            judge.remove_job(job.id)
        assert send(1, 1, 2) == []
        assert [switch.job_counters(job.id) for job in JOBS] == [judge.job_counters(job.id) for job in JOBS]
    assert switch.counters() == judge.counters()


def test_a_job_that_does_not_fit_is_refused_and_changes_nothing():
    config = ProgramConfig(slots=32, workers=2)
    switch = embedded_switch(config, endpoint=SWITCH, ports=range(4))
    good = Job(1, 0, 16, (Member(0, 1, worker_endpoint(0)), Member(1, 2, worker_endpoint(1))))
    switch.add_job(good)
    wrong = {
        "the switch has 32 slots": Job(2, 32, 32, good.members),
        "port must be one of": Job(2, 16, 16, (Member(9, 1, worker_endpoint(0)),)),
        "slots of job 2 overlap": Job(2, 0, 8, good.members),
        "lowest 2 bits": Job(2, 16, 16, (Member(0, 4, worker_endpoint(0)),)),
        "is at port 1 and at port 0": Job(2, 16, 16, (Member(1, 1, worker_endpoint(0)),)),
    }
    for message, job in wrong.items():
        with pytest.raises(ValueError, match=message):
            switch.add_job(job)
    switch.add_job(Job(2, 16, 16, good.members))
    packet = AggPacket(Kind.AGG, 2, 16, 1, 1)
    assert (
        switch.inject(0, encode(packet, encap=Encap.L2, source=worker_endpoint(0), destination=SWITCH), 0) == []
    )
    assert switch.job_counters(2).aggregated == 1


def test_a_ninth_job_is_refused():
    switch = embedded_switch(ProgramConfig(slots=32, workers=1), endpoint=SWITCH, ports=range(1))
    members = (Member(0, 1, worker_endpoint(0)),)
    for number in range(8):
        switch.add_job(Job(number, number, 1, members))
    with pytest.raises(ValueError, match="8 jobs at a time"):
        switch.add_job(Job(8, 8, 1, members))
    switch.remove_job(3)
    switch.add_job(Job(8, 8, 1, members))
