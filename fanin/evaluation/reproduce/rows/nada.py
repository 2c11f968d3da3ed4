"""NADA's numbers."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.evaluation.reproduce.row import Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.value import Value, extreme, one, quotient, ratio, times, total

_PLANS = ("bench", "cluster", "--part", "plans")
_QUICK = ("plan", "mobilenet_v2", "arria10x6", "--time-limit", "40")
_EXAMPLE = ("plan", "example_cnn", "arria10x6", "--time-limit", "8")
_LISTING = ("plan", "listing1", "arria10x4", "--time-limit", "10")
_FEWEST = 3  # devices
_QUICK_DEVICES = 6  # to which a sweep goes that takes a minute; up to there the paper has no model parallelism


def _plans(value: Value) -> Measurement:
    return Measurement(_PLANS, value)


def _mobilenet(value: Value) -> Measurement:
    return Measurement(_QUICK, value, folder=True, place="plan")


def _layer(name: str) -> Measurement:
    return Measurement(("bench", "plan", "--part", "layers"), one(f"plan.listing_1.{name}"))


def _best(devices: int) -> Value:
    """Return the frames per s of the best plan, in one part or in several."""
    return extreme(max, f"cluster.example_cnn.devices_{devices}.mp_*.planned")


def _linear(devices: int) -> Row:
    """Return the row of a point of figure 5, relative to the first point."""
    full = _plans(quotient(_best(devices), _best(_FEWEST)))
    sweep = (
        *("plan", "example_cnn", f"arria10x{_QUICK_DEVICES}"),
        *("--devices", f"{_FEWEST}..{_QUICK_DEVICES}", "--time-limit", "8"),
    )
    over, under = f"plans.{devices - _FEWEST}.throughput", "plans.0.throughput"
    quick = Measurement(sweep, ratio(over, under), folder=True, place="plan")
    alone = devices <= _QUICK_DEVICES
    return Row(
        "5",
        f"example CNN: {devices} devices over {_FEWEST}",
        "V",
        devices / _FEWEST,
        "×",
        full,
        quick if alone else None,
        why=_FIVE if devices > 4 else "",
        slow=not alone,
        series="the best of one, two and four parts",
        x=devices,
    )


_SHARED = times(
    0.1,
    one("throughput_with_update"),
    "100 × throughput_with_update ÷ 1000, the paper's 1.8 TFLOP/s at 1.8 GFLOP a frame",
)
_WORDS = "layers.*.parameter_words"
_WHOLE = times(1e-6, total(_WORDS), f"sum of {_WORDS}, in millions")
_DENSE = times(1e-6, extreme(max, _WORDS), f"max of {_WORDS}, in millions")


def _layers() -> Iterator[Row]:
    """Yield rows of tables I and III."""
    why = "no divisor of ψ's dimensions gives 12 multiply–adds a cycle: ours does 16"
    one_row = "rows of the first window and two more; the paper's formula is not given"
    for letter, place, delay, rate in (("φ", "phi", 0.23, 3906.25), ("ψ", "psi", 0.91, 4069.01)):
        name, slower = f"listing 1, {letter}", why if letter == "ψ" else _TARGET
        found = _layer(f"{place}.induced_delay")
        yield Row("table-1", f"{name}: induced delay", "IV", delay, "frames", found, why=one_row)
        found = _layer(f"{place}.throughput")
        yield Row("table-1", f"{name}: throughput", "IV", rate, "frames/s", found, why=slower)
    ways = "ours: a block for each multiplier and way, and two for the update"
    for letter, place, blocks, kilobits in (("φ", "phi", 32, 272.9), ("ψ", "psi", 38, 1446.6)):
        name, found = f"listing 1, {letter}", _layer(f"{place}.dsps")
        slower = f"{ways}; {why}" if letter == "ψ" else ways
        yield Row("table-3", f"{name}: DSP blocks", "IV", blocks, "blocks", found, why=slower)
        ram = _layer(f"{place}.ram")
        yield Row("table-3", f"{name}: RAM, estimated", "IV", kilobits, "Kb", ram, why=_MEMORY)


_TARGET = "the table's target is an input: the fewest DSP blocks that reach it"
_BOUND = "the paper's DRAM, DSP blocks and clock bound any plan of the network at 400.5 frames/s"
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
            _plans(one("cluster.mobilenet_v2.predicted")),
            _mobilenet(one("throughput")),
            why=f"theirs: measured, not optimised; ours: planned, then timed by RTL's flow model; {_BOUND}",
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates",
            "V",
            359.0,
            "frames/s",
            _plans(one("cluster.mobilenet_v2.predicted_with_updates")),
            _mobilenet(one("throughput_with_update")),
            why=_BATCH,
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates: of the arithmetic's peak",
            "V",
            35.9,
            "%",
            _mobilenet(_SHARED),
            why=_BATCH,
        ),
        *(
            Row(
                "section-V",
                f"example CNN: {what}",
                "V",
                millions,
                "M",
                Measurement(_EXAMPLE, value, folder=True, place="plan"),
            )
            for what, millions, value in (("parameters", 1.8, _WHOLE), ("… of the dense layer", 1.0, _DENSE))
        ),
        Row(
            "3",
            "listing 1 on four Arria 10: throughput",
            "IV",
            3906.0,
            "frames/s",
            Measurement(_LISTING, one("throughput"), folder=True, place="plan"),
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
            _plans(one("cluster.example_cnn.devices_9.dram_in_use.mean")),
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
