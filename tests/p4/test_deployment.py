"""job.json: what it says comes back as it was; what is wrong in it is named with its place."""

import json
import re
from dataclasses import replace

import pytest

from fanin.base.errors import InputError
from fanin.job import SWITCH, Job, Member, Uplink, worker_endpoint
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.deployment import Deployment, Port, default_deployment, deployment_json, load_deployment
from fanin.wire.ethernet import Endpoint


@pytest.fixture
def document():
    return json.loads(deployment_json(default_deployment(ProgramConfig(workers=2))))


def _load(tmp_path, document):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document) if not isinstance(document, str) else document)
    return load_deployment(path)


def test_a_deployment_comes_back_as_it_was_written(tmp_path):
    members = Member(4, 1, worker_endpoint(0)), Member(4, 2, Endpoint(0x123456789ABC, 0x7F000001, 5))
    uplink = Uplink(9, 0x4000_0000, Endpoint(0x0234, 0x7F000002, 6))
    jobs = Job(1, 0, 256, members, uplink), Job(255, 256, 16, (Member(7, 0x8000_0000, worker_endpoint(9)),))
    deployment = Deployment(SWITCH, (Port(4, "25G", "FC"), Port(7), Port(9)), jobs)
    assert _load(tmp_path, deployment_json(deployment)) == deployment


def test_what_need_not_be_said_has_a_default(tmp_path):
    document = {"switch": {"mac": "02:00:00:00:00:ff"}, "ports": [{"port": 3}], "jobs": []}
    assert _load(tmp_path, document) == Deployment(Endpoint(0x0200000000FF), (Port(3),), ())


def _change(document, place, value):
    *outer, last = place
    for step in outer:
        document = document[step]
    if value is None:
        del document[last]
    else:
        document[last] = value


