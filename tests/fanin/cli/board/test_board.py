"""``fanin board``: what is listed, reported and asked, and what is refused."""

import json

import pytest

from fanin.cli.board.builds import BOARD_FILE
from fanin.cli.main import main
from tests.fanin.host.fake_board import fake_board


def run(capsys, *arguments):
    status = main(["board", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_the_list_has_every_board_with_its_preset(capsys):
    status, out, _ = run(capsys, "list", "--json")
    rows = {row["board"]: row for row in json.loads(out)["boards"]}
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
        (
            "build colorlight_i9 --memory sdram --core-mhz 101 -o OUT",
            "core-mhz must be in 10…100 for an SDRAM, not 101",
        ),
        ("build colorlight_5a75b --memory sdram --preset ecp5-45 -o OUT", "ecp5-45: about "),
        ("report OUT", "OUT: holds no board.json of fanin board build"),
        ("flash OUT", "OUT: holds no board.json of fanin board build"),
        ("ping 127.0.0.1:none", "'127.0.0.1:none' must be HOST or HOST:PORT"),
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
        found = json.loads(out)["boards"][here]
        assert (status, err) == (0, "")
        assert (found["board"], found["version"], found["build"], found["uptime_s"]) == (
            "ecpix5",
            1,
            "12345678",
            8,
        )
        assert found["held_by"] is None
        status, out, err = run(capsys, "ping", here, "127.0.0.1:9")
        assert status == 1
        assert "ecpix5" in out
        assert err.startswith("fanin: error: board 127.0.0.1: no answer to 20 requests")
