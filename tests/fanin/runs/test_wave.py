"""``--wave``: what is refused, and that the files appear whole or not at all."""

import argparse
import re

import pytest
import pywellen

from fanin.base.errors import CheckFailed, InputError
from fanin.cli.main import main
from fanin.cli.options import add_options
from fanin.runs.wave import WaveOptions, waveform
from fanin.sim.capture import read_capture
from fanin.sim.cosim.window import Window

WHOLE = b"\x00" + (24).to_bytes(8, "big") + bytes(16)  # a block of FST: its header, with first and last time


def parsed(*arguments):
    """The options as a command gets them."""
    parser = argparse.ArgumentParser()
    add_options(parser, WaveOptions)
    return parser.parse_args(list(map(str, arguments)))


def record(wave, *, recorded, ended=1000):
    """As a run that has so many edges of its window, and has ended at a cycle."""
    if recorded:
        wave.path.write_bytes(WHOLE)
    wave.count_run(ended, recorded)


@pytest.fixture
def file(tmp_path):
    """Where a waveform goes, in a folder that is yet to be made."""
    return tmp_path / "new" / "w.fst"


def test_options_say_the_window(file):
    options = "--wave-from", 1000, "--wave-cycles", 500, "--wave-nodes", "2,0", "--wave-depth", 2
    with waveform(parsed("--wave", file, *options)) as wave:
        assert wave.window == Window(1000, 500, (0, 2), 2)
        record(wave, recorded=500, ended=5000)
    with waveform(parsed("--wave", file)) as wave:
        assert wave.window == Window()
        record(wave, recorded=2000, ended=5000)
    with waveform(parsed()) as wave:
        assert wave is None


def test_a_waveform_appears_at_the_end_with_its_save_files(file, capsys):
    with waveform(parsed("--wave", file, "--wave-from", 10, "--wave-cycles", 20)) as wave:
        record(wave, recorded=20)
        assert not file.exists()
    assert file.read_bytes() == WHOLE
    assert sorted(path.name for path in file.parent.iterdir()) == ["w.fst", "w.gtkw", "w.sucl"]
    assert f'[dumpfile] "{file}"' in file.with_suffix(".gtkw").read_text()
    assert capsys.readouterr().err.startswith(f"{file}: cycles 10 to 29; open it with gtkwave {file.parent}")


def test_a_run_that_ends_in_the_window_says_so(file, capsys):
    with waveform(parsed("--wave", file, "--wave-from", 990, "--wave-cycles", 20)) as wave:
        record(wave, recorded=10)
    assert "cycles 990 to 999, where the run ended;" in capsys.readouterr().err


def test_a_run_that_ends_before_the_window_leaves_nothing(file, tmp_path):
    said = f"--wave-from 1,000: the run ended at cycle 900; {file} was not written"
    with (
        pytest.raises(InputError, match=f"^{re.escape(said)}$"),
        waveform(parsed("--wave", file, "--wave-from", 1000)) as wave,
    ):
        record(wave, recorded=0, ended=900)
    assert list(tmp_path.iterdir()) == []


def stopped(stop, *arguments, recorded=0, ended=500, content=None):
    """A run that ``stop`` ends."""
    with waveform(parsed(*arguments)) as wave:
        record(wave, recorded=recorded, ended=ended)
        if content is not None:
            wave.path.write_bytes(content)
        if stop:
            raise stop


def test_a_run_that_fails_leaves_what_there_was(file, capsys):
    arguments, failure = ("--wave", file, "--wave-from", 893), CheckFailed("node 0 stopped")
    with pytest.raises(CheckFailed):
        stopped(failure, *arguments, ended=500)
    assert not file.parent.exists()
    assert f"--wave-from 893: the run ended at cycle 500; {file}" in capsys.readouterr().err
    with pytest.raises(CheckFailed):
        stopped(failure, *arguments, recorded=7, ended=900)
    assert file.exists()
    assert "cycles 893 to 899, where the run ended" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_run_leaves_nothing(file, tmp_path, stop):
    with pytest.raises(stop):
        stopped(stop(), "--wave", file, content=b"half")
    assert list(tmp_path.iterdir()) == []


def test_half_a_file_is_not_kept(file, tmp_path):
    with pytest.raises(InputError, match=r"w\.fst: the waveform could not be written to its end"):
        stopped(None, "--wave", file, recorded=2000, ended=3000, content=WHOLE[:-1])
    assert list(tmp_path.iterdir()) == []


