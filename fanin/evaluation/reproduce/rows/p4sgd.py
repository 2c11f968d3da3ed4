"""P4SGD's numbers."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.evaluation.reproduce.row import Fit, How, Measurement, Paper, Picture, Row, one, ratio

_LATENCY = "allreduce: mean, p4sgd, workers 8, 0 % loss"
_SWITCH = "of ours, switch (400 ns) and cables (200 ns) are inputs; the paper does not state its own apart"
_B_OF_ALL = (
    "B samples of all workers, as section II has it; for 2 and 4.8 at B = 16 each worker would send 1,110 and "
    "540 Gb/s of gradients, and its link has 100"
)
_B_OF_ONE = "B samples of each data-parallel worker, by which the paper's three ratios fit links of 100 Gb/s"
_READS = "reads its memory at the share of the peak that is fitted to CPUSync"
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
        slow=True,
    )


def _gpu_on_avazu(what: str, paper: float, unit: str, why: str) -> Row:
    measurement = Measurement(("bench", "glm", "--figure", "15"), one(f"table 4: {what}"), folder=True)
    return Row("table-4", what, "V-F, V-G", paper, unit, How.MODEL, measurement, why=why, model="GPUSync")


def _memory(what: str, figure: str, paper: float, unit: str, why: str) -> Row:
    measurement = Measurement(("bench", "glm", "--part", "memory"), one(f"8 engines, {figure}"), folder=True)
    return Row("section-VII", what, "VII", paper, unit, How.RTL, measurement, why=why, slow=True)


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
        Row(
            "13",
            "GPUSync over P4SGD, most of 1 to 8 workers and B = 16 and 1,024",
            "I, VII",
            9.3,
            "×",
            How.MODEL,
            Measurement(
                ("bench", "glm", "--figure", "13"), one("figure 13: GPUSync over P4SGD, most"), folder=True
            ),
            why="the paper does not say of which case; here rcv1, B = 16, 8 workers",
            model="GPUSync",
        ),
        *(_losses(gamma, bits) for gamma in (1, 4) for bits in (4, 8)),
        _gpu_on_avazu("GPUSync, avazu: time", 10.9, "s", _READS),
        _gpu_on_avazu("GPUSync, avazu: energy", 10028.0, "J", f"{_READS}; the watts, 920, are the paper's"),
        _memory(
            "8 engines: of HBM's bandwidth",
            "HBM2, a pseudo-channel a port: of the card's bandwidth",
            25.0,
            "%",
            "two ports of 256 bits an engine, at 250 MHz, of 32 at 450 MHz",
        ),
        _memory(
            "512 bits a cycle from one pseudo-channel, 225 MHz: cycles a word",
            "HBM2, a pseudo-channel an engine, 225 MHz: cycles a word",
            1.0,
            "cycles",
            "that is all that the data pins carry; refreshes take 7.6 % of it, by a model of HBM2 that has "
            "the latencies and the bandwidth measured on a U280",
        ),
    ),
    fits=(
        Fit(
            "CPUSync",
            "bytes a second, and what a mini-batch takes beside reading",
            "table IV: 14.4 and 128.25 s",
        ),
        Fit("GPUSync", "what a mini-batch takes beside reading", "table IV: 1.76 s on rcv1"),
        Fit("CPUSync, GPUSync", "an AllReduce of 8 workers, 12 µs", "V-B: ten times P4SGD's 1.2 µs"),
        Fit("SwitchML", "a host's software for a frame, 5.5 µs", "V-B: longer than CPUSync and GPUSync"),
        Fit("runs of table IV", "mini-batches of 64 samples", "table IV: P4SGD's 0.27 and 4.12 s"),
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
        *(
            Picture(
                "13",
                f"{name}, an epoch",
                "workers",
                "s",
                rf"figure 13: {name}: (?P<series>.+), workers (?P<x>\d+)",
                log=True,
            )
            for name in ("rcv1", "amazon_fashion")
        ),
        *(
            Picture(
                "15",
                f"{name}, γ = 4",
                "seconds",
                "logistic loss",
                rf"figure 15: {name}: (?P<series>.+), seconds (?P<x>[\d.e-]+)",
                log=True,
            )
            for name in ("rcv1", "avazu")
        ),
    ),
    not_here=(
        "Figures 10 to 12: pictures without printed points; ours: fanin bench glm --figure N.",
        "Figure 8's GPUSync, CPUSync and SwitchML: whiskers without numbers; ours: fanin bench glm --figure 8.",
        "Table IV's other seconds: the models are fitted to them; its CPUSync is 53 times P4SGD, not V-F's 67.",
        "Table IV's avazu whole: 40,428,967 samples of 4 bits are 20 TB, and the memories of eight U280 64 GB; "
        "an epoch at a word a cycle takes 20.7 s, and the table has 4.12.",
        "Table III: Vivado's count, with PCI Express and HBM; ours: fanin bench area.",
    ),
)
