"""What ``fanin train`` does with its options: train, compare, write the run's folder, tell."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from fanin.cli.live import LiveFile
from fanin.cli.output import (
    CLASSES_FOLDER,
    JOB_FILE,
    MODEL_FILE,
    PCAP_FILE,
    PROGRAM_FILE,
    REPORT_FILE,
    RUN,
    RUN_FILE,
    SWITCH_DISSECTOR_FILE,
    TRACE_FILE,
    check_directory,
    check_writable,
    print_json,
    table,
    write_file,
)
from fanin.cli.provenance.document import run_directory
from fanin.cli.ranks import Meetings, refuse_ranks
from fanin.cli.stopped import OUTSIDE, cause_of, stop_again
from fanin.cli.train.boards import read_boards
from fanin.cli.train.following import Following, label_text
from fanin.cli.wave import waveform
from fanin.errors import CheckFailed, InputError, ToolFailed
from fanin.fixed import LOSSES
from fanin.glm import PRESETS, GlmConfig
from fanin.golden.glm.model import GlmModel
from fanin.hbm import CONSTANT, MEMORIES, Hbm
from fanin.p4.companions import dissector
from fanin.p4.deployment import default_deployment, deployment_json
from fanin.p4.emit import program_text
from fanin.report.failure import failure_page
from fanin.report.glm.page import render
from fanin.report.glm.run import report_of
from fanin.report.glm.trace import train_trace
from fanin.sim.capture import read_capture
from fanin.sim.cosim.run import RunResult
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm.boards import Boards
from fanin.sim.glm.classes import ClassesResult, together
from fanin.sim.glm.recipes import rate_of
from fanin.sim.glm.train import (
    Trainer,
    TrainOptions,
    TrainResult,
    check_timeout,
    observations,
    options_json,
    trainers,
)
from fanin.sim.network import BOARDS_TIMEOUT_NS, FAULTS, HOST, PORTS_TIMEOUT_NS, LinkConfig, NetworkConfig
from fanin.sim.nic.pace import MAX_SLOWDOWN
from fanin.sim.switch.base import SwitchKind
from fanin.wire.aggregation import Encap

SHOWN_EPOCHS = 6
BIT_EXACT = "yes: every epoch's model equals the golden model"
DIFFERS = "the RTL's model differs from the golden model"


def execute(args: argparse.Namespace) -> int:
    """Carry out the command. Raises CheckFailed when the models differ or a node stopped."""
    output = args.output or Path("runs") / Path(args.data).stem
    check_directory(output)
    copies = _copies(args, output)
    with waveform(args, rtl=args.on is None) as wave:
        _carry_out(args, output, copies, wave)
    return 0


def _carry_out(args: argparse.Namespace, output: Path, copies: dict[str, Path], wave: Waveform | None) -> None:
    """Train, write the run's folder, tell. Raises CheckFailed as ``execute``."""
    live = LiveFile(output, "train", title=args.data, unit="AllReduces")
    with live, run_directory(output, RUN, args) as folder:
        live.stage("reading the samples, building the simulator")
        runs = _trainers(args, wave)
        follow = Following(live, runs)
        if len(runs) == 1:
            stop, where = _run(runs[0], folder, args, output, follow), output
        else:
            stop, where = _run_classes(runs, folder, args, output, follow)
    for name, copy in copies.items():
        if (output / name).exists():  # a failed run has no model
            write_file(copy, (output / name).read_bytes())
    if args.json:
        print_json(json.loads((output / RUN_FILE).read_bytes()))
    if isinstance(stop, (SimulationFailed, *OUTSIDE)):
        stop_again(stop, f"{cause_of(stop)} (fanin doctor {where} says more)")
    if stop:
        raise stop


def _copies(args: argparse.Namespace, output: Path) -> dict[str, Path]:
    """Which of the run's files are wanted elsewhere, too. Raises InputError where they cannot be written."""
    copies = {name: path for name, path in ((MODEL_FILE, args.model_out), (PCAP_FILE, args.pcap)) if path}
    taken = {(output / name).resolve(): name for name in RUN.names}
    for name, path in copies.items():
        check_writable(path)
        place = path.resolve()
        if taken.setdefault(place, name) != name:
            raise InputError(f"{path}: cannot be {name} and {taken[place]} at once")
        if any(place in other.parents or other in place.parents for other in taken):
            raise InputError(f"{path}: cannot be a file and the folder of others")
    return copies


