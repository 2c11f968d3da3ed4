"""Rows of the paper AI Smart NIC: its numbers, their measurements, and explanations of differences."""

from __future__ import annotations

from dataclasses import replace

from fanin.evaluation.origins.graph import identifier
from fanin.evaluation.reproduce.row import Derivation, Fit, Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.rows.codec_rate import COMPRESSOR, codec_rate
from fanin.evaluation.reproduce.value import (
    Figures,
    Value,
    extreme,
    figure_value,
    percent,
    quotient,
    ratio,
    saving,
    total,
)

CONVENTIONAL, SMART, BFP = "conventional NIC", "smart NIC", "smart NIC with BFP"
_ITERATION = "iteration"  # the model of section IV-C, and MPI's ring on the hosts


def _model(value: Value) -> Measurement:
    """Return the measurement of a number of the model of section IV-C."""
    return Measurement(("bench", "ring", "--models"), value, folder=True)


def _iteration_figure(nodes: int, batch: int, nic: str) -> str:
    """Return the identifier of an iteration's time. ``nic``: ``CONVENTIONAL``, ``SMART`` or ``BFP``."""
    return identifier("ring.iteration", f"b {batch}", f"nodes {nodes}", nic)


def _area_figure(name: str, unit: str) -> str:
    """Return the identifier of the area of a part of a ring NIC of 8 lanes."""
    return identifier("area.ring.8_lanes", name, unit)


def _added_percent(unit: str) -> Value:
    """Return the share of all-reduce and BFP in the NIC's area, in %."""
    return percent(_area_figure("all-reduce and BFP", unit), _area_figure("total", unit))


def _bfp_time(facts: Figures) -> float:
    """Return the time with NIC and BFP over the baseline's, from the paper's own numbers of B = 448 on 6 nodes.

    The baseline's iteration takes 1: computing C, which an all-reduce on the host lengthens by the factor
    ``slower``, and the exposed all-reduce E. Only the backward pass, two thirds of C, is lengthened.

    - Baseline: slower·C + E = 1.
    - NIC: C + (1 − 37 %)·E = 1 − 18 %. With the equation above, this gives E.
    - NIC with BFP: C + (1 − 95 %)·E, the result.
    """
    prefix = "ring.fact.b_448.nodes_6"
    time = 1 - facts[f"{prefix}.smart_nic.time_saved"] / 100
    nic_exposed, bfp_exposed = (
        1 - facts[f"{prefix}.{nic}.exposed_saved"] / 100 for nic in ("smart_nic", "bfp")
    )
    slower = 1 + 2 / 3 * (facts["ring.slower_backward"] - 1)
    exposed = (1 - slower * time) / (1 - slower * nic_exposed)
    return time + (bfp_exposed - nic_exposed) * exposed


def _naive_over_overlapped(facts: Figures) -> float:
    """Return naive over overlapped time, from the naive time's share in which the all-reduce is exposed.

    If the naive iteration takes 1, the overlapped one takes ``slower`` times the naive computing, plus the
    exposed all-reduce, which is shorter by a factor. The naive share, 51 %, and the slower backward pass, 11 %,
    are the paper's. The factor is the model's, 36; the paper's is 50.
    """
    naive = facts["ring.fact.b_1792.nodes_6.naive.exposed"] / 100
    slower = 1 + 2 / 3 * (facts["ring.slower_backward"] - 1)
    return 1 / ((1 - naive) * slower + naive / facts["ring.exposed_naive_over_overlapped"])


_BFP_TIME = Derivation("18, 37, 95 and 11 %, to which the model is fitted", lambda f: 100 * (1 - _bfp_time(f)))
_BFP_FASTER = Derivation("18, 37, 95 and 11 %, to which the model is fitted", lambda f: 1 / _bfp_time(f))
# 11 %: ``ring.slower_backward``. 1/36: inverse of the model's number in the row after this one.
_NAIVE = Derivation("51 and 11 %, and 1/36 of the exposed time, the next row", _naive_over_overlapped)


def _figure_4b_row(
    nodes: int, batch: int, nic: str, claimed: float, derivation: Derivation | None = None
) -> Row:
    """Return the row of a point of figure 4b, relative to conventional NICs as in the text."""
    series = f"B = {batch}, {nic}"
    measurement = _model(figure_value(identifier("ring.figure_4b", f"b {batch}", nic, f"nodes {nodes}")))
    quantity = f"{nodes} nodes, {series}: speed-up"
    row = Row(
        figure="4b",
        quantity=quantity,
        section="V-B",
        claimed=claimed,
        unit="×",
        full=measurement,
        model=_ITERATION,
        derivation=derivation,
    )
    return replace(row, series=series, x=nodes)


