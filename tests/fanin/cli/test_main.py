"""The command without a simulation: help, version, lists, and every kind of bad input."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fanin import __version__
from fanin.base.cache import EMISSION, cache_directory, cached_text
from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.cli.main import build_parser, main
from fanin.runs.manifest import MANIFEST_FILE
from fanin.runs.output import output_directory
from fanin.runs.progress import TimeLeft, time_left_text
from tests.fanin.cli.command import refused, run

GOOD_LINES = "1 1:0.5 2:1\n0 1:0.25 3:2\n" * 8


def _file(folder, text):
    path = folder / "data.libsvm"
    path.write_text(text)
    return path


def _train(folder, capsys, *arguments, text=GOOD_LINES):
    """Refused by ``fanin train``; nothing may have been written."""
    path = _file(folder, text)
    err = refused(capsys, "train", path, "-o", folder / "out", *arguments)
    assert sorted(p.name for p in folder.iterdir()) == ["data.libsvm"]
    return err


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fanin {__version__}\n"


@pytest.mark.parametrize(
    "command", [[], ["train"], ["verilog"], ["bench"], ["bench", "glm"], ["doctor"], ["p4"], ["p4", "check"]]
)
def test_every_command_has_help_of_complete_sentences(capsys, command):
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    assert "usage: fanin" in capsys.readouterr().out


def test_every_option_of_the_contract_exists():
    options = (
        "--loss --workers --engines --preset --precision --frac --batch --epochs --lr --bias --no-bias "
        "--shuffle --no-shuffle --test --mode --switch --encap --slots --timeout-ns --retries --drop "
        "--duplicate --reorder --corrupt --seed --clock-mhz --link-ns --switch-ns --gbps --pcap --model-out "
        "--json -o"
    )
    known = build_parser()._subparsers._group_actions[0].choices["train"]._option_string_actions
    assert [option for option in options.split() if option not in known] == []


def test_help_does_not_load_the_simulator():
    code = (
        "import sys, fanin.cli.main as m\n"
        "m.build_parser().format_help()\n"
        "sys.exit(any(name in sys.modules for name in ('amaranth', 'sklearn', 'cocotb')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "fanin", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"fanin {__version__}\n")


def test_unknown_commands_and_options_take_one_line(capsys):
    assert "invalid choice: 'nope'" in refused(capsys, "nope")
    assert "DATA" in refused(capsys, "train")
    assert "--nope" in refused(capsys, "train", "breast_cancer", "--nope")
    assert "invalid int value: 'four'" in refused(capsys, "train", "breast_cancer", "--workers", "four")


def test_a_missing_file_names_the_bundled_sets(capsys, tmp_path):
    err = refused(capsys, "train", tmp_path / "absent", "-o", tmp_path / "out")
    assert "no such file" in err
    assert "breast_cancer" in err


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("1 1:0.5\nnot a line\n", ":2: not LIBSVM"),
        ("1 1:0.5\n0 1:nan\n", ":2: feature 1 is nan"),
        ("1 1:0.5\n0 1:inf\n", ":2: feature 1 is inf"),
        ("1 1:0.5\n1 1:0.25\n" * 8, "a single class"),
        ("".join(f"{n} 1:{n}\n" for n in range(33)) * 8, "33 classes"),
        ("", "no samples"),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_refused(capsys, tmp_path, text, cause):
    assert cause in _train(tmp_path, capsys, text=text)


@pytest.mark.parametrize("sparse", ["auto", "on", "off"])
def test_a_file_without_features_is_named(capsys, tmp_path, sparse):
    error = _train(tmp_path, capsys, "--no-bias", "--sparse", sparse, text="1\n0\n" * 8)
    assert error.endswith("data.libsvm: the data set is empty: 12 samples of 0 columns\n")


def test_a_damaged_archive_is_named(capsys, tmp_path):
    path = tmp_path / "data.gz"
    damaged = bytearray(gzip.compress(GOOD_LINES.encode()))
    damaged[10] |= 6  # there is no such block
    path.write_bytes(damaged)
    assert f"{path}: cannot be read" in refused(capsys, "train", path, "-o", tmp_path / "out")


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_two_classes_are_needed_to_classify(capsys, tmp_path, loss):
    text = "1 1:0.5\n1 1:0.25\n1 1:1\n" * 8
    assert f"the {loss} loss needs two" in _train(tmp_path, capsys, "--loss", loss, text=text)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--workers 0", "workers must be in 1…32, not 0"),
        ("--workers 33", "workers must be in 1…32, not 33"),
        ("--precision 0", "precision must be in 1…8 bits, not 0"),
        ("--precision 9", "precision must be in 1…8 bits, not 9"),
        ("--batch 12", "batch must be a positive multiple of 8, not 12"),
        ("--batch 0", "batch must be a positive multiple of 8, not 0"),
        ("--batch -8", "batch must be a positive multiple of 8, not -8"),
        (
            "--mode data-parallel --batch 10",
            "on 4 workers: batch must be a positive multiple of 4, not 10",
        ),
        ("--gradient-values 16", "gradient_values must be 8 unless mode is data-parallel, not 16"),
        ("--gradient-values 64 --mode data-parallel", "gradient_values must be a power of two in 8…32, not 64"),
        ("--vanilla --mode data-parallel", "vanilla must be off in data-parallel mode"),
        (
            "--vanilla --batch 1024",
            "vanilla: the slots hold 64 micro-batches of a mini-batch: --batch 512",
        ),
        ("--vanilla --slots 2", "vanilla: the slots hold 2 micro-batches of a mini-batch: --batch 16 fits"),
        ("--epochs 0", "epochs must be at least 1, not 0"),
        ("--lr 1e9", "lr must be at least 1.91e-06 and below 1,048,576 for a batch of 32, not 1e+09"),
        ("--lr=-1", "lr must be at least 1.91e-06 and below 1,048,576 for a batch of 32, not -1"),
        ("--lr nan --batch 64", "lr must be at least 3.81e-06 and below 2,097,152 for a batch of 64, not nan"),
        ("--clock-mhz 1e30", "clock_mhz must be in 1…2000, not 1e+30"),
        ("--test 1", "test, the held-out share, must be in [0, 1)"),
        ("--engines 9", "engines must be an integer in 1…8, not 9"),
        ("--frac 40", "frac must be an integer in 6…28, not 40"),
        ("--slots 3", "slots must be a power of two in 2…65536, not 3"),
        ("--slots 131072", "slots must be a power of two in 2…65536, not 131072"),
        ("--switch-ns nan", "switch_ns must be in [0, 1e+09], not nan"),
        ("--switch-ns -1", "switch_ns must be in [0, 1e+09], not -1"),
        ("--gbps inf", "gbps must be positive and finite"),
        ("--drop 1.5", "drop must be a probability, not 1.5"),
        ("--gbps 0", "gbps must be positive and finite"),
        ("--link-ns -1", "link_ns must be in [0, 1e+09]"),
        ("--link-ns 1e300", "link_ns must be in [0, 1e+09]"),
        ("--gbps 1e-320", "gbps must be at least 0.001"),
        ("--seed 4294967296", "seed must be in 0…4294967295"),
        ("--clock-mhz 0", "clock_mhz must be in 1…2000, not 0"),
        ("--ports-per-channel 2", "--ports-per-channel: --memory constant has no channels"),
        ("--memory hbm2 --ports-per-channel 0", "ports_per_channel must be at least 1, not 0"),
        ("--memory hbm2 --ports-per-channel 17", "ports_per_channel must be in 1…16, not 17"),
        ("--timeout-ns 0", "timeout"),
        ("--retries -1", "retries"),
        ("--seed -1", "seed"),
    ],
)
def test_a_parameter_out_of_range_is_named_with_its_limit(capsys, tmp_path, arguments, cause):
    assert cause in _train(tmp_path, capsys, *arguments.split())


def test_too_many_features_say_what_would_fit(capsys, tmp_path):
    wide = GOOD_LINES + "1 100000:1\n"
    err = _train(tmp_path, capsys, "--preset", "tiny", text=wide)
    assert "at most 128 features fit with 4 workers" in err


def test_two_billion_features_are_refused_before_they_are_quantised(capsys, tmp_path):
    err = _train(tmp_path, capsys, text=GOOD_LINES + "1 2000000000:1\n")
    assert "at most 4,096 features fit with 4 workers" in err


@pytest.mark.parametrize("option", ["--pcap", "--model-out"])
@pytest.mark.parametrize(
    ("place", "cause"),
    [("", "Is a directory"), ("file/below", "Not a directory")],
    ids=["folder", "below a file"],
)
def test_what_cannot_be_written_is_refused_before_the_run(capsys, tmp_path, option, place, cause):
    (tmp_path / "file").write_text("")
    err = refused(capsys, "train", "breast_cancer", "-o", tmp_path / "out", option, tmp_path / place)
    assert f"cannot be written: {cause}" in err
    assert not (tmp_path / "out").exists()


def test_a_sample_fifo_too_small_says_what_would_fit(capsys, tmp_path):
    wide = GOOD_LINES + "1 1200000:1\n"
    options = ("--preset", "u280", "--workers", 1, "--precision", 8, "--sparse", "off")
    err = _train(tmp_path, capsys, *options, text=wide)
    assert "the sample FIFO holds 16,896: at most 1,081,344 features fit with 1 worker" in err


def test_a_missing_tool_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path / "cache"))
    err = refused(capsys, "train", "breast_cancer", "-o", tmp_path / "out")
    assert "g++" in err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_a_run_is_left_alone(capsys, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    err = refused(capsys, "train", "breast_cancer", "-o", tmp_path)
    assert "choose another -o" in err
    assert [p.name for p in tmp_path.iterdir()] == ["letters.txt"]


def test_an_interrupted_run_leaves_nothing(tmp_path):
    target = tmp_path / "a" / "run"

    def interrupted():
        with output_directory(target) as folder:
            (folder / "half").write_text("written")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_the_file_as_users_know_it(tmp_path):
    target = tmp_path / "run"
    with pytest.raises(InputError) as error, output_directory(target) as folder:
        raise InputError(f"{folder / 'model.npz'}: cannot be written: No space left on device")
    assert str(error.value) == f"{target}/model.npz: cannot be written: No space left on device"


def test_a_run_replaces_the_one_before(tmp_path):
    target = tmp_path / "run"
    for content in ("first", "second"):
        with output_directory(target) as folder:
            (folder / "run.json").write_text(json.dumps({"fanin": "1", "options": content}))
            if content == "first":
                (folder / "model.npz").write_text("of the first")
        (target / "notes.txt").write_text("the user's")
    assert json.loads((target / "run.json").read_text()) == {"fanin": "1", "options": "second"}
    assert sorted(p.name for p in target.iterdir()) == [MANIFEST_FILE, "notes.txt", "run.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", [".", "link"])
def test_a_run_may_lie_in_the_working_directory_or_behind_a_link(tmp_path, monkeypatch, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder if name == "." else tmp_path)
    (tmp_path / "link").symlink_to(folder)
    for content in ("first", "second"):
        with output_directory(Path(name)) as scratch:
            (scratch / "run.json").write_text(json.dumps({"fanin": "1", "options": content}))
    assert json.loads((folder / "run.json").read_text()) == {"fanin": "1", "options": "second"}
    assert (tmp_path / "link").is_symlink()


def test_a_run_json_of_somebody_else_is_left_alone(capsys, tmp_path):
    (tmp_path / "run.json").write_text('{"scripts": {}}')
    assert "choose another -o" in refused(capsys, "train", "breast_cancer", "-o", tmp_path)
    assert (tmp_path / "run.json").read_text() == '{"scripts": {}}'


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ("-o out --model-out out", "out: cannot be a file and the folder of others"),
        ("-o out --model-out same --pcap same", "same: cannot be frames.pcap and model.npz at once"),
        ("-o out --model-out out/run.json", "out/run.json: cannot be model.npz and run.json at once"),
        ("-o out --model-out a --pcap a/b", "a/b: cannot be a file and the folder of others"),
        ("-o out --pcap out/frames-switch-0.pcap", "cannot be frames.pcap and the file of a switch at once"),
        ("-o out --model-out out/job-rack.json", "cannot be model.npz and the file of a switch at once"),
        (f"-o {'x' * 300}", "cannot be written: File name too long"),
        (f"-o out --pcap {'x' * 300}", "cannot be written: File name too long"),
    ],
)
def test_outputs_that_exclude_each_other_are_refused(capsys, tmp_path, monkeypatch, options, cause):
    monkeypatch.chdir(tmp_path)
    assert cause in refused(capsys, "train", "breast_cancer", *options.split())
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model.npz"
    write_file(path, b"old")
    with pytest.raises(InputError, match="cannot be written"):
        write_file(path / "below", b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


TREE = ("verilog", "adder-tree", "--preset", "tiny", "-o", "-")


def test_no_cache_uses_nothing_that_was_kept_and_keeps_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))
    monkeypatch.setattr("fanin.LOADED", math.inf)  # even while somebody edits fanin's sources
    anew = run(capsys, *TREE, "--no-cache")[1]
    assert "module adder_tree(" in anew
    assert list(tmp_path.iterdir()) == []
    assert run(capsys, *TREE)[1] == anew
    (entry,) = (tmp_path / EMISSION).iterdir()
    kept = cached_text(entry, lambda: "")
    entry.unlink()
    cached_text(entry, lambda: kept + "// what was kept\n")
    assert run(capsys, *TREE)[1] == anew + "// what was kept\n"
    assert run(capsys, *TREE, "--no-cache")[1] == anew
    assert cache_directory() == tmp_path


@pytest.mark.parametrize(
    "command",
    [
        *("train x", "ps train", "ring train", "verilog x", "codec verify --codec bfp"),
        *("bench allreduce", "bench ring", "bench rdma", "bench ps", "bench codec", "bench area"),
        "bench inceptionn",
    ],
)
def test_commands_that_emit_or_build_can_do_without_the_cache(command):
    assert build_parser().parse_args([*command.split(), "--no-cache"]).no_cache is True


def test_an_unusable_cache_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FANIN_CACHE", "/proc/nowhere")
    err = refused(capsys, "train", "breast_cancer", "--preset", "tiny", "-o", tmp_path / "out")
    assert "/proc/nowhere: builds cannot be kept there" in err
    assert "$FANIN_CACHE" in err


def test_termination_cleans_up_and_has_its_own_status(tmp_path, monkeypatch):
    def terminated(pairs):
        with output_directory(tmp_path / "run") as folder:
            (folder / "half").write_text("written")
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("fanin.cli.verilog._settings", terminated)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        main(["verilog", "adder-tree", "-o", "-"])
    assert signal.getsignal(signal.SIGTERM) is before
    assert list(tmp_path.iterdir()) == []


def test_interruption_has_its_own_status(capsys, monkeypatch):
    monkeypatch.setattr("fanin.cli.verilog._settings", lambda pairs: (_ for _ in ()).throw(KeyboardInterrupt))
    status, _, err = run(capsys, "verilog", "adder-tree", "-o", "-")
    assert (status, err) == (130, "fanin: error: interrupted\n")


def test_how_long_work_will_take_is_told_from_how_long_it_took(monkeypatch):
    clock = iter([100.0, 104.0, 110.0, 7300.0])
    monkeypatch.setattr("fanin.runs.progress.time.monotonic", lambda: next(clock))
    left = TimeLeft(1000)
    texts = [time_left_text(left.seconds(done)) for done in (10, 12, 20, 730)]
    assert texts == ["", "", ", 0:16:20 left", ", 0:45:00 left"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (IsADirectoryError(21, "Is a directory", "/tmp"), "/tmp: Is a directory"),
        (PermissionError(13, "Permission denied", b"/x\xff"), "/x\\udcff: Permission denied"),
        (OSError("no number"), "no number"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (OSError(28, "No space left on device"), "No space left on device: on the disk of a file that was"),
        (OSError(27, "File too large"), "File too large: on the disk of a file that was being written"),
        (OSError(28, "No space left on device", "/a"), "/a: No space left on device"),
    ],
)
def test_an_error_of_the_system_names_file_and_cause_without_its_number(capsys, monkeypatch, error, text):
    monkeypatch.setattr("fanin.cli.verilog._settings", lambda pairs: (_ for _ in ()).throw(error))
    status, _, err = run(capsys, "verilog", "adder-tree", "-o", "-")
    assert status == 2
    assert err.startswith(f"fanin: error: {text}")
    assert err.count("\n") == 1
