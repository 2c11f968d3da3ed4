"""The folder of ``fanin p4 tree -o``: files of its user stay, and jobs are written as a whole."""

import json
from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.cli.p4 import tree
from fanin.p4.deployment import load_deployment

EXAMPLE = Path(__file__).parents[3] / "examples" / "racks" / "tree.toml"


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_names_of_switches_replace_no_files_of_the_user(tmp_path, capsys):
    folder, fabric = tmp_path / "program", tmp_path / "tree.toml"
    assert main(["p4", "emit", "--workers", "2", "--slots", "16", "-o", str(folder)]) == 0
    (folder / "package.json").write_text('{"mine": true}\n')
    names = EXAMPLE.read_text().replace("rack0", "provenance").replace("rack1", "package")
    fabric.write_text(names.replace("switch.root", "switch.job"))
    before = _files(folder)
    capsys.readouterr()
    assert main(["p4", "tree", str(fabric), "-o", str(folder)]) == 2
    error = capsys.readouterr().err
    cause = f"exists and holds no {tree.FABRIC.mark} of an earlier fabric; choose another -o"
    assert error == f"fanin: error: {folder}: {cause}\n"
    assert _files(folder) == before


def test_a_fabric_replaces_the_jobs_of_the_one_before_and_no_other_file(tmp_path, capsys):
    folder, fabric = tmp_path / "new" / "jobs", tmp_path / "tree.toml"
    fabric.write_text(EXAMPLE.read_text())
    assert main(["p4", "tree", str(fabric), "-o", str(folder)]) == 0
    (folder / "notes").write_text("mine")
    fabric.write_text(EXAMPLE.read_text().replace("rack1", "job"))
    assert main(["p4", "tree", str(fabric), "-o", str(folder), "--json"]) == 0
    assert set(_files(folder)) - {".files.json"} == {
        "root.json", "rack0.json", "job.json", "notes", tree.FABRIC.mark,
    }  # fmt: skip
    assert load_deployment(folder / "job.json").jobs
    assert json.loads((folder / tree.FABRIC.mark).read_text())["switches"]["root"] == ["rack0", "job"]


def test_an_error_in_the_middle_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    folder = tmp_path / "jobs"
    folder.mkdir()
    written = []

    def write(path, text):
        if written:
            raise InputError("no room")
        written.append(path)
        path.write_text(text)

    monkeypatch.setattr(tree, "write_file", write)
    assert main(["p4", "tree", str(EXAMPLE), "-o", str(folder)]) == 2
    assert written
    assert list(folder.iterdir()) == []


def test_jobs_follow_one_another_at_all_switches(tmp_path):
    folder = tmp_path / "jobs"
    assert main(["p4", "tree", str(EXAMPLE), "--jobs", "3", "-o", str(folder)]) == 0
    for name in ("root", "rack0", "rack1"):
        jobs = load_deployment(folder / f"{name}.json").jobs
        assert [(job.id, job.base, job.slots) for job in jobs] == [(1, 0, 256), (2, 256, 256), (3, 512, 256)]
        assert len({job.members for job in jobs}) == len({job.uplink for job in jobs}) == 1


@pytest.mark.parametrize("jobs", ["0", "9", "1000000000"])
def test_a_wrong_number_of_jobs_takes_one_line(tmp_path, capsys, jobs):
    assert main(["p4", "tree", str(EXAMPLE), "--jobs", jobs, "-o", str(tmp_path / "jobs")]) == 2
    assert capsys.readouterr().err == f"fanin: error: --jobs {jobs}: jobs must be in 1…8, not {jobs}\n"
    assert not (tmp_path / "jobs").exists()
