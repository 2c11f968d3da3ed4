"""Verilog and P4 from Python: the same texts as the commands', and what is refused."""

import pytest

import fanin
from fanin.api.emit import Emitted
from fanin.cli.main import main


def test_verilog_and_registers_are_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["verilog", "adder-tree", "--set", "inputs=5"]) == 0
    tree = fanin.emit("adder-tree", inputs=5)
    tree.write("ours.v")
    assert (tmp_path / "ours.v").read_bytes() == (tmp_path / "adder_tree.v").read_bytes()
    assert tree.parameters["inputs"] == 5
    assert f"{tree.area.flip_flops:,} bits of flip-flops" in repr(tree)


def test_registers_are_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["verilog", "inceptionn-nic", "--registers", "c"]) == 0
    nic = Emitted("inceptionn-nic", {}, verilog="", preset="demo", settings={}, module="inceptionn_nic")
    assert nic.registers("c") == (tmp_path / "inceptionn_nic.h").read_text()


def test_every_component_is_named():
    assert {"glm-node", "ring-node", "cluster-node"} < set(fanin.components())
    assert fanin.components("tiny")["adder-tree"]["inputs"] < fanin.components("u280")["adder-tree"]["inputs"]


@pytest.mark.parametrize("target", ["v1model", "tna"])
def test_a_switch_program_is_the_commands(tmp_path, target):
    assert main(["p4", "emit", "--target", target, "--workers", "8", "-o", str(tmp_path / "theirs")]) == 0
    program = fanin.emit_p4(target=target, workers=8)
    written = program.write(tmp_path / "ours")
    names = sorted(path.relative_to(tmp_path / "ours") for path in written)
    theirs = {p.relative_to(tmp_path / "theirs"): p for p in (tmp_path / "theirs").rglob("*") if p.is_file()}
    assert set(names) <= set(theirs)
    for name in names:
        assert (tmp_path / "ours" / name).read_bytes() == theirs[name].read_bytes()
    assert f"p4sgd for {target}" in repr(program)


def test_an_edited_job_is_not_written_over(tmp_path):
    program = fanin.emit_p4()
    program.write(tmp_path)
    job = tmp_path / "job.json"
    job.write_text(job.read_text().replace('"slots": 32768', '"slots": 64'))
    with pytest.raises(fanin.InputError, match="exists and differs"):
        program.write(tmp_path)
    taken = fanin.emit_p4(job=job)
    assert taken.deployment.jobs[0].slots == 64
    taken.write(tmp_path, taken=job)


@pytest.mark.parametrize("name", ["aggregation.p4", "ptf/aggregation_test.py"])
def test_files_of_others_are_not_written_over(tmp_path, name):
    (tmp_path / "ptf").mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(
        fanin.InputError, match=rf"{name}: exists, and .* has no job\.json of an earlier program"
    ):
        fanin.emit_p4().write(tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_the_origin_of_another_commands_results_stays(tmp_path, capsys):
    command = ["p4", "emit", "-o", str(tmp_path)]
    assert [main(command), main(command)] == [0, 0]
    origin = tmp_path / "provenance.json"
    origin.write_text('{"argv": ["train"]}')
    assert main(command) == 2
    assert capsys.readouterr().err == f"fanin: error: {origin}: is not of fanin p4 emit; choose another -o\n"
    assert origin.read_text() == '{"argv": ["train"]}'


def test_a_program_is_written_through_no_link(tmp_path):
    other, folder = tmp_path / "other", tmp_path / "folder"
    other.mkdir()
    program = fanin.emit_p4()
    program.write(folder)
    (folder / "ptf/aggregation_test.py").rename(other / "precious")
    (folder / "ptf").rmdir()
    (folder / "ptf").symlink_to(other)
    (folder / "aggregation.lua").unlink()
    (folder / "aggregation.lua").symlink_to(other / "precious")
    before = (other / "precious").read_text()
    program.write(folder)
    assert [path.name for path in other.iterdir()] == ["precious"]
    assert (other / "precious").read_text() == before
    assert not (folder / "ptf").is_symlink()
    assert not (folder / "aggregation.lua").is_symlink()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fanin.emit("toaster"), "no component 'toaster'; there are glm-node,"),
        (lambda: fanin.emit("adder-tree", inputs=1.5), "inputs: '1.5' is not a valid value"),
        (lambda: fanin.emit("adder-tree", outputs=2), "no parameter 'outputs'; there are inputs, width, radix"),
        (lambda: fanin.emit("adder-tree", preset="big"), "preset must be one of tiny, demo, "),
        (lambda: fanin.components("big"), "preset must be one of tiny, demo, "),
        (lambda: fanin.emit("adder-tree").registers(), "adder-tree has no registers; glm-node, "),
        (lambda: fanin.emit("adder-tree").registers("h"), "form must be one of c, verilog, svd, json, not 'h'"),
        (lambda: fanin.emit_p4(workers=33), "workers must be in 1…32, not 33"),
        (lambda: fanin.emit_p4(slots=8.0), "slots must be an integer, not 8.0"),
        (lambda: fanin.emit_p4(protocol="tcp"), "protocol must be one of p4sgd, switchml, not 'tcp'"),
        (lambda: fanin.emit_p4(job="/nowhere/job.json"), "/nowhere/job.json: cannot be read"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(fanin.InputError, match=f"^{message}"):
        call()
