"""Rows of the paper RDMA-wild: its numbers, their measurements, and explanations of differences."""

from __future__ import annotations

from fanin.evaluation.origins.graph import identifier
from fanin.evaluation.reproduce.row import Fit, Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.value import Value, figure_value, ratio

#: table 1: seconds of a run with Sync-DSGD and with RDMA-wild, by model
_SECONDS = {"lr": (3.10, 2.79), "lr-rff": (122.36, 95.98), "fcnn": (135.92, 110.29)}
_ACCURACY_PERCENT = {"lr": 92.0, "lr-rff": 95.0, "fcnn": 99.0}
_TCP_OVER_RDMA = {"training": 2.0, "wait": 6.0}
_READINGS = ("per_model_steady", "one_server_like_fcnn")  # readings of ``fanin bench ps --models``
# Figures of a command with ``--beside``: the run beside the command's own (the only one), and its own.
_SECONDS_OF_BOTH_RUNS = ("beside.0.simulated_seconds", "simulated_seconds")
_SYNC_BESIDE = ("--no-optimum", "--beside", "algorithm=sync")
_EPOCH_COMMAND = ("ps", "train", "--workers", "15", "--epochs", "1")  # an epoch in RTL
_MODEL_OPTIONS = {"lr": (), "lr-rff": ("--model", "lr-rff"), "fcnn": ("--model", "fcnn")}
_MODEL_SIZES = {  # for the digits' 64 pixels; the paper's images have 784
    "lr": "650 values",
    "lr-rff": "10,010 values, a tenth of the paper's",
    "fcnn": "9,610 values, a tenth of the paper's",
}
_SWEPT_QUANTITIES = {
    "workers": "workers",
    "batch": "samples of a worker's mini-batch",
    "size": "model and computing, over lr's",
    "stragglers": "times that a gradient in 20 takes",
}


def _model(value: Value) -> Measurement:
    return Measurement(("bench", "ps", "--models"), value)


def _time_rows(model: str) -> tuple[Row, ...]:
    """Return rows of table 1 by the event model."""
    sync, wild = _SECONDS[model]
    steady, one_server = (identifier(f"ps.table_1.{reading}", model) for reading in _READINGS)
    return (
        Row(
            "table-1",
            f"{model}: RDMA-wild",
            "5.2",
            wild,
            "s",
            _model(figure_value(f"{steady}.wild_s")),
            explanation="the server is fitted to Sync-DSGD, and workers all take the same time: "
            "jitter is not printed",
            model="cluster, per model",
        ),
        Row(
            "table-1",
            f"{model}: Sync-DSGD over RDMA-wild",
            "5.2",
            sync / wild,
            "×",
            _model(figure_value(f"{steady}.sync_over_wild")),
            explanation="the paper prints 11, 13 and 13 %, which are not those of its own seconds",
            model="cluster, per model",
        ),
        Row(
            "table-1",
            f"{model}: Sync-DSGD",
            "5.2",
            sync,
            "s",
            _model(figure_value(f"{one_server}.sync_s")),
            explanation="one server for all models, fitted to RDMA-wild's three seconds by one number"
            + ("; it computes as fast as fcnn, which has as many multiplications" if model == "lr-rff" else ""),
            model="cluster, one server",
        ),
    )


def _accuracy_rows(model: str) -> tuple[Row, ...]:
    """Return rows of figure 7: accuracy of RDMA-wild, itself and relative to Sync-DSGD's."""
    command = ("ps", "train", "--on", "model", "--model", model, *_SYNC_BESIDE)

    def row(quantity: str, claimed: float, unit: str, value: Value, explanation: str) -> Row:
        data = {"mnist": ("{}",)}
        return Row(
            "7",
            f"{model}: {quantity}",
            "5.2, 5.4",
            claimed,
            unit,
            Measurement(command, value, folder=True, data=data, id_prefix="ps_train.on_model"),
            Measurement(
                (*command, "--epochs", "10"), value, folder=True, data=data, id_prefix="ps_train.on_model"
            ),
            explanation=explanation,
            stand_in="the digits that scikit-learn ships, MNIST's kin of 8 × 8 pixels",
        )

    return (
        row(
            "accuracy of RDMA-wild",
            _ACCURACY_PERCENT[model],
            "%",
            figure_value("accuracy", 100.0),
            "the event model computes the workers' bits; the paper does not say on which samples",
        ),
        row(
            "accuracy of RDMA-wild over Sync-DSGD's",
            1.0,
            "×",
            ratio("accuracy", "beside.0.accuracy"),
            "the paper: almost the same",
        ),
    )


