"""What lies in a run's folder may be a link, or no file at all: nothing behind it is touched."""

import contextlib
import json
import os
import stat
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.base.plain import MAX_FILE_BYTES
from fanin.base.scratch import SCRATCH, WRITER_FILE, delete_scratch, machine, scratch_prefix
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import MANIFEST_FILE, list_files, read_manifest
from fanin.runs.output import CLASSES_FOLDER, check_directory, output_directory
from fanin.sim.codec.gradients import save


@pytest.fixture
def other(tmp_path):
    """A folder of somebody else's, with a file that looks like scratch."""
    folder = tmp_path / "other"
    folder.mkdir()
    for name in ("precious", ".fanin-old", "run.json", "epoch1.npz"):
        (folder / name).write_text(name)
    return folder


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def write(target, files, options="first"):
    """A run in ``target``, as a command writes it: ``files`` by name, and its mark."""
    with output_directory(target) as folder:
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{options}: {name}")
        (folder / "run.json").write_text(json.dumps({"fanin": "1", "options": options}))


def names(folder):
    """All files and links below a folder, but what is not whole."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {name for path in found if not (name := str(path.relative_to(folder))).startswith(SCRATCH)}


@pytest.mark.parametrize("name", [CLASSES_FOLDER, "model.npz", "states", "run.json"])
def test_a_link_in_the_place_of_a_result_is_replaced_and_what_it_names_stays(tmp_path, other, name):
    target, before = tmp_path / "run", content(other)
    results = {"classes": ["classes/0/run.json"], "states": ["states/epoch1.npz"]}.get(name, [name])
    write(target, results)
    (target / name).rename(tmp_path / "moved")
    (target / name).symlink_to(tmp_path / "moved" if name == "run.json" else other)
    write(target, results, "second")
    assert content(other) == before
    assert names(target) == {MANIFEST_FILE, "run.json", *results}
    assert not (target / name).is_symlink()
    assert json.loads((target / "run.json").read_text()) == {"fanin": "1", "options": "second"}
    if name == "run.json":
        assert json.loads((tmp_path / "moved").read_text()) == {"fanin": "1", "options": "first"}


def test_a_link_that_is_in_nobodys_way_stays(tmp_path, other):
    write(tmp_path / "run", [])
    (tmp_path / "run" / "states").symlink_to(other)
    write(tmp_path / "run", [])
    assert (tmp_path / "run" / "states").is_symlink()


def test_files_that_no_manifest_lists_stay(tmp_path):
    """Also beside results, in folders that fanin has made, and under names that it uses elsewhere."""
    target = tmp_path / "run"
    write(target, ["report.html", "states/epoch1.npz", "states/epoch2.npz", "classes/0/run.json"])
    for name in ("notes.txt", "states/best.npz", "classes/0/notes.txt", "model.npz"):
        (target / name).write_text("the user's")
    list_files(target, ["states/epoch3.npz"])  # written later, by a run that goes on
    (target / "states/epoch3.npz").write_text("first")
    write(target, ["states/epoch1.npz"], "second")
    user = {"notes.txt", "states/best.npz", "classes/0/notes.txt", "model.npz"}
    assert names(target) == {MANIFEST_FILE, "run.json", "states/epoch1.npz", *user}
    assert {(target / name).read_text() for name in user} == {"the user's"}
    assert (target / "states/epoch1.npz").read_text() == "second: states/epoch1.npz"
    for name in ("states/best.npz", "classes/0/notes.txt"):
        (target / name).unlink()
    write(target, [], "third")
    assert names(target) == {MANIFEST_FILE, "run.json", "notes.txt", "model.npz"}
    assert not (target / "states").exists()


@pytest.mark.parametrize(
    "names",
    [
        *(["../other/precious"], ["/etc/hostname"], ["a/../../x"], ["."], [7], "run.json", None),
        *(["a\0b"], ["\ud800"], ["a" * 256], ["/".join("a" * 17)]),
    ],
)
def test_a_manifest_with_names_of_elsewhere_is_none(tmp_path, other, names):
    before, target = content(other), tmp_path / "run"
    write(target, [])
    (target / MANIFEST_FILE).write_text(json.dumps({"mark": "run.json", "files": names}))
    with pytest.raises(InputError, match=r"holds no \.files\.json, which lists"):
        write(target, [])
    assert content(other) == before


def test_a_manifest_larger_than_any_is_none(tmp_path):
    """Sparse: it takes no disk, and would take the memory."""
    write(tmp_path / "run", [])
    os.truncate(tmp_path / "run" / MANIFEST_FILE, MAX_FILE_BYTES + 1)
    assert read_manifest(tmp_path / "run") is None


@pytest.mark.parametrize("stop", range(7))
def test_a_command_that_ends_while_it_replaces_loses_no_whole_run(tmp_path, monkeypatch, stop):
    """Until the first file goes, the old run is whole; after that, the folder is still fanin's."""
    target, calls = tmp_path / "run", []
    write(target, ["model.npz", "states/epoch1.npz"])
    write(tmp_path / "whole", ["model.npz", "states/epoch1.npz"])

    def counted(function):
        def call(*args, **kwargs):
            calls.append(args)
            if len(calls) > stop:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for name in ("replace", "unlink"):
            patched.setattr(os, name, counted(getattr(os, name)))
        with contextlib.suppress(KeyboardInterrupt):
            write(target, ["report.html", "states/epoch2.npz"], "second")
    marked = (target / "run.json").exists()
    old = names(target) - {"report.html"} >= names(tmp_path / "whole")
    assert old or not marked or (target / "states/epoch2.npz").exists()
    write(target, ["report.html"], "third")
    assert names(target) == {MANIFEST_FILE, "run.json", "report.html"}


