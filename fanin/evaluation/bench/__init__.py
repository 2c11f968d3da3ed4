"""``fanin bench``: benchmarks, a module for each, whose figures have limits (docs/reference/benchmarks.md)."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from fanin.base.errors import CheckFailed
from fanin.cli.cache import add_no_cache
from fanin.evaluation.bench.result import Result
from fanin.glm.facts import PRESETS
from fanin.runs.output import add_json, print_json

PAPER_FIGURES = (2, 8, 9, 10, 11, 12, 13, 14, 15)
CODEC_FIGURES = (3, 4, 5, 7, 12, 14)
NETWORKS = ("hdc", "cnn", "residual", "templates")  # as in fanin.sim.codec.tasks, which loads NumPy
GLM_PARTS = ("memory", "sparse")
PLAN_PARTS = ("layers", "searches")
CLUSTER_PARTS = ("arrays", "plans", "networks")
CLUSTER_NETWORKS = ("digits_cnn", "listing1", "mobilenet_v2_32")
ALLREDUCE_WORKERS = (2, 4, 8)
ALLREDUCE_LOSSES = (0.0, 0.01)
AREAS = ("glm", "ring")
#: Benchmarks with the option ``--no-cache``. glm and cluster time builds; the others build nothing.
USE_CACHE = (
    *("allreduce", "boards", "ring", "ring-training", "rdma", "ps", "codec", "area", "inceptionn"),
    "cluster-loss",
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command with a subcommand per benchmark."""
    parser = commands.add_parser(
        "bench",
        help="measure speed and area",
        description="Measure, and print each figure beside its limit. Exit status 1 when one is missed.",
    )
    benchmarks = parser.add_subparsers(title="benchmarks", metavar="NAME", required=True)
    _add_glm(benchmarks)
    _add_switch(benchmarks)
    _add_plan(benchmarks)
    _add_nics(benchmarks)
    _add_cnn(benchmarks)
    _add_codecs(benchmarks)
    _add_scale(benchmarks)
    _add_area(benchmarks)


