"""Rows of the paper P4SGD: its numbers, their measurements, and explanations of differences."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.evaluation.origins.graph import identifier
from fanin.evaluation.reproduce.row import Fit, Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.value import figure_value, ratio

_LATENCY_FIGURE = "allreduce.loss_0.p4sgd.workers_8.mean_ns"
_SWITCH_NOTE = (
    "of ours, 612 ns (153 of 159 cycles) are switch and links, which are inputs, and 24 ns the nodes', in "
    "RTL (….given_ns and ….node_ns); the paper does not state its switch apart"
)
_B_OF_ALL_NOTE = (
    "B samples of all workers, as section II has it; for 2 and 4.8 at B = 16 each worker would send 1,110 and "
    "540 Gb/s of gradients, and its link has 100"
)
_B_OF_ONE_NOTE = (
    "B samples of each data-parallel worker, by which the paper's three ratios fit links of 100 Gb/s"
)
_MEMORY_RATE_NOTE = "reads its memory at the share of the peak that is fitted to CPUSync"
_OVERLAP_NOTE = (
    "RTL runs forward of the next mini-batch beside backward of the last micro-batch, so it is below"
)
_NO_DSPS_NOTE = "theirs: Vivado's count, with 4,096 DSPs beside; ours: yosys, mapped without DSPs"
_STAGES_NOTE = (
    "with 65,536 slots a stage holds one of our three registers of state, or two of eight sums and two marks "
    "for trees; with 32,768 slots all of it takes 4 stages"
)
_CASE = "1 worker, D 16384, B 64"


def _figure_9_rows(name: str, batch: int, claimed: float) -> Iterator[Row]:
    """Yield a row for each reading of B: of all workers, and per worker."""
    for reading, explanation in (("", _B_OF_ALL_NOTE), (" a worker", _B_OF_ONE_NOTE)):
        figure = figure_value(
            identifier("glm.figure_9", name, f"b {batch}{reading}", "data over model parallel")
        )
        measurement = Measurement(("bench", "glm", "--figure", "9"), figure, folder=True)
        quantity = f"{name}, B = {batch}{reading}: data- over model-parallel"
        yield Row("9", quantity, "V-C", claimed, "×", measurement, explanation=explanation, slow=True)


def _loss_row(name: str, part: str, gamma: int, bits: int) -> Row:
    """Return the row of a loss after ten epochs, relative to float64's. ``part``: samples of the set in use."""
    id_prefix = f"glm.figure_14.{name}.gamma_{gamma}"
    measurement = Measurement(
        ("bench", "glm", "--figure", "14", "--precision", "1,2,3,4,8", "--rtl", "1"),
        ratio(f"{id_prefix}.{bits}_bits.epoch_10", f"{id_prefix}.float64.epoch_10"),
        folder=True,
        data={data_set: ("--data", f"{data_set}={{}}") for data_set in ("rcv1", "avazu")},
    )
    return Row(
        "14",
        f"{name} {part}, γ = {gamma}, 10 epochs: loss of {bits} bits over float64's",
        "V-A, V-E",
        1.0,
        "×",
        measurement,
        explanation="the paper: above 3 bits the same number of epochs, to roughly the same loss",
        stand_in="synthetic samples, as many, as wide and as sparse",
        data_set=name,
        slow=True,
    )


def _gpu_on_avazu_row(quantity: str, claimed: float, unit: str, explanation: str) -> Row:
    figure = figure_value(f"glm.table_4.gpusync.avazu.{'joules' if unit == 'J' else 'seconds'}")
    measurement = Measurement(("bench", "glm", "--figure", "15"), figure, folder=True)
    return Row(
        "table-4", quantity, "V-F, V-G", claimed, unit, measurement, explanation=explanation, model="GPUSync"
    )


def _memory_row(quantity: str, figure: str, claimed: float, unit: str, explanation: str) -> Row:
    value = figure_value(f"glm.memory.engines_8.{figure}")
    measurement = Measurement(("bench", "glm", "--part", "memory"), value, folder=True)
    return Row("section-VII", quantity, "VII", claimed, unit, measurement, explanation=explanation, slow=True)


