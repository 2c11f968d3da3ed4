"""``fanin train`` on sparse nodes: models in the data's order, choice of layout, sizes, errors, resumption."""

import functools
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_svmlight_file

from fanin import fixed
from fanin.cli.main import main
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.train import train
from fanin.runs.unfinished import UNFINISHED
from fanin.sim.glm import data
from fanin.sim.glm.cosim import Cosim
from fanin.sklearn import GlmClassifier
from tests.fanin.cli.command import refused, run
from tests.fanin.cli.json_page import RIGHT, documented, wrong
from tests.fanin.cli.train_nodes import GoldenNodes
from tests.fanin.report.drawn import bars, figures

NODE = replace(PRESETS["tiny"], engines=2, depth=64, sample_fifo=256)
SAMPLES, FEATURES, NONZEROS = 300, 2_000, 12
WORKERS, BATCH, BITS, EPOCHS = 2, 32, 4, 2
OPTIONS = ("--preset", "tiny", "--workers", WORKERS, "--epochs", EPOCHS, "--lr", 2)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A LIBSVM file of features whose popularity is a Zipf law, in a random order of columns."""
    rng = np.random.default_rng(5)
    popularity = 1 / np.arange(1.0, FEATURES + 1)
    columns = np.append(FEATURES - 1, rng.permutation(FEATURES - 1))  # the last column is the most popular
    rows = [
        columns[rng.choice(FEATURES, NONZEROS, replace=False, p=popularity / popularity.sum())]
        for _ in range(SAMPLES)
    ]
    values = rng.random(SAMPLES * NONZEROS) + 0.1
    starts = np.arange(SAMPLES + 1) * NONZEROS
    features = sparse.csr_matrix((values, np.concatenate(rows), starts), (SAMPLES, FEATURES))
    features.sort_indices()
    margin = features @ rng.normal(size=FEATURES)
    labels = margin > np.median(margin)
    path = tmp_path_factory.mktemp("data") / "zipf.svm"
    dump_svmlight_file(features, labels.astype(int), str(path), zero_based=False)
    return path


@pytest.fixture(autouse=True)
def small_node(monkeypatch):
    """Presets in which ``tiny`` has room for the file's features."""
    presets = {**PRESETS, "tiny": NODE}
    monkeypatch.setattr("fanin.glm.run.setup.PRESETS", presets)
    monkeypatch.setattr("fanin.sklearn.training.PRESETS", presets)