JOB, MEMBER = ("jobs", 0), ("jobs", 0, "members", 1)
UPLINK = {"port": 9, "bitmap": 1, "mac": "02:00:00:01:00:00"}
WRONG = [
    ((*MEMBER, "port"), None, 'jobs[0].members[1]: "port" is missing'),
    ((*MEMBER, "port"), "1", 'jobs[0].members[1]: "port" must be an integer in 0…510, not "1"'),
    ((*MEMBER, "port"), True, '"port" must be an integer in 0…510, not true'),
    ((*MEMBER, "port"), 511, '"port" must be an integer in 0…510, not 511'),
    ((*MEMBER, "port"), 5, "job.json: port 5 of job 1 is not among the switch's: [0, 1]"),
    ((*MEMBER, "mac"), "2:0:0:0:0:1", 'jobs[0].members[1]: "mac" must be like'),
    ((*MEMBER, "ip"), "10.0.0.256", "jobs[0].members[1]: "),
    ((*MEMBER, "udp_port"), 65536, '"udp_port" must be an integer in 0…65535'),
    ((*MEMBER, "bitmap"), 3, "jobs[0]: bitmap must have exactly one of 32 bits set"),
    ((*MEMBER, "bitmap"), 1, "jobs[0]: members must be 1 to 32 with a bitmap each"),
    ((*MEMBER, "bitmop"), 2, 'jobs[0].members[1]: "bitmop" is not known here'),
    ((*JOB, "slots"), 1000, "jobs[0]: slots must be a power of two, not 1000"),
    ((*JOB, "base"), 1, "jobs[0]: base must be a multiple of slots"),
    ((*JOB, "id"), 256, "jobs[0]: job id must be 0 to 255"),
    ((*JOB, "members"), {}, 'jobs[0]: "members" must be a list, not {}'),
    ((*JOB, "uplink"), 7, "jobs[0].uplink: must be an object, not 7"),
    ((*JOB, "uplink"), {"port": 9}, 'jobs[0].uplink: "bitmap" is missing'),
    ((*JOB, "uplink"), UPLINK, "job.json: port 9 of job 1 is not among the switch's: [0, 1]"),
    ((*JOB, "uplink"), {**UPLINK, "port": 1}, "jobs[0]: port 1 of the uplink is also a member's"),
    ((*JOB, "uplink"), {**UPLINK, "bitmap": 3}, "jobs[0]: bitmap must have exactly one of 32 bits set"),
    ((*JOB, "uplink"), {**UPLINK, "mac": "x"}, 'jobs[0].uplink: "mac" must be like'),
    (("jobs", 0), 7, "jobs[0]: must be an object, not 7"),
    (("ports", 1, "speed"), "1T", 'ports[1]: "speed" must be one of 10G'),
    (("ports", 1, "port"), 0, "job.json: ports must be named once each, not [0, 0]"),
    (("switch",), None, 'job.json: "switch" is missing'),
    (("swich",), {}, 'job.json: "swich" is not known here'),
    (("program", "target"), "psa", 'program: "target" must be one of v1model, tna, not "psa"'),
    (("program", "values"), 33, "program: values must be in 1…32, not 33"),
    (("program", "slots"), 64, "job 1 ends at slot 32767, and the switch has 64 slots"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=[message[:40] for _, _, message in WRONG])
def test_what_is_wrong_is_named_with_its_place(tmp_path, document, place, value, message):
    _change(document, place, value)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        _load(tmp_path, document)
    assert str(error.value).startswith(f"{tmp_path}/job.json: ")
    assert "\n" not in str(error.value)


def test_an_unknown_field_of_an_uplink_is_named(tmp_path, document):
    document["ports"].append({"port": 9})
    document["jobs"][0]["uplink"] = {**UPLINK, "name": "a"}
    with pytest.raises(InputError, match=r'jobs\[0\]\.uplink: "name" is not known here'):
        _load(tmp_path, document)


def test_two_members_with_one_port_and_bitmap_are_refused(tmp_path, document):
    document["jobs"][0]["members"][1] |= {"port": 0, "bitmap": 1}
    with pytest.raises(InputError, match=r"jobs\[0\]: two members with port 0 and bitmap 1"):
        _load(tmp_path, document)


def _second_job(document, **changes):
    first = document["jobs"][0]
    document["jobs"].append({**json.loads(json.dumps(first)), "id": 2, **changes})


def test_overlapping_slots_are_refused(tmp_path, document):
    _second_job(document, base=16384, slots=16384)
    with pytest.raises(InputError, match="slots of job 2 overlap those of job 1"):
        _load(tmp_path, document)


def test_a_group_mac_is_refused(tmp_path, document):
    document["jobs"][0]["members"][0]["mac"] = "03:00:00:00:00:01"
    with pytest.raises(InputError, match=r'jobs\[0\]\.members\[0\]: "mac" must be of a single station'):
        _load(tmp_path, document)


def test_nine_jobs_are_refused(tmp_path, document):
    document["jobs"][0]["slots"] = 1
    for number in range(1, 9):
        _second_job(document, id=number + 1, base=number)
    with pytest.raises(InputError, match="8 jobs at a time, not 9"):
        _load(tmp_path, document)


def test_a_mac_at_two_ports_is_refused(tmp_path, document):
    document["jobs"][0]["slots"] = 16384
    _second_job(document, base=16384)
    members = document["jobs"][1]["members"]
    members[0]["port"], members[1]["port"] = 1, 0
    with pytest.raises(InputError, match="MAC 020000000001 of job 2 is at port 1 and at port 0"):
        _load(tmp_path, document)


@pytest.mark.parametrize("text", ["", "{", "[1, 2", '{"a": 1,}'])
def test_what_is_not_json_is_named_with_line_and_column(tmp_path, text):
    with pytest.raises(InputError, match=r"job\.json:\d+:\d+: "):
        _load(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.json: cannot be read: No such file"):
        load_deployment(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        (Target.V1MODEL, {"slots": 16384}, "job 1 ends at slot 32767, and the switch has 16384 slots"),
        (Target.V1MODEL, {"workers": 1}, "one of the lowest 1 bits"),
        (Target.TNA, {}, "ports of job 1 are in pipes [0, 1]"),
    ],
)
def test_jobs_that_the_program_cannot_run_are_refused(target, changes, message):
    members = Member(0, 1, worker_endpoint(0)), Member(128, 2, worker_endpoint(1))
    deployment = Deployment(SWITCH, (Port(0), Port(128)), (Job(1, 0, 32768, members),))
    replace(deployment, program=ProgramConfig(workers=2))
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(deployment, program=ProgramConfig(target=target, **{"workers": 2, **changes}))
