"""NADA's numbers."""

from __future__ import annotations

from fanin.cli.reproduce.row import Figures, How, Measurement, Paper, Picture, Row, Value, one

_PLANS = ("bench", "cluster", "--part", "plans")
_QUICK = ("plan", "mobilenet_v2", "arria10x6", "--time-limit", "40")


def _plans(value: Value) -> Measurement:
    return Measurement(_PLANS, value)


def _linear(figures: Figures) -> float:
    """Throughput of six devices over that of three."""
    return figures["example CNN on 6: planned"] / figures["example CNN on 3: planned"]


def _shared(figures: Figures) -> float:
    """Of 1.8 TFLOP/s, at 1.8 GFLOP a frame, what the frames with updates take, in %."""
    return 100 * figures["throughput_with_update"] / 1000


_BATCH = "the paper states no batch for it; ours: 256"
_FIVE = (
    "from five devices on one layer's DRAM allows 508 frames/s; what the paper's layers take of DRAM is "
    "not printed"
)

PAPER = Paper(
    name="nada",
    title="NADA: An Approach Towards Distributed DNN Training on FPGA Clusters",
    rows=(
        Row(
            "section-V",
            "MobileNetV2 on six Arria 10: throughput",
            "V",
            395.0,
            "frames/s",
            How.PLAN,
            _plans(one("MobileNetV2 on six Arria 10: predicted")),
            Measurement(_QUICK, one("throughput"), folder=True),
            why="theirs: measured, not optimised; ours: planned, and predicted by the timed model of RTL",
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates",
            "V",
            359.0,
            "frames/s",
            How.PLAN,
            _plans(one("MobileNetV2 on six Arria 10: predicted with updates, batch 256")),
            Measurement(_QUICK, one("throughput_with_update"), folder=True),
            why=_BATCH,
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates: of the arithmetic's peak",
            "V",
            35.9,
            "%",
            How.PLAN,
            Measurement(_QUICK, _shared, folder=True),
            why=_BATCH,
        ),
        Row(
            "5",
            "example CNN: six devices over three",
            "V",
            2.0,
            "×",
            How.PLAN,
            _plans(_linear),
            Measurement(
                ("plan", "example_cnn", "arria10x6", "--devices", "3..6", "--time-limit", "8"),
                lambda f: f["plans.3.throughput"] / f["plans.0.throughput"],
                folder=True,
            ),
            why=_FIVE,
        ),
    ),
    pictures=(
        Picture(
            "5",
            "example CNN on Arria 10, planned",
            "devices",
            "frames/s",
            r"example CNN on (?P<x>\d+): (?P<series>planned|predicted)",
        ),
    ),
    not_here=(
        "Table I: generated, beside the paper: planner-listing1 of the docs.",
        "Figure 6b's DRAM of MP4 on nine devices: our best plan on nine has no MP4.",
        "Figure 7: 100 epochs of ImageNet on six boards for four days.",
        "Table III's actual RAM: Quartus'.",
    ),
)
