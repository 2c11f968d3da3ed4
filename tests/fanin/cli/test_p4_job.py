"""``fanin p4 job`` against a switch that keeps what it is told (tests.sim.switch.bmv2.fake), and its errors."""

import itertools
import json
import os
import socket

import grpc
import pytest
from finsy.proto import p4r

from fanin.cli.main import main
from fanin.job import Job, Member, worker_endpoint
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import Deployment, default_deployment, deployment_json
from fanin.sim.switch.bmv2 import p4runtime
from fanin.wire.aggregation import Encap
from tests.fanin.cli.json_page import documented
from tests.sim.switch.bmv2.fake import FakeSwitch, compiled
from tests.sim.switch.traffic import JOBS

CONFIG = ProgramConfig(slots=32, workers=4, encap=Encap.UDP)


@pytest.fixture
def fake():
    switch = FakeSwitch()
    yield switch
    switch.close()


@pytest.fixture
def run(fake, tmp_path, capsys):
    """Exit status, output and errors of ``fanin p4 job ACTION``."""

    def act(action, *arguments):
        where = ["--switch", fake.address, "--thrift", fake.thrift]
        status = main(["p4", "job", action, *where, *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return act


@pytest.fixture
def emit(tmp_path):
    """A folder as of ``fanin p4 emit``, with a compiled program unless told otherwise."""

    def write(*jobs, program=True):
        standard = default_deployment(CONFIG)
        (tmp_path / "job.json").write_text(deployment_json(Deployment(standard.switch, PORTS, jobs)))
        if program:
            compiled(CONFIG, tmp_path)
        return tmp_path

    return write


GROUPS = "packet_replication_engine_entry"
PORTS = default_deployment(ProgramConfig(workers=6)).ports


def _refused(answer, why):
    status, out, err = answer
    assert (status, out) == (2, "")
    assert why in err
    assert err.count("\n") == 1


def test_jobs_are_added_counted_reset_and_removed(fake, run, emit):
    folder = emit(*JOBS)
    assert run("add", folder, 3)[:2] == (0, "job 3 added: slots 8…15, 4 members\n")
    slots = {(name, start, end, value) for name, start, end, value in fake.registers}
    names = ("agg_state", "ack_state", "current_round", "agg_answered", "ack_answered")
    assert slots == {(f"Aggregation.{name}", 8, 16, 0) for name in names}
    with_one = dict(fake.entities)
    assert run("add", folder, 200)[0] == 0
    fake.count("Aggregation.verdict", 7)
    fake.count("Aggregation.forward", 4)
    status, out, _ = run("stats", "--json")
    found = documented("p4 job stats", out)
    assert status == 0
    assert found["switch"]["flooded"] == 4
    assert found["jobs"].keys() == {"3", "200"}
    assert found["jobs"]["3"]["stale"] == 2 * 7  # an entry for AGG, one for ACK
    assert json.loads(run("stats", 200, "--json")[1])["jobs"].keys() == {"200"}
    assert "job 200" in run("stats")[1]
    fake.registers.clear()
    before = dict(fake.entities)
    assert run("reset", 200)[0] == 0
    assert fake.entities == before
    assert {entry[1:] for entry in fake.registers} == {(4, 6, 0)}
    assert run("remove", 200)[:2] == (0, "job 200 removed\n")
    assert fake.entities == with_one


def test_all_jobs_of_the_file_are_added_in_one_go(fake, run, emit):
    assert run("add", emit(*JOBS))[1].count("added") == 3
    assert json.loads(run("stats", "--json")[1])["jobs"].keys() == {"3", "77", "200"}


def test_nobody_at_the_address(capsys):
    status = main(["p4", "job", "stats", "--switch", "127.0.0.1:1"])
    _refused((status, "", capsys.readouterr().err), "127.0.0.1:1: no P4Runtime server answers")


@pytest.mark.parametrize("option", ["--switch", "--thrift"])
@pytest.mark.parametrize(
    "address", ["here", "", ":1", "here:", "here:0", "here:65536", "xds:///a:1", "a b:1", "unix:/nowhere"]
)
def test_an_address_that_is_none(option, address, capsys):
    status = main(["p4", "job", "stats", option, address])
    also = ", or unix:/PATH of a socket" if option == "--switch" else ""
    _refused((status, "", capsys.readouterr().err), f"{option} must be HOST:PORT{also}, not {address!r}")


def test_a_unix_socket_is_an_address_of_the_switch_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = tmp_path / "p4runtime"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("p4runtime")
        for option, cause in (
            ("--switch", "no P4Runtime server answers"),
            ("--thrift", "must be HOST:PORT, not"),
        ):
            status = main(["p4", "job", "stats", option, f"unix:{path}"])
            _refused((status, "", capsys.readouterr().err), cause)


def test_an_address_of_version_6(capsys):
    status = main(["p4", "job", "stats", "--switch", "[::1]:1"])
    _refused((status, "", capsys.readouterr().err), "[::1]:1: no P4Runtime server answers")


def test_a_switch_without_a_program(run, emit):
    _refused(run("stats"), "runs no aggregation program yet: fanin p4 job add loads it")
    _refused(run("add", emit(*JOBS, program=False)), "runs no program, and ")


def test_another_program(fake, run, emit, tmp_path):
    run("add", emit(*JOBS))
    fake.config.p4info.registers.pop(0)
    _refused(run("stats"), "the switch runs another program than that of fanin p4 emit")


def test_a_folder_without_jobs(run, emit):
    _refused(run("add", emit()), "job.json: has no jobs")
    _refused(run("add", emit(), 3), "job.json: has no jobs")


def test_a_job_that_nobody_knows(run, emit):
    _refused(run("add", emit(*JOBS), 4), "job.json: has no job 4; it has 3, 200, 77")
    run("add", emit(*JOBS), 3)
    for action in ("remove", "reset", "stats"):
        _refused(run(action, 4), "runs no job 4; it runs 3")


def test_a_job_that_runs_already(run, emit):
    run("add", emit(*JOBS), 3)
    _refused(run("add", emit(*JOBS), 3), "job 3 exists")


def test_slots_that_another_job_has(run, emit):
    run("add", emit(JOBS[0]))
    _refused(run("add", emit(Job(4, 0, 16, JOBS[1].members))), "slots of job 4 overlap those of job 3")


@pytest.mark.parametrize("table", ["Delivery.members", "Aggregation.admission"])
def test_entries_that_are_not_whole(fake, run, emit, table):
    """A command that is killed leaves some of a job's entries; another controller may have changed them."""
    run("add", emit(JOBS[0]))
    number = next(t.preamble.id for t in fake.config.p4info.tables if t.preamble.name == table)
    keys = [key for key, entity in fake.entities.items() if entity.table_entry.table_id == number]
    if table == "Delivery.members":
        del fake.entities[keys[0]]
    else:
        del fake.entities[keys[0]].table_entry.match[:]
    _refused(run("stats"), "the entries of its jobs are not whole: restart the switch, then add its jobs again")


def test_entries_of_another_kind_or_without_end(fake, run, emit, monkeypatch):
    run("add", emit(JOBS[0]))
    entry = next(entity for entity in fake.entities.values() if entity.HasField("table_entry"))
    fake.extra = lambda request: [p4r.ReadResponse(entities=[entry] * request.entities[0].HasField(GROUPS))]
    _refused(run("stats"), "sent entries of another kind than requested")
    fake.extra = lambda request: itertools.repeat(p4r.ReadResponse(entities=[entry] * 100))
    monkeypatch.setattr(p4runtime, "_MAX_ENTITIES", 900)
    _refused(run("stats"), "sent more than 900 entries")


def test_an_error_that_is_none_of_grpc(fake, run):
    def refuse(context):
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff\xff"),))
        context.abort(grpc.StatusCode.UNKNOWN, "x")

    fake.refuse = refuse
    _refused(run("stats"), "sent an answer that cannot be read: ")


@pytest.mark.parametrize("text", [b"\x1b[31m {", b"\xff", b'tables { preamble { id: "x" } }'])
def test_a_folder_with_damaged_files(run, emit, text):
    folder = emit(JOBS[0])
    (folder / "aggregation.p4info.txtpb").write_bytes(text)
    _refused(run("add", folder), "aggregation.p4info.txtpb: no P4Info, as fanin p4 emit writes it: ")


def test_a_folder_with_a_fifo(run, emit):
    folder = emit(JOBS[0])
    (folder / "aggregation.json").unlink()
    os.mkfifo(folder / "aggregation.json")
    _refused(run("add", folder), "aggregation.json: cannot be read: is no regular file")


def test_no_place_left(run, emit):
    jobs = [Job(n, n, 1, (Member(0, 1, worker_endpoint(0)),)) for n in range(9)]
    assert run("add", emit(*jobs[:8]))[0] == 0
    _refused(run("add", emit(jobs[8])), "the program runs 8 jobs at a time")


def test_registers_out_of_reach_leave_no_job_behind(fake, run, emit, capsys):
    folder = emit(JOBS[0])
    status = main(["p4", "job", "add", str(folder), "--switch", fake.address, "--thrift", "127.0.0.1:1"])
    _refused((status, "", capsys.readouterr().err), "no Thrift server answers")
    assert json.loads(run("stats", "--json")[1])["jobs"] == {}


def test_a_reset_that_cannot_clear_registers_leaves_the_job_as_it_is(fake, run, emit, capsys):
    run("add", emit(JOBS[0]))
    before = dict(fake.entities)
    status = main(["p4", "job", "reset", "3", "--switch", fake.address, "--thrift", "127.0.0.1:1"])
    _refused((status, "", capsys.readouterr().err), "no Thrift server answers")
    assert fake.entities == before


def test_a_folder_without_a_job_file(run, tmp_path):
    _refused(run("add", tmp_path), "job.json: cannot be read")
