"""A fabric's file: the parts of its switches, and what is wrong in it by switch and cause."""

import json
import re
import time
import tomllib
from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.job import Job, Member, Uplink
from fanin.p4 import tree as tree_module
from fanin.p4.deployment import load_deployment
from fanin.p4.tree import load_tree
from fanin.wire.ethernet import UDP_PORT, Endpoint

EXAMPLE = Path(__file__).parents[2] / "examples/racks/tree.toml"


def toml(value):
    """The TOML text of nested dictionaries, lists, texts and numbers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.fixture
def document():
    return tomllib.loads(EXAMPLE.read_text())


@pytest.fixture
def load(tmp_path):
    def load(document):
        path = tmp_path / "tree.toml"
        path.write_text("\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in document.items()))
        return load_tree(path)

    return load


def test_the_example_is_a_tree():
    root, rack0, rack1 = load_tree(EXAMPLE).switches
    assert [part.name for part in (root, rack0, rack1)] == ["root", "rack0", "rack1"]
    assert [part.members for part in (root, rack0, rack1)] == [("rack0", "rack1"), (0, 1), (2, 3)]
    spine = Endpoint(0x020000010000, 0, UDP_PORT)
    assert root.part.uplink is None
    assert rack1.part == Job(
        1,
        0,
        256,
        (
            Member(0, 1, Endpoint(0x020000000003, 0, UDP_PORT)),
            Member(1, 2, Endpoint(0x020000000004, 0, UDP_PORT)),
        ),
        Uplink(8, 2, spine),
    )
    assert root.part.members[1] == Member(1, 2, rack1.endpoint)


def test_bits_and_mixed_members(document, load):
    """A worker beside a switch; bits as the file says; workers in the order of the walk."""
    members = document["switch"]["root"]["members"]
    members.insert(0, {"port": 5, "bit": 31, "mac": "02:00:00:00:00:09", "ip": "10.0.0.9", "udp_port": 7})
    members[1]["bit"], members[2]["bit"] = 4, 0
    root, rack0, rack1 = load(document).switches
    assert root.part.members[0] == Member(5, 1 << 31, Endpoint(0x020000000009, 0x0A000009, 7))
    assert root.members == (0, "rack0", "rack1")
    assert (rack0.part.uplink.bitmap, rack1.part.uplink.bitmap) == (16, 1)
    assert (rack0.members, rack1.members) == ((1, 2), (3, 4))


def change(document, *path_and_value):
    *path, last, value = path_and_value
    for step in path:
        document = document[step]
    if value is None:
        del document[last]
    else:
        document[last] = value


RACK0, RACK1, ROOT = (("switch", name) for name in ("rack0", "rack1", "root"))
WORKER = {"port": 0, "mac": "02:00:00:00:00:01"}
WRONG = [
    (
        (*RACK0, "members", 1, {"port": 1, "switch": "root"}),
        "a tree must have one root: each is another's member, in a loop",
    ),
    (
        (*RACK0, "members", 1, {"port": 1, "switch": "rack1"}),
        "switch.rack0.members[1]: switch 'rack1' is also a member of 'root'",
    ),
    (
        (*ROOT, "members", 1, {"port": 1, "switch": "rack0"}),
        "switch.root.members[1]: switch 'rack0' is also a member of 'root'",
    ),
    (
        (*ROOT, "members", 1, {"port": 1, "switch": "rack9"}),
        "switch.root.members[1]: there is no switch 'rack9'",
    ),
    (
        (*ROOT, "members", [{"port": 0, "switch": "rack0"}]),
        "a tree must have one root: root, rack1 are nobody's members",
    ),
    ((*RACK0, "members", []), "switch.rack0: must have 1 to 32 members, not 0"),
    ((*RACK0, "members", [WORKER] * 33), "switch.rack0: must have 1 to 32 members, not 33"),
    ((*RACK0, "members", 1, "port", 0), "switch.rack0: port 0 is used twice"),
    ((*RACK0, "uplink", 1), "switch.rack0: port 1 is used twice"),
    ((*RACK0, "members", 1, "bit", 0), "switch.rack0: bit 0 is used twice"),
    ((*RACK0, "members", 1, "bit", 32), 'switch.rack0.members[1]: "bit" must be an integer in 0…31, not 32'),
    ((*RACK0, "uplink", None), 'switch.rack0: "uplink" is missing'),
    ((*ROOT, "uplink", 9), 'switch.root: "uplink" leads to a parent, and the root has none'),
    ((*ROOT, "link", {"gbps": 9}), 'switch.root: "link" leads to a parent, and the root has none'),
    ((*RACK0, "link", {"gbps": 0}), "switch.rack0.link: gbps must be at least 0.001, not 0.0"),
    ((*RACK0, "link", {"drop": 2}), "switch.rack0.link: drop must be a probability, not 2.0"),
    ((*RACK0, "link", {"host_ns": 1}), 'switch.rack0.link: "host_ns" is not known here'),
    ((*RACK0, "link", {"gbps": "400"}), 'switch.rack0.link: "gbps" must be a number of at least 0, not "400"'),
    ((*RACK0, "mac", None), 'switch.rack0: "mac" is missing'),
    ((*RACK0, "members", 0, "mac", "x"), 'switch.rack0.members[0]: "mac" must be like'),
    ((*RACK0, "members", 0, {"port": 0}), 'switch.rack0.members[0]: "mac" is missing'),
    ((*RACK0, "size", 9), 'switch.rack0: "size" is not known here'),
    ((*RACK0, "members", 0, "switch", "rack1"), "is also a member of"),
    ((*RACK0, "members", 1, "mac", "02:00:00:00:00:03"), "worker 1 and worker 2 have the same mac"),
    ((*RACK1, "mac", "02:00:00:01:00:01"), "switch rack0 and switch rack1 have the same mac"),
    ((*RACK1, "members", 1, "mac", "02:00:00:01:00:00"), "switch root and worker 3 have the same mac"),
    ((*RACK0, "members", 1, "mac", "01:00:00:00:00:02"), 'members[1]: "mac" must be of a single station'),
    ((*ROOT, "mac", "ff:ff:ff:ff:ff:ff"), 'switch.root: "mac" must be of a single station, not of a group'),
    ((*RACK0, "udp_port", 4000), 'switch.rack0: "udp_port" must be 34997'),
    (("slots", 100), "slots must be a power of two, not 100"),
    (("base", 3), "base must be a multiple of slots"),
    (("job", 256), '"job" must be an integer in 0…255, not 256'),
    (("switch", {}), "a tree must have one root"),
    (("switch", "a b", {"mac": "02:00:00:00:00:01", "members": [WORKER]}), "'a b' must be up to 32 letters"),
]


@pytest.mark.parametrize(("path", "cause"), WRONG, ids=[cause[:40] for _, cause in WRONG])
def test_what_is_wrong_is_named_with_its_switch(document, load, path, cause):
    change(document, *path)
    with pytest.raises(InputError, match=re.escape(cause)) as error:
        load(document)
    assert "\n" not in str(error.value)
    assert "tree.toml" in str(error.value)


def test_two_stations_without_a_mac_are_refused(document, load):
    for member in document["switch"]["rack0"]["members"]:
        member["mac"] = "00:00:00:00:00:00"
    with pytest.raises(InputError, match=r"tree\.toml: worker 0 and worker 1 have the same mac"):
        load(document)


def test_two_rings_beside_a_tree_are_a_loop(document, load):
    for name, other in (("x", "y"), ("y", "x")):
        document["switch"][name] = {
            "mac": "02:00:00:00:00:11",
            "uplink": 3,
            "members": [{"port": 0, "switch": other}],
        }
    with pytest.raises(InputError, match="a tree must have no loop: x, y cannot be reached from root"):
        load(document)


def test_five_levels_are_too_many(document, load):
    document["switch"]["rack0"]["members"] = [{"port": 0, "switch": "s2"}]
    for level in (2, 3, 4):
        members = [{"port": 0, "switch": f"s{level + 1}"}] if level < 4 else [WORKER]
        document["switch"][f"s{level}"] = {"mac": f"02:00:00:00:01:0{level}", "uplink": 1, "members": members}
    with pytest.raises(InputError, match=r"switch\.s4: is at level 5; a tree has at most 4"):
        load(document)


def test_very_many_switches_are_put_in_order_in_linear_time(monkeypatch):
    """A file of 1 MiB has 30,000 switches."""
    names = [f"s{number}" for number in range(30_000)]
    fabric = tree_module._Fabric({}, {})
    fabric._entries, fabric._parents = dict.fromkeys(names), dict.fromkeys(names[1:])
    monkeypatch.setattr(fabric, "_below", lambda *_: iter(names))
    start = time.process_time()
    assert fabric.order(None) == names
    assert time.process_time() - start < 0.5


def test_the_command_writes_a_job_for_each_switch(tmp_path, capsys):
    assert main(["p4", "tree", str(EXAMPLE), "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["root", "root", "rack0,", "rack1"]
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"rack0.json", "rack1.json", "root.json", "fabric.index.json", ".files.json"}
    for part in load_tree(EXAMPLE).switches:
        deployment = load_deployment(tmp_path / f"{part.name}.json")
        assert (deployment.switch, deployment.jobs) == (part.endpoint, (part.part,))
    folder = tmp_path / "rack0"
    words = ["--job", str(tmp_path / "rack0.json"), "--workers", "2", "--slots", "256", "-o", str(folder)]
    assert main(["p4", "emit", *words]) == 0
    assert load_deployment(folder / "job.json").jobs[0].uplink.port == 8


def test_a_wrong_file_takes_one_line_and_writes_nothing(tmp_path, capsys):
    wrong = tmp_path / "tree.toml"
    wrong.write_text(EXAMPLE.read_text().replace('"rack1" }', '"rack0" }'))
    out = tmp_path / "out"
    out.mkdir()
    assert main(["p4", "tree", str(wrong), "-o", str(out)]) == 2
    message = capsys.readouterr().err
    assert (
        message == f"fanin: error: {wrong}: switch.root.members[1]: switch 'rack0' is also a member of 'root'\n"
    )
    assert list(out.iterdir()) == []
