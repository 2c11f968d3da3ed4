"""AI Smart NIC's numbers."""

from __future__ import annotations

from fanin.evaluation.reproduce.row import (
    Figures,
    Fit,
    How,
    Measurement,
    Paper,
    Picture,
    Row,
    Value,
    extreme,
    inverse,
    one,
    percent,
    ratio,
    saved,
)

CONVENTIONAL, SMART, BFP = "conventional NIC", "smart NIC", "smart NIC with BFP"
_ITERATION = "iteration"  # the model of section IV-C, and MPI's ring on the hosts


def _model(value: Value) -> Measurement:
    return Measurement(("bench", "ring", "--models"), value, folder=True)


def _iteration(nodes: int, batch: int, nic: str) -> str:
    return f"B = {batch}, {nodes} nodes, {nic}"


def _naive(figures: Figures) -> float:
    """The sum of “figure 2a: naive, …” ÷ the sum of “figure 2a: overlapped, …”."""
    naive, overlapped = (
        sum(value for name, value in figures.items() if name.startswith(f"figure 2a: {scheme},"))
        for scheme in ("naive", "overlapped")
    )
    return naive / overlapped


def _part(name: str, unit: str) -> str:
    return f"ring node, 8 lanes, 40 Gb/s: {name}, {unit}"


def _added(unit: str) -> Value:
    return percent(_part("all-reduce and BFP", unit), _part("total", unit))


def _faster(nodes: int, batch: int, nic: str, paper: float) -> Row:
    """A point of figure 4b, as the text has it: over conventional NICs."""
    series = f"B = {batch}, {nic}"
    found = _model(one(f"figure 4b: B = {batch}: {nic}, {nodes} nodes"))
    what = f"{nodes} nodes, {series}: speed-up"
    return Row("4b", what, "V-B", paper, "×", How.MODEL, found, model=_ITERATION, series=series, x=nodes)


def _area(what: str, paper: float, unit: str, value: Value, why: str) -> Row:
    measurement = Measurement(("bench", "area", "--part", "ring"), value)
    return Row("table-1", what, "V-A", paper, unit, How.SYNTHESIS, measurement, why=why, slow=True)


def _kept(figures: Figures) -> float:
    """The least of 100 × “NETWORK: BFP16: accuracy” ÷ “NETWORK: none: accuracy”."""
    networks = ("cnn", "residual", "templates")
    return min(
        100 * figures[f"{name}: BFP16: accuracy"] / figures[f"{name}: none: accuracy"] for name in networks
    )


def _rate(codec: str, place: int) -> Measurement:
    command = ("codec", "verify", "--codec", codec, "--rtl", "--values", "100000")
    return Measurement(command, inverse(f"checks.{place}.cycles_per_group"))


def _fit(what: str, paper: str, claimed: float, unit: str, name: str, figure: str) -> Fit:
    return Fit(_ITERATION, what, paper, claimed, unit, _model(one(name)), figure)


def _fit_at(what: str, batch: int, claimed: float) -> Fit:
    """A point of figure 4b, at 32 nodes."""
    series = f"B = {batch}, {SMART}"
    found = _model(one(f"B = {batch}, 32 nodes: faster"))
    return Fit(_ITERATION, what, f"32 nodes, {series}: speed-up", claimed, "×", found, "4b", series, 32)


_OFF = r".+: off the model"
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
            How.MODEL,
            _model(_naive),
            model=_ITERATION,
        ),
        Row(
            "2a",
            "exposed all-reduce, naive over overlapped",
            "III",
            50.0,
            "×",
            How.MODEL,
            _model(ratio("figure 2a: naive, exposed all-reduce", "figure 2a: overlapped, exposed all-reduce")),
            why=_EXPOSED,
            model=_ITERATION,
        ),
        Row(
            "3a",
            "BFP16: compression ratio",
            "IV-B",
            3.8,
            "×",
            How.TIED,
            _model(one("smart NIC: BFP16")),
            why="136 bits for 16 values, which is 3.76",
        ),
        Row(
            "3a",
            "BFP compressor: words of 512 bits a cycle",
            "I",
            1.0,
            "words",
            How.RTL,
            _rate("bfp", 0),
            why=_FRAMES,
        ),
        Row(
            "3a",
            "BFP16: of the accuracy without it, least",
            "IV-B",
            100.0,
            "%",
            How.TIED,
            Measurement(
                (
                    *("bench", "codec-training", "--figure", "14"),
                    *("--networks", "cnn", "residual", "templates", "--seeds", "2"),
                ),
                _kept,
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
            How.MODEL,
            _model(saved(_iteration(6, 448, BFP), _iteration(6, 448, CONVENTIONAL))),
            model=_ITERATION,
        ),
        _faster(6, 448, BFP, 1.6),
        _faster(32, 448, BFP, 2.5),
        _faster(6, 1792, SMART, 1.1),
        Row(
            "4b",
            "32 nodes, B = 1792: speed-up by BFP over the NIC without it",
            "V-B",
            1.0,
            "×",
            How.MODEL,
            _model(ratio(_iteration(32, 1792, SMART), _iteration(32, 1792, BFP))),
            model=_ITERATION,
        ),
        Row(
            "4b",
            "32 nodes, B = 1792: of the ideal",
            "V-B",
            100.0,
            "%",
            How.MODEL,
            _model(percent(_iteration(1, 1792, SMART), _iteration(32, 1792, SMART))),
            model=_ITERATION,
        ),
        Row(
            "4b",
            "iterations off the formula, at most",
            "V-B",
            3.0,
            "%",
            How.RTL,
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
            "B = 448, 6 nodes: time saved",
            "4a",
        ),
        _fit(
            "α of MPI's ring",
            "6 nodes, B = 448: exposed all-reduce that the NIC saves",
            37.0,
            "%",
            "B = 448, 6 nodes: exposed all-reduce saved",
            "4a",
        ),
        _fit(
            "the NIC's additions",
            "6 nodes, B = 448: exposed all-reduce that NIC and BFP save",
            95.0,
            "%",
            "B = 448, 6 nodes, BFP: exposed all-reduce saved",
            "4a",
        ),
        _fit(
            "γ of MPI's ring, one thread",
            "naive: exposed all-reduce, of the time",
            51.0,
            "%",
            "B = 1792, 6 nodes, naive: all-reduce exposed",
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
            r"figure 2b: (?P<series>.+), (?P<x>\d+) nodes",
        ),
        Picture(
            "4b",
            "speed-up over conventional NICs",
            "nodes",
            "×",
            r"figure 4b: (?P<batch>B = \d+): (?P<series>.+), (?P<x>\d+) nodes",
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