def _area_row(quantity: str, claimed: float, unit: str, value: Value, explanation: str) -> Row:
    measurement = Measurement(("bench", "area", "--part", "ring"), value)
    return Row(
        figure="table-1",
        quantity=quantity,
        section="V-A",
        claimed=claimed,
        unit=unit,
        full=measurement,
        explanation=explanation,
        slow=True,
    )


_NETWORKS = ("cnn", "residual", "templates")


def _accuracy_figure(network: str, codec: str) -> str:
    return f"inceptionn.training.{network}.{codec}.accuracy"


def _least_kept_percent(figures: Figures) -> float:
    """Return the accuracy with BFP16 in % of that without a codec, for the network that loses most."""
    return min(
        100 * figures[_accuracy_figure(network, "bfp16")] / figures[_accuracy_figure(network, "none")]
        for network in _NETWORKS
    )


_LEAST_KEPT = Value(
    "min of 100 × inceptionn.training.NETWORK.bfp16.accuracy ÷ ….none.accuracy",
    tuple(_accuracy_figure(network, codec) for codec in ("bfp16", "none") for network in _NETWORKS),
    _least_kept_percent,
)


def _fit(fitted_input: str, claim: str, claimed: float, unit: str, name: str, figure: str) -> Fit:
    """Return a fit of the iteration's model. ``name``: the fact's identifier after ``ring.fact``."""
    return Fit(
        model=_ITERATION,
        fitted_input=fitted_input,
        claim=claim,
        claimed=claimed,
        unit=unit,
        measurement=_model(figure_value(f"ring.fact.{name}.fitted")),
        figure=figure,
    )


def _fit_at(fitted_input: str, batch: int, claimed: float) -> Fit:
    """Return the fit to a point of figure 4b, at 32 nodes."""
    series = f"B = {batch}, {SMART}"
    measurement = _model(figure_value(f"ring.fact.b_{batch}.nodes_32.smart_nic.faster.fitted"))
    return Fit(
        model=_ITERATION,
        fitted_input=fitted_input,
        claim=f"32 nodes, {series}: speed-up",
        claimed=claimed,
        unit="×",
        measurement=measurement,
        figure="4b",
        series=series,
        x=32,
    )


_DEVIATION_FIGURES = "ring_training.*.off"
_PROTOTYPE_NOTE = "theirs: six CPUs with FPGAs; ours: emitted Verilog; the same formula beside both"
_LOGIC_NOTE = (
    "their shim has PCIe and a MAC, ours has not; an Arria 10 adds in DSP blocks, an UltraScale+ in LUTs"
)
_RAM_NOTE = "theirs: M20Ks of 20 kb; ours: block RAMs of 36 kb, of which BFP takes none: its queues are LUTs"
_EXPOSED_NOTE = "what is left of an exposed time is a small difference of large ones"
_NETWORKS_NOTE = "the paper says: minimal; ours: three small networks, two trainings each"
_FRAMES_NOTE = "a frame's first word waits for its block"

