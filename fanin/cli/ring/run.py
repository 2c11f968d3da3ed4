"""``fanin ring run``: one all-reduce of gradients from files, on RTL nodes or as their models."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import CheckFailed, InputError
from fanin.base.scratch import output_file
from fanin.cli.codec.options import add_codec
from fanin.codec.run.options import optional_configuration
from fanin.ring.facts import MAX_NODES, MIN_NODES, PRESETS, TENSORS, RingConfig
from fanin.runs.output import add_json, check_writable, print_json, table
from fanin.runs.ranks import add_ranks, refuse_ranks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Float32 = npt.NDArray[np.float32]
    Vector = npt.NDArray[Any]  # of float32, or of codes of 16 bits


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "run",
        help="add up gradients from files on the ring's nodes",
        description="Run one all-reduce: each FILE is a node's gradient (.npy, or raw float32), all of one "
        "length. Print the time of the NICs, their bytes, and the error of the codec. Exit status 1 if the "
        "RTL's sum is not the golden model's.",
    )
    part.add_argument(
        "gradients", nargs="+", type=Path, metavar="FILE", help="a node's gradient, in ring order"
    )
    part.add_argument("-o", dest="output", type=Path, metavar="SUM.npy", help="file of the sum, float32")
    part.add_argument("--preset", choices=PRESETS, default="u280", help="sizes of the nodes")
    part.add_argument(
        "--on", choices=("rtl", "model"), default="rtl", help="emitted Verilog, or NumPy and a model"
    )
    part.add_argument("--ports", help=argparse.SUPPRESS)  # its users get an error that names the command to use
    part.add_argument("--gbps", type=float, default=100.0, metavar="F", help="rate of the links")
    part.add_argument(
        "--tensor",
        choices=TENSORS,
        default="fp32",
        help="format of the values in the nodes' memories, to which those of the files are rounded",
    )
    add_codec(part, allow_none=True)
    add_ranks(part)
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Add the gradients. Raises InputError for wrong files or options, CheckFailed if the RTL's sum differs."""
    import numpy as np

    from fanin.link import LinkConfig
    from fanin.ring.golden.all_reduce import all_reduce, codes_of, values_of
    from fanin.sim.ring.time import RingTime

    if args.ports is not None:
        raise InputError("--ports: fanin nic run --kind ring adds up over interfaces, a node in each process")
    if args.on == "model":
        refuse_ranks(args, "--on model")
    config = replace(ring_config(args), tensor=TENSORS[args.tensor])
    if args.output:
        check_writable(args.output)
    if not 0 < args.gbps <= 1e4:
        raise InputError(f"--gbps {args.gbps:g}: must be above 0, at most 10,000")
    vectors = [codes_of(vector, config.tensor) for vector in _vectors(args.gradients)]
    link = LinkConfig(gbps=args.gbps)
    model = RingTime.of(vectors, config, link=link)
    golden = all_reduce(vectors, config)
    seconds = {"model": model.total / (model.clock_mhz * 1e6)}
    if args.on == "rtl":
        sums, seconds["rtl"] = _in_rtl(vectors, config, link)
        different = [node for node, node_sum in enumerate(sums) if node_sum.tobytes() != golden.tobytes()]
        if different:
            raise CheckFailed(f"node {different[0]}: the RTL's sum differs from the golden model's")
    total = values_of(golden, config.tensor)
    exact = np.sum([values_of(vector, config.tensor).astype(np.float64) for vector in vectors], axis=0)
    with np.errstate(invalid="ignore"):
        error = float(np.nanmax(np.abs(total - exact), initial=0.0))
    if args.output:
        with output_file(args.output) as file:
            np.save(file, total)
    facts = {
        "nodes": len(vectors),
        "values": int(golden.size),
        "preset": args.preset,
        "tensor": config.tensor_name,
        "codec": str(config.codec or "none"),
        "gbps": args.gbps,
        "seconds": seconds,
        "bit_exact": args.on == "rtl" or None,
        "largest_error": error,
        "wire_bytes": round(model.on_link * model.rate),
    }
    if args.json:
        print_json(facts)
    else:
        print(_summary(facts, args.output))
    return 0


def ring_config(args: argparse.Namespace) -> RingConfig:
    """Return the nodes of ``--preset`` with the codec. INCEPTIONN's group defaults to a word."""
    preset = PRESETS[args.preset]
    try:
        return replace(preset, codec=optional_configuration(args.codec, args, group=preset.lanes))
    except ValueError as error:
        raise InputError(str(error)) from error


def _vectors(paths: list[Path]) -> list[Float32]:
    """Read the files' values, one vector per node. Raises InputError."""
    import numpy as np

    from fanin.codec.run.values import open_values

    if not MIN_NODES <= len(paths) <= MAX_NODES:
        raise InputError(f"a ring has {MIN_NODES} to {MAX_NODES} nodes, a file each, not {len(paths)}")
    vectors = []
    for path in paths:
        with open_values(path) as (parts, _):
            vectors.append(np.concatenate(list(parts)))
        if vectors[-1].size != vectors[0].size:
            raise InputError(f"{path}: has {vectors[-1].size:,} values, {paths[0]} has {vectors[0].size:,}")
    return vectors


def _in_rtl(vectors: list[Vector], config: RingConfig, link: Any) -> tuple[list[Vector], float]:
    """Simulate the all-reduce in RTL; return each node's sum, and the time of the slowest node, in s."""
    from fanin.host.causes import explain
    from fanin.sim.cosim.simulator import SimulationFailed
    from fanin.sim.ring.cosim import RingCosim

    cosim = RingCosim(config, nodes=len(vectors))
    try:
        result = cosim.all_reduce([[vector] for vector in vectors], link=link)
    except SimulationFailed as error:
        raise CheckFailed(str(error)) from error
    for node, status in enumerate(result.status):
        if status.failed:
            raise CheckFailed(f"node {node} ended with {explain(status.cause)}")
    return [node_sum for (node_sum,) in result.sums], result.cycles * cosim.period_ps * 1e-12


def _summary(facts: dict[str, Any], output: Path | None) -> str:
    measured = facts["seconds"].get("rtl")
    size = RingConfig(tensor=TENSORS[facts["tensor"]]).value_bytes
    rows = [
        ["nodes", f"{facts['nodes']} × {facts['preset']}, {facts['gbps']:g} Gb/s, codec {facts['codec']}"],
        ["values", f"{facts['values']:,} of each node, {facts['tensor']}, {size * facts['values']:,} bytes"],
        ["time", f"{facts['seconds']['model'] * 1e6:,.1f} µs by the model"],
        ["on the wire", f"{facts['wire_bytes']:,} bytes of each node, headers and acknowledgements among them"],
        ["largest error", f"{facts['largest_error']:.3g} against float64"],
    ]
    if measured is not None:
        rows[2][1] = f"{measured * 1e6:,.1f} µs in RTL, {rows[2][1]}"
        rows.append(["bit-exact", "yes: every node's sum equals the golden model's"])
    if output:
        rows.append(["sum", str(output)])
    return table(rows)
