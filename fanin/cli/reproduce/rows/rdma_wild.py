"""RDMA-wild's numbers."""

from __future__ import annotations

from fanin.cli.reproduce.row import Fit, How, Measurement, Paper, Row, one

_TABLES = ("bench", "ps", "--models")
_MODELS = {"lr": (2.79, 3.10 / 2.79), "lr-rff": (95.98, 122.36 / 95.98), "fcnn": (110.29, 135.92 / 110.29)}
_ACCURACY = {"lr": 92.0, "lr-rff": 95.0, "fcnn": 99.0}
_STEADY = "workers that all take the same time; with a jitter of 10 %, our guess, lr-rff is 25 % too fast"


def _times(model: str) -> tuple[Row, ...]:
    wild, over = _MODELS[model]
    name = f"{model}, no jitter, wild"
    return (
        Row(
            "table-1",
            f"{model}: RDMA-wild",
            "5.2",
            wild,
            "s",
            How.MODEL,
            Measurement(_TABLES, one(f"table 1: {name}")),
            why=_STEADY,
        ),
        Row(
            "table-1",
            f"{model}: Sync-DSGD over RDMA-wild",
            "5.2",
            over,
            "×",
            How.MODEL,
            Measurement(_TABLES, one(f"table 1: {model}, no jitter, sync over wild")),
            why="the paper prints 11, 13 and 13 %, which are not those of its own seconds",
        ),
    )


def _accuracy(model: str) -> Row:
    command = ("ps", "train", "--on", "model", "--model", model, "--no-optimum")
    return Row(
        "7",
        f"{model}: accuracy of RDMA-wild",
        "5.2, 5.4",
        _ACCURACY[model],
        "%",
        How.TIED,
        Measurement(command, one("accuracy", 100.0), folder=True, data={"mnist": ("{}",)}),
        Measurement((*command, "--epochs", "10"), one("accuracy", 100.0), folder=True, data={"mnist": ("{}",)}),
        why="the event model computes the workers' bits; the paper does not say on which samples",
        stand_in="the digits that scikit-learn ships, MNIST's kin of 8 × 8 pixels",
    )


PAPER = Paper(
    name="rdma-wild",
    title="RDMA-wild: an Asynchronous Distributed SGD with RDMA Networks",
    rows=(*(row for model in _MODELS for row in _times(model)), *map(_accuracy, _ACCURACY)),
    fits=(
        Fit("cluster", "seconds of a sample on one node", "table 2: the mean of its two columns, 0.5 % apart"),
        Fit("cluster", "the server's update, one rate for each model", "table 1: Sync-DSGD's seconds"),
        Fit(
            "TCP",
            "bytes a second of a link, slower computing",
            "figure 1: 6 times the waiting, twice the training",
        ),
    ),
    not_here=(
        "Table 2: table 1 over a single node's seconds, which are fitted to it.",
        "Figure 1: TCP's two ratios are what TCP is fitted to.",
        "Figures 5, 6 and 9 to 12: a run's timeline, without numbers; ours: trace.json of fanin ps train.",
        "Figure 8: distances to w*, without numbers; ours: fanin ps train --optimum.",
    ),
)
