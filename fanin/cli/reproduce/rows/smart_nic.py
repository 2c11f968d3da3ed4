"""AI Smart NIC's numbers."""

from __future__ import annotations

from fanin.cli.reproduce.row import Figures, Fit, How, Measurement, Paper, Picture, Row, Value, ratio, saved

CONVENTIONAL, SMART, BFP = "conventional NIC", "smart NIC", "smart NIC with BFP"


def _model(value: Value) -> Measurement:
    return Measurement(("bench", "ring", "--models"), value, folder=True)


def _faster(nodes: int, batch: int, nic: str) -> Measurement:
    return _model(ratio(_iteration(nodes, batch, CONVENTIONAL), _iteration(nodes, batch, nic)))


def _iteration(nodes: int, batch: int, nic: str) -> str:
    return f"B = {batch}, {nodes} nodes, {nic}"


def _ideal(figures: Figures) -> float:
    """Throughput of 32 nodes, in % of 32 times that of one."""
    return 100 * figures[_iteration(1, 1792, SMART)] / figures[_iteration(32, 1792, SMART)]


def _naive(figures: Figures) -> float:
    """An iteration of the naive scheme over one of the overlapped."""
    naive, overlapped = (
        sum(value for name, value in figures.items() if name.startswith(f"figure 2a: {scheme},"))
        for scheme in ("naive", "overlapped")
    )
    return naive / overlapped


def _furthest(figures: Figures) -> float:
    """The largest deviation of an iteration from the formula, in %."""
    return max(value for name, value in figures.items() if name.endswith(": off the model"))


def _added(figures: Figures) -> float:
    """All-reduce and BFP, in % of the LUTs of a node."""
    node = "ring node, 8 lanes, 40 Gb/s"
    parts = sum(figures[f"{node}: {part}, LUTs"] for part in ("all-reduce", "BFP"))
    return 100 * parts / figures[f"{node}: total, LUTs"]


_PROTOTYPE = "theirs: six CPUs with FPGAs; ours: emitted Verilog; the same formula beside both"
_SHIM = "their shim has PCIe and a MAC, ours has not; an Arria 10 adds in DSP blocks, an UltraScale+ in LUTs"
_EXPOSED = "what is left of an exposed time is a small difference of large ones"

PAPER = Paper(
    name="smart-nic",
    title="FPGA-based AI Smart NICs for Scalable Distributed AI Training Systems",
    rows=(
        Row("2a", "naive over overlapped iteration", "III", 1.85, "×", How.MODEL, _model(_naive)),
        Row(
            "2a",
            "exposed all-reduce, naive over overlapped",
            "III",
            50.0,
            "×",
            How.MODEL,
            _model(ratio("figure 2a: naive, exposed all-reduce", "figure 2a: overlapped, exposed all-reduce")),
            why=_EXPOSED,
        ),
        Row(
            "4a",
            "6 nodes, B = 448: time that NIC and BFP save",
            "V-B",
            40.0,
            "%",
            How.MODEL,
            _model(saved(_iteration(6, 448, BFP), _iteration(6, 448, CONVENTIONAL))),
        ),
        Row(
            "4b",
            "32 nodes, B = 448: speed-up by NIC and BFP",
            "V-B",
            2.5,
            "×",
            How.MODEL,
            _faster(32, 448, BFP),
        ),
        Row(
            "4b", "6 nodes, B = 1792: speed-up by the NIC", "V-B", 1.1, "×", How.MODEL, _faster(6, 1792, SMART)
        ),
        Row(
            "4b",
            "32 nodes, B = 1792: speed-up by NIC and BFP",
            "V-B",
            1.4,
            "×",
            How.MODEL,
            _faster(32, 1792, BFP),
        ),
        Row("4b", "32 nodes, B = 1792: of the ideal", "V-B", 100.0, "%", How.MODEL, _model(_ideal)),
        Row(
            "4b",
            "iterations off the formula, at most",
            "V-B",
            3.0,
            "%",
            How.RTL,
            Measurement(("bench", "ring-training", "--part", "scaled"), _furthest, folder=True),
            why=_PROTOTYPE,
            slow=True,
        ),
        Row(
            "table-1",
            "8 lanes: all-reduce and BFP, of the logic",
            "V-A",
            100 * 5_090 / 69_570,
            "%",
            How.SYNTHESIS,
            Measurement(("bench", "area", "--part", "ring"), _added),
            why=_SHIM,
            slow=True,
        ),
    ),
    fits=(
        Fit(
            "iteration",
            "a worker's FLOPS, the NIC's additions; α, γ of MPI's ring, on one thread and two",
            "figures 2a, 4a and 4b: 51 %, 18 %, 37 %, 95 %, 1.8×, 1.4×",
        ),
    ),
    pictures=(
        Picture(
            "4b",
            "an iteration of 20 layers of 2048², B = 448",
            "nodes",
            "ms",
            r"B = 448, (?P<x>\d+) nodes, (?P<series>(conventional|smart) NIC( with BFP)?)",
        ),
    ),
    not_here=(
        "Figure 4a's 10 % of the backward pass: what its 11 % are, which are an input.",
        "Figure 2b: MPI's collectives over nodes; a picture without numbers.",
        "Table I's ALMs, M20Ks and DSPs: an Arria 10's, which no open tool maps to; figure: docs, bench area.",
    ),
)
