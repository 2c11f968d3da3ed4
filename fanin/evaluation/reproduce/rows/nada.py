"""NADA's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.evaluation.reproduce.row import (
    Figures,
    How,
    Measurement,
    Paper,
    Picture,
    Row,
    Value,
    one,
    ratio,
    said,
)

_PLANS = ("bench", "cluster", "--part", "plans")
_QUICK = ("plan", "mobilenet_v2", "arria10x6", "--time-limit", "40")
_FEWEST = 3  # devices
_QUICK_DEVICES = 6  # to which a sweep goes that takes a minute; up to there the paper has no model parallelism


def _plans(value: Value) -> Measurement:
    return Measurement(_PLANS, value)


def _mobilenet(value: Value) -> Measurement:
    return Measurement(_QUICK, value, folder=True)


def _layer(name: str) -> Measurement:
    return Measurement(("bench", "plan", "--part", "layers"), one(f"listing 1: {name}"))


def _best(figures: Figures, devices: int) -> float:
    """Frames a second of the best plan, in one part or in several."""
    name = f"example CNN on {devices}"
    return max(
        _some(
            v for n, v in figures.items() if n.startswith((f"{name}:", f"{name},")) and n.endswith(": planned")
        )
    )


def _some(values: Iterable[float]) -> list[float]:
    """Figures of a command. KeyError where it has none of them."""
    found = list(values)
    if not found:
        raise KeyError
    return found


def _linear(devices: int) -> Row:
    """A point of figure 5, over the first."""
    name = "“example CNN on {}…: planned”"
    text = f"the most of {name.format(devices)} ÷ the most of {name.format(_FEWEST)}"
    full = _plans(said(text, lambda figures: _best(figures, devices) / _best(figures, _FEWEST)))
    sweep = (
        *("plan", "example_cnn", f"arria10x{_QUICK_DEVICES}"),
        *("--devices", f"{_FEWEST}..{_QUICK_DEVICES}", "--time-limit", "8"),
    )
    over, under = f"plans.{devices - _FEWEST}.throughput", "plans.0.throughput"
    quick = Measurement(sweep, ratio(over, under), folder=True)
    alone = devices <= _QUICK_DEVICES
    return Row(
        "5",
        f"example CNN: {devices} devices over {_FEWEST}",
        "V",
        devices / _FEWEST,
        "×",
        How.PLAN,
        full,
        quick if alone else None,
        why=_FIVE if devices > 4 else "",
        slow=not alone,
        series="the best of one, two and four parts",
        x=devices,
    )


def _shared(figures: Figures) -> float:
    """100 × “throughput_with_update” ÷ 1000, the paper's 1.8 TFLOP/s at 1.8 GFLOP a frame."""
    return 100 * figures["throughput_with_update"] / 1000


def _parameters(figures: Figures) -> list[float]:
    return _some(v for name, v in figures.items() if name.endswith(".parameter_words"))


def _whole(figures: Figures) -> float:
    """The sum of “layers.….parameter_words”, in millions."""
    return sum(_parameters(figures)) / 1e6


def _dense(figures: Figures) -> float:
    """The most of “layers.….parameter_words”, in millions."""
    return max(_parameters(figures)) / 1e6


def _layers() -> Iterator[Row]:
    """Tables I and III."""
    why = "no divisor of ψ's dimensions gives 12 multiply–adds a cycle: ours does 16"
    one_row = "rows of the first window and two more; the paper's formula is not given"
    for letter, delay, rate in (("φ", 0.23, 3906.25), ("ψ", 0.91, 4069.01)):
        name, slower = f"listing 1, {letter}", why if letter == "ψ" else ""
        found = _layer(f"{letter}, induced delay")
        yield Row("table-1", f"{name}: induced delay", "IV", delay, "frames", How.PLAN, found, why=one_row)
        found = _layer(f"{letter}, throughput")
        yield Row("table-1", f"{name}: throughput", "IV", rate, "frames/s", How.PLAN, found, why=slower)
    ways = "ours: a block for each multiplier and way, and two for the update"
    for letter, blocks, kilobits in (("φ", 32, 272.9), ("ψ", 38, 1446.6)):
        name, found = f"listing 1, {letter}", _layer(f"{letter}, DSPs")
        slower = f"{ways}; {why}" if letter == "ψ" else ways
        yield Row("table-3", f"{name}: DSP blocks", "IV", blocks, "blocks", How.PLAN, found, why=slower)
        ram = _layer(f"{letter}, RAM")
        yield Row("table-3", f"{name}: RAM, estimated", "IV", kilobits, "Kb", How.PLAN, ram, why=_MEMORY)


_BATCH = "the paper states no batch for it; ours: 256"
_FIVE = (
    "from five devices on one layer's DRAM allows 508 frames/s; what the paper's layers take of DRAM is not "
    "printed"
)
_MEMORY = "every memory of our components; queues of the paper's first layer are not described"
_STOPS = (
    "the paper's plan leaves most DSP blocks idle, and does not say why; ours goes on to the devices' limit"
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
            _mobilenet(one("throughput")),
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
            _mobilenet(one("throughput_with_update")),
            why=_BATCH,
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates: of the arithmetic's peak",
            "V",
            35.9,
            "%",
            How.PLAN,
            _mobilenet(_shared),
            why=_BATCH,
        ),
        *(
            Row(
                "section-V",
                f"example CNN: {what}",
                "V",
                millions,
                "M",
                How.PLAN,
                Measurement(("plan", "example_cnn", "arria10x6", "--time-limit", "8"), value, folder=True),
            )
            for what, millions, value in (("parameters", 1.8, _whole), ("… of the dense layer", 1.0, _dense))
        ),
        Row(
            "3",
            "listing 1 on four Arria 10: throughput",
            "IV",
            3906.0,
            "frames/s",
            How.PLAN,
            Measurement(
                ("plan", "listing1", "arria10x4", "--time-limit", "10"), one("throughput"), folder=True
            ),
            why=_STOPS,
        ),
        *_layers(),
        *map(_linear, range(4, 10)),
        Row(
            "6b",
            "example CNN on nine devices: DRAM in use, mean",
            "V",
            97.0,
            "%",
            How.PLAN,
            _plans(one("the best on 9: DRAM in use, mean")),
            why=f"the paper's plan has four parts, our best has one: {_FIVE}",
            slow=True,
        ),
    ),
    pictures=(Picture("5", "example CNN on Arria 10, throughput over three devices'", "devices", "×"),),
    not_here=(
        "Table I's parallelism: beside the paper, with ours, in planner-listing1 of the docs.",
        "Figures 6a and 6c: shares by layer and device, without numbers; ours: report.html of fanin plan.",
        "Figure 7: 100 epochs of ImageNet on six boards for four days.",
        "Table III's actual RAM: Quartus'.",
        "Section V's 700 MOPS a frame, V100 and clock: operations are not counted, the others are machines'.",
    ),
)