PAPER = Paper(
    name="smart-nic",
    title="FPGA-based AI Smart NICs for Scalable Distributed AI Training Systems",
    rows=(
        Row(
            figure="2a",
            quantity="naive over overlapped iteration",
            section="III",
            claimed=1.85,
            unit="×",
            full=_model(quotient(total("ring.figure_2a.naive.*"), total("ring.figure_2a.overlapped.*"))),
            model=_ITERATION,
            derivation=_NAIVE,
        ),
        Row(
            figure="2a",
            quantity="exposed all-reduce, naive over overlapped",
            section="III",
            claimed=50.0,
            unit="×",
            full=_model(
                ratio("ring.figure_2a.naive.exposed_all_reduce", "ring.figure_2a.overlapped.exposed_all_reduce")
            ),
            explanation=_EXPOSED_NOTE,
            model=_ITERATION,
        ),
        Row(
            figure="3a",
            quantity="BFP16: compression ratio",
            section="IV-B",
            claimed=3.8,
            unit="×",
            full=_model(figure_value("ring.bfp16.ratio")),
            explanation="136 bits for 16 values, which is 3.76",
        ),
        Row(
            figure="3a",
            quantity="BFP compressor: words of 512 bits a cycle",
            section="I",
            claimed=1.0,
            unit="words",
            full=codec_rate("bfp", COMPRESSOR),
            explanation=_FRAMES_NOTE,
        ),
        Row(
            figure="3a",
            quantity="BFP16: of the accuracy without it, least",
            section="IV-B",
            claimed=100.0,
            unit="%",
            full=Measurement(
                (
                    *("bench", "codec-training", "--figure", "14"),
                    *("--networks", *_NETWORKS, "--seeds", "2"),
                ),
                _LEAST_KEPT,
                folder=True,
            ),
            explanation=_NETWORKS_NOTE,
            slow=True,
        ),
        Row(
            figure="4a",
            quantity="6 nodes, B = 448: time that NIC and BFP save",
            section="V-B",
            claimed=40.0,
            unit="%",
            full=_model(saving(_iteration_figure(6, 448, BFP), _iteration_figure(6, 448, CONVENTIONAL))),
            model=_ITERATION,
            derivation=_BFP_TIME,
        ),
        _figure_4b_row(6, 448, BFP, 1.6, _BFP_FASTER),
        _figure_4b_row(32, 448, BFP, 2.5),
        _figure_4b_row(6, 1792, SMART, 1.1),
        Row(
            figure="4b",
            quantity="32 nodes, B = 1792: speed-up by BFP over the NIC without it",
            section="V-B",
            claimed=1.0,
            unit="×",
            full=_model(ratio(_iteration_figure(32, 1792, SMART), _iteration_figure(32, 1792, BFP))),
            model=_ITERATION,
        ),
        Row(
            figure="4b",
            quantity="32 nodes, B = 1792: of the ideal",
            section="V-B",
            claimed=100.0,
            unit="%",
            full=_model(percent(_iteration_figure(1, 1792, SMART), _iteration_figure(32, 1792, SMART))),
            model=_ITERATION,
        ),
        Row(
            figure="4b",
            quantity="iterations off the formula, at most",
            section="V-B",
            claimed=3.0,
            unit="%",
            full=Measurement(
                ("bench", "ring-training", "--part", "scaled"), extreme(max, _DEVIATION_FIGURES), folder=True
            ),
            explanation=_PROTOTYPE_NOTE,
            slow=True,
        ),
        _area_row(
            quantity="all-reduce and BFP, of the logic",
            claimed=100 * 5_090 / 69_570,
            unit="%",
            value=_added_percent("LUTs"),
            explanation=_LOGIC_NOTE,
        ),
        _area_row(
            quantity="all-reduce and BFP, of the memory",
            claimed=100 * 166 / 534,
            unit="%",
            value=_added_percent("block RAM"),
            explanation=_RAM_NOTE,
        ),
        _area_row(
            quantity="BFP over all-reduce, logic",
            claimed=2_857 / 2_233,
            unit="×",
            value=ratio(_area_figure("BFP", "LUTs"), _area_figure("all-reduce", "LUTs")),
            explanation=_LOGIC_NOTE,
        ),
    ),
    fits=(
        _fit(
            fitted_input="a worker's FLOPS, B = 448",
            claim="6 nodes, B = 448: time that the NIC saves",
            claimed=18.0,
            unit="%",
            name="b_448.nodes_6.smart_nic.time_saved",
            figure="4a",
        ),
        _fit(
            fitted_input="α of MPI's ring",
            claim="6 nodes, B = 448: exposed all-reduce that the NIC saves",
            claimed=37.0,
            unit="%",
            name="b_448.nodes_6.smart_nic.exposed_saved",
            figure="4a",
        ),
        _fit(
            fitted_input="the NIC's additions",
            claim="6 nodes, B = 448: exposed all-reduce that NIC and BFP save",
            claimed=95.0,
            unit="%",
            name="b_448.nodes_6.bfp.exposed_saved",
            figure="4a",
        ),
        _fit(
            fitted_input="γ of MPI's ring, one thread",
            claim="naive: exposed all-reduce, of the time",
            claimed=51.0,
            unit="%",
            name="b_1792.nodes_6.naive.exposed",
            figure="2a",
        ),
        _fit_at("γ of MPI's ring, two threads", 448, 1.8),
        _fit_at("a worker's FLOPS, B = 1792", 1792, 1.4),
    ),
    pictures=(
        Picture(
            figure="2b",
            title="speed-up of four schemes of MPI, B = 1792",
            x="nodes",
            y="speed-up",
            patterns=("ring.figure_2b.*",),
        ),
        Picture(
            figure="4b",
            title="speed-up over conventional NICs",
            x="nodes",
            y="×",
            patterns=("ring.figure_4b.*",),
        ),
    ),
    not_here=(
        "Figure 2b: MPI's collectives over nodes; a picture without numbers, drawn below by the model.",
        "Figure 3b: a trace without numbers; ours: fanin bench ring-training.",
        "Figure 4a's backward pass, 10 % longer than without communication: an input of the model, which takes "
        "the 11 % of the text.",
        "Table I's ALMs, M20Ks and DSPs themselves, and shares of the device: an Arria 10's, which no open "
        "tool maps to; ours: fanin bench area --part ring.",
    ),
)
