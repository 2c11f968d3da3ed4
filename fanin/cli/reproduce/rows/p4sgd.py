"""P4SGD's numbers."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.cli.reproduce.row import How, Measurement, Paper, Picture, Row, one, ratio

_LATENCY = "allreduce: mean, p4sgd, workers 8, 0 % loss"
_SWITCH = "of ours, switch (400 ns) and cables (200 ns) are inputs; the paper does not state its own apart"
_B_OF_ALL = (
    "B samples of all workers, as section II has it; for 2 and 4.8 at B = 16 each worker would send 1,110 and "
    "540 Gb/s of gradients, and its link has 100"
)
_B_OF_ONE = "B samples of each data-parallel worker, by which the paper's three ratios fit links of 100 Gb/s"
_OVERLAP = "RTL runs forward of the next mini-batch beside backward of the last micro-batch, so it is below"
_CASE = "1 worker, D 16384, B 64"


def _slower(name: str, batch: int, paper: float) -> Iterator[Row]:
    """Of both readings of B."""
    for reading, why in (("", _B_OF_ALL), (" a worker", _B_OF_ONE)):
        figure = one(f"figure 9: {name}, B {batch}{reading}: data- over model-parallel")
        measurement = Measurement(("bench", "glm", "--figure", "9"), figure, folder=True)
        what = f"{name}, B = {batch}{reading}: data- over model-parallel"
        yield Row("9", what, "V-C", paper, "×", How.RTL, measurement, why=why, slow=True)


def _losses(gamma: int, bits: int) -> Row:
    name, epoch = f"figure 14: rcv1, γ={gamma}", "epoch 10"
    measurement = Measurement(
        ("bench", "glm", "--figure", "14", "--precision", "1,2,3,4,8"),
        ratio(f"{name}, {bits} bits, {epoch}", f"{name}, float64, {epoch}"),
        folder=True,
        data={"rcv1": ("--data", "rcv1={}")},
    )
    return Row(
        "14",
        f"rcv1 whole, γ = {gamma}, 10 epochs: loss of {bits} bits over float64's",
        "V-A, V-E",
        1.0,
        "×",
        How.TIED,
        measurement,
        why="the paper: above 3 bits the same number of epochs, to roughly the same loss",
        stand_in="synthetic samples, as many, as wide and as sparse",
    )


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
        *_slower("rcv1", 16, 2.0),
        *_slower("amazon_fashion", 16, 4.8),
        *_slower("amazon_fashion", 1024, 1.0),
        _equation(2, "vanilla MP"),
        _equation(3, "P4SGD MP", _OVERLAP),
        *(_losses(gamma, bits) for gamma in (1, 4) for bits in (4, 8)),
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
        *(
            Picture(
                "14",
                f"{name}, γ = {gamma}",
                "epoch",
                "logistic loss",
                rf"figure 14: {name}, γ={gamma}, (?P<series>.+), epoch (?P<x>\d+)",
            )
            for name in ("rcv1", "avazu")
            for gamma in (1, 4)
        ),
    ),
    not_here=(
        "Figures 10 to 12: pictures without printed points; ours: fanin bench glm --figure N.",
        "Figures 13 and 15, table IV: seconds and watts of a CPU, a GPU and an FPGA.",
        "Table III: Vivado's count, with PCI Express and HBM; ours: fanin bench area.",
    ),
)
