"""Rows of the paper AI Smart NIC: each of its numbers, the measurement beside it, and why they differ."""

from __future__ import annotations

from dataclasses import replace

from fanin.evaluation.origins.graph import identifier
from fanin.evaluation.reproduce.row import Fit, Follows, Measurement, Paper, Picture, Row
from fanin.evaluation.reproduce.value import (
    Figures,
    Value,
    extreme,
    inverse,
    one,
    percent,
    quotient,
    ratio,
    saved,
    total,
)

CONVENTIONAL, SMART, BFP = "conventional NIC", "smart NIC", "smart NIC with BFP"
_ITERATION = "iteration"  # the model of section IV-C, and MPI's ring on the hosts


def _model(value: Value) -> Measurement:
    return Measurement(("bench", "ring", "--models"), value, folder=True)


def _iteration(nodes: int, batch: int, nic: str) -> str:
    return identifier("ring.iteration", f"b {batch}", f"nodes {nodes}", nic)


def _part(name: str, unit: str) -> str:
    return identifier("area.ring.8_lanes", name, unit)


def _added(unit: str) -> Value:
    return percent(_part("all-reduce and BFP", unit), _part("total", unit))


def _bfp_time(facts: Figures) -> float:
    """Time with NIC and BFP over the baseline's, by the paper's own numbers of B = 448 on 6 nodes.

    The baseline's time is computing C, longer by ``slower`` (two thirds of C are the backward pass), and the
    exposed all-reduce E: slower·C + E = 1. With the NIC it is C + (1 − 37 %)·E = 1 − 18 %, with BFP
    C + (1 − 95 %)·E.
    """
    place = "ring.fact.b_448.nodes_6"
    time = 1 - facts[f"{place}.smart_nic.time_saved"] / 100
    left, with_bfp = (1 - facts[f"{place}.{nic}.exposed_saved"] / 100 for nic in ("smart_nic", "bfp"))
    slower = 1 + 2 / 3 * (facts["ring.slower_backward"] - 1)
    exposed = (1 - slower * time) / (1 - slower * left)
    return time + (with_bfp - left) * exposed


def _naive_over_overlapped(facts: Figures) -> float:
    """Return naive over overlapped time, from the share that the overlapped iteration exposes in the model.

    The naive iteration exposes 36 times as much there, in the paper 50 times.
    """
    naive = facts["ring.fact.b_1792.nodes_6.naive.exposed"] / 100
    slower = 1 + 2 / 3 * (facts["ring.slower_backward"] - 1)
    return 1 / ((1 - naive) * slower + naive / facts["ring.exposed_naive_over_overlapped"])


_BFP_TIME = Follows("18, 37, 95 and 11 %, to which the model is fitted", lambda f: 100 * (1 - _bfp_time(f)))
_BFP_FASTER = Follows("18, 37, 95 and 11 %, to which the model is fitted", lambda f: 1 / _bfp_time(f))
_NAIVE = Follows("51 and 11 %, and 1/36 of the exposed time, the next row", _naive_over_overlapped)


def _faster(nodes: int, batch: int, nic: str, paper: float, follows: Follows | None = None) -> Row:
    """Return the row of a point of figure 4b, relative to conventional NICs as in the text."""
    series = f"B = {batch}, {nic}"
    found = _model(one(identifier("ring.figure_4b", f"b {batch}", nic, f"nodes {nodes}")))
    what = f"{nodes} nodes, {series}: speed-up"
    row = Row("4b", what, "V-B", paper, "×", found, model=_ITERATION, follows=follows)
    return replace(row, series=series, x=nodes)


def _area(what: str, paper: float, unit: str, value: Value, why: str) -> Row:
    measurement = Measurement(("bench", "area", "--part", "ring"), value)
    return Row("table-1", what, "V-A", paper, unit, measurement, why=why, slow=True)


def _kept(figures: Figures) -> float:
    return min(100 * figures[with_bfp] / figures[without] for with_bfp, without in zip(*_ACCURACY, strict=True))


_ACCURACY = tuple(
    [f"inceptionn.training.{network}.{codec}.accuracy" for network in ("cnn", "residual", "templates")]
    for codec in ("bfp16", "none")
)
_LEAST_KEPT = Value(
    "min of 100 × inceptionn.training.NETWORK.bfp16.accuracy ÷ ….none.accuracy",
    (*_ACCURACY[0], *_ACCURACY[1]),
    _kept,
)


def _rate(codec: str, place: int) -> Measurement:
    command = ("codec", "verify", "--codec", codec, "--rtl", "--values", "100000")
    return Measurement(command, inverse(f"checks.{place}.cycles_per_group"), place="codec_verify")


def _fit(what: str, paper: str, claimed: float, unit: str, name: str, figure: str) -> Fit:
    return Fit(_ITERATION, what, paper, claimed, unit, _model(one(f"ring.fact.{name}.fitted")), figure)


def _fit_at(what: str, batch: int, claimed: float) -> Fit:
    """Return the fit to a point of figure 4b, at 32 nodes."""
    series = f"B = {batch}, {SMART}"
    found = _model(one(f"ring.fact.b_{batch}.nodes_32.smart_nic.faster.fitted"))
    return Fit(_ITERATION, what, f"32 nodes, {series}: speed-up", claimed, "×", found, "4b", series, 32)


_OFF = "ring_training.*.off"
_PROTOTYPE = "theirs: six CPUs with FPGAs; ours: emitted Verilog; the same formula beside both"
_SHIM = "their shim has PCIe and a MAC, ours has not; an Arria 10 adds in DSP blocks, an UltraScale+ in LUTs"
_RAM = "theirs: M20Ks of 20 kb; ours: block RAMs of 36 kb, of which BFP takes none: its queues are LUTs"
_EXPOSED = "what is left of an exposed time is a small difference of large ones"
_SMALL = "the paper says: minimal; ours: three small networks, two trainings each"
_FRAMES = "a frame's first word waits for its block"

