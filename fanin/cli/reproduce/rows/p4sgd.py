"""P4SGD's numbers."""

from __future__ import annotations

from fanin.cli.reproduce.row import How, Measurement, Paper, Picture, Row, one, ratio

_LATENCY = "allreduce: mean, p4sgd, workers 8, 0 % loss"
_SWITCH = "of ours, switch (400 ns) and cables (200 ns) are inputs; the paper does not state its own apart"
_DATA_PARALLEL = (
    "ours carries 8 values in a packet and acknowledges each, as it does partial activations; what the paper's "
    "data-parallel packets hold is not said"
)
_OVERLAP = "RTL runs forward of the next mini-batch beside backward of the last micro-batch, so it is below"
_CASE = "1 worker, D 16384, B 64"


def _slower(name: str, batch: int, paper: float) -> Row:
    measurement = Measurement(
        ("bench", "glm", "--figure", "9"),
        one(f"figure 9: {name}, B {batch}: data- over model-parallel"),
        folder=True,
    )
    what = f"{name}, B = {batch}: data- over model-parallel"
    return Row("9", what, "V-C", paper, "×", How.RTL, measurement, why=_DATA_PARALLEL, slow=True)


def _equation(number: int, kind: str, why: str = "") -> Row:
    name = f"table 1: {kind}, {_CASE}"
    value = ratio(f"{name}: measured", f"{name}: equation {number}")
    measurement = Measurement(("bench", "glm", "--figure", "2"), value, folder=True)
    what = f"{kind}, {_CASE}: cycles over equation {number}"
    return Row("table-1", what, "II, III-B", 1.0, "×", How.RTL, measurement, why=why, slow=True)


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
            Measurement(("bench", "allreduce"), one(_LATENCY), folder=True),
            Measurement(("bench", "allreduce", "--workers", "8", "--loss", "0"), one(_LATENCY), folder=True),
            why=_SWITCH,
        ),
        _slower("rcv1", 16, 2.0),
        _slower("amazon_fashion", 16, 4.8),
        _slower("amazon_fashion", 1024, 1.0),
        _equation(2, "vanilla MP"),
        _equation(3, "P4SGD MP", _OVERLAP),
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
    ),
    not_here=(
        "Figures 10 to 12 and 14: pictures without printed points; ours: fanin bench glm --figure N.",
        "Figures 13 and 15, table IV: seconds and watts of a CPU, a GPU and an FPGA.",
        "Table III: Vivado's count, with PCI Express and HBM; ours: fanin bench area.",
    ),
)