def _trainers(args: argparse.Namespace, wave: Waveform | None) -> list[Trainer]:
    """What trains: simulated nodes, or the boards of ``--on``."""
    if args.worker is not None and args.ports is None:
        raise InputError("--worker: says whose nodes are at --ports, and there are none")
    if args.slowdown != NetworkConfig.slowdown and args.ports is None:
        raise InputError("--slowdown: is of nodes at --ports, and there are none")
    for option in ("on", "ports"):
        if getattr(args, option) is not None:
            refuse_ranks(args, f"--{option}")
    if args.on is None:
        if args.ports is not None:
            _take_ports(args)
        return trainers(options_of(args), wave=wave)
    if args.ports is not None:
        raise InputError("--ports: boards have a network of their own, so it does not go with --on")
    if args.memory != CONSTANT:
        raise InputError("--memory: boards have memories of their own, so it does not go with --on")
    _refuse_network(args)
    cluster = read_boards(args.on)
    args.workers, args.preset, args.engines = len(cluster.addresses), cluster.preset, None
    clocks = [address.core_mhz for address in cluster.addresses]
    args.encap, args.clock_mhz = Encap.UDP, min(clocks)
    if args.timeout_ns is None:
        args.timeout_ns = BOARDS_TIMEOUT_NS
    options = options_of(args, l2_nodes=cluster.l2)
    check_timeout(options.network.timeout_ns, max(clocks))
    return trainers(options, boards=Boards(options.node, cluster.addresses))


def _refuse_network(args: argparse.Namespace) -> None:
    """Raises InputError for an option that the simulated network alone has, unless it has its default."""
    defaults = {name: getattr(LinkConfig, name) for name in (*FAULTS, *HOST, "gbps")}
    defaults |= {"link_ns": LinkConfig.delay_ns, "switch_ns": NetworkConfig.switch_ns}
    for name, default in defaults.items():
        if getattr(args, name) != default:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option}: boards have a network of their own, so it does not go with --on")


def _take_ports(args: argparse.Namespace) -> None:
    """What ``--ports`` decides. Raises InputError unless they can be opened."""
    from fanin.sim.nic.outside import check_interfaces

    args.ports = tuple(args.ports.split(","))
    args.worker = _workers_here(args)
    check_interfaces(args.ports)
    if not 1 <= args.slowdown <= MAX_SLOWDOWN:
        raise InputError(f"--slowdown {args.slowdown:g}: must be 1 to {MAX_SLOWDOWN:g}")
    if not args.worker:
        args.workers = len(args.ports)
    if args.timeout_ns is None:
        args.timeout_ns = PORTS_TIMEOUT_NS


def _workers_here(args: argparse.Namespace) -> tuple[int, ...]:
    """Those whose nodes are here, by ``--worker``; none for all. Raises InputError."""
    if args.worker is None:
        return ()
    try:
        here = tuple(int(text) for text in args.worker.split(","))
    except ValueError as error:
        raise InputError(f"--worker {args.worker}: must be numbers, from 0 on") from error
    if len(here) != len(args.ports):
        raise InputError(f"--worker {args.worker}: must be one for each of --ports, {len(args.ports)}")
    if len(set(here)) < len(here) or not all(0 <= worker < args.workers for worker in here):
        raise InputError(
            f"--worker {args.worker}: must be different ones of 0 to {args.workers - 1} (--workers)"
        )
    return here


def options_of(args: argparse.Namespace, *, l2_nodes: bool | None = None) -> TrainOptions:
    """The options of a run. Raises InputError.

    ``l2_nodes``: whether the nodes' weights can decay; they are made so where ``--l2`` asks for it, by default.
    """
    same = (
        "data",
        "target",
        "workers",
        "precision",
        "batch",
        "vanilla",
        "epochs",
        "l2",
        "bias",
        "shuffle",
        "test",
        "seed",
        "clock_mhz",
    )
    loss = LOSSES[args.loss]
    try:
        return TrainOptions(
            node=_node(args, l2=args.l2 != 0 if l2_nodes is None else l2_nodes),
            network=_network(args),
            loss=loss,
            lr=rate_of(args.data, loss) if args.lr is None else args.lr,
            hbm=_hbm(args),
            **{name: getattr(args, name) for name in same},
        )
    except ValueError as error:  # the configurations name parameter, value and limit
        raise InputError(str(error)) from error


def _node(args: argparse.Namespace, *, l2: bool) -> GlmConfig:
    preset = PRESETS[args.preset]
    node = dataclasses.replace(
        preset,
        engines=preset.engines if args.engines is None else args.engines,
        slots=preset.slots if args.slots is None else args.slots,
        frac=args.frac,
        encap=args.encap,
        protocol=args.protocol,
        mode=args.mode,
        gradient_values=args.gradient_values,
        l2=l2,
        vanilla=args.vanilla and args.on is None,  # boards were made before
        ping=bool(args.ports) and args.encap == Encap.UDP,  # hosts beside the nodes may want to
    )
    # Fewer slots than the preset's are a register of the job, not another node.
    return dataclasses.replace(node, slots=max(node.slots, preset.slots))