def _equation_row(number: int, kind: str, explanation: str = "") -> Row:
    """Return the row of a mini-batch's cycles relative to an equation of the paper."""
    id_prefix = identifier("glm.table_1", kind, "workers_1.d_16384.b_64")
    value = ratio(f"{id_prefix}.cycles", f"{id_prefix}.equation_{number}")
    measurement = Measurement(("bench", "glm", "--figure", "2"), value, folder=True)
    quantity = f"{kind}, {_CASE}: cycles over equation {number}"
    return Row("table-1", quantity, "II, III-B", 1.0, "×", measurement, explanation=explanation, slow=True)


def _area_row(quantity: str, claimed: float, unit: str, figure: str) -> Row:
    value = figure_value(f"area.glm.u280.engines.{figure}")
    measurement = Measurement(("bench", "area", "--part", "glm"), value)
    return Row("table-3", quantity, "V-A", claimed, unit, measurement, explanation=_NO_DSPS_NOTE, slow=True)


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
            Measurement(("bench", "allreduce"), figure_value(_LATENCY_FIGURE), folder=True),
            Measurement(
                ("bench", "allreduce", "--workers", "8", "--loss", "0"),
                figure_value(_LATENCY_FIGURE),
                folder=True,
            ),
            explanation=_SWITCH_NOTE,
        ),
        *_figure_9_rows("rcv1", 16, 2.0),
        *_figure_9_rows("amazon_fashion", 16, 4.8),
        *_figure_9_rows("amazon_fashion", 1024, 1.0),
        _equation_row(2, "vanilla MP"),
        _equation_row(3, "P4SGD MP", _OVERLAP_NOTE),
        Row(
            "13",
            "GPUSync over P4SGD, most of 1 to 8 workers and B = 16 and 1,024",
            "I, VII",
            9.3,
            "×",
            Measurement(
                ("bench", "glm", "--figure", "13"),
                figure_value("glm.figure_13.gpusync_over_p4sgd.most"),
                folder=True,
            ),
            explanation="the paper does not say of which case; here rcv1, B = 16, 8 workers",
            model="GPUSync",
        ),
        *(_loss_row("rcv1", "whole", gamma, bits) for gamma in (1, 4) for bits in (4, 8)),
        *(
            _loss_row("avazu", "50,000 of 40,428,967 samples", gamma, bits)
            for gamma in (1, 4)
            for bits in (4, 8)
        ),
        Row(
            "section-IV",
            "Tofino, 64K slots: stages with state and sums",
            "IV-B",
            4.0,
            "stages",
            Measurement(("bench", "switch"), figure_value("switch.tofino.slots_65536.stages")),
            explanation=_STAGES_NOTE,
        ),
        _area_row("8 engines: LUTs", 188_000.0, "LUTs", "luts"),
        _area_row("8 engines: flip-flops", 904_000.0, "flip-flops", "flip_flops"),
        _gpu_on_avazu_row("GPUSync, avazu: time", 10.9, "s", _MEMORY_RATE_NOTE),
        _gpu_on_avazu_row(
            "GPUSync, avazu: energy", 10028.0, "J", f"{_MEMORY_RATE_NOTE}; the watts, 920, are the paper's"
        ),
        _memory_row(
            "8 engines: of HBM's bandwidth",
            "channel_a_port.of_the_card",
            25.0,
            "%",
            "two ports of 256 bits an engine, at 250 MHz, of 32 at 450 MHz",
        ),
        _memory_row(
            "512 bits a cycle from one pseudo-channel, 225 MHz: cycles a word",
            "channel_an_engine_225_mhz.cycles_a_word",
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
            ("glm.figure_9.epoch.*",),
            log=True,
        ),
        *(
            Picture(
                "14",
                f"{name}, γ = {gamma}",
                "epoch",
                "logistic loss",
                (f"glm.figure_14.{name}.gamma_{gamma}.*",),
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
                (f"glm.figure_13.{name}.*",),
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
                (f"glm.figure_15.{name}.*",),
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
        "Table III's transport, PCI Express, HBM and RAM: Vivado's count; ours: fanin bench area --part glm, "
        "without PCI Express and HBM.",
        "Table III's 4,096 DSPs: engines of ours are mapped without.",
        "Section IV-B's 70.83 % of a stage's SRAM: the compiler's count; ours has other stages.",
    ),
)