PAPER = Paper(
    name="smart-nic",
    title="FPGA-based AI Smart NICs for Scalable Distributed AI Training Systems",
    rows=(
        Row(
            "2a",
            "naive over overlapped iteration",
            "III",
            1.85,
            "×",
            _model(quotient(total("ring.figure_2a.naive.*"), total("ring.figure_2a.overlapped.*"))),
            model=_ITERATION,
            follows=_NAIVE,
        ),
        Row(
            "2a",
            "exposed all-reduce, naive over overlapped",
            "III",
            50.0,
            "×",
            _model(
                ratio("ring.figure_2a.naive.exposed_all_reduce", "ring.figure_2a.overlapped.exposed_all_reduce")
            ),
            why=_EXPOSED,
            model=_ITERATION,
        ),
        Row(
            "3a",
            "BFP16: compression ratio",
            "IV-B",
            3.8,
            "×",
            _model(one("ring.bfp16.ratio")),
            why="136 bits for 16 values, which is 3.76",
        ),
        Row(
            "3a",
            "BFP compressor: words of 512 bits a cycle",
            "I",
            1.0,
            "words",
            _rate("bfp", 0),
            why=_FRAMES,
        ),
        Row(
            "3a",
            "BFP16: of the accuracy without it, least",
            "IV-B",
            100.0,
            "%",
            Measurement(
                (
                    *("bench", "codec-training", "--figure", "14"),
                    *("--networks", "cnn", "residual", "templates", "--seeds", "2"),
                ),
                _LEAST_KEPT,
                folder=True,
            ),
            why=_SMALL,
            slow=True,
        ),
        Row(
            "4a",
            "6 nodes, B = 448: time that NIC and BFP save",
            "V-B",
            40.0,
            "%",
            _model(saved(_iteration(6, 448, BFP), _iteration(6, 448, CONVENTIONAL))),
            model=_ITERATION,
            follows=_BFP_TIME,
        ),
        _faster(6, 448, BFP, 1.6, _BFP_FASTER),
        _faster(32, 448, BFP, 2.5),
        _faster(6, 1792, SMART, 1.1),
        Row(
            "4b",
            "32 nodes, B = 1792: speed-up by BFP over the NIC without it",
            "V-B",
            1.0,
            "×",
            _model(ratio(_iteration(32, 1792, SMART), _iteration(32, 1792, BFP))),
            model=_ITERATION,
        ),
        Row(
            "4b",
            "32 nodes, B = 1792: of the ideal",
            "V-B",
            100.0,
            "%",
            _model(percent(_iteration(1, 1792, SMART), _iteration(32, 1792, SMART))),
            model=_ITERATION,
        ),
        Row(
            "4b",
            "iterations off the formula, at most",
            "V-B",
            3.0,
            "%",
            Measurement(("bench", "ring-training", "--part", "scaled"), extreme(max, _OFF), folder=True),
            why=_PROTOTYPE,
            slow=True,
        ),
        _area("all-reduce and BFP, of the logic", 100 * 5_090 / 69_570, "%", _added("LUTs"), _SHIM),
        _area("all-reduce and BFP, of the memory", 100 * 166 / 534, "%", _added("block RAM"), _RAM),
        _area(
            "BFP over all-reduce, logic",
            2_857 / 2_233,
            "×",
            ratio(_part("BFP", "LUTs"), _part("all-reduce", "LUTs")),
            _SHIM,
        ),
    ),
    fits=(
        _fit(
            "a worker's FLOPS, B = 448",
            "6 nodes, B = 448: time that the NIC saves",
            18.0,
            "%",
            "b_448.nodes_6.smart_nic.time_saved",
            "4a",
        ),
        _fit(
            "α of MPI's ring",
            "6 nodes, B = 448: exposed all-reduce that the NIC saves",
            37.0,
            "%",
            "b_448.nodes_6.smart_nic.exposed_saved",
            "4a",
        ),
        _fit(
            "the NIC's additions",
            "6 nodes, B = 448: exposed all-reduce that NIC and BFP save",
            95.0,
            "%",
            "b_448.nodes_6.bfp.exposed_saved",
            "4a",
        ),
        _fit(
            "γ of MPI's ring, one thread",
            "naive: exposed all-reduce, of the time",
            51.0,
            "%",
            "b_1792.nodes_6.naive.exposed",
            "2a",
        ),
        _fit_at("γ of MPI's ring, two threads", 448, 1.8),
        _fit_at("a worker's FLOPS, B = 1792", 1792, 1.4),
    ),
    pictures=(
        Picture(
            "2b",
            "speed-up of four schemes of MPI, B = 1792",
            "nodes",
            "speed-up",
            ("ring.figure_2b.*",),
        ),
        Picture(
            "4b",
            "speed-up over conventional NICs",
            "nodes",
            "×",
            ("ring.figure_4b.*",),
        ),
    ),
    not_here=(
        "Figure 2b: MPI's collectives over nodes; a picture without numbers, drawn below by the model.",
        "Figure 3b: a trace without numbers; ours: fanin bench ring-training.",
        "Figure 4a's 10 % of the backward pass: what its 11 % are, which are an input.",
        "Table I's ALMs, M20Ks and DSPs themselves, and shares of the device: an Arria 10's, which no open "
        "tool maps to; ours: fanin bench area --part ring.",
    ),
)