def _hbm(args: argparse.Namespace) -> Hbm | None:
    """What samples and labels lie in. Raises InputError."""
    hbm = MEMORIES[args.memory]
    if args.ports_per_channel is None:
        return hbm
    if hbm is None:
        raise InputError(f"--ports-per-channel: a memory that is {args.memory} has no channels")
    return dataclasses.replace(hbm, ports_per_channel=args.ports_per_channel)


def _network(args: argparse.Namespace) -> NetworkConfig:
    if not 0 < args.gbps < math.inf:
        raise InputError(f"gbps must be positive and finite, not {args.gbps:g}")
    link = LinkConfig(
        delay_ns=args.link_ns, gbps=args.gbps, **{name: getattr(args, name) for name in (*FAULTS, *HOST)}
    )
    return NetworkConfig(
        link=link,
        switch_ns=args.switch_ns,
        timeout_ns=NetworkConfig.timeout_ns if args.timeout_ns is None else args.timeout_ns,
        retries=args.retries,
        slots=args.slots,
        seed=args.seed,
        switch=SwitchKind(args.switch),
        ports=args.ports or (),
        here=args.worker or (),
        slowdown=args.slowdown,
    )


def _run(
    trainer: Trainer, folder: Path, args: argparse.Namespace, output: Path, follow: Following
) -> BaseException | None:
    """Fill the run's folder; what has stopped it, or nothing."""
    result = _train(trainer, folder, follow)
    if isinstance(result, BaseException):
        return result
    _write_model(folder, result.model)
    if not args.json:
        print(summary(result, output))
    return None if result.bit_exact else CheckFailed(DIFFERS)


def _run_classes(
    runs: list[Trainer], folder: Path, args: argparse.Namespace, output: Path, follow: Following
) -> tuple[BaseException | None, Path]:
    """Fill the folder with a run for each class, and what they say together.

    What has stopped it, or nothing; and which run's folder says more. Raises InputError for --pcap.
    """
    if args.pcap:
        raise InputError(f"--pcap: {len(runs)} classes have a capture each, in {output / CLASSES_FOLDER}")
    results = []
    for place, trainer in enumerate(runs):
        name = f"{CLASSES_FOLDER}/{place}"
        (folder / name).mkdir(parents=True)
        result = _train(trainer, folder / name, follow)
        if isinstance(result, BaseException):
            _write_failure(folder, trainer, result)
            return result, output / name
        results.append(result)
    whole = together(runs, results)
    _write_json(folder, whole.as_json())
    _write_model(folder, whole.model)
    if not args.json:
        print(summary_of_classes(whole, output))
    return None if whole.bit_exact else CheckFailed(DIFFERS), output


def _train(trainer: Trainer, folder: Path, follow: Following) -> TrainResult | BaseException:
    """The result of a run, whose folder has all but the model; or what has stopped it."""
    _write_switch(folder, trainer)
    try:
        with follow.training(trainer) as progress:
            simulated = trainer.simulate(pcap=folder / PCAP_FILE, progress=progress)
    except (SimulationFailed, CheckFailed, ToolFailed, *OUTSIDE) as stop:
        _write_failure(folder, trainer, stop)
        return _lost_interface(trainer, stop) or stop
    follow.comparing()
    result = trainer.compare(simulated)
    _write_json(folder, result.as_json())
    (folder / REPORT_FILE).write_text(render(report_of(result)))
    (folder / TRACE_FILE).write_text(train_trace(result, read_capture(folder / PCAP_FILE)))
    return result


def _lost_interface(trainer: Trainer, stop: BaseException) -> InputError | None:
    """What the user has done to the network, where that has ended the run."""
    from fanin.sim.nic.outside import check_interfaces

    if isinstance(stop, SimulationFailed) and (ports := trainer.options.network.ports):
        try:
            check_interfaces(ports)
        except InputError:
            return InputError(cause_of(stop))
    return None


def _write_model(folder: Path, model: GlmModel) -> None:
    with (folder / MODEL_FILE).open("wb") as file:
        model.save(file)


def _write_failure(folder: Path, trainer: Trainer, stop: BaseException) -> None:
    """What is known of a run that has not come to its end."""
    seen = stop.result if isinstance(stop, SimulationFailed) else None
    found = {"error": cause_of(stop), "options": options_json(trainer.options)}
    found |= observations(trainer.partial(seen or RunResult()))
    _write_json(folder, found)
    (folder / REPORT_FILE).write_text(failure_page(f"Training on {trainer.options.data}", found))


def _write_switch(folder: Path, trainer: Trainer) -> None:
    """The switch's program and its job, for ``fanin p4 run --recorded``."""
    program = trainer.nodes.program(trainer.options.network)
    (folder / PROGRAM_FILE).write_text(program_text(program))
    (folder / SWITCH_DISSECTOR_FILE).write_text(dissector(program))
    (folder / JOB_FILE).write_text(deployment_json(default_deployment(program)))


