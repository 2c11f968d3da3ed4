"""The command ``fanin cluster verify``: the RTL of each layer alone, on the streams of the golden model."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, as_completed
from distributed.scheduler import KilledWorker

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.records import open_record, read_object
from fanin.base.scratch import as_input_error, scratch_prefix, write_file
from fanin.cnn.golden.network import initial_state
from fanin.cnn.layers.arithmetic import Frames, State
from fanin.cnn.page.verification import NUMBERS, facts, layer_rows, verification_page
from fanin.cnn.run.build import Build, open_build
from fanin.cnn.run.checkpoint import load_checkpoint
from fanin.cnn.run.layer_task import LayerTask, carry_out, record_streams
from fanin.cnn.run.machine import Labels
from fanin.cnn.run.options import VerifyOptions
from fanin.cnn.run.setup import images_of
from fanin.cnn.training import Job
from fanin.planner.plan.network import PlannedNetwork, read_network
from fanin.runs.call import Call
from fanin.runs.dask_cluster import check_cluster, connected_client
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import Manifest, make_folder
from fanin.runs.output import (
    CLUSTER_VERIFICATION,
    PLAN,
    REPORT_FILE,
    check_directory,
    is_kind,
    json_text,
    table,
)
from fanin.runs.progress import StatusLine
from fanin.runs.provenance.environment import fanin_json
from fanin.runs.provenance.inputs import digests

LAYERS = "layers"  # folder of the results, a file per layer
RATE, MOMENTUM = 0.1, 0.9  # of the update
TOLERANCE = 0.01  # largest deviation of a layer's cycles from the plan
_SETTINGS = ("network", "arithmetic", "frames", "seed", "inputs", "fanin")  # fields that all results depend on
_WORKER_SECONDS = 600.0  # until the first worker of a scheduler

Json = dict[str, Any]


def execute(options: VerifyOptions, call: Call, say: Callable[[str], None] = print) -> None:
    """Check the layers that the folder has no result of, write the folder, and print a table with ``say``.

    Raises InputError for invalid options, and CheckFailed if a word differs, or cycles differ from the plan by
    more than ``TOLERANCE``.
    """
    output = options.output.absolute()
    check_cluster(options, output, {})
    check_directory(output, CLUSTER_VERIFICATION)
    build = _build(options.build)
    indices = _selected(build.planned, options.layers)
    with sole_writer(output):
        verification = _Verification(output, build, options)
        verification.check()
        missing = [index for index in indices if not verification.result(index).exists()]
        batch = verification.batch() if missing else None
        verification.begin(indices)
        try:
            if batch:
                verification.carry_out(missing, batch)
        finally:  # also of a stopped verification
            document = verification.write_results()
    say(json_text(document) if call.as_json else _summary(document))
    _raise_failures(output, document)


def _summary(document: Json) -> str:
    rows = table(layer_rows(document), right=NUMBERS)
    return "\n".join([f"{document['model']}, layer by layer", "", rows, "", table(facts(document))])


def _raise_failures(output: Path, document: Json) -> None:
    differences = [layer for layer in document["layers"] if layer["difference"]]
    if differences:
        others = f", and {len(differences) - 1:,} more layers differ" if len(differences) > 1 else ""
        raise CheckFailed(f"{output}: {differences[0]['difference']}{others}")
    if deviating := [layer["name"] for layer in document["layers"] if not layer["as_planned"]]:
        raise CheckFailed(f"{output}: cycles differ from the plan by over 1 %: {', '.join(deviating)}")


def _build(folder: Path) -> Build:
    """Return the build in a folder, or a build of the plan in it. Raises InputError if it has no hardware."""
    from fanin.cnn.run.rtl import parts_of  # Amaranth takes a second to load

    build = Build(read_network(folder), "c") if is_kind(folder, PLAN) else open_build(folder)
    parts_of(build.planned)
    return build


def _selected(planned: PlannedNetwork, patterns: str | None) -> list[int]:
    """Return the indices of the layers with RTL whose names fit a pattern. Raises InputError for a misfit."""
    stages = planned.network.stages
    layers = [index for index, stage in enumerate(stages) if stage.layer.component]
    if patterns is None:
        return layers
    fitting: set[int] = set()
    for pattern in patterns.split(","):
        found = [index for index in layers if fnmatchcase(stages[index].name, pattern.strip())]
        if not found:
            raise InputError(f"--layers {pattern.strip()}: no layer of {planned.network.name} has this name")
        fitting.update(found)
    return sorted(fitting)


@dataclass(frozen=True)
class Batch:
    """Batch of the golden model: first state, images, labels."""

    states: Sequence[State]
    images: Frames
    labels: Labels


class _Verification:
    """Folder of a verification, and the layers to check."""

    def __init__(self, folder: Path, build: Build, options: VerifyOptions):
        self._folder, self._build, self._options = folder, build, options
        self._network = build.planned.network
        paths = {"data": options.data, "init": options.init}
        self._facts: Json = {
            "network": self._network.digest,
            "model": self._network.name,
            "arithmetic": build.arithmetic,
            "frames": options.frames,
            "seed": options.seed,
            "inputs": {name: digests(Path(path)) if path else None for name, path in paths.items()},
            "fanin": fanin_json(),
        }

    def result(self, index: int) -> Path:
        """Return the path of a layer's result."""
        return self._folder / LAYERS / f"{index:04}.json"

    def check(self) -> None:
        """Raise InputError if the folder has results of another verification."""
        earlier = read_object(self._folder / CLUSTER_VERIFICATION.mark)
        other = [name for name in _SETTINGS if _setting(earlier or {}, name) != _setting(self._facts, name)]
        if earlier is not None and other:
            raise InputError(
                f"{self._folder}: its results are of another {other[0]}; choose another -o, or delete it"
            )

    def begin(self, indices: Sequence[int]) -> None:
        """Write the description of the verification, without results."""
        with as_input_error(self._folder / LAYERS):
            make_folder(self._folder, LAYERS)
        every = range(len(self._network.stages))
        files = [self.result(index) for index in every if index in indices or self.result(index).exists()]
        names = [CLUSTER_VERIFICATION.mark, REPORT_FILE]
        names += [file.relative_to(self._folder).as_posix() for file in files]
        Manifest(CLUSTER_VERIFICATION.mark, tuple(names)).write(self._folder)
        self._write_mark({"layers": []})

    def _write_mark(self, results: Json) -> Json:
        document = {**self._facts, **results}
        text = json.dumps(document, indent=2, ensure_ascii=False)
        write_file(self._folder / CLUSTER_VERIFICATION.mark, text + "\n")
        return document

    def carry_out(self, indices: Sequence[int], batch: Batch) -> None:
        """Record a batch's streams of all layers, and check the layers ``indices`` on the workers."""
        with StatusLine() as status, self._scratch("streams") as streams, self._scratch("dask") as dask:
            status.show("golden model")
            job = Job.of(self._options.frames, self._options.frames, RATE, MOMENTUM)
            record_streams(streams, self._network, batch.states, batch.images, batch.labels, job)
            tasks = [self._task(index, streams, job) for index in self._order(indices)]
            status.show("starting workers")
            with connected_client(self._options, self._folder, {}, dask) as (client, _):
                _submit(client, tasks, status)

    @contextlib.contextmanager
    def _scratch(self, name: str) -> Iterator[Path]:
        """Yield a temporary folder, in the folder that all workers have access to."""
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"{scratch_prefix()}{name}-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def batch(self) -> Batch:
        """Return the given or drawn batch. Raises InputError for data that do not fit the network."""
        options, network = self._options, self._network
        states: Sequence[State] = (
            load_checkpoint(options.init, network).states
            if options.init
            else initial_state(network, options.seed)
        )
        if options.data is not None:
            train = images_of(options.data, network).train
            if len(train) < options.frames:
                raise InputError(f"--frames {options.frames}: {options.data} has {len(train):,} images")
            return Batch(states, train.images[: options.frames], train.digits[: options.frames])
        shape, labels = (network.stages[index].layer.output for index in (network.images, network.labels))
        rng = np.random.default_rng(options.seed)
        images = rng.standard_normal((options.frames, shape.h, shape.w, shape.c)).astype(np.float32)
        return Batch(states, images, rng.integers(0, labels.words, options.frames))

    def _order(self, indices: Sequence[int]) -> list[int]:
        """Return layers in the order of their tasks: the largest first, equal ones after the first of them.

        Equal layers share a simulator. If they were checked at once, one worker would wait for the other's
        build.
        """
        stages, seen = self._network.stages, set()
        firsts: list[int] = []
        others: list[int] = []
        for index in sorted(indices, key=lambda index: -self._build.planned.cycles[index]):
            key = (stages[index].layer, stages[index].parallelism, stages[index].storage)
            (others if key in seen else firsts).append(index)
            seen.add(key)
        return [*firsts, *others]

    def _task(self, index: int, streams: Path, job: Job) -> LayerTask:
        (seed,) = np.random.SeedSequence([self._options.seed, index]).generate_state(1)
        return LayerTask(
            stage=self._network.stages[index],
            index=index,
            streams=str(streams),
            result=str(self.result(index)),
            eta=float(job.last_eta),
            momentum=float(job.momentum),
            seed=int(seed),
            arithmetic=self._build.arithmetic,
            sources=self._facts["fanin"]["sources_sha256"],
        )

    def write_results(self) -> Json:
        """Write the results of all checked layers and the page. Return the content of the mark."""
        devices = self._build.planned.placement.devices
        layers = []
        for index, device in enumerate(devices):
            if (path := self.result(index)).exists():
                layer = open_record(path).value
                deviation = abs(layer["cycles"] - layer["planned_cycles"]) / layer["planned_cycles"]
                layers.append(layer | {"device": device, "as_planned": deviation <= TOLERANCE})
        totals = {
            "words": sum(layer["words"] for layer in layers),
            "seconds": sum(layer["build_seconds"] + layer["seconds"] for layer in layers),
            "differing": sum(layer["difference"] is not None for layer in layers),
        }
        document = self._write_mark(totals | {"layers": layers})
        write_file(self._folder / REPORT_FILE, verification_page(document))
        return document


def _setting(facts: Json, name: str) -> Any:
    """Return a field that all results depend on; of fanin the digest of its sources."""
    value = facts.get(name)
    return value.get("sources_sha256") if name == "fanin" and isinstance(value, dict) else value


def _submit(client: Client, tasks: Sequence[LayerTask], status: StatusLine) -> None:
    """Have all tasks carried out. Raises ToolFailed if the cluster fails, and the errors of the tasks."""
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except TimeoutError:
        raise ToolFailed(f"no worker for {_WORKER_SECONDS:g} s; {_HINT}") from None
    futures = {client.submit(carry_out, task, key=task.result, pure=False): task for task in tasks}
    for done, future in enumerate(as_completed(list(futures)), start=1):
        try:
            future.result()
        except (InputError, ToolFailed):
            raise
        except KilledWorker:
            raise ToolFailed(f"{futures[future].stage.name}: its workers died; {_HINT}") from None
        except Exception as error:  # such as a lost scheduler, or a worker without fanin
            raise ToolFailed(f"{futures[future].stage.name}: {' '.join(str(error).split())}; {_HINT}") from None
        status.show(f"{done:,} of {len(tasks):,} layers")


_HINT = "checked layers are kept; the same command checks the others"
