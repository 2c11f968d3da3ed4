"""Rows of the paper NADA: its numbers, their measurements, and explanations of differences."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.evaluation.reproduce.row import Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.value import Value, extreme, figure_value, quotient, ratio, times, total

_PLANS_BENCH = ("bench", "cluster", "--part", "plans")
_MOBILENET_PLAN = ("plan", "mobilenet_v2", "arria10x6", "--time-limit", "40")
_EXAMPLE_PLAN = ("plan", "example_cnn", "arria10x6", "--time-limit", "8")
_LISTING_PLAN = ("plan", "listing1", "arria10x4", "--time-limit", "10")
_FEWEST_DEVICES = 3  # devices of figure 5's first point, to which its other points are relative
_QUICK_DEVICES = 6  # most devices of the quick sweep; up to 6 the paper's plans have one part


def _plans_measurement(value: Value) -> Measurement:
    """Return a measurement by ``fanin bench cluster --part plans``."""
    return Measurement(_PLANS_BENCH, value)


def _mobilenet_plan(value: Value) -> Measurement:
    """Return a measurement by ``fanin plan``, of MobileNetV2 on six devices."""
    return Measurement(_MOBILENET_PLAN, value, folder=True, id_prefix="plan")


def _layer_measurement(name: str) -> Measurement:
    """Return the measurement of a figure of listing 1's layers."""
    return Measurement(("bench", "plan", "--part", "layers"), figure_value(f"plan.listing_1.{name}"))


def _best_throughput(devices: int) -> Value:
    """Return the frames per s of the best plan, in one part or in several."""
    return extreme(max, f"cluster.example_cnn.devices_{devices}.mp_*.planned")


def _figure_5_row(devices: int) -> Row:
    """Return the row of a point of figure 5, relative to the first point."""
    full_measurement = _plans_measurement(
        quotient(_best_throughput(devices), _best_throughput(_FEWEST_DEVICES))
    )
    sweep = (
        *("plan", "example_cnn", f"arria10x{_QUICK_DEVICES}"),
        *("--devices", f"{_FEWEST_DEVICES}..{_QUICK_DEVICES}", "--time-limit", "8"),
    )
    # The sweep's output has a plan for each number of devices, ``_FEWEST_DEVICES`` first.
    throughput, base_throughput = f"plans.{devices - _FEWEST_DEVICES}.throughput", "plans.0.throughput"
    quick_measurement = Measurement(sweep, ratio(throughput, base_throughput), folder=True, id_prefix="plan")
    has_quick = devices <= _QUICK_DEVICES
    return Row(
        "5",
        f"example CNN: {devices} devices over {_FEWEST_DEVICES}",
        "V",
        devices / _FEWEST_DEVICES,
        "×",
        full_measurement,
        quick_measurement if has_quick else None,
        explanation=_DRAM_NOTE if devices > 4 else "",
        slow=not has_quick,
        series="the best of one, two and four parts",
        x=devices,
    )


_PEAK_PERCENT = times(
    0.1,
    figure_value("throughput_with_update"),
    "100 × throughput_with_update ÷ 1000, the paper's 1.8 TFLOP/s at 1.8 GFLOP a frame",
)
_PARAMETER_WORDS = "layers.*.parameter_words"
_MILLIONS_OF_PARAMETERS = times(1e-6, total(_PARAMETER_WORDS), f"sum of {_PARAMETER_WORDS}, in millions")
_MILLIONS_OF_DENSE_LAYER = times(
    1e-6, extreme(max, _PARAMETER_WORDS), f"max of {_PARAMETER_WORDS}, in millions"
)