def _write_json(folder: Path, value: dict[str, Any]) -> None:
    (folder / RUN_FILE).write_text(json.dumps(value, indent=2) + "\n")


def summary(result: TrainResult, output: Path) -> str:
    """The result for people."""
    accuracy = "none held out" if result.test_accuracy is None else f"{100 * result.test_accuracy:.1f} %"
    clamps = result.total("clamps")
    meetings = Meetings()
    meetings.add(result.run.raw)
    facts = [
        ["test accuracy", accuracy],
        ["bit-exact", _exact(result)],
        ["cycles", f"{result.cycles:,}, {100 * result.cycles_ideal / result.cycles:.1f} % of them take a word"],
        [
            "AllReduce",
            f"{result.percentile(50):,.0f} ns median, {result.percentile(99):,.0f} ns 99th percentile",
        ],
        ["packets", f"{sum(result.run.raw.frames.values()):,} sent by nodes, {_losses(result)}"],
        *(
            [["clamps", f"{clamps:,} activations were clamped: a smaller --frac widens the range"]]
            * bool(clamps)
        ),
        *([["L2", _decay(result)]] * bool(result.l2)),
        *meetings.facts(),
        *([["warning", result.warning]] * bool(result.warning)),
        ["report", str(output / REPORT_FILE)],
    ]
    return "\n".join(
        [
            _heading(result),
            "",
            _epochs(result),
            "",
            table(facts),
        ]
    )


def summary_of_classes(whole: ClassesResult, output: Path) -> str:
    """The result of more than two classes for people."""
    classes, results = whole.model.classes or (), whole.results
    rows = [["class", "loss", "float64", "against the rest", "cycles"]]
    for label, result in zip(classes, results, strict=True):
        last = result.epochs[-1]
        accuracy = f"{100 * last.accuracy:.1f} %"
        losses = f"{last.loss:.4f}", f"{result.float64_loss[-1]:.4f}"
        rows.append([label_text(label), *losses, accuracy, f"{result.cycles:,}"])
    held_out = "none held out" if whole.test_accuracy is None else f"{100 * whole.test_accuracy:.1f} %"
    facts = [
        ["accuracy", f"{100 * whole.accuracy:.1f} %"],
        ["test accuracy", held_out],
        ["bit-exact", BIT_EXACT if whole.bit_exact else "NO"],
        *([["L2", _decay(results[0])]] * bool(results[0].l2)),
        *([["warning", whole.warning]] * bool(whole.warning)),
        ["reports", str(output / CLASSES_FOLDER / "*" / REPORT_FILE)],
    ]
    return "\n".join(
        [
            _heading(results[0], f"{len(classes)} classes, "),
            "",
            table(rows, right=range(1, 5)),
            "",
            table(facts),
        ]
    )


def _heading(result: TrainResult, what: str = "") -> str:
    options, shape = result.options, result.shape
    engines = f"{options.node.engines} engine{'s' * (options.node.engines > 1)}"
    return (
        f"{options.data}: {what}{shape.samples:,} samples × {shape.columns:,} columns, "
        f"{options.loss.name.lower()} loss, {options.workers} × {options.node.name} node of {engines}"
    )


def _exact(result: TrainResult) -> str:
    """Of what it has been seen."""
    here = result.options.network.here
    if not (result.bit_exact and here) or result.shape.data_parallel:
        return BIT_EXACT if result.bit_exact else "NO"
    workers = ", ".join(map(str, here))
    return f"yes: after every epoch the columns of worker {workers} equal the golden model's"


def _decay(result: TrainResult) -> str:
    """Which λ it is, and what it means for the weights."""
    weights = "the weights, the bias apart" if result.options.bias else "the weights"
    asked = result.options.l2
    share = f"each mini-batch takes 2^-{result.decay.shift} of {weights}"
    return f"λ = {result.l2:.4g} for {asked:g}: {share}; losses are the data's alone"


def _losses(result: TrainResult) -> str:
    retransmissions, duplicates = result.total("retransmissions"), result.total("duplicates")
    return f"{retransmissions:,} retransmitted, {duplicates:,} duplicate, {result.frames_rejected:,} rejected"


def _epochs(result: TrainResult) -> str:
    rows = [["epoch", "loss", "float64", "accuracy", "cycles"]]
    count = len(result.epochs)
    for number in sorted({round(count ** (k / (SHOWN_EPOCHS - 1))) for k in range(SHOWN_EPOCHS)}):
        epoch, float64 = result.epochs[number - 1], result.float64_loss[number - 1]
        accuracy = f"{100 * epoch.accuracy:.1f} %"
        rows.append([str(number), f"{epoch.loss:.4f}", f"{float64:.4f}", accuracy, f"{epoch.cycles:,}"])
    return table(rows, right=range(5))
