"""Benchmarks: limits and their verdicts, and what is read from a run's events."""

import json
import struct
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.base.errors import CheckFailed, InputError
from fanin.cli.main import main
from fanin.evaluation.bench import allreduce, area, figures, losses, nodes
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result, number
from fanin.fixed import NO_DECAY
from fanin.glm.facts import PRESETS, Partitioning, TrainShape
from fanin.sim.glm.course import Timeline
from fanin.sim.glm.data import SyntheticShape
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.operations import OperationTimes
from fanin.wire.aggregation import Protocol
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.train_nodes import GoldenNodes


@pytest.mark.parametrize(
    ("value", "limit", "at_least", "ok"),
    [
        (24, 24, False, True),
        (25, 24, False, False),
        (99, 99, True, True),
        (98.9, 99, True, False),
        (7, None, 0, True),
    ],
)
def test_a_limit_may_be_met_but_not_passed(value, limit, at_least, ok):
    assert Result("x", value, "cycles", limit, at_least=bool(at_least)).ok is ok


@pytest.mark.parametrize(
    ("value", "text"), [(152, "152"), (12345.6, "12,346"), (7.7512, "7.751"), (0.5, "0.5")]
)
def test_figures_take_few_digits(value, text):
    assert number(value) == text


def test_a_missed_limit_is_an_exit_status_and_one_line(capsys, monkeypatch):
    monkeypatch.setattr(area, "measure", lambda args: iter([Result("a", 1, "s", 2), Result("b", 3, "s", 2)]))
    assert main(["bench", "area", "--json"]) == 1
    captured = capsys.readouterr()
    unknown = {"id": None, "origin": None, "inputs": [], "curve": None, "x": None}
    assert documented("bench", captured.out)["figures"] == [
        unknown | {"name": "a", "value": 1, "unit": "s", "limit": 2, "ok": True},
        unknown | {"name": "b", "value": 3, "unit": "s", "limit": 2, "ok": False},
    ]
    assert captured.err == "fanin: error: 1 of 2 figures miss their limit: b\n"


def test_a_figure_with_an_identifier_has_its_origin():
    figure = Result("GPUSync's time", 10.44, "s", id="glm.table_4.gpusync.avazu.seconds").as_json()
    assert figure["origin"] == "derived from fitted"
    assert "an AllReduce of 8 workers, 12 µs" in figure["inputs"]
    with pytest.raises(KeyError):
        Result("a number", 1.0, "s", id="glm.no_such_figure").as_json()


def test_links_and_switch_of_an_allreduce_are_inputs():
    point, network = allreduce.Point(Protocol.P4SGD, 8), NetworkConfig()
    assert point.link_and_switch_ns(network) == 612  # of 636
    later = replace(network, link=replace(network.link, delay_ns=network.link.delay_ns + 8))
    assert point.link_and_switch_ns(later) == 612 + 16
    assert point.link_and_switch_ns(replace(network, switch_ns=0)) == 612 - 400


def _run_of(shape, *, period, latency, early=0):
    """A run whose mini-batches take ``period`` cycles, its events as ARCHITECTURE's table has them."""
    words, m = shape.words_per_micro_batch, shape.micro_batches
    events = []
    for index in range(shape.micro_batches_per_epoch):
        first = 500 + index // m * period + index % m * words
        last = first + words - 1
        agg, result = last + 15, last + 15 + latency
        events += [
            (first + 1 - early * (index >= m), "forward_first"),
            (last + 1, "forward_last"),
            (last + 13, "pa"),
            (agg, "agg"),
            (result + 2, "fa"),
            (result + 11, "backward_first"),
            (result + 11 + words, "backward_last"),
        ]
    names = tuple(dict.fromkeys(name for _, name in events))
    events.sort()
    timeline = Timeline(
        np.array([cycle for cycle, _ in events], np.uint64),
        np.zeros(len(events), np.uint32),
        np.array([names.index(name) for _, name in events], np.uint8),
        names,
    )
    raw = SimpleNamespace(
        watched=OperationTimes([latency] * shape.micro_batches_per_epoch), cycles=1000, cpu_seconds=0.5
    )
    return SimpleNamespace(timeline=timeline, raw=raw)


