"""Options on a run's page: every one that has a value, with name and unit, from the options table alone."""

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fanin.cli.main import main
from fanin.cnn.run import options as cnn
from fanin.cnn.run.options import ClusterOptions
from fanin.glm.run.options import PORTS, GlmOptions
from fanin.param_server.run.options import RANDOM_FEATURES, RTL, ParamServerOptions
from fanin.report.html import joined
from fanin.report.unit import quantity
from fanin.ring.run import options as ring
from fanin.ring.run.options import RingOptions
from fanin.runs.option import OUTPUT, Group, RunOptions, Trait, option, options_of
from fanin.runs.option_tables import option_tables
from fanin.runs.wave import WaveOptions
from tests.fanin.cli.train_nodes import GoldenNodes

LINKS = Trait("links")
UNTITLED, MODEL, NETWORK = Group(""), Group("model"), Group("network, of several nodes")
#: By table: a run without RTL, of one epoch.
COMMANDS = {
    GlmOptions: "train breast_cancer --preset tiny --workers 2",
    RingOptions: "ring train --layers 64,16,10 --nodes 2 --batch 128 --on model --codec bfp",
    ParamServerOptions: "ps train --workers 2 --no-optimum --on model --stragglers 1:2",
    ClusterOptions: "cluster run --on golden --checkpoint 40",
}
#: Traits that these runs lack.
LACKING = {
    GlmOptions: (PORTS,),
    RingOptions: (ring.FRAMES,),
    ParamServerOptions: (RANDOM_FEATURES, RTL),
    ClusterOptions: (cnn.FRAMES,),
}


@dataclass(frozen=True, kw_only=True)
class Table(WaveOptions, RunOptions):
    data: str = option(UNTITLED, "digits", "a data set", positional=True)
    batch_size: int = option(MODEL, 32768, "samples")
    lr: float | None = option(MODEL, None, "learning rate")
    bias: bool = option(MODEL, True, "add a column")
    flops: float = option(MODEL, 2.08e12, "compute rate", unit="FLOP/s")
    stop: tuple[str, ...] | None = option(NETWORK, None, "who stops")
    drop: float = option(NETWORK, 0.02, "share of lost frames", trait=LINKS)
    pcap: Path | None = option(OUTPUT, None, "capture")


def test_each_option_is_a_row_under_its_heading_of_help():
    assert option_tables(Table, Table(stop=("1:2", "2:3")).as_json()) == {
        "Run": [("data", "digits")],
        "Model": [("batch-size", "32,768"), ("bias", "yes"), ("flops", "2.08 TFLOP/s")],
        "Network": [("stop", "1:2, 2:3"), ("drop", "0.02")],
    }


def test_options_without_value_trait_or_of_output_are_left_out():
    values = Table(pcap=Path("a"), wave=Path("b"), output=Path("c"), bias=False).as_json() | {"stop": ""}
    tables = option_tables(Table, values, lacking=[LINKS])
    assert list(tables) == ["Run", "Model"]
    assert ("bias", "no") in tables["Model"]
    assert option_tables(Table, {}) == {}


@pytest.mark.parametrize("table", COMMANDS)
def test_a_new_option_is_a_row_without_any_other_change(table):
    @dataclass(frozen=True, kw_only=True)
    class Extended(table):
        new_rate: float = option(Group("cooling"), 3e9, "rate of a fan", unit="bytes/s")

    values = {each.name: each.default for each in options_of(Extended)}
    before = option_tables(table, values)
    assert option_tables(Extended, values) == before | {"Cooling": [("new-rate", "3 GB/s")]}


@pytest.mark.parametrize(("table", "command"), COMMANDS.items())
def test_every_option_with_a_value_is_on_the_page(tmp_path, monkeypatch, table, command):
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", GoldenNodes)
    assert main([*command.split(), "--epochs", "1", "-o", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "provenance.json").read_text())["options"]
    rows = _configuration((tmp_path / "run" / "report.html").read_text())
    shown = {each.name.replace("_", "-"): each for each in options_of(table) if each.group.shown}
    fits = {name for name, each in shown.items() if each.trait not in LACKING[table]}
    assert {name for name in fits if record[shown[name].name] is not None} <= rows.keys()
    assert not (shown.keys() - fits) & rows.keys()
    assert rows["epochs"] == "1"


def _configuration(page):
    """Names and values of the page's configuration."""
    (section,) = re.findall(r"<h2>Configuration</h2>(.*?)</section>", page, re.DOTALL)
    return dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', html.unescape(section)))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234567, "", "1,234,567"),
        (1234567.5, "", "1,234,567.5"),
        (0.1, "Gb/s", "0.1 Gb/s"),
        (51e9, "bit/s", "51 Gbit/s"),
        (999, "bytes/s", "999 B/s"),
        (0, "FLOP/s", "0 FLOP/s"),
        (1e21, "FLOP/s", "1,000 EFLOP/s"),
    ],
)
def test_a_number_has_separators_and_its_unit(value, unit, text):
    assert quantity(value, unit) == text


def test_rows_are_added_to_a_table_or_make_one():
    tables = {"Run": [("data", "digits")]}
    assert joined(tables, {"Run": [("samples", "9")], "Build": [("clock", "1")]}) == {
        "Run": [("data", "digits"), ("samples", "9")],
        "Build": [("clock", "1")],
    }
