"""The emitted program in a real BMv2, where it and p4c are installed: every frame, register, counter alike."""

import argparse
import json
import os
import signal
import time

import pytest

from fanin.base.errors import InputError, ToolFailed
from fanin.cli.main import main
from fanin.evaluation.bench import serve
from fanin.job import SWITCH, Job, Member, worker_endpoint
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.sim.switch.bmv2.frames import StreamFrames
from fanin.sim.switch.bmv2.process import BmvProcess
from fanin.sim.switch.bmv2.switch import bmv2_switch
from fanin.wire.aggregation import AggPacket, Encap, Kind, Protocol, decode_payload, encode
from tests.p4.bridge import run_tests
from tests.sim.switch.traffic import JOBS, PORTS, compare
from tests.support import new_seed

WAYS = [
    pytest.param(True, id="veth", marks=pytest.mark.needs("namespaces")),
    pytest.param(False, id="stream"),
]
SHORTEST = 14  # bytes of a frame that a veth pair carries


def _switch(veth=None, **changes):
    config = ProgramConfig(**{"workers": 4, "slots": 32, **changes})
    return bmv2_switch(config, endpoint=SWITCH, ports=range(PORTS), veth=veth)


@pytest.mark.bmv2
@pytest.mark.needs("bmv2")
class TestReal:
    """All with a switch of their own."""

    @pytest.mark.parametrize("veth", WAYS)
    @pytest.mark.parametrize("encap", list(Encap))
    @pytest.mark.parametrize("protocol", list(Protocol))
    def test_random_packets_have_the_same_effect_as_on_the_reference(self, veth, encap, protocol):
        with _switch(veth, encap=encap, protocol=protocol) as switch:
            compare({"bmv2": switch}, encap, 2_000, new_seed(), shortest=SHORTEST, protocol=protocol)

    @pytest.mark.needs("namespaces")
    def test_the_benchmark_measures_it_beside_the_embedded_switch(self, monkeypatch):
        monkeypatch.setattr(serve, "ROUNDS", 3)
        results = {result.name: result.value for result in serve.measure(argparse.Namespace(attack=False))}
        assert len(results) == 4
        assert min(results.values()) > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("encap", list(Encap))
    def test_a_hundred_thousand_random_packets_have_the_same_effect(self, encap):
        with _switch(encap=encap) as switch:
            compare({"bmv2": switch}, encap, 100_000, new_seed(), shortest=SHORTEST)

    @pytest.mark.parametrize("encap", list(Encap))
    def test_the_ptf_tests_pass(self, tmp_path, capsys, encap):
        options = ["--encap", encap, "--workers", "3", "--slots", "64"]
        assert main(["p4", "emit", "-o", str(tmp_path), *options]) == 0
        config = ProgramConfig(encap=encap, workers=3, slots=64)
        with bmv2_switch(config, endpoint=SWITCH, ports=range(3)) as switch:
            assert set(run_tests(tmp_path, switch).values()) == {None}

    def test_a_job_begins_with_clear_slots_and_counters(self):
        with _switch() as switch:
            for _ in range(2):
                switch.add_job(JOBS[0])
                assert switch.registers(JOBS[0].id, 0).round == 0
                member = JOBS[0].members[0]
                packet = AggPacket(Kind.AGG, JOBS[0].id, JOBS[0].base, 1, member.bitmap, (5,) * 8)
                frame = encode(packet, encap=Encap.L2, source=member.endpoint, destination=SWITCH)
                assert switch.inject(member.port, frame, 0) == []
                assert switch.registers(JOBS[0].id, 0)[:3] == (1, member.bitmap, (5,) * 8)
                assert switch.job_counters(JOBS[0].id).aggregated == 1
                switch.remove_job(JOBS[0].id)

    def test_a_member_may_have_any_port(self):
        job = Job(1, 0, 1, tuple(Member(port, 1 << w, worker_endpoint(w)) for w, port in enumerate((510, 508))))
        ports = [member.port for member in job.members]
        with bmv2_switch(ProgramConfig(workers=2, slots=1), endpoint=SWITCH, ports=ports) as switch:
            switch.add_job(job)
            out = []
            for member in job.members:
                packet = AggPacket(Kind.AGG, 1, 0, 1, member.bitmap, tuple(range(8)))
                frame = encode(packet, encap=Encap.L2, source=member.endpoint, destination=SWITCH)
                out.append([port for port, _, _ in switch.inject(member.port, frame, 0)])
        assert out == [[], [508, 510]]

    def test_jobs_of_a_running_one_are_managed_by_the_command(self, tmp_path, capsys):
        def job(action, *arguments):
            where = ["--switch", bmv2.p4runtime, "--thrift", f"127.0.0.1:{bmv2.thrift_port}"]
            status = main(["p4", "job", action, *where, *arguments])
            return status, capsys.readouterr().out

        def aggregated():
            return json.loads(job("stats", "--json")[1])["jobs"]["1"]["aggregated"]

        assert main(["p4", "emit", "-o", str(tmp_path), "--workers", "2", "--slots", "16"]) == 0
        capsys.readouterr()
        bmv2 = BmvProcess([0, 1], veth=False)
        frames = StreamFrames(bmv2)
        end = time.monotonic() + 20
        while not (bmv2.folder / "p4runtime").exists():
            assert time.monotonic() < end
            bmv2.check(0.05)
        assert job("add", str(tmp_path)) == (0, "job 1 added: slots 0…15, 2 members\n")
        for _ in range(2):
            assert aggregated() == 0
            for worker in (0, 1):
                packet = AggPacket(Kind.AGG, 1, 15, 1, 1 << worker, (worker + 1,) * 8)
                source = worker_endpoint(worker)
                frames.send(worker, encode(packet, encap=Encap.L2, source=source, destination=SWITCH))
            results = [frames.receive(20) for _ in range(2)]
            assert sorted(port for port, _ in results) == [0, 1]
            assert {decode_payload(frame[14:], 8).values for _, frame in results} == {(3,) * 8}
            assert aggregated() == 2
            assert job("reset", "1")[0] == 0
        assert job("remove", "1")[0] == 0
        assert json.loads(job("stats", "--json")[1])["jobs"] == {}
        frames.close()
        bmv2.close()

    @pytest.mark.parametrize("veth", WAYS)
    def test_a_killed_switch_is_reported_at_once_with_its_last_lines(self, veth):
        with _switch(veth) as switch:
            os.kill(switch.pipeline.bmv2.pid, signal.SIGKILL)
            started = time.monotonic()
            for call in (
                lambda: switch.inject(0, bytes(60), 0),
                lambda: switch.add_job(JOBS[0]),
                switch.counters,
            ):
                with pytest.raises(ToolFailed, match=r"died \(signal 9\); its last lines: .*Thrift"):
                    call()
            assert time.monotonic() < started + 10
        assert not switch.pipeline.bmv2.folder.exists()

    @pytest.mark.slow
    @pytest.mark.verilator
    @pytest.mark.parametrize("protocol", list(Protocol))
    def test_training_through_it_is_bit_exact(self, tmp_path, capsys, protocol):
        options = ["--workers", "2", "--epochs", "1", "--switch", "bmv2", "--protocol", protocol]
        assert main(["train", "breast_cancer", *options, "--drop", "0.01", "-o", str(tmp_path / "run")]) == 0
        assert "bit-exact      yes" in capsys.readouterr().out


def test_it_runs_the_v1model_program_alone():
    with pytest.raises(ValueError, match="target must be v1model"):
        _switch(target=Target.TNA)


def test_a_missing_compiler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="p4c-bm2-ss is missing: install p4c"):
        _switch()


def test_training_without_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["train", "breast_cancer", "--switch", "bmv2", "-o", str(tmp_path / "run")]) == 2
    assert "p4c-bm2-ss is missing: install p4c" in capsys.readouterr().err