def _barter_row(model: str) -> Row:
    return Row(
        "section-4.2",
        f"{model}: broadcasting over barter, behind a scan",
        "4.2",
        1.0,
        "×",
        _model(figure_value(identifier("ps.pushes", model, "cluster.scan.broadcast_over_barter"))),
        explanation="the paper prints no number: barter is the more efficient, so it is to be above 1",
    )


def _tcp_row(kind: str) -> Row:
    text = {"training": "computing and pushing", "wait": "waiting"}[kind]
    return Row(
        "1",
        f"Sync-DSGD, {text}: TCP over RDMA",
        "1",
        _TCP_OVER_RDMA[kind],
        "×",
        _model(figure_value(f"ps.figure_1.{kind}.tcp_over_rdma")),
        explanation="copies and system calls of sockets on this machine's loopback; what else slowed the "
        "paper's TCP is not said: interrupts, congestion of 15 senders, its threads",
    )


def _rtl_row(model: str) -> Row:
    """Return the row of table 1's ratio over RTL servers and NICs."""
    sync, wild = _SECONDS[model]
    return Row(
        "table-1",
        f"{model}, an epoch of 15 workers in RTL: Sync-DSGD over RDMA-wild",
        "5.2",
        sync / wild,
        "×",
        Measurement(
            (*_EPOCH_COMMAND, *_MODEL_OPTIONS[model], *_SYNC_BESIDE),
            ratio(*_SECONDS_OF_BOTH_RUNS),
            folder=True,
            id_prefix="ps_train.sync",
        ),
        explanation="nearly all of an epoch is the workers' computing and its jitter of 10 %, which are "
        f"inputs; fanin's own server and NICs, and the digits' model of {_MODEL_SIZES[model]}; with MNIST's: "
        "docs/systems/param-server-time.md",
        slow=True,
    )


_BARTER_RTL_ROW = Row(
    "section-4.2",
    "lr, an epoch of 15 workers in RTL: broadcasting over barter, behind a scan",
    "4.2",
    1.0,
    "×",
    Measurement(
        (*_EPOCH_COMMAND, "--push-after", "scan", "--no-optimum", "--beside", "receivers=broadcast"),
        ratio(*_SECONDS_OF_BOTH_RUNS),
        folder=True,
        id_prefix="ps_train.broadcast",
    ),
    explanation="the paper prints no number: barter is the more efficient, so it is to be above 1; fanin's "
    f"own server and NICs, and the digits' model of {_MODEL_SIZES['lr']}",
    slow=True,
)

PAPER = Paper(
    name="rdma-wild",
    title="RDMA-wild: an Asynchronous Distributed SGD with RDMA Networks",
    rows=(
        *(row for model in _SECONDS for row in _time_rows(model)),
        *map(_rtl_row, _SECONDS),
        *map(_tcp_row, _TCP_OVER_RDMA),
        *map(_barter_row, _SECONDS),
        _BARTER_RTL_ROW,
        *(row for model in _ACCURACY_PERCENT for row in _accuracy_rows(model)),
    ),
    pictures=tuple(
        Picture(
            "of section 5.6",
            f"lr on the paper's cluster, over {sweep}",
            x,
            "speed-up over one node",
            (f"ps.sweep.{sweep}.*",),
        )
        for sweep, x in _SWEPT_QUANTITIES.items()
    ),
    fits=(
        Fit("cluster", "seconds of a sample on one node", "table 2: the mean of its two columns, 0.5 % apart"),
        Fit(
            "cluster, per model", "the server's update, one rate for each model", "table 1: Sync-DSGD's seconds"
        ),
        Fit(
            "cluster, one server",
            "update and push of a byte, one number",
            "table 1: wild's seconds, their mean",
        ),
    ),
    not_here=(
        "Table 2: table 1 over a single node's seconds, which are fitted to it.",
        "Figures 5, 6 and 9 to 12: timelines of workers and server, without numbers; ours: the report of "
        "fanin ps train --on model --costs cluster --beside algorithm=sync.",
        "Figure 8: distances to w*, without numbers; ours: fanin ps train --optimum.",
    ),
)