@pytest.mark.parametrize("early", [0, 40])
def test_latencies_and_cycles_are_read_from_the_events(early):
    """A mini-batch may take its first word ``early``, and wait for the rest of the model."""
    shape = TrainShape(node=nodes.node(8), workers=1, samples=256, columns=4096, batch=64)
    measured = nodes._measurement(_run_of(shape, period=300, latency=5, early=early), shape)
    assert (measured.mini_batch, measured.latency, measured.ideal) == (300, 5, 256)
    assert measured.paths == nodes.PathLatencies(
        word_to_agg=15, pa_to_agg=2, pa_to_pa=32, result_to_fa=2, result_to_gradient=15
    )
    assert measured.utilisation == pytest.approx(100 * 256 / 300)
    assert measured.cycles_per_second == 2000


@pytest.mark.slow
@pytest.mark.verilator
def test_data_parallel_nodes_have_mini_batches_but_no_ways_of_an_activation():
    """A mini-batch has many AGGs there; a real, small one, as figure 9 measures it."""
    node = replace(PRESETS["tiny"], mode=Partitioning.DATA_PARALLEL)
    measured = nodes.measure(node, workers=2, columns=20, batch=32, mini_batches=1)
    assert measured.paths is None
    assert measured.mini_batch > measured.ideal > 0


def test_a_figure_of_the_paper_becomes_json_and_a_picture(monkeypatch, tmp_path):
    seconds = {
        (name, engines): 8.0 / engines for name in ("gisette", "real_sim", "rcv1") for engines in (1, 2, 4, 8)
    }
    monkeypatch.setattr(
        figures, "_epoch_seconds", lambda name, *, engines, workers, batch: seconds[name, engines]
    )
    results = list(figures.draw(11, tmp_path))
    assert len(results) == 12
    figure = json.loads((tmp_path / "figure11.json").read_text())
    assert figure["series"]["rcv1"] == [[1, 1.0], [2, 2.0], [4, 4.0], [8, 8.0]]
    assert (tmp_path / "figure11.png").read_bytes().startswith(b"\x89PNG")


def test_figure_9_says_how_much_faster_model_parallelism_is_and_what_the_paper_says(monkeypatch, tmp_path):
    monkeypatch.setattr(
        figures, "_epoch_seconds", lambda name, *, batch, data_parallel, **_: 1 + data_parallel * 64 / batch
    )
    results = {result.name: result for result in figures.draw(9, tmp_path)}
    headline = results["figure 9: amazon_fashion, B 16: data- over model-parallel"]
    assert (headline.value, headline.note) == (5.0, "the paper: 4.8")
    a_worker = results["figure 9: amazon_fashion, B 16 a worker: data- over model-parallel"]
    assert (a_worker.value, a_worker.note) == (2.0, "the paper: 4.8")  # a mini-batch of 64, a fourth as many
    series = json.loads((tmp_path / "figure9.json").read_text())["series"]
    assert [x for x, _ in series["rcv1, model-parallel"]] == [16 << n for n in range(7)]
    assert [x for x, _ in series["rcv1, data-parallel"]] == [16 << n for n in range(9)]
    assert len(results) == 2 * (7 + 9) + 2 * 2 * 7


def test_the_loss_is_of_the_file_that_is_given(monkeypatch, tmp_path):
    """One feature that tells the class: a model of it learns at once, and the note says where it is from."""
    file = tmp_path / "mine.svm"
    file.write_text("".join(f"{k % 2} 1:{k % 2}\n" for k in range(128)))
    monkeypatch.setattr(losses, "RATES", {"rcv1": (4.0,)})
    results = list(figures.draw(14, tmp_path, [f"rcv1={file}"], "1,8"))
    assert len(results) == 3 * losses.EPOCHS
    figure = json.loads((tmp_path / "figure14.json").read_text())
    assert list(figure["series"]) == [f"rcv1, γ=4, {what}" for what in ("1 bits", "8 bits", "float64")]
    one, eight, float64 = (dict(points) for points in figure["series"].values())
    assert eight[1] == pytest.approx(float64[1], abs=0.005)
    assert one[1] > float64[1] + 0.02  # its largest feature is ½
    assert eight[10] < 0.1 < 0.3 < eight[1] < 0.6
    assert "rcv1: mine.svm, 128 of 128 samples, 0.5 of 1 features are not 0" in figure["note"]


