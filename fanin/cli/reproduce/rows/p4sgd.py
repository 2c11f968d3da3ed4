"""P4SGD's numbers."""

from __future__ import annotations

from fanin.cli.reproduce.row import How, Measurement, Paper, Picture, Row, one, ratio

_DATA = "cycles depend on no data: random words of the set's shape"


def _figure(number: int, value: object) -> Measurement:
    return Measurement(("bench", "glm", "--figure", str(number)), value, folder=True)  # type: ignore[arg-type]


def _slower(name: str, batch: int) -> Measurement:
    kinds = (f"figure 9: {name}, {kind}-parallel, mini-batch size B {batch}" for kind in ("data", "model"))
    return _figure(9, ratio(*kinds))


PAPER = Paper(
    name="p4sgd",
    title="P4SGD: Programmable Switch Enhanced Model-Parallel Training on GLMs on Distributed FPGAs",
    rows=(
        Row(
            "8",
            "AllReduce of 8 values, 8 workers, mean",
            "V-B",
            1200.0,
            "ns",
            How.RTL,
            Measurement(
                ("bench", "allreduce"), one("allreduce: mean, p4sgd, workers 8, 0 % loss"), folder=True
            ),
            Measurement(
                ("bench", "allreduce", "--workers", "8", "--loss", "0"),
                one("allreduce: mean, p4sgd, workers 8, 0 % loss"),
                folder=True,
            ),
            why="of ours the switch is 400 ns and the cables 200 ns, which are inputs; the paper does not "
            "state its switch's apart",
        ),
        Row(
            "9",
            "amazon_fashion, B = 1024: data-parallel over model-parallel",
            "V-C",
            1.0,
            "×",
            How.RTL,
            _slower("amazon_fashion", 1024),
            why=_DATA,
        ),
    ),
    pictures=(
        Picture(
            "9",
            "4 workers of 8 engines, an epoch",
            "mini-batch size B",
            "s",
            r"figure 9: (?P<series>.+), mini-batch size B (?P<x>\d+)",
            log=True,
        ),
        Picture(
            "12",
            "8 engines, B = 16, speed-up over one worker",
            "workers",
            "×",
            r"figure 12: (?P<series>.+), workers (?P<x>\d+)",
            log=True,
        ),
    ),
    not_here=(
        "Table IV: watts, and the seconds of a CPU and a GPU.",
        "Figures 13 and 15: their baselines are a CPU's and a GPU's times.",
    ),
)
