"""The command ``fanin cluster build``, and the folder that it writes.

- ``build.json``: description of the build.
- ``plan/``: the plan.
- ``memory/``: memory map of each device.
- ``verilog/``: Verilog and C headers of the nodes, with ``--verilog``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.base.errors import InputError
from fanin.base.plain import copy_plain
from fanin.base.records import Record
from fanin.cnn.plan.execute import write_plan
from fanin.cnn.run.conditions import RELIABLE_L2, Wires, wires_of
from fanin.cnn.run.contents import predicted_json, sizes_json, write_memory
from fanin.cnn.run.options import ENCAPS, LINKS, BuildOptions
from fanin.planner.cluster import load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import PlannedNetwork, planned_network, read_network
from fanin.planner.plan.plan import make_plan
from fanin.planner.search.instance import Instance
from fanin.planner.search.limits import Limits
from fanin.runs.call import Call
from fanin.runs.file_options import request_of
from fanin.runs.output import (
    CLUSTER_BUILD,
    PLAN,
    Kind,
    check_directory,
    is_kind,
    json_text,
    open_kind,
    table,
)
from fanin.runs.provenance.document import run_directory
from fanin.sim.cosim.arrays import Arith

MODEL, CLUSTER = "digits_cnn", "arria10x1"  # defaults
SECONDS = 20.0  # time limit of the default plan's search, which takes about 1 s
PLAN_FOLDER, VERILOG_FOLDER, MEMORY_FOLDER = "plan", "verilog", "memory"


@dataclass(frozen=True)
class Build:
    """Planned network, with the options of its hardware."""

    planned: PlannedNetwork
    arithmetic: str  #: operators in the co-simulation: "c" or "rtl"
    wires: Wires = RELIABLE_L2


def execute(options: BuildOptions, call: Call, say: Callable[[str], None] = print) -> None:
    """Build the nodes of a plan, write the folder, and print a summary with ``say``.

    Raises InputError for a missing plan, and for a plan whose build would deadlock.
    """
    from fanin.cnn.run.rtl import Rtl, write_verilog  # Amaranth takes a second to load

    output = options.output
    check_directory(output, CLUSTER_BUILD)
    build = planned_build(options.plan, options.arith)
    build = replace(build, wires=wires_of(options, build.planned.placement))
    with run_directory(output, CLUSTER_BUILD, request_of(call, options)) as folder:
        # also builds the simulator, in a cache outside this folder
        rtl = Rtl(build.planned, build.arithmetic, build.wires)
        if options.verilog:
            write_verilog(folder / VERILOG_FOLDER, rtl.cosim.nodes)
        write_memory(folder / MEMORY_FOLDER, build.planned.placement)
        document = write_build(folder, build, options.plan)
    if call.as_json:
        say(json_text(document))
    else:
        say(_summary(build, output))


def planned_build(plan: Path, arithmetic: str, wires: Wires = RELIABLE_L2) -> Build:
    """Return the build of a plan's folder.

    Raises InputError if there is none, or if the build would deadlock.
    """
    build = Build(read_network(plan), arithmetic, wires)
    _ = build.planned.liveness  # raises InputError for a deadlock
    return build


def default_build(folder: Path) -> Build:
    """Plan the default model for the default cluster, and write its build to a folder."""
    instance = Instance(load_model(MODEL), load_cluster(CLUSTER))
    plan = make_plan(instance, Limits(seconds=SECONDS, workers=1))
    build = Build(planned_network(write_plan(folder / PLAN_FOLDER, plan)), "c")
    _write_mark(folder, build)
    return build


def open_build(folder: Path) -> Build:
    """Return the build in a folder. Raises InputError if there is none, or if its files have changed."""
    hint = "; build the plan first" if is_kind(folder, PLAN) else ""
    record = open_kind(folder, CLUSTER_BUILD, "fanin cluster build", hint)
    planned = read_network(folder / PLAN_FOLDER)
    if record.text("plan") != planned.digest or record.text("network") != planned.network.digest:
        raise InputError(f"{folder}: its {PLAN_FOLDER} is not the one that was built; build again")
    _check_verilog(folder, record.record("verilog"))
    wires = Wires(record.text("link", LINKS), record.text("encap", ENCAPS))
    return Build(planned, record.text("arithmetic", tuple(Arith)), wires)


def _check_verilog(folder: Path, record: Record) -> None:
    """Raise InputError if a Verilog file or header is missing or was edited."""
    digests = _verilog(folder)
    for name in record.value:
        if digests.get(name) != record.text(name):
            cause = "was edited" if name in digests else "is missing"
            raise InputError(f"{folder / VERILOG_FOLDER / name}: {cause}; build again")


def _verilog(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each of a build's Verilog files and C headers, by name."""
    files = sorted((folder / VERILOG_FOLDER).glob("*"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _copy(source: Path, target: Path, kind: Kind) -> None:
    """Copy the files and folders that a folder of ``kind`` consists of. Raises InputError."""
    target.mkdir(parents=True)
    for name in kind.names:
        try:
            copy_plain(source, target, name)
        except OSError as error:  # for instance for a link, which is not followed
            cause = f"cannot be copied: {error.strerror or error} ({error.filename or name})"
            raise InputError(f"{source / name}: {cause}") from None


def write_build(folder: Path, build: Build, plan: Path) -> dict[str, Any]:
    """Write the plan's files and ``build.json``. Return ``build.json``. ``plan``: folder of the plan."""
    _copy(plan, folder / PLAN_FOLDER, PLAN)
    return _write_mark(folder, build)


def _write_mark(folder: Path, build: Build) -> dict[str, Any]:
    document = build_json(build) | {"verilog": _verilog(folder)}
    (folder / CLUSTER_BUILD.mark).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return document


def build_json(build: Build) -> dict[str, Any]:
    """Return build.json of a build. docs/reference/json.md lists the keys; ``contents.py`` explains them."""
    planned = build.planned
    return {
        "fanin": __version__,
        "model": planned.network.name,
        "network": planned.network.digest,
        "plan": planned.digest,
        "devices": list(planned.placement.names),
        "clock_hz": planned.clock,
        "throughput": float(planned.throughput),
        "arithmetic": build.arithmetic,
        **asdict(build.wires),
        "layers": [
            {"name": stage.name, "kind": stage.layer.kind, "device": device, "cycles": cycles}
            | asdict(stage.parallelism)
            for stage, device, cycles in zip(
                planned.network.stages, planned.placement.devices, planned.cycles, strict=True
            )
        ],
        "sizes": sizes_json(planned),
        "liveness": {"frames": planned.liveness.frames, "ends": planned.liveness.deadlock is None},
        "predicted": predicted_json(planned, planned.batch),
    }


def _summary(build: Build, output: Path) -> str:
    planned = build.planned
    rate = planned.prediction(planned.batch).frames_per_cycle(planned.batch)
    facts = [
        ["layers", str(len(planned.network.stages))],
        *(
            [["connections", f"{count}, {build.wires.link}, {build.wires.encap.upper()}"]]
            if (count := len(planned.placement.connections))
            else []
        ),
        ["planned", f"{float(planned.throughput):,.2f} frames/s at {planned.clock / 1e6:g} MHz"],
        ["predicted", f"{planned.clock * rate:,.2f} frames/s with an update every {planned.batch} frames"],
        ["operators", {Arith.C: "in C, of the RTL's latency", Arith.RTL: "RTL"}[Arith(build.arithmetic)]],
        ["build", str(output)],
    ]
    devices = ", ".join(planned.placement.names)
    return "\n".join([f"{planned.network.name} on {devices}", "", table(facts)])