def test_a_set_that_is_not_at_hand_is_synthetic_as_wide_and_as_sparse(monkeypatch, tmp_path):
    monkeypatch.setattr(losses, "RATES", {"rcv1": (1.0,)})
    monkeypatch.setattr(losses, "MAX_SAMPLES", 500)
    monkeypatch.setattr(losses, "EPOCHS", 2)
    results = list(figures.draw(14, tmp_path))
    assert [result.value < np.log(2) for result in results] == [True] * 4
    note = json.loads((tmp_path / "figure14.json").read_text())["note"]
    assert "rcv1: synthetic, 500 of 20,242 samples, 7" in note
    assert "of 47,236 features are not 0" in note


@pytest.fixture
def small_rtl(monkeypatch):
    """Figure 14 of one curve of two epochs, on 200 samples, and small nodes for it."""
    monkeypatch.setattr(losses, "RATES", {"rcv1": (4.0,)})
    monkeypatch.setattr(losses, "EPOCHS", 2)
    monkeypatch.setattr(losses, "MAX_SAMPLES", 200)
    monkeypatch.setattr(losses, "TABLE_II", {"rcv1": SyntheticShape(200, 600, 8)})
    node = replace(PRESETS["tiny"], engines=2, depth=32, sample_fifo=256, sparse=True)
    monkeypatch.setattr(losses, "RTL_NODE", node)


class Nodes(GoldenNodes):
    """Nodes with the defaults of ``Cosim.train``."""

    def train(self, *arguments, **options):
        return super().train(*arguments, decay=NO_DECAY, network=NetworkConfig(), **options)


@pytest.mark.slow
@pytest.mark.verilator
def test_sparse_rtl_trains_the_first_epochs_of_a_curve_to_the_golden_bits(small_rtl, tmp_path):
    *_, rtl = (result for result in figures.draw(14, tmp_path, rtl_epochs=2) if result.unit == "cycles")
    assert (rtl.name, rtl.id) == (
        "rcv1, γ=4, 4 bits: 2 epochs in RTL",
        "glm.figure_14_rtl.rcv1.gamma_4.4_bits.cycles",
    )
    assert rtl.value > 2 * 25 * 4  # a word a cycle at most, and each micro-batch has some
    note = json.loads((tmp_path / "figure14.json").read_text())["note"]
    assert "epochs 1 to 2 of each precision also by sparse nodes, 2 of 2 engines, in RTL" in note


@pytest.mark.parametrize(
    ("bits", "clamps", "cause"),
    [(1, 0, "after epoch 2 the RTL's model differs from the golden model"), (0, 3, "3 sums are clamped")],
)
def test_rtl_that_differs_and_sums_that_are_clamped_are_refused(
    small_rtl, monkeypatch, tmp_path, bits, clamps, cause
):
    def golden(*arguments):
        epochs = list(train(*arguments))
        epochs[-1].model[7] ^= bits
        return [replace(epoch, clamps=clamps * (epoch is epochs[-1])) for epoch in epochs]

    train = losses._golden
    monkeypatch.setattr(losses, "_golden", golden)
    monkeypatch.setattr(losses, "Cosim", Nodes)
    losses._rtl_nodes.cache_clear()
    with pytest.raises(CheckFailed, match=f"^rcv1, γ=4, 4 bits: {cause}"):
        list(figures.draw(14, tmp_path, rtl_epochs=2))
    losses._rtl_nodes.cache_clear()