TRAIN = ("train", "breast_cancer")


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        (TRAIN, {"wave": "w.vcd"}, "--wave w.vcd: must end in .fst, the format"),
        (TRAIN, {"wave": "file/w.fst"}, "file/w.fst: cannot be written: Not a directory"),
        (TRAIN, {"wave": "folder.fst"}, "folder.fst: cannot be written: Is a directory"),
        (TRAIN, {"wave-from": 5}, "--wave-from: needs --wave"),
        (TRAIN, {"wave": "w.fst", "wave-from": -1}, "--wave-from must be 0 to"),
        (TRAIN, {"wave": "w.fst", "wave-cycles": 0}, "--wave-cycles must be 1 to"),
        (TRAIN, {"wave": "w.fst", "wave-depth": 0}, "--wave-depth must be 1 to"),
        (TRAIN, {"wave": "w.fst", "wave-nodes": "0,-1"}, "--wave-nodes must be numbers of nodes"),
        (TRAIN, {"wave": "w.fst", "wave-nodes": "0,4"}, "--wave-nodes 4: the nodes are 0 to 3"),
        (TRAIN, {"wave": "w.fst", "on": "boards.toml"}, "--wave: nothing is simulated in RTL"),
        (
            ("ring", "train"),
            {"wave": "w.fst", "on": "model"},
            "--wave: nothing is simulated in RTL",
        ),
        (("ps", "train"), {"wave": "w.fst", "on": "model"}, "--wave: nothing is simulated in RTL"),
        (("cluster", "run"), {"wave": "w.fst", "on": "golden"}, "--wave: nothing is simulated in RTL"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(map(str, value)),
)
def test_what_no_run_has_is_refused_at_once(tmp_path, monkeypatch, capsys, command, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder.fst").mkdir()
    before = set(tmp_path.rglob("*"))
    arguments = [f"--{name}={value}" for name, value in options.items()]
    assert main([*command, *arguments, "-o", "run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fanin: error: {said}")
    assert error.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before


class Recorded:
    """A waveform by Surfer's reader, at rising edges of a node's clock of 250 MHz, from ``first`` on.

    Between them may lie time for which no clock was run.
    """

    half = 2000  # ps, of a period

    def __init__(self, path, clock, first):
        self.variables = {each.full_name: each for each in pywellen.Waveform(str(path)).all_vars()}
        self.first = first
        self.rising = [time for time, value in self.variables[clock].signal if value == 1]

    def at(self, edge, name):
        """What an edge samples: the value before it."""
        return int(self.variables[name].signal.value_at(self.rising[edge - self.first] - self.half))


CYCLES = 4000
RING = "ring train digits --layers 64,16,10 --nodes 2 --batch 64 --epochs 1"
RUNS = {
    "engines": ("train breast_cancer --engines 2 --workers 2 --epochs 1", "glm_node", 1000),
    "ring": (RING, "ring_node", 10_000),
    "inceptionn": (f"{RING} --system inceptionn", "inceptionn_nic", 20_000),
    "server": ("ps train --workers 2 --epochs 1 --width 128 --no-optimum", "param_server_node", 40_000),
}


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("name", RUNS)
def test_each_command_writes_what_its_save_files_name(name, tmp_path, capsys):
    """Of its last node; frames are those of the capture."""
    command, module, first = RUNS[name]
    node = 2 if name == "server" else 1
    file, capture = tmp_path / "w.fst", tmp_path / "frames.pcap"
    wave = f"--wave {file} --wave-from {first} --wave-cycles {CYCLES} --wave-nodes {node}"
    assert main([*command.split(), *wave.split(), "--pcap", str(capture), "-o", str(tmp_path / "run")]) == 0
    found = Recorded(file, f"node{node}.clk", first)
    assert len(found.rising) == CYCLES
    named = re.findall(r"^(node\d\S+?)(?:\[(\d+):0\])?$", file.with_suffix(".gtkw").read_text(), re.MULTILINE)
    widths = {name: int(last or 0) + 1 for name, last in named}
    assert widths == {name: found.variables[name].bitwidth for name in widths}
    assert f"node{node}.{module}.registers.busy" in widths or name == "inceptionn"
    text = file.with_suffix(".sucl").read_text()
    assert set(re.findall(r"^variable_add (\S+)$", text, re.MULTILINE)) <= set(widths)
    edges = range(first, first + CYCLES)
    assert [found.at(edge, f"node{node}.{module}.view.cycle") for edge in edges] == list(edges)
    frames = {frame for _, frame in read_capture(capture)}
    sent = list(transmitted(found, f"node{node}.mac_tx_t", edges))
    assert set(sent) <= frames
    assert sent
    if name == "engines":
        inside = [name for name in found.variables if ".worker.engine_1.engine" in name]
        assert len(inside) > 100


def transmitted(found, stream, edges):
    """The frames of a stream that begin and end at these edges."""
    begun, frame = False, b""
    for edge in edges:
        valid, ready, last = (found.at(edge, f"{stream}{name}") for name in ("valid", "ready", "last"))
        if valid and ready:
            bits = found.variables[f"{stream}data"].bitwidth
            data = found.at(edge, f"{stream}data").to_bytes(bits // 8, "little")
            frame += data[: found.at(edge, f"{stream}keep").bit_count()]
            if last and begun:
                yield frame
            begun, frame = (True, b"") if last else (begun, frame)
