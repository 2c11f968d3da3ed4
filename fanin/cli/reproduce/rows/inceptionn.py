"""INCEPTIONN's numbers."""

from __future__ import annotations

from fanin.cli.reproduce.row import Fit, How, Measurement, Paper, Picture, Row, Value, one

_FAST = "NIC at 250 MHz, hosts take no time"
_SAVED = {"AlexNet": 55.0, "HDC": 39.0, "ResNet-50": 58.0, "VGG-16": 36.0}  # % of the communication, INC
_TIME = {"AlexNet": 52.0, "HDC": 38.0, "ResNet-50": 49.0, "VGG-16": 31.0}  # % of all time
_SHARE = {"HDC": 80.2, "ResNet-50": 80.2, "VGG-16": 70.9}  # % of the time, communication; AlexNet's is fitted
_LINKS = "links at their rate; the paper's hosts reach a part of it, and another part for each network"
_VGG = "by size VGG-16 would take 335 s; the paper measured 584"


def _model(name: str) -> Measurement:
    return Measurement(("bench", "ring", "--models"), one(f"INCEPTIONN: {name}"), folder=True)


def _rtl(value: Value) -> Measurement:
    return Measurement(("bench", "inceptionn"), value, folder=True)


def _saved(network: str) -> Row:
    name = f"{network}: INC, communication saved"
    return Row(
        "12",
        f"{network}: of the communication that the ring saves",
        "VIII-A",
        _SAVED[network],
        "%",
        How.RTL,
        _rtl(one(f"{_FAST}: {name}")),
        _model(name),
        How.MODEL,
        why=_LINKS + (f"; {_VGG}" if network == "VGG-16" else ""),
    )


def _time(network: str) -> Row:
    return Row(
        "12",
        f"{network}: of the training time that the ring saves",
        "VIII-A",
        _TIME[network],
        "%",
        How.MODEL,
        _model(f"{network}: INC, time saved"),
        why="given the communication that figure 12 says it saves",
    )


PAPER = Paper(
    name="inceptionn",
    title="INCEPTIONN: A Network-Centric Co-Design to Accelerate Distributed Training of DNNs",
    rows=(
        *map(_saved, ("HDC", "ResNet-50", "VGG-16")),
        *map(_time, _TIME),
        Row(
            "12",
            "AlexNet: of the communication that the codec saves an aggregator",
            "VIII-A",
            30.8,
            "%",
            How.RTL,
            _rtl(one(f"{_FAST}: AlexNet: WA+C, communication saved")),
            _model("AlexNet: WA+C, communication saved"),
            How.MODEL,
        ),
        Row(
            "12",
            "speed-up by ring and codec, least of four networks",
            "VIII-A",
            2.2,
            "×",
            How.RTL,
            _rtl(one(f"{_FAST}: INC+C, faster, least")),
            _model("INC+C, faster, least"),
            How.MODEL,
            why=_LINKS,
        ),
        Row(
            "12",
            "speed-up by ring and codec, most of four networks",
            "VIII-A",
            3.1,
            "×",
            How.RTL,
            _rtl(one(f"{_FAST}: INC+C, faster, most")),
            _model("INC+C, faster, most"),
            How.MODEL,
            why=_LINKS,
        ),
        Row(
            "12",
            "of the communication that ring and codec save, least",
            "VIII-A",
            70.9,
            "%",
            How.MODEL,
            _model("INC+C, communication saved, least"),
        ),
    ),
    fits=(
        Fit("exchange", "seconds of a byte and of an addition", "table II, AlexNet: 148.71 and 8.94 s"),
        Fit("exchange", "seconds of a byte of the ring", "figure 12, AlexNet: 55 % saved"),
        Fit("exchange", "share that no compression shortens", "figure 12, ResNet-50: 53.9 %"),
    ),
    pictures=(
        Picture(
            "15",
            "exchange time without compression, WA of four = 1",
            "workers",
            "× WA of 4",
            r"INCEPTIONN, figure 15: (?P<series>\w+), (?P<x>\d+) workers",
        ),
    ),
    not_here=(
        "Figures 4, 5 and 14 of AlexNet, ResNet-50 and VGG-16, which take ImageNet; ours are of four smaller "
        "networks: fanin bench codec-training.",
        "Table III: its shares are the NIC's input in figure 12.",
    ),
)