@pytest.mark.parametrize("arguments", ["--figure 9 --rtl 1", "--figure 14 --rtl 11", "--figure 14 --rtl -1"])
def test_epochs_in_rtl_are_those_of_figure_14(capsys, tmp_path, arguments):
    assert main(["bench", "glm", *arguments.split(), "-o", str(tmp_path)]) == 2
    assert "--rtl: figure 14 takes 0 to 10 epochs, others none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "data", "cause"),
    [
        (14, "gisette=x", "--data gisette: figure 14 takes rcv1 and avazu"),
        (14, "rcv1=absent.svm", "absent.svm: no such file"),
        (11, "rcv1=x", "--data rcv1: figure 11 needs no data"),
        (14, "rcv1", "--data rcv1: not NAME=FILE"),
    ],
)
def test_data_that_a_figure_cannot_use_are_refused(capsys, tmp_path, number, data, cause):
    arguments = ["bench", "glm", "--figure", str(number), "--data", data, "-o", str(tmp_path)]
    assert main(arguments) == 2
    assert cause in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--figure 9 --precision 4", "--precision: figure 9 has 4 bits; only 14 takes others"),
        ("--figure 14 --precision 4,9", "--precision 4,9: must be numbers from 1 to 8, with commas between"),
        ("--figure 14 --precision x", "--precision x: must be numbers from 1 to 8, with commas between"),
        ("--precision 4", "--precision: needs --figure"),
        ("--rtl 0", "--rtl: needs --figure"),
    ],
)
def test_precisions_that_a_figure_cannot_use_are_refused(capsys, tmp_path, arguments, cause):
    assert main(["bench", "glm", *arguments.split(), "-o", str(tmp_path)]) == 2
    assert cause in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_set_whose_zeros_do_not_stay_zeros_is_refused(tmp_path):
    file = tmp_path / "mine.svm"
    file.write_text("0 1:-1\n1 2:1\n")
    with pytest.raises(InputError, match="rcv1: column 1 has values below 0"):
        list(figures.draw(14, tmp_path, [f"rcv1={file}"]))


@pytest.mark.slow
@pytest.mark.verilator
def test_allreduce_is_measured_for_both_protocols(capsys, monkeypatch, tmp_path):
    """On the smallest nodes: a loss costs round trips, an ACK doubles the packets, a slot is held alike."""
    monkeypatch.setattr(allreduce, "ALLREDUCE_WORKERS", (2,))
    monkeypatch.setattr(allreduce, "ALLREDUCE_LOSSES", (0.0, 0.05))
    monkeypatch.setattr(allreduce, "MINI_BATCHES", 20)
    monkeypatch.setattr(allreduce, "FEW_SLOTS", (4,))
    monkeypatch.setattr(
        allreduce.Point, "node", property(lambda point: replace(PRESETS["tiny"], protocol=point.protocol))
    )
    assert main(["bench", "allreduce", "-o", str(tmp_path), "--json"]) == 0
    value = {result["name"]: result["value"] for result in json.loads(capsys.readouterr().out)["figures"]}
    for protocol, packets in (("p4sgd", 2), ("switchml", 1)):
        assert value[f"allreduce: packets, {protocol}, workers 2, 0 % loss"] == packets
        assert value[f"allreduce: packets, {protocol}, workers 2, 5 % loss"] > packets
        assert 600 < value[f"allreduce: p99, {protocol}, workers 2, 0 % loss"] < 1500
        lossy = value[f"allreduce: p99, {protocol}, workers 2, 5 % loss"]
        assert (
            value[f"allreduce: p99, {protocol}, workers 2, 0 % loss"]
            < lossy
            < value["allreduce: longest timeout"]
        )
    held = [value[f"allreduce: {protocol}, 4 slots, a slot is held"] for protocol in ("p4sgd", "switchml")]
    assert held[0] == pytest.approx(held[1], rel=0.05)
    clean, lossy = json.loads((tmp_path / "allreduce.json").read_text())
    assert list(clean["series"]) == list(lossy["series"])
    assert clean["series"]["p50, switchml"] == [[2, value["allreduce: p50, switchml, workers 2, 0 % loss"]]]
    assert (tmp_path / "allreduce.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_replaces_a_link_and_leaves_its_target(tmp_path):
    paths = outputs("found", tmp_path)
    for path in paths:
        path.with_suffix(".old").write_text("precious")
        path.symlink_to(path.with_suffix(".old"))
    one = Figure("name", "title", "x", "y")
    one.add("series", 1, 2)
    write([one], paths)
    for path in paths:
        assert not path.is_symlink()
        assert path.with_suffix(".old").read_text() == "precious"
    assert paths[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("count", "wide"), [(3, True), (4, False)])
def test_up_to_three_figures_stand_side_by_side_and_more_in_two_columns(tmp_path, count, wide):
    figures = [Figure("name", f"{n}", "x", "y", {"series": [(1, 2), (2, 3)]}) for n in range(count)]
    paths = outputs("several", tmp_path)
    write(figures, paths)
    width, height = struct.unpack(">II", paths[1].read_bytes()[16:24])  # of the PNG's header
    assert (width > 2 * height) is wide