def _add_glm(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmark of GLM training."""
    glm = _benchmark(benchmarks, "glm", "cycles, latency, utilisation and scaling of GLM training")
    glm.add_argument(
        "--figure", type=int, choices=PAPER_FIGURES, help="measure a figure of the P4SGD paper instead"
    )
    glm.add_argument(
        "--part",
        choices=GLM_PARTS,
        help="measure this instead: cycles of a word with samples in HBM, or sparse nodes",
    )
    glm.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="the paper's data set NAME as a LIBSVM file, for figure 14; cycles depend on no data",
    )
    glm.add_argument(
        "--precision", metavar="S,S,…", help="bits of a feature in figure 14, each a curve; 4 by default"
    )
    glm.add_argument(
        "--rtl",
        type=int,
        metavar="N",
        help="epochs of each curve of figure 14 that two sparse nodes train in RTL, too; 0 by default",
    )
    _add_output(glm)


def _add_switch(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmarks of AllReduce and of the embedded switch."""
    allreduce = _benchmark(
        benchmarks, "allreduce", "latency of an AllReduce in both protocols, with and without loss"
    )
    allreduce.add_argument("--workers", type=int, choices=ALLREDUCE_WORKERS, help="measure this number only")
    allreduce.add_argument(
        "--loss", type=float, choices=ALLREDUCE_LOSSES, help="measure this loss rate of frames only"
    )
    _add_output(allreduce)
    boards = _benchmark(
        benchmarks,
        "boards",
        "latency of an AllReduce between four simulated boards at 1 Gb/s, and the node's share",
    )
    boards.add_argument(
        "--board", default="ecpix5", metavar="B", help="board of fanin board list; the limit is for 100 MHz"
    )
    boards.add_argument("--epochs", type=int, default=32, metavar="N", help="epochs of eight AllReduces each")
    _benchmark(benchmarks, "switch", "the embedded switch: start and packets a second")
    serve = _benchmark(
        benchmarks, "serve", "the embedded switch on Linux interfaces: packets a second over veth"
    )
    serve.add_argument(
        "--attack",
        action="store_true",
        help="measure forwarding with and without 16 hostile controllers instead",
    )


def _add_plan(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmark of the planner."""
    text = "the planner: time, throughput and gap of the paper's two models; two layers beside its tables"
    plan = _benchmark(benchmarks, "plan", text)
    plan.add_argument("--part", choices=PLAN_PARTS, help="measure this part only; layers takes seconds")


def _add_nics(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmarks of the ring, INCEPTIONN, RDMA and the parameter server."""
    ring = _benchmark(
        benchmarks, "ring", "the ring NIC: the papers' models beside their figures; the RTL's cycles"
    )
    part = ring.add_mutually_exclusive_group()
    part.add_argument(
        "--models", action="store_true", help="compute the papers' models only: seconds, not minutes"
    )
    part.add_argument("--rates", action="store_true", help="measure each codec at 10, 25 and 100 Gb/s only")
    _add_output(ring)
    text = "training iterations on the ring's RTL beside AI Smart NIC's model; its figures with them"
    training = _benchmark(benchmarks, "ring-training", text, module="ring_training")
    text = "the paper's shape scaled down in width alone, or one iteration of it whole"
    training.add_argument("--part", choices=("scaled", "whole"), help=text)
    _add_output(training)
    text = "INCEPTIONN's exchanges over RTL NICs, beside its figures 12 and 15"
    inceptionn = _benchmark(benchmarks, "inceptionn", text)
    inceptionn.add_argument("--values", type=int, default=40_000, metavar="N", help="values of a gradient")
    _add_output(inceptionn)
    _benchmark(benchmarks, "rdma", "RDMA writes: link use, latency, area and logic depth")
    text = "the parameter server: rows a second with 15 workers, area and logic depth"
    server = _benchmark(benchmarks, "ps", text, module="param_server")
    server.add_argument("--models", action="store_true", help="the paper's tables by the event model: a minute")


def _add_cnn(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmarks of CNN training on clusters."""
    text = "binary32 operators in simulation; NADA's two models in the timed model; planned networks in RTL"
    cluster = _benchmark(benchmarks, "cluster", text)
    cluster.add_argument("--part", choices=CLUSTER_PARTS, help="measure this part only")
    cluster.add_argument("--network", choices=CLUSTER_NETWORKS, help="measure this planned network only")
    text = "throughput of CNN training over lossy links, in both link modes"
    _add_output(_benchmark(benchmarks, "cluster-loss", text, module="cluster_loss"))


def _add_codecs(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmarks of codecs and of PyTorch's hooks."""
    codec = _benchmark(
        benchmarks, "codec", "the codecs: latency, throughput, area, RTL against NumPy, table III"
    )
    codec.add_argument("--values", type=int, default=1_000_000, metavar="N", help="values per codec and bound")
    _add_codec_training(benchmarks)
    text = "communication hooks of DDP: accuracy, bytes, and time of a step on the ring NIC"
    hooks = _benchmark(benchmarks, "hooks", text)
    hooks.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings over each hook")
    hooks.add_argument("--epochs", type=int, default=20, metavar="N", help="epochs of a training")
    _add_output(hooks)


def _add_scale(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmark of simulations on several ranks."""
    scale = _benchmark(benchmarks, "scale", "runs on several ranks, and a model that predicts more ranks")
    text = "runs of each point, of which the fastest counts"
    scale.add_argument("--runs", type=int, default=3, metavar="N", help=text)
    scale.add_argument("--cores", type=int, default=16, metavar="C", help="cores of each predicted machine")
    text = "round trip between these machines, in µs"
    scale.add_argument("--rtt-us", type=float, default=30.0, metavar="T", help=text)
    _add_output(scale)


def _add_area(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the benchmarks of area and clock."""
    text = "LUTs, flip-flops and logic depth of one engine and a whole node; the ring node's area by part"
    area = _benchmark(benchmarks, "area", text)
    area.add_argument("--part", choices=AREAS, help="measure this system's nodes only")
    area.add_argument("--preset", choices=list(PRESETS), default="u280", help="the GLM node that is mapped")
    text = "area of board nodes on an ECP5, by nextpnr's count, against the estimate"
    board_area = _benchmark(benchmarks, "board-area", text, module="board_area")
    board_area.add_argument(
        "--case", action="append", metavar="NAME", help="measure this node only; repeatable"
    )
    board_area.add_argument("-o", dest="output", metavar="FILE", help="TOML file of the counts")
    fmax = _benchmark(
        benchmarks, "fmax", "clock by place and route on an ECP5-85, and logic depth, of each part"
    )
    fmax.add_argument("--part", action="append", metavar="NAME", help="measure this part only; repeatable")
    fmax.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the placement")


def _add_codec_training(benchmarks: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "training over codecs: INCEPTIONN's figures 3, 4, 5, 7, 12 to 14 and its table III"
    parser = _benchmark(benchmarks, "codec-training", text, module="codec_training")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="trainings of each kind")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="measure these networks only")
    parser.add_argument(
        "--figure",
        type=int,
        action="append",
        choices=CODEC_FIGURES,
        help="measure this figure only; repeatable; 14 includes 13",
    )
    parser.add_argument("--mnist", type=Path, metavar="DIR", help="MNIST's idx files, for hdc; default: digits")
    _add_output(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", dest="output", metavar="DIR", type=Path, default="runs", help="folder of JSON and PNG"
    )


def _benchmark(
    benchmarks: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    module: str | None = None,
) -> argparse.ArgumentParser:
    parser = benchmarks.add_parser(name, help=text, description=f"Measure {text}.")
    add_json(parser)
    if name in USE_CACHE:
        add_no_cache(parser)
    parser.set_defaults(run=run, benchmark=module or name)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run a benchmark and print each figure when it is measured. Raises CheckFailed if a limit is missed."""
    # Imported here because --help must not wait for Amaranth and NumPy to load.
    benchmark = importlib.import_module(f"fanin.evaluation.bench.{args.benchmark}")
    results: list[Result] = []
    for result in benchmark.measure(args):
        results.append(result)
        if not args.json:
            print(result, flush=True)
    if args.json:
        print_json({"benchmark": args.benchmark, "figures": [result.as_json() for result in results]})
    missed = [result.name for result in results if not result.ok]
    if missed:
        raise CheckFailed(f"{len(missed)} of {len(results)} figures miss their limit: {'; '.join(missed)}")
    return 0