def test_only_names_of_a_dead_process_of_this_machine_are_leftovers(tmp_path):
    dead = f"9{'0' * 8}-x"
    kept = {
        dead,
        f".fanin-{dead}",
        f".fanin-elsewhere-{dead}",
        f"{scratch_prefix()}x",
        f".fanin-{machine()}-{dead[:9]}",
    }
    for name in (*kept, f".fanin-{machine()}-{dead}"):
        (tmp_path / name).touch()
    delete_scratch(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_scratch_behind_a_link_stays(tmp_path, other):
    before, target = content(other), tmp_path / "run"
    target.mkdir()
    (target / "link").symlink_to(other)
    (target / ".fanin-link").symlink_to(other)
    delete_scratch(target)
    assert content(other) == before
    assert sorted(path.name for path in target.iterdir()) == [".fanin-link", "link"]


@pytest.mark.parametrize("mark", ['{"options": {}}', '{"options": {}, "scripts": 1}'])
def test_a_foreign_folder_with_a_key_of_ours_is_left_alone(tmp_path, mark):
    (tmp_path / "run.json").write_text(mark)
    (tmp_path / "model.npz").write_text("somebody else's")
    with pytest.raises(InputError, match=r"holds no \.files\.json, which lists"), output_directory(tmp_path):
        pass
    assert content(tmp_path) == {"run.json": mark, "model.npz": "somebody else's"}


def test_what_is_in_the_way_is_refused_before_the_run_and_nothing_goes(tmp_path):
    target = tmp_path / "run"
    write(target, ["model.npz"])
    before = names(target)
    (target / "report.html").mkdir()
    with pytest.raises(InputError, match=r"run: cannot be written: report\.html is a folder$"):
        check_directory(target)
    (target / "report.html").rmdir()
    (target / "states").write_text("the user's")
    with pytest.raises(InputError, match=r"run: cannot be written: states is a file$"):
        check_directory(target)
    assert names(target) == before | {"states"}


def test_results_that_find_their_place_taken_are_kept_beside_it(tmp_path):
    """Somebody has made a folder there since the run began."""
    target = tmp_path / "run"
    write(target, ["model.npz"])

    def taken():
        with output_directory(target) as folder:
            for name in ("run.json", "report.html"):
                (folder / name).write_text("second")
            (target / "report.html").mkdir()

    with pytest.raises(InputError, match=r"report\.html is a folder; the new files are in ") as told:
        taken()
    kept = Path(str(told.value).rpartition(" ")[2])
    assert kept.parent == tmp_path
    assert content(kept) == {"run.json": "second", "report.html": "second"}
    assert {"run.json", "model.npz", MANIFEST_FILE} == names(target)


def test_a_fifo_in_the_place_of_the_mark_is_no_earlier_run(tmp_path):
    """Reading it would wait for a writer."""
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(InputError, match=r"holds no run\.json of an earlier run"):
        check_directory(tmp_path)


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_the_writers_name_goes_into_no_link_and_no_fifo(tmp_path, other, kind, request):
    """A link's target would lose its content, and opening a FIFO would wait for a reader."""
    before, target = content(other), tmp_path / "run"
    target.mkdir()
    if kind == "link":
        (target / WRITER_FILE).symlink_to(other / "precious")
    else:
        os.mkfifo(target / WRITER_FILE)
        request.addfinalizer(partial(os.close, os.open(target / WRITER_FILE, os.O_RDWR)))  # nobody waits for it
    with sole_writer(target):
        assert stat.S_ISREG((target / WRITER_FILE).lstat().st_mode)
        assert json.loads((target / WRITER_FILE).read_text())["pid"] == os.getpid()
    assert content(other) == before


def test_a_folder_in_the_place_of_the_writers_name_is_named(tmp_path):
    (tmp_path / WRITER_FILE).mkdir()
    with pytest.raises(InputError, match=f"{WRITER_FILE}: cannot be written: Is a directory"):
        sole_writer(tmp_path).__enter__()


@pytest.mark.parametrize("when", range(11))
def test_a_link_that_takes_a_folders_place_meanwhile_is_not_followed(tmp_path, other, monkeypatch, when):
    """Another process exchanges ``states`` with a link just before a call that deletes or moves a file."""
    target, before, calls = tmp_path / "run", content(other), []
    write(target, ["states/precious", "states/epoch1.npz"])

    def exchanging(function):
        def call(*args, **kwargs):
            calls.append(args)
            if len(calls) == when + 1 and (target / "states").is_dir():
                (target / "states").rename(tmp_path / "moved")
                (target / "states").symlink_to(other)
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for name in ("replace", "unlink", "rmdir"):
            patched.setattr(os, name, exchanging(getattr(os, name)))
        with contextlib.suppress(InputError):
            write(target, ["states/precious", "states/epoch2.npz"], "second")
    assert len(calls) > when
    assert content(other) == before


def test_a_path_that_must_be_no_link_is_not_followed(tmp_path, other):
    before, link = content(other), tmp_path / "link"
    link.symlink_to(other)
    with pytest.raises(InputError, match="link: cannot be written: Not a directory"):
        sole_writer(link, follow_link=False).__enter__()
    assert content(other) == before


def test_a_link_in_the_place_of_a_gradient_is_replaced(tmp_path, other):
    before = content(other)
    (tmp_path / "gradient-first.f32").symlink_to(other / "precious")
    assert save({"first": np.ones(1, np.float32)}, tmp_path) == [tmp_path / "gradient-first.f32"]
    assert (tmp_path / "gradient-first.f32").read_bytes() == b"\0\0\x80\x3f"
    assert content(other) == before
