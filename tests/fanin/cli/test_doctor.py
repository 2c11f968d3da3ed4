"""``fanin doctor``: tools, the cache, and why a run failed."""

import json
import re

import numpy as np
import pytest

from fanin.base.cache import BUILDS, EMISSION, MODELS, RUNTIME, cached_text
from tests.fanin.cli.command import refused, run


def test_the_doctor_names_tools_with_versions(capsys):
    status, out, _ = run(capsys, "doctor", "--json")
    tools = {tool["name"]: tool for tool in json.loads(out)["tools"]}
    assert status == 0
    assert tools["numpy"]["version"] == np.__version__
    assert {"python", "g++", "make", "perl", "verilator", "yosys", "cocotb", "tshark"} <= set(tools)


def test_the_doctor_says_where_the_cache_is_and_how_large(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))
    cached_text(tmp_path / EMISSION / "entry", lambda: 2_000_000 * " ")
    build = tmp_path / BUILDS / "entry" / "simulation"
    build.parent.mkdir(parents=True)
    build.write_bytes(bytes(1_234_567))
    cache = json.loads(run(capsys, "doctor", "--json")[1])["cache"]
    assert cache == {
        "folder": str(tmp_path),
        EMISSION: {"entries": 1, "bytes": 2_000_065},
        BUILDS: {"entries": 1, "bytes": 1_234_567},
        MODELS: {"entries": 0, "bytes": 0},
        RUNTIME: {"entries": 0, "bytes": 0},
    }
    out = run(capsys, "doctor")[1]
    assert f"cache, which may be deleted: {tmp_path}\n" in out
    assert re.search(r"emitted +1 +2\.0 MB +Verilog", out)
    assert re.search(r"verilated +1 +1\.2 MB +simulators", out)


def test_the_doctor_says_what_is_missing(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    status, out, err = run(capsys, "doctor")
    assert status == 1
    assert "MISSING" in out
    assert err.startswith("fanin: error: missing: g++, make, perl")


def test_the_doctor_refuses_a_folder_that_is_no_run(capsys, tmp_path):
    (tmp_path / "gradient-early.f32").write_bytes(bytes(8))
    line = refused(capsys, "doctor", tmp_path)
    commands = "train, ps train, ring train, plan or cluster run"
    assert f"{tmp_path}: no run of fanin {commands}: it holds none of run.json, " in line
    assert "absent: no such folder" in refused(capsys, "doctor", tmp_path / "absent")


COUNTS = '"aggregated": 1, "acknowledged": 0, "results": 0, "confirms": 0, "to_parent": 0'
SWITCH = f'{{{COUNTS}, "to_parent_again": 0}}'
EMPTY = '"links": [], "first_packet": [], "counters": [], "error": "x"'
PARTS = '"switch": {}, "jobs": {}, "options": {"node": {"protocol": "p4sgd"}}'
TREE = PARTS.replace('"p4sgd"}', '"p4sgd"}, "network": {"tree": {"a": []}}')
WAYS = '{"up": {"dropped": 0}, "down": {}}'
NO_RUNS = [
    ("[]", "must be an object, not []"),
    ("[" * 100_000, "not JSON"),
    ('{"first_packet": []}', '"links" is missing'),
    ('{"links": [1]}', "links[0]: must be an object, not 1"),
    (
        f'{{"links": [], "first_packet": [{{"configured": "x"}}], {PARTS}}}',
        'first_packet[0]: "configured" must be',
    ),
    (f'{{"links": [{WAYS}], "first_packet": [], "counters": [], {PARTS}}}', "as many first_packet, links and"),
    (
        f'{{"links": [{WAYS}], "first_packet": [{{}}], "counters": [{{}}, {{}}], {PARTS}}}',
        "as many first_packet",
    ),
    (
        f'{{{EMPTY}, "switches": {{"a": {{{COUNTS}}}}}, "trunks": {{}}, {PARTS}}}',
        '"to_parent_again" is missing',
    ),
    (
        f'{{{EMPTY}, "switches": {{"a": {SWITCH}}}, "trunks": {{"a up": {{"dropped": 1}}}}, {PARTS}}}',
        'trunks.a up: "fcs_errors" is missing',
    ),
    (
        f'{{{EMPTY}, "switches": {{"a": {SWITCH}}}, "trunks": {{}}, {TREE}}}',
        "options.network.tree: switch a must have members",
    ),
    (f'{{{EMPTY}, "checkpoints": ["states/epochX"], {PARTS}}}', '"checkpoints" must name states, not'),
    (
        f'{{"links": [], "first_packet": [], "counters": [], {PARTS.replace("p4sgd", "tcp")}}}',
        'options.node: "protocol" must be one of p4sgd, switchml',
    ),
]


@pytest.mark.parametrize(("content", "cause"), NO_RUNS, ids=range(len(NO_RUNS)))
def test_the_doctor_refuses_a_run_that_is_none(capsys, tmp_path, content, cause):
    (tmp_path / "run.json").write_text(content)
    assert cause in refused(capsys, "doctor", tmp_path)


def test_the_doctor_reads_text_alone(capsys, tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe")
    assert "run.json: not JSON: " in refused(capsys, "doctor", tmp_path)


def test_the_doctor_tells_why_a_run_never_began(capsys, tmp_path):
    """As of one whose switch did not start."""
    text = f'{{"error": "no switch", "links": [], "first_packet": [], "counters": [], {PARTS}}}'
    (tmp_path / "run.json").write_text(text)
    assert run(capsys, "doctor", tmp_path)[0::2] == (1, "fanin: error: no switch\n")
