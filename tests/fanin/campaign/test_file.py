"""A campaign's file: which runs it has, and what is refused in one line before anything is written."""

from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.campaign.draws import draw
from fanin.campaign.file import read_campaign
from fanin.campaign.folder import Folder
from fanin.cli.main import build_parser, main

ROOT = Path(__file__).parents[3]
PS = 'command = "ps train"\n'


@pytest.fixture(scope="module")
def whole():
    return build_parser()


@pytest.fixture
def read(tmp_path, whole):
    def read(text):
        file = tmp_path / "campaign.toml"
        file.write_text(text)
        return read_campaign(file, whole)

    return read


@pytest.mark.parametrize(
    ("name", "runs"), [("accuracy", 4 * 8 * 3), ("allreduce", 5 * 3 * 4 * 3), ("reproduction", 5)]
)
def test_the_examples_can_be_read(whole, name, runs):
    assert len(read_campaign(ROOT / f"examples/campaigns/{name}.toml", whole).runs) == runs


def test_a_grid_is_all_combinations_seed_by_seed(read):
    found = read(
        PS + 'seeds = 2\n[options]\non = "model"\n[[grid]]\nworkers = [2, 4]\nalgorithm = ["wild", "sync"]'
    )
    points = [(run.options["seed"], run.options["workers"], run.options["algorithm"]) for run in found.runs]
    grid = [(workers, algorithm) for workers in (2, 4) for algorithm in ("wild", "sync")]
    assert points == [(seed, *point) for seed in (0, 1) for point in grid]
    assert found.runs[0].words == ("--on=model", "--workers=2", "--algorithm=wild", "--seed=0")


def test_grids_and_runs_are_carried_out_together_and_once(read):
    found = read(PS + "[[grid]]\nworkers = [2, 4]\n[[run]]\nworkers = 4\n[[run]]\nworkers = 4\nservers = 2")
    assert [run.options for run in found.runs] == [{"workers": 2}, {"workers": 4}, {"workers": 4, "servers": 2}]
    assert len({run.name for run in found.runs}) == 3


def test_the_order_of_options_is_not_part_of_a_runs_name(read):
    one = read(PS + "[[grid]]\nworkers = 2\nservers = 1").runs[0].name
    other = read(PS + "[[grid]]\nservers = 1\nworkers = 2").runs[0].name
    assert one.rpartition("-")[2] == other.rpartition("-")[2]


def test_a_run_is_named_twice_whatever_the_order_of_its_options(read):
    found = read(PS + "[[run]]\nworkers = 2\nrate = 1.0\n[[run]]\nrate = 1\nworkers = 2\n[[run]]\nrate = 1.5")
    assert [run.options for run in found.runs] == [{"workers": 2, "rate": 1.0}, {"rate": 1.5}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("optimum = false", ["--no-optimum"]),
        ("optimum = true", ["--optimum"]),
        ('stop = [["4:0.02", "5:0.1"]]', ["--stop=4:0.02", "--stop=5:0.1"]),
        ("rate = -0.5", ["--rate=-0.5"]),
        ('data = "my digits"\nworkers = 2', ["--workers=2", "--", "my digits"]),
    ],
)
def test_options_become_a_command_line(read, options, words):
    assert list(read(PS + "[[grid]]\n" + options).runs[0].words) == words


def test_json_and_the_folder_stand_in_front_of_arguments(read, whole):
    campaign = read(PS + '[[grid]]\ndata = "digits"')
    line = campaign.command.command_line(campaign.runs[0].words, "there")
    args = whole.parse_args(line)
    assert (args.json, str(args.output), args.data) == (True, "there", "digits")


def test_inputs_are_known(read):
    assert [str(path) for path in read(PS + '[[grid]]\ndata = ["a.npz", "b.npz"]').inputs] == ["a.npz", "b.npz"]


def test_the_runs_in_a_folder_have_read_the_same_data_wherever_the_file_lies(tmp_path, whole):
    text = PS + '[[grid]]\ndata = "a.npz"'
    for place, data in (("one", "a"), ("same", "a"), ("other", "b"), ("none", "")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "campaign.toml").write_text(text)
        if data:
            (tmp_path / place / "a.npz").write_text(data)

    def folder(place):
        return Folder(tmp_path / "out", read_campaign(tmp_path / place / "campaign.toml", whole))

    first = folder("one")
    first.begin([])
    first.run_folder(first.missing(failed=False)[0]).mkdir()
    folder("same").check()
    for place in ("other", "none"):
        with pytest.raises(InputError, match=r"^a.npz: is not what the runs in .*out have read; choose"):
            folder(place).check()


RANDOM = {"draws": 50, "options": {"a": {"log": [0.001, 1]}, "b": {"integer": [2, 4]}, "c": ["x", "y"]}}


def test_draws_are_of_their_ranges_and_repeat_with_their_seed():
    found = draw(RANDOM, "random", maximum=50)
    assert all(0.001 <= point["a"] <= 1 for point in found)
    assert ({point["b"] for point in found}, {point["c"] for point in found}) == ({2, 3, 4}, {"x", "y"})
    assert sum(point["a"] < 0.032 for point in found) in range(12, 39)  # half of them, on a logarithmic scale
    assert found == draw(RANDOM, "random", maximum=50)
    assert found != draw(RANDOM | {"seed": 1}, "random", maximum=50)