def _table_rows() -> Iterator[Row]:
    """Yield rows of tables I and III."""
    psi_rate = "no divisor of ψ's dimensions gives 12 multiply–adds a cycle: ours does 16"
    delay_note = "rows of the first window and two more; the paper's formula is not given"
    for letter, layer_id, delay, rate in (("φ", "phi", 0.23, 3906.25), ("ψ", "psi", 0.91, 4069.01)):
        name, explanation = f"listing 1, {letter}", psi_rate if letter == "ψ" else _TARGET_NOTE
        measurement = _layer_measurement(f"{layer_id}.induced_delay")
        yield Row(
            "table-1", f"{name}: induced delay", "IV", delay, "frames", measurement, explanation=delay_note
        )
        measurement = _layer_measurement(f"{layer_id}.throughput")
        yield Row(
            "table-1", f"{name}: throughput", "IV", rate, "frames/s", measurement, explanation=explanation
        )
    dsp_note = "ours: a block for each multiplier and way, and two for the update"
    for letter, layer_id, blocks, kilobits in (("φ", "phi", 32, 272.9), ("ψ", "psi", 38, 1446.6)):
        name, measurement = f"listing 1, {letter}", _layer_measurement(f"{layer_id}.dsps")
        explanation = f"{dsp_note}; {psi_rate}" if letter == "ψ" else dsp_note
        yield Row(
            "table-3", f"{name}: DSP blocks", "IV", blocks, "blocks", measurement, explanation=explanation
        )
        ram = _layer_measurement(f"{layer_id}.ram")
        yield Row("table-3", f"{name}: RAM, estimated", "IV", kilobits, "Kb", ram, explanation=_MEMORY_NOTE)


_TARGET_NOTE = "the table's target is an input: the fewest DSP blocks that reach it"
_BOUND_NOTE = "the paper's DRAM, DSP blocks and clock bound any plan of the network at 400.5 frames/s"
_BATCH_NOTE = "the paper states no batch for it; ours: 256"
_DRAM_NOTE = (
    "from five devices on one layer's DRAM allows 508 frames/s; what the paper's layers take of DRAM is not "
    "printed"
)
_MEMORY_NOTE = "every memory of our components; queues of the paper's first layer are not described"
_IDLE_DSP_NOTE = (
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
            _plans_measurement(figure_value("cluster.mobilenet_v2.predicted")),
            _mobilenet_plan(figure_value("throughput")),
            explanation="theirs: measured, not optimised; ours: planned, then timed by RTL's flow model; "
            f"{_BOUND_NOTE}",
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates",
            "V",
            359.0,
            "frames/s",
            _plans_measurement(figure_value("cluster.mobilenet_v2.predicted_with_updates")),
            _mobilenet_plan(figure_value("throughput_with_update")),
            explanation=_BATCH_NOTE,
        ),
        Row(
            "section-V",
            "MobileNetV2 with updates: of the arithmetic's peak",
            "V",
            35.9,
            "%",
            _mobilenet_plan(_PEAK_PERCENT),
            explanation=_BATCH_NOTE,
        ),
        *(
            Row(
                "section-V",
                f"example CNN: {quantity}",
                "V",
                millions,
                "M",
                Measurement(_EXAMPLE_PLAN, value, folder=True, id_prefix="plan"),
            )
            for quantity, millions, value in (
                ("parameters", 1.8, _MILLIONS_OF_PARAMETERS),
                ("… of the dense layer", 1.0, _MILLIONS_OF_DENSE_LAYER),
            )
        ),
        Row(
            "3",
            "listing 1 on four Arria 10: throughput",
            "IV",
            3906.0,
            "frames/s",
            Measurement(_LISTING_PLAN, figure_value("throughput"), folder=True, id_prefix="plan"),
            explanation=_IDLE_DSP_NOTE,
        ),
        *_table_rows(),
        *map(_figure_5_row, range(4, 10)),
        Row(
            "6b",
            "example CNN on nine devices: DRAM in use, mean",
            "V",
            97.0,
            "%",
            _plans_measurement(figure_value("cluster.example_cnn.devices_9.dram_in_use.mean")),
            explanation=f"the paper's plan has four parts, our best has one: {_DRAM_NOTE}",
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
