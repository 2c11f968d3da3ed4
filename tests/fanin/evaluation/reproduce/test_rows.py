"""The rows themselves: what they take of their commands, and that no model is given what it is asked for."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from fanin.evaluation.origins import inputs
from fanin.evaluation.origins.graph import GRAPH, origin
from fanin.evaluation.origins.kinds import INPUTS, Input, OriginKind
from fanin.evaluation.reproduce.drawings import drawings
from fanin.evaluation.reproduce.filled import FilledRow, FittedFact
from fanin.evaluation.reproduce.measure import CommandOutput, _flat, _points
from fanin.evaluation.reproduce.rows import PAPERS
from fanin.evaluation.reproduce.table import _facts

MODELS = ("bench", "ring", "--models")
ROWS = [(paper, row) for paper in PAPERS for row in paper.rows]


class Reads(dict):
    """Figures that remember which of them were asked for."""

    def __init__(self, figures):
        super().__init__(figures)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What ``fanin bench ring --models`` prints: figures by identifier, and points of curves."""
    command = [sys.executable, "-m", "fanin", *MODELS, "--json", "-o", str(tmp_path_factory.mktemp("ring"))]
    document = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return dict(_flat(document)), dict(_points(document))


def test_every_row_says_what_it_takes_of_its_command():
    mute = [
        f"{paper.name}/{row.figure}: {row.quantity}"
        for paper, row in ROWS
        for measurement in (row.full, row.measurement(quick=True))
        if not measurement.value.text
    ]
    assert not mute


def test_every_figure_of_a_row_has_an_origin():
    for paper, row in ROWS:
        for quick in (True, False):
            measurement = row.measurement(quick=quick)
            assert measurement.origin.kind not in INPUTS, f"{paper.name}: {row.quantity} is an input"
        for setting in row.settings.values():
            assert [origin(figure) for figure in setting.figures]


def test_every_fitted_input_is_a_fact_of_its_model():
    told = {fit.fitted_input for paper in PAPERS for fit in paper.fits}
    fitted = {
        each.name
        for each in vars(inputs).values()
        if isinstance(each, Input) and each.kind is OriginKind.FITTED
    }
    assert fitted <= told
    assert fitted == {each.name for _, of in GRAPH for each in of.inputs if each.kind is OriginKind.FITTED}


def test_a_row_of_one_setting_has_all_of_them():
    some = [row for _, row in ROWS if row.settings]
    assert len(some) == 14
    for row in some:
        assert row.full.value.text in [value.text for value in row.settings.values()]
    values = iter((7.414, 5.388, 2.5))
    (most,) = [row for row in some if "most of four networks" in row.quantity]
    figures = {figure: next(values) for value in most.settings.values() for figure in value.figures}
    filled = FilledRow(PAPERS[1], most, False, CommandOutput("", "", "", 0.0, figures))
    assert filled.value == 5.388
    assert filled.explanation.startswith(
        "one of 3 settings (NIC at 250 MHz, hosts take no time: 7.414 ×, NIC at 100 MHz"
    )


def test_no_row_is_filled_where_its_figures_are_missing():
    for paper, row in ROWS:
        for measurement in (row.full, row.measurement(quick=True)):
            found = FilledRow(
                paper, replace(row, full=measurement), False, CommandOutput("", "", "", 0.0, {"other": 1.0})
            )
            assert (found.value, found.error) == (None, " prints no such figure"), row.quantity


def test_no_two_rows_of_a_paper_have_one_name():
    names = [(paper.name, row.figure, row.quantity) for paper, row in ROWS]
    assert len(set(names)) == len(names)


def test_no_row_is_a_number_that_its_model_is_fitted_to():
    for paper in PAPERS:
        fitted = {(fit.model, fit.figure, fit.claimed, fit.unit) for fit in paper.fits}
        models = {fit.model for fit in paper.fits}
        for row in paper.rows:
            assert (row.model, row.figure, row.claimed, row.unit) not in fitted, row.quantity
            assert not row.model or row.model in models, f"{row.quantity}: nothing is fitted to {row.model}"


def test_a_model_meets_what_it_is_fitted_to_and_predicts_from_something_else(printed):
    fits = [
        fit for paper in PAPERS for fit in paper.fits if fit.measurement and fit.measurement.command == MODELS
    ]
    given = Reads(printed[0])
    for fit in fits:
        assert fit.measurement.value(given) == pytest.approx(fit.claimed, rel=2e-3), fit.claim
    predicted = [row for _, row in ROWS if row.model and row.full.command == MODELS]
    assert len(fits) >= 10
    assert len(predicted) >= 15
    for row in predicted:
        asked = Reads(printed[0])
        assert row.full.value(asked) != pytest.approx(row.claimed, rel=1e-9), f"{row.quantity}: is an input"
        assert not asked.names & given.names, f"{row.quantity}: is read from what is fitted"


def test_figures_of_a_model_are_drawn_with_the_papers_numbers(printed):
    (paper,) = (paper for paper in PAPERS if paper.name == "smart-nic")
    figures, points = printed
    measured = CommandOutput("0", "fanin bench ring --models", "", 1.0, figures, points=points)
    rows = [FilledRow(paper, row, False, measured) for row in paper.rows if row.full.command == MODELS]
    fits = [FittedFact(paper, fit, measured) for fit in paper.fits]
    found = {drawing.title.partition(":")[0]: drawing for drawing in drawings(rows, fits)}
    assert list(found) == ["Figure 2b", "Figure 4b", "Figure 4a, in %"]
    faster, series = found["Figure 4b"], "B = 448, smart NIC with BFP"
    assert faster.claimed[series] == [(6, 1.6), (32, 2.5)]
    assert dict(faster.series[series])[32] == pytest.approx(2.561, abs=1e-3)
    assert faster.claimed["B = 1792, smart NIC"] == [(6, 1.1), (32, 1.4)]  # the second of a fit
    numbers = {what: (claimed, ours) for what, claimed, ours, _ in found["Figure 4a, in %"].numbers}
    fitted = "6 nodes, B = 448: time that the NIC saves (fitted)"
    assert numbers[fitted] == (18, pytest.approx(18))
    assert not found["Figure 2b"].claimed


def test_what_follows_by_algebra_is_no_prediction(printed):
    figures, _ = printed
    measured = CommandOutput("0", "fanin bench ring --models", "", 1.0, figures)
    rows = [FilledRow(paper, row, False, measured) for paper, row in ROWS if row.full.command == MODELS]
    fits = [FittedFact(paper, fit, measured) for paper in PAPERS for fit in paper.fits if fit.measurement]
    kinds = {fact.quantity: fact.kind for fact in _facts(rows, fits)}
    assert kinds["4a: 6 nodes, B = 448: time that NIC and BFP save"] == "derived"
    assert kinds["4b: 32 nodes, B = 448, smart NIC with BFP: speed-up"] == "predicted"
    assert kinds["12: AlexNet: of the training time, by the ring"] == "derived"
    assert kinds["6 nodes, B = 448: time that the NIC saves"] == "fitted"