@pytest.fixture
def golden(monkeypatch):
    """The nodes that are made, played by the golden model."""
    made = []

    def make(*arguments, **options):
        made.append(GoldenNodes(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("fanin.sim.glm.train.Cosim", make)
    return made


@pytest.fixture(scope="module")
def codes(file):
    """Codes of the training samples in training order, from the file, with the bias; and their labels."""
    features, labels = load_svmlight_file(str(file), n_features=FEATURES, zero_based=False)
    kept, _ = data.split(data.read(str(file), Loss.LOGISTIC), test=0.25, shuffle=True, seed=0)
    dense = features.toarray()[kept]
    high = dense.max(axis=0)
    scaled = np.minimum(np.floor(dense / np.where(high > 0, high, 1) * 2**BITS), 2**BITS - 1)
    return np.column_stack([scaled, np.full(len(kept), 2**BITS - 1)]).astype(np.uint8), labels[kept]


@pytest.fixture(scope="module")
def expected(codes):
    """The weights that dense samples in the data's order give after each epoch; no sum is clamped."""
    features, labels = codes
    shape = TrainShape(
        node=NODE, workers=WORKERS, samples=len(features), columns=FEATURES + 1, batch=BATCH, precision=BITS
    )
    epochs = list(
        train(
            features,
            fixed.labels(labels, Loss.LOGISTIC, NODE.frac),
            shape,
            loss=Loss.LOGISTIC,
            rate=fixed.rate_of(2.0, BATCH),
            epochs=EPOCHS,
        )
    )
    assert [epoch.clamps for epoch in epochs] == [0] * EPOCHS
    return [epoch.model for epoch in epochs]


def record_of(folder):
    return json.loads((folder / "run.json").read_text())


def weights_of(folder):
    return np.load(folder / "model.npz")["weights"]


def line_of(out, name):
    """The fact ``name`` of a summary; None if it has none."""
    found = re.search(rf"^  {name} +(.*)$", out, re.MULTILINE)
    return found and found[1]


def listed(features):
    """Words, entries and items of an epoch by worker and engine, chunk by chunk from the definition."""
    counts = np.count_nonzero(features, axis=0)
    ranked = sorted(range(len(counts)), key=lambda column: (-counts[column], column))
    sizes = np.zeros((3, WORKERS, NODE.engines), dtype=int)
    chunk_of = np.empty(len(counts), dtype=int)
    chunk_of[ranked] = np.arange(len(counts)) // NODE.lanes
    for first in range(0, len(features), BATCH):
        rows = features[first : first + BATCH]
        micro = [set(chunk_of[rows[i : i + 8].any(axis=0)]) for i in range(0, len(rows), 8)]
        for worker in range(WORKERS):
            for engine in range(NODE.engines):
                own = [{g for g in used if (g % 2, g // 2 % 2) == (worker, engine)} for used in micro]
                copies = len(set.union(*own) - own[-1])
                empty = sum(not used for used in own[:-1]) + (not own[-1] and not copies)
                used = sum(map(len, own))
                sizes[:, worker, engine] += (BITS * used, used + copies + empty, BITS * used + copies + empty)
    return sizes


@pytest.fixture(scope="module")
def rtl(file, tmp_path_factory):
    """The folder of a run of the sparse RTL with states, and the nodes, which later runs share."""
    folder = tmp_path_factory.mktemp("rtl") / "run"
    with pytest.MonkeyPatch.context() as patch:
        make = functools.cache(Cosim)
        patch.setattr("fanin.sim.glm.train.Cosim", make)
        patch.setattr("fanin.glm.run.setup.PRESETS", {**PRESETS, "tiny": NODE})
        options = [*map(str, OPTIONS), "--sparse", "on", "--checkpoint", "1"]
        assert main(["train", str(file), *options, "-o", str(folder)]) == 0
    return folder, make


@pytest.mark.verilator
def test_rtl_learns_the_bits_of_dense_samples_in_the_datas_order(rtl, codes, expected):
    folder, _ = rtl
    record = record_of(folder)
    assert (record["bit_exact"], record["clamps"]) == (True, 0)
    assert wrong("train", record) == RIGHT
    assert np.array_equal(weights_of(folder), expected[-1])
    words, entries, items = listed(codes[0])
    layout = record["layout"]
    assert (layout["words"], layout["entries"], layout["items"]) == (
        words.tolist(),
        entries.tolist(),
        items.tolist(),
    )
    micro_batches = -(-len(codes[0]) // 8)
    assert layout["dense_words"] == micro_batches * -(-2001 // (WORKERS * 2 * 8)) * BITS
    assert record["cycles_ideal"] == EPOCHS * items.max()
    assert [node["words"] for node in record["counters"]] == [EPOCHS * count for count in words.sum(axis=1)]
    taken = bars(figures((folder / "report.html").read_text())["Cycles of forward by cause"])
    shares = [bar.size for bar in taken if bar.series == "item taken"]
    cycles = [NODE.engines * node["cycles"] for node in record["counters"]]
    assert shares == pytest.approx(EPOCHS * items.sum(axis=1) / cycles)
    assert record["options"]["node"]["sparse"] is True


@pytest.mark.verilator
def test_predictions_have_the_datas_order(rtl, file, codes, expected, capsys):
    status, out, _ = run(capsys, "predict", rtl[0], file, "--json")
    predictions = documented("predict", out)["predictions"]
    features, labels = load_svmlight_file(str(file), n_features=FEATURES, zero_based=False)
    high = np.load(rtl[0] / "model.npz")["high"]
    scaled = np.floor(features.toarray() / np.where(high > 0, high, 1) * 2**BITS)
    scaled = np.where(high > 0, np.minimum(scaled, 2**BITS - 1), 0)
    weights = expected[-1].astype(float)
    sums = scaled @ weights[:-1] + (2**BITS - 1) * weights[-1]
    assert (status, predictions) == (0, (sums >= 0).astype(float).tolist())
    assert np.mean(predictions == labels) > 0.75


@pytest.mark.verilator
def test_a_resumed_run_has_the_same_bits(rtl, expected, tmp_path, monkeypatch, capsys):
    folder, make = rtl
    stopped = shutil.copytree(folder, tmp_path / "stopped")
    (stopped / "run.json").write_text(json.dumps(record_of(folder) | {"error": UNFINISHED}))
    for name in ("model.npz", "report.html", *sorted((stopped / "states").iterdir())[1:]):
        (stopped / name).unlink()
    (state,) = (stopped / "states").iterdir()
    assert np.array_equal(np.load(state)["model"], expected[0])  # states have the data's order
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", make)
    status, out, _ = run(capsys, "train", "--resume", stopped)
    assert (status, line_of(out, "samples")[:6]) == (0, "sparse")
    assert (stopped / "model.npz").read_bytes() == (folder / "model.npz").read_bytes()
    assert record_of(stopped)["epochs"] == record_of(folder)["epochs"]


@pytest.mark.verilator
@pytest.mark.slow
def test_dense_rtl_learns_the_same_bits_from_the_same_file(file, expected, tmp_path, capsys):
    status, out, _ = run(capsys, "train", file, *OPTIONS, "--sparse", "off", "-o", tmp_path / "run")
    assert (status, line_of(out, "samples")) == (
        0,
        "dense, by --sparse off: 252 words a micro-batch and engine",
    )
    assert np.array_equal(weights_of(tmp_path / "run"), expected[-1])


@pytest.mark.parametrize("order", ["frequency", "none"])
@pytest.mark.parametrize("choice", ["on", "off", "auto"])
def test_every_layout_learns_the_same_bits(file, codes, expected, golden, tmp_path, capsys, choice, order):
    options = (*OPTIONS, "--sparse", choice, "--order", order, "-o", tmp_path / "run")
    status, out, _ = run(capsys, "train", file, *options)
    assert status == 0
    assert np.array_equal(weights_of(tmp_path / "run"), expected[-1])
    assert golden[-1].config.sparse == (choice != "off")
    layout = record_of(tmp_path / "run")["layout"]
    assert line_of(out, "samples") in (tmp_path / "run" / "report.html").read_text()
    if choice == "off":
        assert "words" not in layout
    elif order == "frequency":
        words = listed(codes[0])[0]
        assert layout["words"] == words.tolist()
        items = np.array(layout["items"])
        numbers = (f"{number / 29:.1f}" for number in (words.mean(), items.mean(), items.max()))
        sizes = "{} words in {} cycles a micro-batch and engine, {} on the busiest, 252 if dense"
        sizes = sizes.format(*numbers)
        assert line_of(out, "samples").endswith(f": {sizes}")


def test_auto_takes_dense_samples_where_words_would_not_be_half(golden, tmp_path, capsys):
    features, labels = load_breast_cancer(return_X_y=True)
    dump_svmlight_file(features, labels, str(tmp_path / "full.svm"), zero_based=False)
    status, out, _ = run(capsys, "train", tmp_path / "full.svm", *OPTIONS, "-o", tmp_path / "run")
    reason = "dense, since sparse cycles are not fewer than half of the dense ones"
    assert (status, golden[-1].config.sparse) == (0, False)
    assert (
        line_of(out, "samples")
        == f"{reason}: 4.0 words in 4.0 cycles a micro-batch and engine, 4.0 on the busiest, 4 if dense"
    )


def test_auto_leaves_bundled_sets_dense_without_a_word(golden, tmp_path, capsys):
    status, out, _ = run(capsys, "train", "breast_cancer", *OPTIONS, "-o", tmp_path / "run")
    assert (status, golden[-1].config.sparse, line_of(out, "samples")) == (0, False, None)
    assert "layout" not in record_of(tmp_path / "run")


def test_weights_decay_in_both_layouts_except_the_bias(file, golden, tmp_path, capsys):
    for choice in ("auto", "off"):
        options = (*OPTIONS, "--l2", "0.05", "--sparse", choice, "-o", tmp_path / choice)
        assert run(capsys, "train", file, *options)[0] == 0
    assert [(nodes.config.sparse, nodes.config.l2) for nodes in golden] == [(True, True), (False, True)]
    assert np.array_equal(weights_of(tmp_path / "auto"), weights_of(tmp_path / "off"))
    assert record_of(tmp_path / "auto")["l2"] == record_of(tmp_path / "off")["l2"] > 0


def test_on_takes_dense_data_too(golden, tmp_path, capsys):
    for choice in ("on", "off"):
        options = (*OPTIONS, "--sparse", choice, "-o", tmp_path / choice)
        assert run(capsys, "train", "digits", *options)[0] == 0
    assert [nodes.config.sparse for nodes in golden] == [True, False]
    assert np.array_equal(weights_of(tmp_path / "on"), weights_of(tmp_path / "off"))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--vanilla", "--batch", "16"), "--vanilla"),
        (("--mode", "data-parallel"), "--mode data-parallel"),
    ],
)
def test_auto_takes_dense_samples_where_sparse_nodes_lack_an_option(
    file, golden, monkeypatch, tmp_path, capsys, options, name
):
    roomy = replace(NODE, sample_fifo=1024)  # vanilla keeps a mini-batch in it
    monkeypatch.setattr("fanin.glm.run.setup.PRESETS", {**PRESETS, "tiny": replace(roomy, depth=256)})
    status, out, _ = run(capsys, "train", file, *OPTIONS, *options, "-o", tmp_path / "run")
    assert (status, golden[-1].config.sparse) == (0, False)
    assert line_of(out, "samples").startswith(f"dense, since sparse nodes cannot have {name}: ")
    error = refused(capsys, "train", file, *OPTIONS, *options, "--sparse", "on", "-o", tmp_path / "run")
    assert error == f"fanin: error: --sparse on: sparse nodes cannot have {name}\n"


def test_auto_takes_sparse_samples_where_dense_ones_do_not_fit(
    file, expected, golden, monkeypatch, tmp_path, capsys
):
    small = replace(NODE, sample_fifo=251)
    monkeypatch.setattr("fanin.glm.run.setup.PRESETS", {**PRESETS, "tiny": small})
    status, out, _ = run(capsys, "train", file, *OPTIONS, "-o", tmp_path / "run")
    assert (status, line_of(out, "samples")[:44]) == (0, "sparse, since dense samples do not fit the n")
    assert np.array_equal(weights_of(tmp_path / "run"), expected[-1])
    error = refused(capsys, "train", file, *OPTIONS, "--sparse", "off", "-o", tmp_path / "run")
    assert "a micro-batch is 63 chunks × 4 bits = 252 words an engine, the sample FIFO holds 251: " in error


def test_a_set_that_does_not_fit_takes_one_line_that_says_what_would(
    file, codes, monkeypatch, tmp_path, capsys
):
    def error(**changes):
        node = replace(NODE, **changes)
        monkeypatch.setattr("fanin.glm.run.setup.PRESETS", {**PRESETS, "tiny": node})
        return refused(capsys, "train", file, *OPTIONS, "--sparse", "on", "-o", tmp_path / "run")

    chunks = "2,001 features need 63 chunks an engine, model memory holds 62: at most 1,984 features fit with 2"
    assert chunks in error(depth=62)
    found = error(sample_fifo=32)
    matched = re.search(
        r"a micro-batch has (\d+) items on an engine of worker \d, the sample FIFO holds 32", found
    )
    assert int(matched[1]) > 32
    fits = int(re.search(r"--workers (\d+) fits", found)[1])
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", GoldenNodes)
    options = ("--preset", "tiny", "--workers", fits, "--epochs", 1, "--sparse", "on", "-o", tmp_path / "fits")
    assert run(capsys, "train", file, *options)[0] == 0


def test_more_than_two_classes_train_on_the_same_sparse_nodes(file, golden, tmp_path, capsys):
    lines = file.read_text().splitlines()
    rows = [line.partition(" ")[2] for line in lines if not line.startswith("#")]
    (tmp_path / "three.svm").write_text("".join(f"{n % 3} {row}\n" for n, row in enumerate(rows)))
    for choice in ("on", "off"):
        options = (*OPTIONS, "--sparse", choice, "-o", tmp_path / choice)
        status, out, _ = run(capsys, "train", tmp_path / "three.svm", *options)
        assert (status, bool(line_of(out, "samples"))) == (0, True)
    assert np.array_equal(weights_of(tmp_path / "on"), weights_of(tmp_path / "off"))
    on, off = record_of(tmp_path / "on"), record_of(tmp_path / "off")
    assert on["layout"]["sparse"]
    assert [on[name] for name in ("accuracy", "losses")] == [off[name] for name in ("accuracy", "losses")]


def test_scikit_learns_estimator_learns_the_same_bits(file, golden, tmp_path, capsys):
    features, labels = load_svmlight_file(str(file), n_features=FEATURES, zero_based=False)
    options = (*OPTIONS, "--test", 0, "--lr", 4, "-o", tmp_path / "run")
    assert run(capsys, "train", file, *options)[0] == 0
    estimator = GlmClassifier(
        epochs=EPOCHS, batch=BATCH, lr=4, precision=BITS, workers=WORKERS, preset="tiny", random_state=0
    )
    for form in (features, features.toarray()):
        assert np.array_equal(estimator.fit(form, labels).model_.weights, weights_of(tmp_path / "run"))
        assert np.array_equal(estimator.predict(features), estimator.predict(features.toarray()))