def test_large_integers_are_ends_of_a_range():
    table = {"draws": 1, "options": {"a": {"uniform": [-(10**308), 10**308]}}}
    ((name, value),) = draw(table, "random", maximum=1)[0].items()
    assert (name, type(value)) == ("a", float)


WRONG = {
    "kommand = 1": "unknown key kommand",
    "command = 3": "command must be a text, not 3",
    "command = = 3": "at line 1",
    "seeds = 3": "command is missing",
    'command = "watch"': "command must be one of train",
    'command = "bench nothing"': "there is no fanin bench nothing",
    PS: "has no runs: grid, run or random is missing or empty",
    PS + "grid = []": "has no runs",
    PS + "[[grid]]": "grid[0]: is empty",
    PS + "[[grid]]\nworkers = []": "grid[0].workers: is an empty list",
    PS + "grid = [3]": "grid must be tables, [[grid]]",
    PS + "[[grid]]\nwokers = 3": "grid[0].wokers: fanin ps train has no option --wokers",
    PS + "[[grid]]\nworkers = 3\n[[grid]]\nbund = 3": "grid[1].bund",
    PS + '[[grid]]\npcap = "x"': "grid[0].pcap: names an output",
    PS + '[[grid]]\no = "x"': "grid[0].o: names an output",
    PS + "[[grid]]\njson = true": "grid[0].json: names an output",
    PS + '[[grid]]\nalgorithm = "tame"': "grid[0]: argument --algorithm: invalid choice: 'tame'",
    PS + '[[grid]]\nworkers = "two"': "grid[0]: argument --workers: invalid int value: 'two'",
    PS + "[[grid]]\nworkers = true": "grid[0].workers: takes a value, not true",
    PS + "[[grid]]\noptimum = 3": "grid[0].optimum: is a flag, true or false, not 3",
    PS + "[options]\nworkers = 2\n[[grid]]\nworkers = 3": "grid[0].workers is also an option of all runs",
    PS + "seeds = 2\n[[grid]]\nseed = [7, 8]": "grid[0].seed: seeds already gives every run one",
    PS + "seeds = [3]\n[options]\nseed = 7\n[[run]]\nworkers = 2": "options.seed: seeds already gives",
    PS + "seeds = 1\n[random]\ndraws = 1\n[random.options]\nseed = [7]": "random.options.seed: seeds already",
    PS + "[random]\ndraws = 1\n[random.options]\nrate = {uniform = [0, inf]}": "must be two numbers, the lower",
    PS + "seeds = 0\n[[grid]]\nworkers = 2": "seeds must be at least 1",
    PS + "seeds = []\n[[grid]]\nworkers = 2": "seeds must be a number of seeds or a list",
    'command = "p4 check"\nseeds = 2\n[[grid]]\nworkers = 2': "seeds.seed: fanin p4 check has no option --seed",
    PS + "timeout = 0\n[[grid]]\nworkers = 2": "timeout must be above 0 and finite, not 0",
    PS + f"timeout = {10**400}\n[[grid]]\nworkers = 2": "timeout must be above 0 and finite",
    PS + "[[grid]]\nworkers = 0x" + "f" * 10_000: "grid: a number of very many digits; write a shorter one",
    PS + "figures = [1]\n[[grid]]\nworkers = 2": "figures must be a list of texts",
    PS + "[random]\ndraws = 3": "random.options: must be a table of what is drawn",
    PS + "[random]\ndraws = 0\n[random.options]\nrate = [1]": "random.draws: must be an integer of at least 1",
    PS + "[random]\ndraws = 100001\n[random.options]\nrate = [1]": "random.draws: must be at most 100,000",
    PS + "[random]\ndraws = 1\n[random.options]\nrate = {log = [0, 1]}": "must be two numbers above 0",
    PS + f"[random]\ndraws = 1\n[random.options]\nslots = {{integer = [1, {10**400}]}}": "must be two integers",
    PS
    + "[random]\ndraws = 1\n[random.options]\nrate = {normal = [0, 1]}": "must be a list, or a table of one of",
    PS + '[cluster]\nkind = "sloth"\n[[grid]]\nworkers = 2': "cluster.kind must be one of slurm",
    PS + '[cluster]\nkind = "slurm"\njobs = 0\n[[grid]]\nworkers = 2': "cluster.jobs must be an integer",
    PS + "run_megabytes = 1e9\n[[grid]]\nworkers = 2": "and 100 MB to spare, do not fit the",
}


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_bad_files_take_one_line_and_write_nothing(text, tmp_path, capsys):
    file = tmp_path / "campaign.toml"
    file.write_text(text)
    assert main(["campaign", str(file), "-o", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert WRONG[text] in err
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.toml"]


def test_a_file_that_is_not_there(tmp_path, whole):
    with pytest.raises(InputError, match=r"none.toml: no such file"):
        read_campaign(tmp_path / "none.toml", whole)
